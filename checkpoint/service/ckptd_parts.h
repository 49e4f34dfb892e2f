/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps which parts of which saves have been reported, and decides which save is over, for part 0's
 * service (doc/ckptd-protocol.md, section 5). It has no thread, clock or socket of its own. */
#ifndef MUSTER_CKPTD_PARTS_H
#define MUSTER_CKPTD_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* One save. */
struct ckptd_parts_step {
	struct ckptd_parts_step *next; /* the one with the next higher step */
	int64_t step;
	char **texts; /* of each part's file; NULL where it is missing */
	size_t *sizes;
	bool *told; /* for each part: a text or a fault was reported */
	int count;  /* number of parts that were reported */
	bool own;   /* part 0's own part was reported */
	bool own_failed;
	struct err fault; /* the first fault; text "" when there is none */
	double began;     /* clock_now() when part 0's own part began, or another was reported first */
	double until;     /* the same when it is late; INFINITY before part 0's own is reported */
};

enum ckptd_parts_verdict {
	PARTS_WAIT,      /* no save is over */
	PARTS_COMPLETE,  /* all parts are durable */
	PARTS_FAILED,    /* all parts were reported, and at least one failed */
	PARTS_LATE,      /* a part was not reported in time */
	PARTS_OVERTAKEN, /* a part was not reported, and a later save is complete */
};

struct ckptd_parts;

/* `patience`: seconds after part 0's own part at which a save is late. NULL: out of memory. */
struct ckptd_parts *ckptd_parts_create(int parts, double patience);
void ckptd_parts_destroy(struct ckptd_parts *parts);

/* Part 0's own part begins. -1: out of memory, or too many saves under way. */
int ckptd_parts_begin(struct ckptd_parts *parts, int64_t step, double now);

/* Notes a reported part: takes ownership of the text, or the text is NULL and `fault` says why. A
 * part that was reported before is ignored. -1 as above. */
int ckptd_parts_tell(struct ckptd_parts *parts, int64_t step, int part, char *text, size_t size,
	const struct err *fault, double now);

/* The part's client has gone: its parts of `step` and later do not come, so those saves fail. */
void ckptd_parts_left(struct ckptd_parts *parts, int part, int64_t step);

/* From now on every save is late at `at`, or earlier. */
void ckptd_parts_hurry(struct ckptd_parts *parts, double at);

/* Takes the lowest save that is over out of the list: the caller owns it and frees it with
 * ckptd_parts_free. */
enum ckptd_parts_verdict ckptd_parts_over(struct ckptd_parts *parts, double now,
	struct ckptd_parts_step **over);
void ckptd_parts_free(struct ckptd_parts *parts, struct ckptd_parts_step *step);

/* The save with the lowest step, or NULL; lists begin here. */
const struct ckptd_parts_step *ckptd_parts_first(const struct ckptd_parts *parts);

/* Names the parts that were not reported, counted from 1: "3, 7 and 12 others". Returns `out`. */
char *ckptd_parts_missing(const struct ckptd_parts *parts, const struct ckptd_parts_step *step,
	char *out, size_t size);

/* clock_now() at which the next save is late; 0: never. */
double ckptd_parts_next(const struct ckptd_parts *parts);

#endif
