/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to see of a run at one moment: its figures, what became of its attempts, and where
 * each rank stands. */
#ifndef MUSTER_VIEW_H
#define MUSTER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "runs/run.h"
#include "telemetry/flight_files.h"

/* Others are held up once one of them has waited for so many seconds: before that, it is a step
 * like any other. */
#define VIEW_HELD 1.0
#define VIEW_ABSENT_MOST 64 /* of the ranks without a record, so many are listed */

struct view_rank {
	int rank;
	char node[64];   /* "": not known */
	char words[256]; /* the place, as muster-where words it */
	int64_t step;    /* 0: outside of any; -1: not known */
	double seconds;  /* for which it has stood there; NAN: not known */
	double behind;   /* seconds by which its latest change is older than the newest one of all
						ranks; NAN: not known */
	bool waits;      /* for other ranks */
	bool holds;      /* others wait, and it does not, or it has no record */
	bool absent;     /* it has no record */
};

/* Of the newest steps of the newest attempt; NAN: not known. */
struct view_rates {
	double tokens;       /* a second */
	double milliseconds; /* a step */
	double exposed;      /* the part of them in which rank 0 waited for communication */
	double mfu;
	double pace; /* seconds a step, with saves and validations */
};

struct view {
	const struct run *run;                   /* borrowed */
	const struct history_row *last, *before; /* the newest attempt, and the one before or NULL */
	double now;
	int64_t step, steps;     /* the last step that is done, and that of the end; -1: not known */
	double left;             /* seconds to the end; NAN: not known */
	double loss, validation; /* the newest; NAN: none */
	int64_t validated;       /* the step of that validation */
	struct view_rates rates;
	double goodput;
	struct view_rank *ranks;
	size_t count;
	int absent;  /* ranks without a record, where others have one */
	int damaged; /* files that are no records */
	bool old;    /* the records are of an attempt before the newest */
};

/* The first three put ranks that hold others up, the slowest or the farthest behind first. */
enum view_order { VIEW_HOLDING, VIEW_RANK, VIEW_NODE, VIEW_STEP, VIEW_TIME, VIEW_ORDERS };

/* "holding", "rank", "node", "step", "time". */
const char *view_order_name(enum view_order order);
/* VIEW_ORDERS for a word that is none of these. */
enum view_order view_order_of(const char *name);

/* Makes a view of a run and the flight records in its directory at the time `now`, seconds since
 * the epoch. view_clear is to follow, also after an error. */
int view_make(struct view *view, const struct run *run, const struct flight_list *list, double now,
	struct err *err);
void view_sort(struct view *view, enum view_order order);
void view_clear(struct view *view);

/* Reads what the run has added, and its records, and makes a view of them. On an error `view` is as
 * it was. */
int view_update(struct view *view, struct run *run, enum view_order order, struct err *err);

#endif
