/* SPDX-License-Identifier: Apache-2.0 */
/* Reports a part other than 0 to part 0's service: over TCP, again after every break, until the
 * save is decided. */
#ifndef MUSTER_CKPTD_REPORT_H
#define MUSTER_CKPTD_REPORT_H

#include "checkpoint/protocol/ckptd_polls.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "common/err.h"

/* One report. */
struct ckptd_told {
	struct ckptd_told *next;
	struct save_result result; /* WRITTEN or FAILED */
	int buffer;                /* the buffer to give back to the client; -1: none */
	bool owed;                 /* the client has not yet heard that its part is written */
	char *text;                /* of the part's file; NULL: the part failed */
	bool left;                 /* not a part: none will come from this step on */
	bool sent, taken;
	double since, until; /* clock_now() at which it was added; at which it is given up */
};

/* Callbacks that inform the client. */
struct ckptd_report_news {
	/* Part 0's service has noted the part, or the client has waited for that long enough. */
	void (*taken)(void *arg, const struct ckptd_told *told);
	/* The save is over, or the attempts to report it have ended. */
	void (*decided)(void *arg, int64_t step, bool committed);
	void *arg;
};

struct ckptd_report;

/* `attach` is borrowed; `patience` in seconds. NULL with err set on an error. */
struct ckptd_report *ckptd_report_open(const struct ckptd_attach *attach, double patience,
	const struct ckptd_report_news *news, struct err *err);

/* Adds a report and takes ownership of its text. -1: out of memory. */
int ckptd_report_tell(struct ckptd_report *report, const struct ckptd_told *told);

/* The client has gone, and has handed over no part of `step` or later: this is sent once, to the
 * service that is there. Parts that are under way are tried for another `seconds`. */
void ckptd_report_left(struct ckptd_report *report, int64_t step, double seconds);

void ckptd_report_poll(const struct ckptd_report *report, struct ckptd_polls *polls);

/* Does whatever can be done without waiting. */
void ckptd_report_step(struct ckptd_report *report);

/* Whether something is not decided; after ckptd_report_left or ckptd_report_hurry, whether
 * something is not noted by part 0's service and still has time. */
bool ckptd_report_busy(const struct ckptd_report *report);
/* Present and future reports are given up after at most `seconds`. */
void ckptd_report_hurry(struct ckptd_report *report, double seconds);

/* Calls `line` for each part that part 0's service has not noted. */
void ckptd_report_list(const struct ckptd_report *report, void (*line)(void *arg, const char *text),
	void *arg);

/* NULL is allowed. */
void ckptd_report_close(struct ckptd_report *report);

#endif
