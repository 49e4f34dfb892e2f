/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the nodes in ExcNodeList are ours is in the job's comment: nothing else follows a job
 * from attempt to attempt. */
#include "config.h"

#include "slurm/leave_out.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/hostlist.h"
#include "slurm/slurm_compat.h"

#define NOTE_START "muster: left out "
#define NOTE_AFTER " after attempt "
#define OTHERS "muster: " /* how our other notes begin */
#define TRIES 8           /* other nodes write at the same moment; the job may not wait yet */
#define TRY_SECONDS 0.3
#define NAME_SIZE 256

/* ---- lists ---- */

static char *append(char *list, const char *name)
{
	char *longer = NULL;
	if (asprintf(&longer, "%s%s%s", list, list[0] ? "," : "", name) < 0)
		longer = NULL;
	free(list);
	return longer;
}

/* Adds the names of `from` that are not in `without`, nor there yet; frees `list` on error. */
static char *append_all(char *list, const char *from, const char *without)
{
	char name[NAME_SIZE];
	for (long i = 0; list && from && from[0] && hostlist_nth(from, i, name, sizeof name) == 0; i++)
		if ((!without || hostlist_find(without, name) < 0)
			&& (!list[0] || hostlist_find(list, name) < 0))
			list = append(list, name);
	return list;
}

char *leave_out_join(const char *list, const char *without, const char *with)
{
	return append_all(append_all(strdup(""), list, without), with, NULL);
}

static int count(const char *list)
{
	char name[NAME_SIZE];
	int n = 0;
	while (list[0] && hostlist_nth(list, n, name, sizeof name) == 0)
		n++;
	return n;
}

/* ---- the note ---- */

bool leave_out_noted(const char *comment, char *nodes, size_t size, int *attempt)
{
	const char *note = strstr(comment, NOTE_START);
	const char *after = note ? strstr(note, NOTE_AFTER) : NULL;
	nodes[0] = '\0';
	*attempt = -1;
	if (!after || sscanf(after, NOTE_AFTER "%d", attempt) != 1)
		return false;
	note += strlen(NOTE_START);
	if ((size_t)(after - note) >= size || memchr(note, ' ', (size_t)(after - note)))
		return false;
	snprintf(nodes, size, "%.*s", (int)(after - note), note);
	return true;
}

/* Our note comes before the others, one of which goes on to the comment's end. */
char *leave_out_note(const char *comment, const char *nodes, int attempt)
{
	char *noted;
	const char *old = strstr(comment, NOTE_START),
			   *rest = strstr(old ? old + strlen(NOTE_START) : comment, OTHERS);
	int kept = (int)((old ? old : rest ? rest : comment + strlen(comment)) - comment);
	while (kept > 0 && strchr(" ;", comment[kept - 1]))
		kept--;
	char own[600] = "";
	if (nodes[0])
		snprintf(own, sizeof own, NOTE_START "%s" NOTE_AFTER "%d", nodes, attempt);
	bool both = kept > 0 && (own[0] || rest);
	int n = asprintf(&noted, "%.*s%s%s%s%s", kept, comment, both ? "; " : "", own,
		own[0] && rest ? "; " : "", rest ? rest : "");
	return n < 0 ? NULL : noted;
}

/* ---- the job ---- */

struct waiting {
	bool waits;
	int attempt, nodes;
	char *comment, *excluded, *required, *partition;
};

static void clear(struct waiting *job)
{
	free(job->comment);
	free(job->excluded);
	free(job->required);
	free(job->partition);
}

static char *copy(const char *text)
{
	return strdup(text ? text : "");
}

static int controller_error(const char *verb, uint32_t id, struct err *err)
{
	int error = errno;
	return err_fail(err, slurm_compat_may_pass(error) ? EXIT_LOST : EXIT_FAULT,
		"requeue: couldn't %s job %u: %s", verb, id, slurm_strerror(error));
}

static int load(uint32_t id, struct waiting *job, struct err *err)
{
	job_info_msg_t *message = NULL;
	*job = (struct waiting) { .waits = false };
	if (slurm_load_job(&message, slurm_compat_job(id, 0), SHOW_DETAIL) != SLURM_SUCCESS)
		return controller_error("look up", id, err);
	for (uint32_t i = 0; i < message->record_count && !job->comment; i++) {
		const slurm_job_info_t *info = &message->job_array[i];
		if (info->job_id != id)
			continue;
		*job = (struct waiting) { .waits = (info->job_state & JOB_STATE_BASE) == JOB_PENDING,
			.attempt = (int)info->restart_cnt,
			.nodes = (int)info->num_nodes,
			.comment = copy(info->comment),
			.excluded = copy(info->exc_nodes),
			.required = copy(info->req_nodes),
			.partition = copy(info->partition) };
	}
	slurm_free_job_info_msg(message);
	if (job->comment && job->excluded && job->required && job->partition)
		return 0;
	clear(job);
	return err_set(err, "requeue: couldn't look up job %u: the controller does not know it", id);
}

/* Nodes of the job's partition, or the largest of several; -1 where Slurm does not say. */
static int nodes_of(const struct waiting *job)
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

/* Whether the job could start without the nodes of `list`; the reason if not. */
static bool can_do_without(const struct waiting *job, const char *list, const char *node, char *why,
	size_t size)
{
	int nodes = nodes_of(job);
	if (job->required[0] && hostlist_find(job->required, node) >= 0)
		snprintf(why, size, "the job asks for it by --nodelist");
	else if (nodes >= 0 && nodes - count(list) < job->nodes)
		snprintf(why, size, "partition %.100s has no other %d nodes", job->partition, job->nodes);
	else
		return true;
	return false;
}

/* Writes both at once. Returns 0 if the job is not waiting (yet). */
static int write_both(uint32_t id, const char *list, const char *comment, struct err *err)
{
	job_desc_msg_t change;
	slurm_init_job_desc_msg(&change);
	slurm_compat_describe(&change, id);
	change.exc_nodes = (char *)list;
	change.comment = (char *)comment;
	if (slurm_update_job(&change) == SLURM_SUCCESS)
		return 1;
	return errno == ESLURM_JOB_NOT_PENDING ? 0 : controller_error("leave nodes out for", id, err);
}

/* What the list and our note are to be. */
struct wanted {
	char *list, *ours, *comment;
};

static void clear_wanted(struct wanted *wanted)
{
	free(wanted->list);
	free(wanted->ours);
	free(wanted->comment);
}

static int want(const struct waiting *job, int attempt, const char *node, struct wanted *wanted,
	struct err *err)
{
	char noted[500];
	int when;
	leave_out_noted(job->comment, noted, sizeof noted, &when);
	bool now = when == attempt;
	*wanted = (struct wanted) { .ours = leave_out_join(now ? noted : "", NULL, node),
		.list = leave_out_join(job->excluded, now ? NULL : noted, node) };
	if (wanted->ours)
		wanted->comment = leave_out_note(job->comment, wanted->ours, attempt);
	if (wanted->list && wanted->comment)
		return 0;
	clear_wanted(wanted);
	return err_set(err, "requeue: out of memory");
}

/* One try. Returns 1 once Slurm has what is wanted, 0 to look again. *node: NULL where the job
 * can't do without it. */
static int try_once(uint32_t id, int attempt, const char **node, char *why, size_t size,
	struct err *err)
{
	struct waiting job;
	struct wanted wanted;
	if (load(id, &job, err) < 0)
		return -1;
	int rc = *node ? 0 : 1; /* without a node of this attempt there is nothing to wait for */
	if (job.waits && job.attempt == attempt + 1) {
		char *with = leave_out_join(job.excluded, NULL, *node);
		if (*node && with && !can_do_without(&job, with, *node, why, size))
			*node = NULL;
		free(with);
		if ((rc = want(&job, attempt, *node, &wanted, err)) == 0) {
			bool same = strcmp(wanted.comment, job.comment) == 0;
			rc = same ? 1 : write_both(id, wanted.list, wanted.comment, err);
			rc = same || rc < 0 ? rc : 0; /* looks whether it stays */
			clear_wanted(&wanted);
		}
	}
	clear(&job);
	return rc;
}

int leave_out(uint32_t id, int attempt, const char *node, char *why, size_t size, struct err *err)
{
	snprintf(why, size, "the job does not wait");
	for (int i = 0; i < TRIES; i++) {
		int rc = try_once(id, attempt, &node, why, size, err);
		if (rc != 0)
			return rc < 0 ? -1 : node != NULL;
		deadline_sleep(deadline_in(1), TRY_SECONDS);
	}
	return 0;
}
