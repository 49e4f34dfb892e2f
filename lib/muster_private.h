/* SPDX-License-Identifier: Apache-2.0 */
/* What libmuster's files share. */
#ifndef MUSTER_PRIVATE_H
#define MUSTER_PRIVATE_H

#include <stdbool.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "lib/muster.h"

struct muster {
	struct ident ident;
	struct rdzv *rdzv;
	double timeout;
	int communicators; /* number begun: each exchange has its own keys */
	unsigned meetings; /* number of exchanges in lib/collective.c */
	bool met;          /* all ranks came to the last of these */
	char **nodes;      /* names of ranks that were asked for; NULL: not yet */
};

/* Stores `err` for muster_error and returns its status. */
int muster_failed(const struct err *err);

/* The checks at the start of a call; status EXIT_USAGE. A timeout of 0 is the default. */
int muster_check_given(const void *given, const char *what, struct err *err);
int muster_check_timeout(double timeout, struct err *err);
int muster_check(const struct muster *muster, double timeout, struct err *err);

/* Unless the program has called muster_set_log, only warnings and errors are logged. Logged lines
 * are also kept for the line about the first rank that fails. */
void muster_log_begin(void);

/* As muster_agree, in muster_end. `together`: all ranks are in muster_end; false if some heard of a
 * failure in another call, or did not come. */
int muster_agree_on_end(struct muster *muster, int status, const char *why, double timeout,
	bool *together);

/* The two halves of muster_ckpt_close; NULL is allowed. The first waits for the last save that was
 * handed over (`timeout` 0: the plan's). The second records the end, gives the directory back and
 * frees `ckpt`, even if it returns an error. */
int muster_ckpt_drain(struct muster_ckpt *ckpt, double timeout);
int muster_ckpt_leave(struct muster_ckpt *ckpt, int status, const char *why, struct err *err);

/* The timeout, or `otherwise` if it is 0. */
static inline double muster_or(double timeout, double otherwise)
{
	return timeout > 0 ? timeout : otherwise;
}

#endif
