/* SPDX-License-Identifier: Apache-2.0 */
/* The saves that a client hands over, in order, and what has become of each. It has no thread, lock
 * or connection of its own: its user's lock protects it. */
#ifndef MUSTER_CKPTD_ENTRIES_H
#define MUSTER_CKPTD_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/client/ckptd_plan.h"

/* One save. */
struct ckptd_entry {
	struct ckptd_entry *next;
	struct snapshot snapshot; /* its arrays are borrowed until the buffer is freed */
	int buffer;               /* -1: freed */
	struct save_result result;
	bool complete; /* its buffer holds all of the step */
	bool sent;     /* to the current service */
	bool handed;   /* to some service: it can't be refused any more */
	bool decided; /* parts other than 0: the whole save is over, so no service needs to know of this
					 part */
	double since; /* clock_now() when its buffer was complete */
};

/* A value; zeroed means empty. */
struct ckptd_entries {
	struct ckptd_entry *first;
	bool part; /* this is a part other than 0: its save ends when WRITTEN */
};

/* Appends a save; the list owns it. NULL: out of memory. */
struct ckptd_entry *ckptd_entries_add(struct ckptd_entries *entries,
	const struct snapshot *snapshot, int buffer, double since);

/* Removes one entry and frees it. */
void ckptd_entries_drop(struct ckptd_entries *entries, struct ckptd_entry *entry);
void ckptd_entries_clear(struct ckptd_entries *entries);

/* Whether the save has ended, as seen by a caller that waits for it. */
bool ckptd_entries_is_over(const struct ckptd_entries *entries, const struct ckptd_entry *entry);

/* Whether no service needs the save any more. A written part is not done until it is decided: when
 * part 0's service is replaced, the new one may not know that the part is written. */
bool ckptd_entries_is_done(const struct ckptd_entries *entries, const struct ckptd_entry *entry);

/* The last save of `step`; the first of `step` that is not over; the first of any step that is not
 * over and has a complete buffer. NULL: none. */
struct ckptd_entry *ckptd_entries_find(const struct ckptd_entries *entries, int64_t step);
struct ckptd_entry *ckptd_entries_running(const struct ckptd_entries *entries, int64_t step);
struct ckptd_entry *ckptd_entries_first_running(const struct ckptd_entries *entries);

/* Whether no save uses the buffer. */
bool ckptd_entries_is_free(const struct ckptd_entries *entries, int buffer);

/* The number of saves that are not done. */
int ckptd_entries_undone(const struct ckptd_entries *entries);

/* The first save that has not reached any service, of those whose buffer is complete or of those
 * whose buffer is not. NULL: none. */
struct ckptd_entry *ckptd_entries_first_new(const struct ckptd_entries *entries, bool complete);

/* The first save that the current service needs and has not been sent. NULL: none. */
struct ckptd_entry *ckptd_entries_first_unsent(const struct ckptd_entries *entries);

/* Whether there is a save that has not reached any service. */
bool ckptd_entries_have_new(const struct ckptd_entries *entries);

/* The service was replaced: nothing has been sent to the new one. */
void ckptd_entries_unsend(struct ckptd_entries *entries);

/* What was sent has been handed over. */
void ckptd_entries_hand(struct ckptd_entries *entries);

/* For a written part: the whole save of `step` is over. `step` -1: of every step. */
void ckptd_entries_decide(struct ckptd_entries *entries, int64_t step);

/* Forgets saves that are done, except the last few. */
void ckptd_entries_forget_old(struct ckptd_entries *entries);

#endif
