/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of libmuster share. */
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
	int communicators; /* that were begun: each exchange has keys of its own */
	unsigned meetings; /* as many, of lib/collective.c's */
	bool met;          /* all ranks came to the last of these */
	char **nodes;      /* of ranks that were asked for; NULL: not yet */
};

/* Keeps `err` for muster_error and returns its status. */
int muster_failed(const struct err *err);

/* What a call checks before it does anything; status EXIT_USAGE. A timeout of 0 is the default. */
int muster_check_given(const void *given, const char *what, struct err *err);
int muster_check_timeout(double timeout, struct err *err);
int muster_check(const struct muster *muster, double timeout, struct err *err);

/* Unless the program has said where lines go: only what can't be ignored is said unasked. What is
 * said is kept for the line about the first rank that fails. */
void muster_log_begin(void);

/* As muster_agree, in muster_end. `together`: all ranks are in there; false where some heard of a
 * failure in another call, or did not come. */
int muster_agree_on_end(struct muster *muster, int status, const char *why, double timeout,
	bool *together);

/* The halves of muster_ckpt_close, NULL allowed: waits for the last save that was handed over
 * (`timeout` 0: the plan's); records the end, gives the directory back and frees it, whatever it
 * returns. */
int muster_ckpt_drain(struct muster_ckpt *ckpt, double timeout);
int muster_ckpt_leave(struct muster_ckpt *ckpt, int status, const char *why, struct err *err);

/* 0 → `otherwise`. */
static inline double muster_or(double timeout, double otherwise)
{
	return timeout > 0 ? timeout : otherwise;
}

#endif
