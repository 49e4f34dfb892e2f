/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a job, decides whether it is put back, and puts it back: the calls of libslurm for
 * requeues. */
#include "config.h"
#include "slurm/requeue.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hostlist.h"
#include "slurm/slurm_compat.h"

/* As Slurm words a hold after a start that a node has refused, and that node's drain. */
#define HELD_REFUSED "launch failed requeued held"
#define NODE_REFUSED "Duplicate jobid"
#define NOTE_START "muster: attempt "
#define NOTE_FORMAT NOTE_START "%d step %u ended for good at %.6f: "
#define COUNT_START "muster: attempts in vain: "
#define COUNT_FORMAT COUNT_START "%d up to %d"
#define CLOCKS_DIFFER 0.1 /* seconds, at most */
#define SEEN_LATE 1.0     /* seconds, at most, from a peer's loss until its own node notices */

bool requeue_noted(const char *comment, const struct requeue_end *end)
{
	int attempt;
	unsigned step;
	double when;
	const char *note = strstr(comment, NOTE_START);
	return note
		&& sscanf(note, NOTE_START "%d step %u ended for good at %lf", &attempt, &step, &when) == 3
		&& attempt == end->attempt && (end->step == REQUEUE_ANY_STEP || (long)step == end->step)
		&& when <= end->when + (end->lost ? SEEN_LATE : CLOCKS_DIFFER);
}

/* The length of the comment before `part`, without the separator between them; of all of it if
 * `part` is NULL. */
static int length_before(const char *comment, const char *part)
{
	int kept = part ? (int)(part - comment) : (int)strlen(comment);
	while (kept > 0 && (comment[kept - 1] == ' ' || comment[kept - 1] == ';'))
		kept--;
	return kept;
}

char *requeue_note(const char *comment, const struct requeue_end *end, const char *why)
{
	char *noted;
	int kept = length_before(comment, strstr(comment, NOTE_START));
	int n = asprintf(&noted, "%.*s%s" NOTE_FORMAT "%s", kept, comment, kept ? "; " : "",
		end->attempt, (unsigned)end->step, end->when, why);
	return n < 0 ? NULL : noted;
}

static bool read_count(const char *comment, int *vain, int *attempt)
{
	const char *count = strstr(comment, COUNT_START);
	return count && sscanf(count, COUNT_FORMAT, vain, attempt) == 2 && *vain >= 0;
}

bool requeue_is_counted(const char *comment, int attempt)
{
	int vain, last;
	return read_count(comment, &vain, &last) && last == attempt;
}

int requeue_vain(const char *comment, int attempt)
{
	int vain, last;
	if (!read_count(comment, &vain, &last))
		return 1;
	if (last == attempt)
		return vain;
	/* The breaker ended the job at that attempt: if it is back anyway, somebody decided that, so
	 * the count starts anew. */
	return last == attempt - 1 && vain < REQUEUE_VAIN_MOST ? vain + 1 : 1;
}

char *requeue_count(const char *comment, int vain, int attempt)
{
	char *counted;
	const char *note = strstr(comment, NOTE_START), *old = strstr(comment, COUNT_START);
	int kept = length_before(comment, old && (!note || old < note) ? old : note);
	int n = asprintf(&counted, "%.*s%s" COUNT_FORMAT "%s%s", kept, comment, kept ? "; " : "", vain,
		attempt, note ? "; " : "", note ? note : "");
	return n < 0 ? NULL : counted;
}

const char *requeue_notice(const struct requeue_job *job)
{
	if (job->state == REQUEUE_TIMEOUT)
		return "the job's time was over";
	if (job->state == REQUEUE_RUNNING && job->preempted)
		return "the job was being preempted";
	return job->state == REQUEUE_RUNNING && job->draining ? "its node was being drained" : NULL;
}

enum requeue_action requeue_decide(const struct requeue_job *job, const struct requeue_end *end,
	char *reason, size_t size)
{
	if (job->attempt != end->attempt)
		snprintf(reason, size, "it is at attempt %d, not %d", job->attempt, end->attempt);
	else if (job->state == REQUEUE_CANCELLED)
		snprintf(reason, size, "it was cancelled");
	else if (job->state == REQUEUE_WAITING)
		snprintf(reason, size, "it is in the queue");
	else if (job->state == REQUEUE_ENDED || (job->state == REQUEUE_FAILED && !end->asked))
		snprintf(reason, size, "it has ended");
	else if (!requeue_notice(job) && requeue_noted(job->comment, end))
		snprintf(reason, size, "%s", strstr(job->comment, NOTE_START) + strlen("muster: "));
	else if (!job->batch || !job->requeueable) {
		snprintf(reason, size, "%s",
			job->batch ? "it was submitted with --no-requeue, or the cluster's default is that: "
						 "sbatch --requeue"
					   : "only a job of sbatch can be put back");
		return REQUEUE_REFUSED;
	} else if (job->state == REQUEUE_RUNNING)
		return REQUEUE_SUBMIT;
	else
		return job->completing ? REQUEUE_LATER : REQUEUE_REVIVE;
	return REQUEUE_NOTHING;
}

bool requeue_deserted(const char *nodes, long count, const char *batch_host)
{
	char node[256];
	if (!nodes || !batch_host || !batch_host[0] || count <= 0)
		return false;
	for (long i = 0; i < count; i++)
		if (hostlist_nth(nodes, i, node, sizeof node) < 0 || strcmp(node, batch_host) == 0)
			return false;
	return true;
}

bool requeue_attempt_runs(const struct requeue_job *job, int attempt)
{
	/* A requeue raises the attempt at once, while the nodes of the attempt before are still being
	 * cleaned up. */
	if (job->completing && job->attempt == attempt + 1)
		return true;
	return job->attempt == attempt && (job->completing || job->state == REQUEUE_RUNNING);
}

void requeue_init(void)
{
	slurm_init(NULL);
}

static int controller_error(const char *verb, uint32_t id, struct err *err)
{
	int error = errno;
	return err_fail(err, slurm_compat_may_pass(error) ? EXIT_LOST : EXIT_FAULT,
		"requeue: couldn't %s job %u: %s", verb, id, slurm_strerror(error));
}

static enum requeue_state state_of(uint32_t job_state)
{
	/* Until its last node has been cleaned up, a requeued job shows its old base state with one of
	 * these flags. */
	if (job_state & (JOB_REQUEUE | JOB_REQUEUE_HOLD | JOB_SPECIAL_EXIT))
		return REQUEUE_WAITING;
	switch (job_state & JOB_STATE_BASE) {
	case JOB_PENDING: return REQUEUE_WAITING;
	case JOB_RUNNING:
	case JOB_SUSPENDED: return REQUEUE_RUNNING;
	case JOB_CANCELLED: return REQUEUE_CANCELLED;
	case JOB_TIMEOUT: return REQUEUE_TIMEOUT;
	case JOB_FAILED: return REQUEUE_FAILED;
	default: return REQUEUE_ENDED;
	}
}

static char *copy(const char *text)
{
	return strdup(text ? text : "");
}

static void read_job(const slurm_job_info_t *info, struct requeue_job *job)
{
	*job = (struct requeue_job) {
		.id = info->job_id,
		.attempt = (int)info->restart_cnt,
		.run = slurm_compat_run(info),
		.state = state_of(info->job_state),
		.batch = info->batch_flag != 0,
		.requeueable = info->requeue != 0,
		.completing = (info->job_state & JOB_COMPLETING) != 0,
		.preempted = info->preempt_time != 0,
		.held = info->state_reason == WAIT_HELD_USER && info->state_desc
			&& strcmp(info->state_desc, HELD_REFUSED) == 0,
		.deserted = info->batch_flag
			&& requeue_deserted(info->nodes, (long)info->num_nodes, info->batch_host),
		.ends = (double)info->end_time,
		.began = (double)info->start_time,
		.submitted = (double)info->submit_time,
		.nodes = (int)info->num_nodes,
		.comment = copy(info->comment),
		.excluded = copy(info->exc_nodes),
		.required = copy(info->req_nodes),
		.partition = copy(info->partition),
	};
}

void requeue_clear(struct requeue_job *job)
{
	free(job->comment);
	free(job->excluded);
	free(job->required);
	free(job->partition);
	job->comment = job->excluded = job->required = job->partition = NULL;
}

/* As requeue_find. *leader is the ID of the het job's leader; 0 if `id` is the leader or not part
 * of a het job. */
static int find_one(uint32_t id, struct requeue_job *job, uint32_t *leader, struct err *err)
{
	job_info_msg_t *message = NULL;
	int found = 0;
	*leader = 0;
	if (slurm_load_job(&message, slurm_compat_job(id, 0), SHOW_DETAIL) != SLURM_SUCCESS)
		return errno == ESLURM_INVALID_JOB_ID ? 0 : controller_error("look up", id, err);
	for (uint32_t i = 0; i < message->record_count && !found; i++) {
		const slurm_job_info_t *info = &message->job_array[i];
		if (info->job_id != id)
			continue;
		read_job(info, job);
		*leader = info->het_job_id != id ? info->het_job_id : 0;
		found = 1;
		if (!job->comment || !job->excluded || !job->required || !job->partition) {
			requeue_clear(job);
			found = err_set(err, "requeue: out of memory");
		}
	}
	slurm_free_job_info_msg(message);
	return found;
}

int requeue_find(uint32_t id, struct requeue_job *job, struct err *err)
{
	uint32_t leader;
	return find_one(id, job, &leader, err);
}

int requeue_load(uint32_t id, struct requeue_job *job, struct err *err)
{
	uint32_t leader;
	int found = find_one(id, job, &leader, err);
	/* Only the leader of a heterogeneous job can be requeued; its components follow. */
	if (found > 0 && leader) {
		requeue_clear(job);
		found = find_one(leader, job, &leader, err);
	}
	if (found == 0)
		return err_set(err, "requeue: couldn't look up job %u: the controller does not know it",
			id);
	return found < 0 ? -1 : 0;
}

int requeue_look_at_node(struct requeue_job *job, const char *node, struct err *err)
{
	node_info_msg_t *message = NULL;
	if (slurm_load_node_single(&message, (char *)node, SHOW_ALL) != SLURM_SUCCESS)
		return controller_error("look up the node of", job->id, err);
	for (uint32_t i = 0; i < message->record_count; i++) {
		const node_info_t *info = &message->node_array[i];
		job->draining |= (info->node_state & (NODE_STATE_DRAIN | NODE_STATE_FAIL)) != 0;
		job->refused |= info->reason && strcmp(info->reason, NODE_REFUSED) == 0;
	}
	slurm_free_node_info_msg(message);
	return 0;
}

int requeue_release(const struct requeue_job *job, struct err *err)
{
	job_desc_msg_t change;
	slurm_init_job_desc_msg(&change);
	slurm_compat_describe(&change, job->id);
	change.priority = INFINITE;
	return slurm_update_job(&change) == SLURM_SUCCESS ? 0
													  : controller_error("release", job->id, err);
}

int requeue_submit(const struct requeue_job *job, enum requeue_action action, struct err *err)
{
	/* Without this flag the call also revives a cancelled or finished job. With it, the call
	 * reports success and leaves a job in TIMEOUT alone. */
	uint32_t flags = action == REQUEUE_REVIVE ? 0 : JOB_RUNNING;
	if (slurm_requeue(slurm_compat_job(job->id, job->run), flags) == SLURM_SUCCESS)
		return 0;
	/* That attempt is over: loading the job again shows what became of it. */
	if (job->run && errno == ESLURM_INVALID_JOB_ID)
		return err_fail(err, EXIT_LOST, "requeue: job %u is at another attempt by now", job->id);
	return controller_error("requeue", job->id, err);
}

static int change_job(const struct requeue_job *job, const char *nodes, const char *comment)
{
	job_desc_msg_t change;
	slurm_init_job_desc_msg(&change);
	slurm_compat_describe(&change, job->id);
	if (nodes)
		change.exc_nodes = (char *)nodes;
	change.comment = (char *)comment;
	return slurm_update_job(&change);
}

int requeue_set_comment(const struct requeue_job *job, const char *comment, struct err *err)
{
	if (change_job(job, NULL, comment) == SLURM_SUCCESS)
		return 0;
	return controller_error("write the comment of", job->id, err);
}

int requeue_exclude(const struct requeue_job *job, const char *nodes, const char *comment,
	struct err *err)
{
	if (change_job(job, nodes, comment) == SLURM_SUCCESS)
		return 1;
	if (errno == ESLURM_JOB_NOT_PENDING)
		return 0;
	return controller_error("leave nodes out for", job->id, err);
}

int requeue_nodes_there(const struct requeue_job *job)
{
	partition_info_msg_t *message = NULL;
	char list[600];
	int most = -1;
	snprintf(list, sizeof list, ",%s,", job->partition);
	if (slurm_load_partitions(0, &message, SHOW_ALL) != SLURM_SUCCESS)
		return -1;
	for (uint32_t i = 0; i < message->record_count; i++) {
		char name[300];
		snprintf(name, sizeof name, ",%s,", message->partition_array[i].name);
		if (strstr(list, name) && (int)message->partition_array[i].total_nodes > most)
			most = (int)message->partition_array[i].total_nodes;
	}
	slurm_free_partition_info_msg(message);
	return most;
}
