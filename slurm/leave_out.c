/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the nodes in ExcNodeList are ours is in the job's comment: nothing else follows a job
 * from attempt to attempt. */
#include "config.h"

#include "slurm/leave_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/hostlist.h"
#include "slurm/requeue.h"

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

/* Whether the job could start without the nodes of `list`; the reason if not. */
static bool can_do_without(const struct requeue_job *job, const char *list, const char *node,
	char *why, size_t size)
{
	int nodes = requeue_nodes_there(job);
	if (job->required[0] && hostlist_find(job->required, node) >= 0)
		snprintf(why, size, "the job asks for it by --nodelist");
	else if (nodes >= 0 && nodes - count(list) < job->nodes)
		snprintf(why, size, "partition %.100s has no other %d nodes", job->partition, job->nodes);
	else
		return true;
	return false;
}

/* Leaves `node` out (NULL: none), and lets in what an earlier attempt had left out. Returns 1 if
 * Slurm has that already, 0 to look again. */
static int set_nodes(const struct requeue_job *job, int attempt, const char *node, struct err *err)
{
	char noted[500];
	int when;
	leave_out_noted(job->comment, noted, sizeof noted, &when);
	bool now = when == attempt;
	char *ours = leave_out_join(now ? noted : "", NULL, node),
		 *list = leave_out_join(job->excluded, now ? NULL : noted, node),
		 *comment = ours ? leave_out_note(job->comment, ours, attempt) : NULL;
	int rc = 1;
	if (!list || !comment)
		rc = err_set(err, "requeue: out of memory");
	else if (strcmp(comment, job->comment) != 0)
		rc = requeue_exclude(job, list, comment, err) < 0 ? -1 : 0;
	free(ours);
	free(list);
	free(comment);
	return rc;
}

/* One try. Returns 1 once Slurm has what is wanted, 0 to look again. *node: NULL where the job
 * can't do without it. */
static int try_once(uint32_t id, int attempt, const char **node, char *why, size_t size,
	struct err *err)
{
	struct requeue_job job;
	if (requeue_load(id, &job, err) < 0)
		return -1;
	int rc = *node ? 0 : 1; /* without a node of this attempt there is nothing to wait for */
	if (job.state == REQUEUE_WAITING && job.attempt == attempt + 1) {
		char *with = leave_out_join(job.excluded, NULL, *node);
		if (*node && with && !can_do_without(&job, with, *node, why, size))
			*node = NULL;
		free(with);
		rc = set_nodes(&job, attempt, *node, err);
	}
	requeue_clear(&job);
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
