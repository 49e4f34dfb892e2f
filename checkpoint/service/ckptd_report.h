/* SPDX-License-Identifier: Apache-2.0 */
/* How a part from 1 on is told to part 0's service: over TCP, again after every break, until the
 * save is decided. */
#ifndef MUSTER_CKPTD_REPORT_H
#define MUSTER_CKPTD_REPORT_H

#include "checkpoint/protocol/ckptd_polls.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "common/err.h"

/* What is told. */
struct ckptd_told {
	struct ckptd_told *next;
	int64_t step;
	int buffer; /* that the client gets back; -1: none */
	bool owed;  /* the client has not heard that its part is written */
	uint64_t bytes;
	double seconds;
	char *text; /* of the part's file; NULL: it failed */
	bool left;  /* no part, but that from this step on none will come */
	struct err fault;
	bool sent, taken;
	double since, until; /* clock_now(): told first, given up */
};

/* Who tells the client. */
struct ckptd_report_news {
	/* Part 0 has taken word of the part, or the client has waited long enough for that. */
	void (*taken)(void *arg, const struct ckptd_told *told);
	/* The save is over, or part 0 is not told any more. */
	void (*decided)(void *arg, int64_t step, bool committed);
	void *arg;
};

struct ckptd_report;

/* `attach` is borrowed; `patience` in seconds. */
struct ckptd_report *ckptd_report_open(const struct ckptd_attach *attach, double patience,
	const struct ckptd_report_news *news, struct err *err);

/* Tells a part, whose text is taken over. -1: no memory. */
int ckptd_report_tell(struct ckptd_report *report, const struct ckptd_told *told);

/* The client has gone and has handed over no part of `step` or a later one: that is said once, to
 * the service that is there. For the parts that are under way, part 0's service is tried for
 * `seconds` more. */
void ckptd_report_left(struct ckptd_report *report, int64_t step, double seconds);

void ckptd_report_poll(const struct ckptd_report *report, struct ckptd_polls *polls);

/* Does what can be done without waiting. */
void ckptd_report_step(struct ckptd_report *report);

/* Whether something is not decided; after ckptd_report_left and ckptd_report_hurry: not taken, and
 * its time is not over. */
bool ckptd_report_busy(const struct ckptd_report *report);
/* What is told, or will be, is given up after so many seconds. */
void ckptd_report_hurry(struct ckptd_report *report, double seconds);

/* One call for each part that was not taken. */
void ckptd_report_list(const struct ckptd_report *report, void (*line)(void *arg, const char *text),
	void *arg);

/* NULL is allowed. */
void ckptd_report_close(struct ckptd_report *report);

#endif
