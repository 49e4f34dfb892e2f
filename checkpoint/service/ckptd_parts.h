/* SPDX-License-Identifier: Apache-2.0 */
/* Which parts of which saves have been told, and which save is over: what part 0's service decides
 * by (doc/ckptd-protocol.md, section 5). No thread, no clock and no socket of its own. */
#ifndef MUSTER_CKPTD_PARTS_H
#define MUSTER_CKPTD_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* One save. */
struct ckptd_parts_step {
	struct ckptd_parts_step *next; /* of a higher step */
	int64_t step;
	char **texts; /* of each part's file; NULL where it is not there */
	size_t *sizes;
	bool *told; /* a text or a fault has come */
	int count;  /* of those told */
	bool own;   /* part 0's own was told */
	bool own_failed;
	struct err fault; /* the first one; text "" where there is none */
	double began;     /* clock_now() when part 0's own was begun, or another was told */
	double until;     /* the same at which it is late; INFINITY before part 0's own is there */
};

enum ckptd_parts_verdict {
	PARTS_WAIT,      /* no save is over */
	PARTS_COMPLETE,  /* all parts are durable */
	PARTS_FAILED,    /* a part has failed, and all have been told */
	PARTS_LATE,      /* a part was not told in time */
	PARTS_OVERTAKEN, /* a part was not told, and a later save is complete */
};

struct ckptd_parts;

/* `patience`: seconds from part 0's own part until a save is late. */
struct ckptd_parts *ckptd_parts_create(int parts, double patience);
void ckptd_parts_destroy(struct ckptd_parts *parts);

/* Part 0's own part is begun. -1: no memory, or too many saves under way. */
int ckptd_parts_begin(struct ckptd_parts *parts, int64_t step, double now);

/* Notes a part: the text is taken over, or is NULL and `fault` says why. One that was told before
 * is dropped. -1 as above. */
int ckptd_parts_tell(struct ckptd_parts *parts, int64_t step, int part, char *text, size_t size,
	const struct err *fault, double now);

/* The client of a part has gone: its parts of `step` and of later ones do not come, and fail those
 * saves. */
void ckptd_parts_left(struct ckptd_parts *parts, int part, int64_t step);

/* From now on a save is late at `at`, if it is not earlier. */
void ckptd_parts_hurry(struct ckptd_parts *parts, double at);

/* The lowest save that is over, taken out: the caller's, to be freed with ckptd_parts_free. */
enum ckptd_parts_verdict ckptd_parts_over(struct ckptd_parts *parts, double now,
	struct ckptd_parts_step **over);
void ckptd_parts_free(struct ckptd_parts *parts, struct ckptd_parts_step *step);

/* The save of the lowest step, or NULL: for who lists them. */
const struct ckptd_parts_step *ckptd_parts_first(const struct ckptd_parts *parts);

/* "3, 7 and 12 others" of the parts that were not told, counted from 1; returns `out`. */
char *ckptd_parts_missing(const struct ckptd_parts *parts, const struct ckptd_parts_step *step,
	char *out, size_t size);

/* When the next save is late; 0: never. */
double ckptd_parts_next(const struct ckptd_parts *parts);

#endif
