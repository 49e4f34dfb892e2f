/* SPDX-License-Identifier: Apache-2.0 */
/* What libmuster's files share. */
#ifndef MUSTER_PRIVATE_H
#define MUSTER_PRIVATE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "launch/step_word.h"
#include "lib/muster.h"
#include "telemetry/flight_files.h"

#define MUSTER_SECONDS 60.0 /* of a call, where the program says 0 */

struct muster {
	struct ident ident;
	struct rdzv *rdzv;
	double timeout;
	int communicators;      /* number begun: each exchange has its own keys */
	unsigned meetings;      /* number of exchanges in lib/collective.c */
	bool met;               /* all ranks came to the last of these */
	char **nodes;           /* names of ranks that were asked for; NULL: not yet */
	struct step_word *word; /* from muster_word_begin to muster_word_end; else NULL */
	int words_begun;        /* number of times: each has its own key */
	uint64_t words;         /* number said */
	struct flight_recorder *flight;
	struct flight_file flight_file; /* once a checkpoint directory is open */
	enum flight_phase phase;        /* what the recorder has, and the step; see muster_stand */
	uint64_t step;
	pthread_t thread; /* that called muster_open */
};

/* Notes a phase of the step that was noted last, and returns the one before. Notes nothing in
 * another thread than the one that called muster_open, such as one that saves beside it. */
enum flight_phase muster_stand(struct muster *muster, enum flight_phase phase);

/* Keeps the flight recorder in the checkpoint directory from now on, unless it is kept already. */
void muster_keep_flight(struct muster *muster, const char *dir);

/* Ends the recorder. Its file stays unless the ranks part in order. */
void muster_end_flight(struct muster *muster, bool orderly);

/* Stores `err` for muster_error and returns its status. */
int muster_failed(const struct err *err);

/* The checks at the start of a call; status EXIT_USAGE. A timeout of 0 is the default. */
int muster_check_given(const void *given, const char *what, struct err *err);
int muster_check_timeout(double timeout, struct err *err);
int muster_check(const struct muster *muster, double timeout, struct err *err);

/* Parses a text of the program's that must be a JSON object; NULL with an error that says of "it"
 * what is wrong. */
json_t *muster_parse_object(const char *text, struct err *err);

/* Copies a struct whose first member is its size, `given_size` bytes, into a zeroed one of
 * `whole_size` bytes. One from a program that was built with an older header may be shorter, but
 * has at least `least` bytes; one from a newer header has members that would be ignored, and is
 * refused. */
int muster_take_sized(void *whole, size_t whole_size, const void *given, size_t given_size,
	size_t least, const char *name, struct err *err);

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
