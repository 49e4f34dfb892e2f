/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are the ranks of a program with libmuster, on one node, over the file rendezvous.
 * Include after cmocka.h. */
#ifndef MUSTER_RANKS_FIXTURE_H
#define MUSTER_RANKS_FIXTURE_H

#include <stdbool.h>

#include "lib/muster.h"

#define RANKS 4

/* What a rank came to. */
struct ranks_outcome {
	int status;      /* what its body returned, or muster_open */
	char text[1000]; /* muster_error's */
	double seconds;  /* in the body */
};

extern struct ranks_outcome *ranks_outcomes;

/* In the rank's own process. Returns a status. */
typedef int ranks_body(struct muster *muster, int rank);

/* Runs one process a rank and waits for all. After a body that `ended` by muster_end, nothing is
 * closed. */
void ranks_run(ranks_body *body, bool ended);

/* All ranks but `but` (-1: none) came to `status` with the same line, which has `words` in it. */
void ranks_assert(int status, const char *words, int but);

/* All ranks but `but` came to `status`, whatever their lines; those have `words` in them. */
void ranks_assert_each(int status, const char *words, int but);

/* In a body: returns the number of its line unless the call is refused with these words. */
#define RANKS_REFUSED(call, words) \
	do { \
		if ((call) != MUSTER_USAGE || !strstr(muster_error(), words)) \
			return __LINE__; \
	} while (0)

/* Of a test program: a folder of its own, in which the ranks meet (tests/unit/files.h), and no
 * launcher's variables. */
int ranks_setup(const char *folder);

#endif
