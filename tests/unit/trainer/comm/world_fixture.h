/* SPDX-License-Identifier: Apache-2.0 */
/* A world of processes on this machine: forks one a rank, each with its identity, rendezvous and
 * communicator. */
#ifndef MUSTER_WORLD_FIXTURE_H
#define MUSTER_WORLD_FIXTURE_H

#include <stdbool.h>

#include "common/err.h"
#include "common/ident.h"
#include "trainer/comm/comm.h"

#define WORLD_MAX 64

struct comm_provider;

/* Of the worlds to come; NULL: the fitting one. */
extern const struct comm_provider *world_provider;

/* What became of a rank, as its parent sees it. */
struct world_rank {
	int finished;   /* the body returned */
	int rc;         /* what it returned */
	struct err err; /* what it left there */
	double seconds; /* from the opening of its communicator */
	int signal;     /* that ended the process, 0 for none */
};

/* Runs in the rank's own process. 0, or -1 with `err`. The communicator is closed afterwards. */
typedef int world_body(struct comm *comm, void *arg, struct err *err);

/* Runs a world of `size` ranks with that deadline of the communicator, in seconds of a machine that
 * is not slow (SLOWER), and returns when each has ended. Those that are stopped are killed once all
 * others have ended; what hangs is killed after five minutes, and did not finish. `ranks` has room
 * for all. */
void world_run(int size, double deadline, world_body *body, void *arg, struct world_rank *ranks);

/* Fails the test with the first error text unless every rank returned 0. */
void world_assert_ok(int size, const struct world_rank *ranks);
/* Runs a world with a deadline of 20 s; each rank must return 0. */
void world_run_ok(int size, world_body *body, void *arg);
/* Fails the test unless a rank's error text has the word. */
void world_assert_names(const struct world_rank *rank, const char *word);

/* In a body: leave with a message unless `condition` holds. */
#define WORLD_CHECK(condition) \
	do { \
		if (!(condition)) \
			return err_set(err, "%s:%d: %s", __FILE__, __LINE__, #condition); \
	} while (0)

#endif
