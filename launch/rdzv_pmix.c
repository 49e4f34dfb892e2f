/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous through the PMIx server of the launcher (Slurm's mpi/pmix, prterun).
 *
 * In Slurm (22.05 to 26.05) a fence can hang for ever. Its data goes round a ring of the nodes, and a slurmstepd hands on
 * what comes also while it still forks its own tasks, for which it has dropped its privileges: then it can't decode the
 * credential of the node it hands it to, rejects the connection that it has asked for, and all that is to go there stays
 * where it is. (Its other way, SLURM_PMIX_FENCE=tree, waits for nobody: seen in 22.05.) To ask a rank for what it has
 * published is safe: of two nodes the one that asked decodes, and its tasks run; a rank on another node answers once it has
 * published. So in a small world the first fence is made of such questions. In a large one, where they would be too many, it
 * comes no earlier than a moment after this process was started: by then the tasks of the other nodes are started, too. And
 * any fence is over when every rank has published its key for it; PMIx's own fence is only the fast way to learn that: when
 * it takes long, the ranks are asked.
 *
 * While Slurm's server of a node looks for a node that does not answer, it gives no answers for the others either. Who is
 * missing is therefore also asked among the ranks themselves (launch/roll_call.h). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/log.h"
#include "common/process.h"
#include "launch/pmix_client.h"
#include "launch/rdzv_provider.h"
#include "launch/roll_call.h"

#define ROLL_SECONDS 1.0     /* with PMIx's own fence, before the ranks call the roll */
#define PATIENCE_SECONDS 5.0 /* with PMIx's own fence, before the ranks are asked one by one */
#define INQUEST_SECONDS 5.0  /* for their answers */
#define LONGEST_PAUSE 16.0   /* between two rounds of asking */
#define RETRY_SECONDS 0.1
#define LOCAL_RETRY_SECONDS 0.002 /* at first */
#define SETTLE_SECONDS 0.3   /* from the start of this process to its first fence, in a large world under Slurm */
#define SMALL_WORLD 64       /* ranks; each asks all others */
#define SMALL_WORLD_NODES 8  /* the first question to another node takes up to 40 ms, one after the other */
#define PUT_KEY "muster.%s"
#define FENCE_KEY "muster-fence.%d"
#define NODE_SIZE 256

struct pmix {
	int world_size, attempt, fences;
	bool ask_first;        /* the first fence is made of questions */
	struct deadline until; /* of the fence that this rank stands in */
	bool roll_tried;
	struct roll_call *roll; /* NULL: none was needed yet, or none can be had */
};

/* Where a rank runs, from the map that the server gave us at start. */
static void node_of(int rank, char *node, size_t size)
{
	node[0] = '\0';
	struct answer *answer = pmix_client_ask((pmix_rank_t)rank, PMIX_HOSTNAME, false, NULL);
	if (!answer)
		return;
	if (answer_wait(answer, deadline_in(1)) == PMIX_SUCCESS && answer->bytes)
		snprintf(node, size, "%s", answer->bytes);
	answer_drop(answer);
}

/* For the next fence to publish. */
static int put(const char *key, const void *value, size_t size, struct err *err)
{
	pmix_value_t packed;
	/* One byte more than the value, since an empty byte object is not a value to PMIx. */
	char *bytes = pmix_client_copy(value, size);
	if (!bytes)
		return err_set(err, "rendezvous: no memory for %zu bytes", size);
	PMIX_VALUE_CONSTRUCT(&packed);
	packed.type = PMIX_BYTE_OBJECT;
	packed.data.bo.bytes = bytes;
	packed.data.bo.size = size + 1;
	pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &packed);
	PMIX_VALUE_DESTRUCT(&packed);
	if (status != PMIX_SUCCESS)
		return err_fail(err, EXIT_LOST, "rendezvous: couldn't put %s: %s", key, PMIx_Error_string(status));
	return 0;
}

/* All that was put, and with it that this rank has come to a fence. */
static int publish(const char *fence, double timeout, struct err *err)
{
	if (put(fence, "", 0, err) < 0)
		return -1;
	pmix_status_t status = pmix_client_commit(timeout);
	if (status == PMIX_ERR_TIMEOUT) {
		pmix_client.lost = true;
		return err_fail(err, EXIT_LOST, "rendezvous: couldn't put %s: the PMIx server of this node gave no answer "
			"within %g s: its slurmstepd, or mpirun's daemon, hangs", fence, timeout);
	}
	if (status != PMIX_SUCCESS)
		return err_fail(err, EXIT_LOST, "rendezvous: couldn't put %s: %s", fence, PMIx_Error_string(status));
	return 0;
}

/* Asks all ranks not yet in `seen` at once whether they have come to a fence. Returns whether all have. `again`: they may
 * have published something before. */
static bool all_came(const struct pmix *pmix, const char *key, bool *seen, bool again, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	bool all = true;
	struct answer **answers = calloc((size_t)pmix->world_size, sizeof *answers);
	if (!answers)
		return false;
	for (int rank = 0; rank < pmix->world_size; rank++)
		if (!seen[rank])
			answers[rank] = pmix_client_ask((pmix_rank_t)rank, key, again, NULL);
	for (int rank = 0; rank < pmix->world_size; rank++) {
		if (answers[rank]) {
			seen[rank] = answer_wait(answers[rank], deadline) == PMIX_SUCCESS;
			answer_drop(answers[rank]);
		}
		all = all && seen[rank];
	}
	free(answers);
	return all;
}

/* ---- the roll call ---- */

/* The names of all ranks' nodes, as one piece of memory that is the caller's; NULL where the server has not told them. */
static const char **all_nodes(int world_size)
{
	size_t size = (size_t)world_size * (sizeof(char *) + NODE_SIZE);
	const char **nodes = malloc(size);
	if (!nodes)
		return NULL;
	char *text = (char *)(nodes + world_size);
	for (int rank = 0; rank < world_size; rank++, text += NODE_SIZE) {
		nodes[rank] = text;
		node_of(rank, text, NODE_SIZE);
		if (!text[0]) {
			free(nodes);
			return NULL;
		}
	}
	return nodes;
}

/* Tells the others, from now on, that this rank has come to a fence. Where that can't be done PMIx alone is asked. */
static void call_roll(struct pmix *pmix, int fence)
{
	struct err err;
	char run[PMIX_MAX_NSLEN + 40];
	if (!pmix->roll_tried) {
		AUTO_FREE const char **nodes = pmix->world_size <= ROLL_CALL_WORLD_MAX ? all_nodes(pmix->world_size) : NULL;
		snprintf(run, sizeof run, "%s %d %d", pmix_client.self.nspace, pmix->attempt, pmix->world_size);
		const struct roll_call_plan plan = { .rank = (int)pmix_client.self.rank, .world_size = pmix->world_size, .nodes = nodes,
			.run = run, .key = getenv(ROLL_CALL_KEY) };
		pmix->roll_tried = true;
		pmix->roll = nodes ? roll_call_begin(&plan, &err) : NULL;
		if (nodes && !pmix->roll)
			log_warn("%s", err.text);
	}
	roll_call_reach(pmix->roll, (uint32_t)fence);
}

static int missing_error(const struct pmix *pmix, int fence, bool *seen, double timeout, struct err *err)
{
	struct rank_list missing = { 0 };
	char node[NODE_SIZE];
	roll_call_mark(pmix->roll, (uint32_t)fence, seen);
	for (int rank = 0; rank < pmix->world_size; rank++) {
		if (seen[rank])
			continue;
		node_of(rank, node, sizeof node);
		rank_list_add(&missing, rank, node);
	}
	pmix_client.lost = true;
	return rank_list_error(&missing, pmix->world_size, timeout, err);
}

static void on_fence(pmix_status_t status, void *arg)
{
	answer_give(arg, status);
}

/* Starts PMIx's own fence. Where that is of no use, the answer never comes. */
static struct answer *start_fence(bool of_use, struct err *err)
{
	struct answer *answer = answer_create(err);
	if (!answer || !of_use)
		return answer;
	bool collect = true;
	PMIX_INFO_LOAD(&answer->info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	pmix_status_t status = PMIx_Fence_nb(NULL, 0, &answer->info, 1, on_fence, answer);
	if (status != PMIX_SUCCESS)
		answer_give(answer, status);
	return answer;
}

static double shorter(double a, double b)
{
	return a < b ? a : b;
}

/* Marks the ranks of this node, which the server lists as "2,3". */
static void mark_near(const struct pmix *pmix, bool *near)
{
	struct answer *answer = pmix_client_ask(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS, false, NULL);
	if (!answer)
		return;
	if (answer_wait(answer, deadline_in(PMIX_LOCAL_SECONDS)) == PMIX_SUCCESS && answer->bytes)
		for (char *at = answer->bytes; *at; at += *at == ',') {
			long rank = strtol(at, &at, 10);
			if (rank >= 0 && rank < pmix->world_size)
				near[rank] = true;
			if (*at && *at != ',')
				break;
		}
	answer_drop(answer);
}

/* Waits for the ranks of this node: of them PMIx says at once that they have yet to publish. */
static bool near_came(const struct pmix *pmix, const char *key, bool *seen, struct deadline deadline)
{
	AUTO_FREE bool *others = calloc((size_t)pmix->world_size, sizeof *others);
	if (!others)
		return false;
	mark_near(pmix, others);
	for (int rank = 0; rank < pmix->world_size; rank++)
		others[rank] = !others[rank] || seen[rank];
	double retry = LOCAL_RETRY_SECONDS;
	for (bool again = false; !all_came(pmix, key, others, again, deadline_left(deadline)); again = true) {
		if (!deadline_sleep(deadline, retry))
			return false;
		retry = shorter(retry * 2, RETRY_SECONDS);
	}
	return true;
}

/* The first fence of a small world. The node's own ranks come first: while the server of a node asks another one, they can't
 * publish. For a rank on another node PMIx waits. */
static bool came_soon(const struct pmix *pmix, const char *key, bool *seen, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	return near_came(pmix, key, seen, deadline) && all_came(pmix, key, seen, false, deadline_left(deadline));
}

/* Until PMIx's fence completes, or all ranks say that they have come: asked after a while, or at once (`ask_first`). */
static int wait_fence(struct pmix *pmix, int fence, bool ask_first, struct answer *answer, const char *key, double timeout,
	struct err *err)
{
	/* The last round of asking is part of the time, so that those who are missing are named within it. */
	double inquest = shorter(INQUEST_SECONDS, timeout / 5);
	struct deadline deadline = { pmix->until.at - inquest };
	/* All asking all is more than the servers of a large world can answer while it starts: it must rarely come to that. */
	double scale = 1 + pmix->world_size / SMALL_WORLD;
	double pause = pmix_client.fences_lost ? RETRY_SECONDS : shorter(scale * PATIENCE_SECONDS, timeout / 2);
	AUTO_FREE bool *seen = calloc((size_t)pmix->world_size, sizeof *seen);
	if (!seen)
		return err_set(err, "rendezvous: no memory for %d ranks", pmix->world_size);
	/* Not asked: the server of this node does not even answer for its own ranks while it looks for one whose node has none. */
	if (pmix_client.self.rank < (pmix_rank_t)pmix->world_size)
		seen[pmix_client.self.rank] = true;
	double soon = shorter(scale * ROLL_SECONDS, pause / 5);
	if (ask_first ? came_soon(pmix, key, seen, soon) : answer_wait(answer, deadline_in(soon)) == PMIX_SUCCESS)
		return 0;
	if (ask_first)
		pause = 0;
	call_roll(pmix, fence);
	for (;;) {
		if (answer_wait(answer, deadline_in(shorter(pause, deadline_left(deadline)))) == PMIX_SUCCESS)
			return 0;
		bool last = deadline_passed(deadline);
		/* Nobody is told by a stranger that all have come. */
		if (roll_call_is_keyed(pmix->roll))
			roll_call_mark(pmix->roll, (uint32_t)fence, seen);
		if (all_came(pmix, key, seen, true, last ? inquest : shorter(INQUEST_SECONDS, deadline_left(deadline)))) {
			pmix_client.fences_lost |= !ask_first;
			return 0;
		}
		if (last)
			return missing_error(pmix, fence, seen, timeout, err);
		/* A fence that has failed at once must not be asked about at once again and again. */
		deadline_sleep(deadline, RETRY_SECONDS);
		pause = shorter(pause * 2, LONGEST_PAUSE);
	}
}

static int pmix_fence(void *state, double timeout, struct err *err)
{
	struct pmix *pmix = state;
	char key[48];
	int fence = pmix->fences++;
	bool ask_first = pmix->ask_first && fence == 0;
	snprintf(key, sizeof key, FENCE_KEY, fence);
	pmix->until = deadline_in(timeout);
	if (publish(key, timeout, err) < 0)
		return -1;
	struct answer *answer = start_fence(!ask_first && !pmix_client.fences_lost, err);
	if (!answer)
		return -1;
	int rc = wait_fence(pmix, fence, ask_first, answer, key, timeout, err);
	answer_drop(answer);
	return rc;
}

/* Seconds since this process was started; 0 where that can't be told. */
static double process_age(void)
{
	struct timespec now;
	struct process self;
	if (!process_find(getpid(), &self) || clock_gettime(CLOCK_BOOTTIME, &now) < 0)
		return 0;
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - (double)self.start / (double)sysconf(_SC_CLK_TCK);
}

/* Meets nobody: that is for the first fence. */
static void *pmix_open(const struct ident *ident, double timeout, struct err *err)
{
	if (pmix_client_open(err) < 0)
		return NULL;
	bool can_hang = ident->node_count > 1 && strncmp(pmix_client.self.nspace, "slurm.", 6) == 0;
	bool small = ident->world_size <= SMALL_WORLD && ident->node_count <= SMALL_WORLD_NODES;
	if (can_hang && !small)
		deadline_sleep(deadline_in(timeout / 2), SETTLE_SECONDS - process_age());
	struct pmix *pmix = calloc(1, sizeof *pmix);
	if (!pmix) {
		err_set(err, "rendezvous: no memory");
		return NULL;
	}
	*pmix = (struct pmix){ .world_size = ident->world_size, .attempt = ident->attempt, .ask_first = can_hang && small };
	return pmix;
}

static int pmix_put(void *state, const char *key, const void *value, size_t size, struct err *err)
{
	char full[PMIX_MAX_KEYLEN + 1];
	snprintf(full, sizeof full, PUT_KEY, key);
	return put(full, value, size, err);
}

/* Takes the value out of an answer; false when it isn't one. */
static bool take_value(struct answer *answer, void **value, size_t *size)
{
	if (!answer->bytes || answer->size == 0)
		return false;
	*value = answer->bytes;
	*size = answer->size - 1;
	answer->bytes = NULL;
	return true;
}

/* The fence has brought all values here; where it has not, the rank itself is asked until the deadline. */
static int pmix_get(void *state, int rank, const char *key, void **value, size_t *size, double timeout, struct err *err)
{
	struct deadline deadline = deadline_in(timeout);
	char full[PMIX_MAX_KEYLEN + 1], node[NODE_SIZE];
	pmix_status_t status;
	bool found = false, refresh = false;
	snprintf(full, sizeof full, PUT_KEY, key);
	do {
		struct answer *answer = pmix_client_ask((pmix_rank_t)rank, full, refresh, err);
		if (!answer)
			return -1;
		status = answer_wait(answer, deadline);
		found = status == PMIX_SUCCESS && take_value(answer, value, size);
		answer_drop(answer);
		refresh = true;
	} while (!found && deadline_sleep(deadline, RETRY_SECONDS));
	if (found)
		return 0;
	node_of(rank, node, sizeof node);
	return err_fail(err, EXIT_LOST, "rendezvous: couldn't get %s of rank %d (on %s) within %g s: %s", key, rank,
		node[0] ? node : "an unknown node", timeout, PMIx_Error_string(status));
}

static void pmix_abort(void *state, int status, const char *why)
{
	pmix_client.lost = true;
	PMIx_Abort(status, why, NULL, 0);
}

static void pmix_close(void *state, int orderly)
{
	struct pmix *pmix = state;
	if (!orderly)
		pmix_client.lost = true;
	roll_call_end(pmix->roll);
	pmix_client_close();
	free(state);
}

const struct rdzv_provider rdzv_pmix = {
	.name = "pmix",
	.open = pmix_open,
	.put = pmix_put,
	.fence = pmix_fence,
	.get = pmix_get,
	.abort = pmix_abort,
	.close = pmix_close,
};
