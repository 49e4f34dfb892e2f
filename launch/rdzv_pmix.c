/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous through the launcher's PMIx server (Slurm's mpi/pmix, prterun).
 *
 * In Slurm (22.05 to 26.05) a fence can hang for ever. Its data goes round a ring of the nodes, and
 * a slurmstepd forwards what arrives even while it forks its own tasks, for which it drops its
 * privileges. It then can't decode the credential of the node that it forwards to, rejects the
 * connection that it asked for, and everything for that node stays queued. (The alternative,
 * SLURM_PMIX_FENCE=tree, waits for nobody: seen in 22.05.) Asking a rank for what it has published
 * is safe: the node that asks does the decoding, and its tasks already run; a rank on another node
 * answers once it has published. But the first question between two nodes often takes 44 ms.
 *
 * So in a small world only rank 0 is asked, and only for a key, with which the ranks exchange their
 * values themselves (launch/bootstrap.h). In a large world the first fence waits a moment after
 * this process started, by when the other nodes have started their tasks, too. Every fence is over
 * once every rank has published its key for it. The bootstrap and PMIx's own fence are only fast
 * ways to learn that; if they take long, the ranks are asked.
 *
 * PMIx sends all that a rank has ever put each time that it publishes. So after the first fence of
 * a small world the ranks publish only where the bootstrap takes long, or has failed: the values of
 * the last two fences, since a rank that has not seen the end of one is waited for at the next.
 *
 * While Slurm's server of a node looks for a node that does not answer, it answers for no other
 * either. So the ranks also ask each other which ranks are missing (launch/presence.h). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "common/log.h"
#include "common/process.h"
#include "launch/bootstrap.h"
#include "launch/bootstrap_message.h"
#include "launch/pmix_client.h"
#include "launch/rdzv_provider.h"
#include "launch/presence.h"
#include "launch/run_key.h"

#define ROLL_SECONDS 1.0     /* for a fence's fast way, before the ranks use presence */
#define LAZY_SECONDS 10.0    /* the same, while the bootstrap has completed every fence */
#define PATIENCE_SECONDS 5.0 /* for PMIx's own fence, before the ranks are asked one by one */
#define INQUEST_SECONDS 5.0  /* for their answers */
#define LONGEST_PAUSE 16.0   /* between two rounds of asking */
#define RETRY_SECONDS 0.1
#define LEAVING_SECONDS 10.0 /* for this node's server, to publish the last fence */
#define SEE_OFF_SECONDS 5.0  /* for ranks that still ask whether all have come to the last fence */
#define LEAVE_SECONDS 0.2    /* for ranks that still ask whether all are through */
#define LOCAL_RETRY_SECONDS 0.002 /* at first */
#define SETTLE_SECONDS \
	0.3 /* from the start of this process to its first fence, in a large world under Slurm */
#define SMALL_WORLD BOOTSTRAP_WORLD_MAX
#define PUT_KEY "muster.%s"
#define FENCE_KEY "muster-fence.%d"
#define FENCE_KEY_SIZE 48
#define THROUGH_KEY "muster-through"
#define BOOTSTRAP_KEY "muster-key" /* rank 0's, in digits (empty: no bootstrap) */

struct pmix {
	struct run_key run;
	int world_size, fences;
	struct deadline until; /* of the current fence */
	bool asked;            /* all ranks said, when asked, that they had come to the last fence */
	bool roll_tried;
	struct presence *roll;        /* NULL: not needed yet, or impossible */
	bool gathers, has_key;        /* a bootstrap in place of PMIx's own fences */
	struct bootstrap *bootstrap;  /* NULL: impossible */
	struct put_list puts, before; /* since the last fence, and before it: for the bootstrap */
	int published;                /* fences of which everything is published */
};

static int put_value(const char *key, const void *value, size_t size, struct err *err)
{
	char full[PMIX_MAX_KEYLEN + 1];
	snprintf(full, sizeof full, PUT_KEY, key);
	return pmix_client_put(full, value, size, err);
}

/* Puts the values of a list, and that this rank has come to the fence with them; `key` is the last
 * that it puts. */
static int put_fence(const struct put_list *list, int fence, char key[FENCE_KEY_SIZE],
	struct err *err)
{
	struct put_entry entry;
	char text[PUT_LIST_KEY_SIZE];
	for (size_t at = 0; put_list_next(list->bytes, list->size, &at, &entry);) {
		snprintf(text, sizeof text, "%.*s", (int)entry.length, entry.key);
		if (put_value(text, entry.value, entry.size, err) < 0)
			return -1;
	}
	snprintf(key, FENCE_KEY_SIZE, FENCE_KEY, fence);
	return pmix_client_put(key, "", 0, err);
}

/* Publishes all up to the fence to which this rank comes, or with `leaves` up to the last. */
static int publish(struct pmix *pmix, bool leaves, struct deadline deadline, double timeout,
	struct err *err)
{
	char key[FENCE_KEY_SIZE];
	const int fence = pmix->fences - 1;
	const struct put_list *last = leaves ? &pmix->before : &pmix->puts;
	if (!leaves && pmix->published < fence && put_fence(&pmix->before, fence - 1, key, err) < 0)
		return -1;
	if (put_fence(last, fence, key, err) < 0
		|| pmix_client_publish(key, deadline, timeout, err) < 0)
		return -1;
	pmix->published = fence + 1;
	return 0;
}

/* Asks all ranks not yet in `seen` at once whether they have come to a fence. Returns whether all
 * have. `again`: they may have published something before. */
static bool all_came(const struct pmix *pmix, const char *key, bool *seen, bool again,
	double seconds)
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

/* ---- presence ---- */

/* From now on tells other ranks that this rank has come to a fence. If that is impossible, only
 * PMIx is asked. */
static void call_roll(struct pmix *pmix, int fence)
{
	struct err err;
	if (!pmix->roll_tried) {
		AUTO_FREE char(*nodes)[RDZV_NODE_SIZE] =
			pmix->world_size <= PRESENCE_WORLD_MAX ? pmix_client_nodes(pmix->world_size) : NULL;
		const struct presence_plan plan = { .rank = (int)pmix_client.self.rank,
			.world_size = pmix->world_size,
			.nodes = nodes,
			.run = pmix->run };
		pmix->roll_tried = true;
		pmix->roll = nodes ? presence_begin(&plan, &err) : NULL;
		if (nodes && !pmix->roll)
			log_warn("%s", err.text);
	}
	presence_reach(pmix->roll, (uint32_t)fence);
}

static void node_of(const void *arg, int rank, char node[RDZV_NODE_SIZE])
{
	pmix_client_node(rank, node, RDZV_NODE_SIZE);
}

static void on_fence(pmix_status_t status, void *arg)
{
	answer_give(arg, status);
}

/* Starts PMIx's own fence. If an earlier one was lost, the answer never comes. */
static struct answer *start_fence(struct err *err)
{
	struct answer *answer = answer_create(err);
	if (!answer || pmix_client.fences_lost)
		return answer;
	pmix_library_flag(&answer->info, PMIX_COLLECT_DATA, true);
	pmix_status_t status = pmix_library.fence_nb(NULL, 0, &answer->info, 1, on_fence, answer);
	if (status != PMIX_SUCCESS)
		answer_give(answer, status);
	return answer;
}

/* ---- the bootstrap ---- */

/* Waits for the ranks of this node: PMIx answers at once if they have not published yet. */
static bool near_came(const struct pmix *pmix, const char *key, struct deadline deadline)
{
	const int self = (int)pmix_client.self.rank;
	double retry = LOCAL_RETRY_SECONDS;
	AUTO_FREE bool *seen = malloc((size_t)pmix->world_size);
	AUTO_FREE char(*nodes)[RDZV_NODE_SIZE] = pmix_client_nodes(pmix->world_size);
	if (!seen)
		return false;
	for (int rank = 0; rank < pmix->world_size; rank++)
		seen[rank] = !nodes || rank == self || strcmp(nodes[rank], nodes[self]) != 0;
	for (bool again = false; !all_came(pmix, key, seen, again, deadline_left(deadline));
		 again = true) {
		if (!deadline_sleep(deadline, retry))
			return false;
		retry = shorter(retry * 2, RETRY_SECONDS);
	}
	return true;
}

/* Rank 0 publishes the key that it has drawn, or that there is none. */
static int publish_key(struct pmix *pmix, struct err *err)
{
	char digits[HASH_HEX_SIZE] = "";
	unsigned char key[16];
	if (pmix->bootstrap && run_key_draw(key, digits, err) == 0) {
		bootstrap_set_key(pmix->bootstrap, key);
		pmix->has_key = true;
	}
	return pmix_client_put(BOOTSTRAP_KEY, digits, strlen(digits), err);
}

/* Asks rank 0 for the key. This waits for the ranks of this node first: while a node's server asks
 * another server, its ranks can't publish. It then waits for rank 0: a server whose peer is not up
 * yet repeats its question after 0.5, 1, 2, 4 … seconds and does nothing else meanwhile. */
static void ask_for_key(struct pmix *pmix, double soon, double patience)
{
	struct deadline all = deadline_in(patience);
	char fence[FENCE_KEY_SIZE];
	snprintf(fence, sizeof fence, FENCE_KEY, 0);
	if (!near_came(pmix, fence, all) || !bootstrap_reach(pmix->bootstrap, deadline_left(all)))
		return;
	struct deadline deadline = deadline_in(soon);
	double retry = LOCAL_RETRY_SECONDS;
	unsigned char key[16];
	for (bool again = false, found = false; !found;
		 again = true, retry = shorter(retry * 2, RETRY_SECONDS)) {
		struct answer *answer = pmix_client_ask(0, BOOTSTRAP_KEY, again, NULL);
		found = answer && answer_wait(answer, deadline) == PMIX_SUCCESS && answer->bytes
			&& answer->size > 0;
		if (found && answer->size == 1) {
			bootstrap_end(pmix->bootstrap);
			pmix->bootstrap = NULL;
		} else if (found && run_key_read(answer->bytes, key, NULL) == 0) {
			bootstrap_set_key(pmix->bootstrap, key);
			pmix->has_key = true;
		}
		if (answer)
			answer_drop(answer);
		if (!found && !deadline_sleep(deadline, retry))
			return;
	}
}

/* At the first fence. Without a bootstrap or a key, the ranks ask each other by PMIx. */
static int begin_bootstrap(struct pmix *pmix, struct err *err)
{
	char here[RDZV_NODE_SIZE], there[RDZV_NODE_SIZE];
	struct err why;
	int rank = (int)pmix_client.self.rank;
	pmix_client_node(rank, here, sizeof here);
	pmix_client_node(0, there, sizeof there);
	const struct bootstrap_plan plan = { .rank = rank,
		.world_size = pmix->world_size,
		.run = pmix->run.number,
		.node = strcmp(here, there) == 0 ? NULL : there };
	pmix->bootstrap = bootstrap_begin(&plan, &why);
	if (!pmix->bootstrap)
		log_info("%s; the ranks ask each other by PMIx", why.text);
	pmix->has_key = pmix->run.keyed;
	if (pmix->bootstrap && pmix->has_key)
		bootstrap_set_key(pmix->bootstrap, pmix->run.key);
	return rank == 0 && !pmix->has_key ? publish_key(pmix, err) : 0;
}

/* Whether the bootstrap has completed all fences before this one. */
static bool bootstrap_is_whole(const struct pmix *pmix, int fence)
{
	return pmix->bootstrap && bootstrap_complete(pmix->bootstrap) >= (uint32_t)fence;
}

/* Comes to a fence with the values put since the last one. Returns whether it is worth waiting for
 * all to do so. */
static bool come_to_bootstrap(struct pmix *pmix, int fence, double timeout)
{
	if (pmix->bootstrap)
		bootstrap_come(pmix->bootstrap, pmix->puts.bytes, pmix->puts.size);
	if (pmix->bootstrap && !pmix->has_key)
		ask_for_key(pmix, shorter(ROLL_SECONDS, timeout / 10),
			shorter(PATIENCE_SECONDS, timeout / 4));
	return bootstrap_is_whole(pmix, fence);
}

/* Searches from the last fence, whose values are read most. */
static bool was_gathered(const struct pmix *pmix, int rank, const char *key, void **value,
	size_t *size)
{
	for (uint32_t fence = pmix->bootstrap ? bootstrap_complete(pmix->bootstrap) : 0; fence-- > 0;) {
		size_t left;
		const unsigned char *bytes = bootstrap_bytes(pmix->bootstrap, fence, rank, &left);
		const void *found = put_list_find(bytes, left, key, size);
		if (found)
			return (*value = pmix_client_copy(found, *size));
	}
	return false;
}

/* ---- fences ---- */

/* Whether the bootstrap, or PMIx's own fence, has completed the fence by then. */
static bool fast_way(const struct pmix *pmix, int fence, struct answer *answer, double seconds)
{
	if (!pmix->gathers)
		return answer_wait(answer, deadline_in(seconds)) == PMIX_SUCCESS;
	return pmix->bootstrap
		&& bootstrap_wait(pmix->bootstrap, (uint32_t)fence, deadline_in(seconds));
}

/* Publishes what has not been published yet. Where that fails, for instance since this node's
 * server is gone, the bootstrap alone can complete the fence. */
static int catch_up(struct pmix *pmix, int fence, double timeout, struct err *err)
{
	if (pmix->published > fence)
		return 0;
	if (publish(pmix, false, pmix->until, timeout, err) == 0)
		return 0;
	double left = pmix_client.without_server ? deadline_left(pmix->until) : 0;
	return fast_way(pmix, fence, NULL, left) ? 1 : -1;
}

/* Waits until the fast way has completed the fence, or all ranks say that they have come. They are
 * asked after a while, or at once (`ask`). */
static int wait_fence(struct pmix *pmix, int fence, bool ask, struct answer *answer, double timeout,
	struct err *err)
{
	char key[FENCE_KEY_SIZE];
	/* The last round of asking is part of the time, so that missing ranks are named within it. */
	double inquest = shorter(INQUEST_SECONDS, timeout / 5);
	struct deadline deadline = { pmix->until.at - inquest };
	/* If all ranks ask all others, the servers of a starting large world can't keep up, so this
	 * must rarely happen. */
	double scale = 1 + pmix->world_size / SMALL_WORLD;
	double pause =
		pmix_client.fences_lost ? RETRY_SECONDS : shorter(scale * PATIENCE_SECONDS, timeout / 2);
	double soon =
		shorter(pmix->published > fence ? scale * ROLL_SECONDS : LAZY_SECONDS, timeout / 10);
	snprintf(key, sizeof key, FENCE_KEY, fence);
	AUTO_FREE bool *seen = calloc((size_t)pmix->world_size, sizeof *seen);
	if (!seen)
		return err_set(err, "rendezvous: no memory for %d ranks", pmix->world_size);
	/* This rank is not asked: while its node's server looks for one on a node that has none, it
	 * does not even answer for its own ranks. */
	if (pmix_client.self.rank < (pmix_rank_t)pmix->world_size)
		seen[pmix_client.self.rank] = true;
	pmix->asked = ask && all_came(pmix, key, seen, fence > 0, soon);
	if (pmix->asked || (!ask && fast_way(pmix, fence, answer, soon)))
		return 0;
	int rc = catch_up(pmix, fence, timeout, err);
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	if (pmix->gathers)
		pause = 0;
	call_roll(pmix, fence);
	for (;;) {
		if (fast_way(pmix, fence, answer, shorter(pause, deadline_left(deadline))))
			return 0;
		bool last = deadline_passed(deadline);
		/* Only believed with a key, so that no stranger can say that all have come. */
		if (presence_is_keyed(pmix->roll))
			presence_mark(pmix->roll, (uint32_t)fence, seen);
		if (all_came(pmix, key, seen, true,
				last ? inquest : shorter(INQUEST_SECONDS, deadline_left(deadline)))) {
			pmix->asked = true;
			pmix_client.fences_lost |= !pmix->gathers;
			return 0;
		}
		if (last) {
			presence_mark(pmix->roll, (uint32_t)fence, seen);
			pmix_client.lost = true;
			return rdzv_missing(seen, pmix->world_size, timeout, node_of, NULL, err);
		}
		/* Don't ask continuously when a fence has failed at once. */
		deadline_sleep(deadline, RETRY_SECONDS);
		pause = shorter(pause * 2, LONGEST_PAUSE);
	}
}

static int pmix_fence(void *state, double timeout, struct err *err)
{
	struct pmix *pmix = state;
	int fence = pmix->fences++;
	pmix->until = deadline_in(timeout);
	if (fence == 0 && pmix->gathers && begin_bootstrap(pmix, err) < 0)
		return -1;
	bool later = fence > 0 && pmix->gathers && bootstrap_is_whole(pmix, fence);
	if (!later && publish(pmix, false, pmix->until, timeout, err) < 0)
		return -1;
	struct answer *answer = pmix->gathers ? NULL : start_fence(err);
	if (!answer && !pmix->gathers)
		return -1;
	bool ask = pmix->gathers && !come_to_bootstrap(pmix, fence, timeout);
	int rc = wait_fence(pmix, fence, ask, answer, timeout, err);
	if (answer)
		answer_drop(answer);
	struct put_list old = pmix->before;
	pmix->before = pmix->puts;
	pmix->puts = (struct put_list) { old.bytes, 0 };
	return rc;
}

/* Seconds since this process started; 0 if unknown. */
static double process_age(void)
{
	struct timespec now;
	struct process self;
	if (!process_find(getpid(), &self) || clock_gettime(CLOCK_BOOTTIME, &now) < 0)
		return 0;
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec
		- (double)self.start / (double)sysconf(_SC_CLK_TCK);
}

/* Whether the bootstrap has completed the last fence, too: then it tells all ranks, and none of
 * them depends on answers. Its message may come a moment after the last answer. */
static bool was_told(const struct pmix *pmix)
{
	struct deadline deadline = deadline_in(ROLL_SECONDS);
	if (!pmix->bootstrap)
		return false;
	while (bootstrap_complete(pmix->bootstrap) < (uint32_t)pmix->fences)
		if (!deadline_sleep(deadline, RETRY_SECONDS))
			return false;
	return true;
}

/* A rank that has all answers may leave while another still asks, and its node's server, which
 * gives the answers, ends with it. So a rank stays until all are through; a rank that learns this
 * late has only lost time. But if the bootstrap told the ranks, those that did not have to ask do
 * not say that they are through. */
static void see_off(struct pmix *pmix)
{
	if (was_told(pmix))
		return;
	struct deadline deadline = deadline_in(SEE_OFF_SECONDS);
	AUTO_FREE bool *seen = calloc((size_t)pmix->world_size, sizeof *seen);
	if (!seen || pmix_client.self.rank >= (pmix_rank_t)pmix->world_size
		|| pmix_client_put(THROUGH_KEY, "", 0, NULL) < 0
		|| pmix_client_publish(THROUGH_KEY, deadline, SEE_OFF_SECONDS, NULL) < 0)
		return;
	seen[pmix_client.self.rank] = true;
	while (!all_came(pmix, THROUGH_KEY, seen, true, deadline_left(deadline))
		&& deadline_sleep(deadline, RETRY_SECONDS))
		;
	deadline_sleep(deadline, LEAVE_SECONDS);
}

/* For a rank that has just lost the bootstrap, and asks. */
static void publish_last(struct pmix *pmix)
{
	if (pmix->published < pmix->fences && !pmix_client.lost)
		publish(pmix, true, deadline_in(LEAVING_SECONDS), LEAVING_SECONDS, NULL);
}

static void pmix_close(void *state, int orderly)
{
	struct pmix *pmix = state;
	if (!orderly)
		pmix_client.lost = true;
	else
		publish_last(pmix);
	if (orderly && pmix->asked && !pmix_client.lost)
		see_off(pmix);
	presence_end(pmix->roll);
	bootstrap_end(pmix->bootstrap);
	pmix_client_close();
	free(pmix->puts.bytes);
	free(pmix->before.bytes);
	free(pmix);
}

/* The same on all ranks. */
static void read_run(struct run_key *run, const struct ident *ident)
{
	char text[PMIX_MAX_NSLEN + 40];
	const char *digits = getenv(RUN_KEY);
	struct err err;
	snprintf(text, sizeof text, "%s %d %d", pmix_client.self.nspace, ident->attempt,
		ident->world_size);
	run->number = run_number(text);
	run->keyed = digits && run_key_read(digits, run->key, &err) == 0;
	if (digits && !run->keyed)
		log_warn("%s", err.text);
}

/* Meets nobody: that is left to the first fence. */
static void *pmix_open(const struct ident *ident, double timeout, struct err *err)
{
	if (pmix_client_open(err) < 0)
		return NULL;
	bool slurm = strncmp(pmix_client.self.nspace, "slurm.", 6) == 0;
	bool gathers = slurm && ident->world_size <= SMALL_WORLD;
	if (slurm && ident->node_count > 1 && !gathers)
		deadline_sleep(deadline_in(timeout / 2), SETTLE_SECONDS - process_age());
	struct pmix *pmix = calloc(1, sizeof *pmix);
	if (!pmix) {
		err_set(err, "rendezvous: no memory");
		return NULL;
	}
	*pmix = (struct pmix) { .world_size = ident->world_size, .gathers = gathers };
	read_run(&pmix->run, ident);
	return pmix;
}

/* The key of a value in a put_list. */
static const char *list_key(enum rdzv_life life, const char *key, char out[PUT_LIST_KEY_SIZE])
{
	if (life == RDZV_KEPT)
		return key;
	snprintf(out, PUT_LIST_KEY_SIZE, "%c%s", PUT_LIST_PASSING, key);
	return out;
}

static int pmix_put(void *state, enum rdzv_life life, const char *key, const void *value,
	size_t size, struct err *err)
{
	struct pmix *pmix = state;
	char text[PUT_LIST_KEY_SIZE];
	key = list_key(life, key, text);
	if (!pmix->gathers)
		return put_value(key, value, size, err);
	return put_list_add(&pmix->puts, key, value, size) < 0
		? err_set(err, "rendezvous: no memory for %zu bytes", size)
		: 0;
}

/* Takes the value out of an answer; false if there is none. */
static bool take_value(struct answer *answer, void **value, size_t *size)
{
	if (!answer->bytes || answer->size == 0)
		return false;
	*value = answer->bytes;
	*size = answer->size - 1;
	answer->bytes = NULL;
	return true;
}

/* Normally the fence has brought all values here; otherwise the rank itself is asked until the
 * deadline. */
static int pmix_get(void *state, enum rdzv_life life, int rank, const char *key, void **value,
	size_t *size, double timeout, struct err *err)
{
	struct deadline deadline = deadline_in(timeout);
	char full[PMIX_MAX_KEYLEN + 1], text[PUT_LIST_KEY_SIZE], node[RDZV_NODE_SIZE];
	pmix_status_t status;
	bool found = false, refresh = false;
	const char *listed = list_key(life, key, text);
	if (was_gathered(state, rank, listed, value, size))
		return 0;
	snprintf(full, sizeof full, PUT_KEY, listed);
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
	pmix_client_node(rank, node, sizeof node);
	return err_fail(err, EXIT_LOST,
		"rendezvous: couldn't get %s of rank %d (on %s) within %g s: %s", key, rank,
		node[0] ? node : "an unknown node", timeout, pmix_library.error_string(status));
}

static void pmix_abort(void *state, int status, const char *why)
{
	pmix_client.lost = true;
	pmix_library.abort(status, why, NULL, 0);
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
