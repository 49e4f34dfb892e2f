/* SPDX-License-Identifier: Apache-2.0 */
/* The saves that a client has handed over, or tries to, in their order, and what has become of
 * each. No thread, no lock and no connection of its own: whoever has one guards it by his lock. */
#ifndef MUSTER_CKPTD_ENTRIES_H
#define MUSTER_CKPTD_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/client/ckptd_plan.h"
#include "common/err.h"

enum ckptd_entry_state {
	ENTRY_WAITS,   /* has not had its end */
	ENTRY_WRITTEN, /* of several parts: this one is durable */
	ENTRY_DURABLE,
	ENTRY_FAILED,
	ENTRY_REFUSED, /* no service could be had for it */
};

/* One save. */
struct ckptd_entry {
	struct ckptd_entry *next;
	struct ckptd_step step;
	int buffer; /* -1: given back */
	enum ckptd_entry_state state;
	bool sent;    /* to the service that is there now */
	bool handed;  /* to any: it is not refused any more */
	bool decided; /* of parts from 1 on: the whole save is over, so that no service need know of the
					 part */
	double since; /* clock_now() when it was added */
	struct err err; /* of FAILED and REFUSED */
};

/* A value; zeroed means none. */
struct ckptd_entries {
	struct ckptd_entry *first;
	bool part; /* of a part from 1 on: WRITTEN is its end */
};

/* Appends a save, which is theirs. NULL: no memory. */
struct ckptd_entry *ckptd_entries_add(struct ckptd_entries *entries, const struct ckptd_step *step,
	int buffer, double since);

/* Takes one out and frees it: it leaves no trace. */
void ckptd_entries_drop(struct ckptd_entries *entries, struct ckptd_entry *entry);
void ckptd_entries_clear(struct ckptd_entries *entries);

/* Whether it has had its end, for who waits for it. */
bool ckptd_entries_is_over(const struct ckptd_entries *entries, const struct ckptd_entry *entry);

/* The same for a service that takes over: part 0's may have lost word of a part that is written. */
bool ckptd_entries_is_done(const struct ckptd_entries *entries, const struct ckptd_entry *entry);

/* The last save of the step, the first of it that is not over, the first of any step that is not
 * over; NULL: none. */
struct ckptd_entry *ckptd_entries_find(const struct ckptd_entries *entries, int64_t step);
struct ckptd_entry *ckptd_entries_running(const struct ckptd_entries *entries, int64_t step);
struct ckptd_entry *ckptd_entries_first_running(const struct ckptd_entries *entries);

/* Whether no save has the buffer. */
bool ckptd_entries_is_free(const struct ckptd_entries *entries, int buffer);

/* How many are not done. */
int ckptd_entries_undone(const struct ckptd_entries *entries);

/* Whether some wait that no service has had yet. */
bool ckptd_entries_have_new(const struct ckptd_entries *entries);

/* Those that no service has had yet are refused, and their buffers free. */
void ckptd_entries_refuse_new(struct ckptd_entries *entries, const struct err *why);

/* The service is another one: nothing has been sent to it. */
void ckptd_entries_unsend(struct ckptd_entries *entries);

/* What was sent has reached the service. */
void ckptd_entries_hand(struct ckptd_entries *entries);

/* Of a part that is written: the whole save is over. `step` -1: of every step. */
void ckptd_entries_decide(struct ckptd_entries *entries, int64_t step);

/* Of those that are done only the last few are remembered. */
void ckptd_entries_forget_old(struct ckptd_entries *entries);

#endif
