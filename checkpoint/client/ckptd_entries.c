/* SPDX-License-Identifier: Apache-2.0 */
/* The list of saves, as plain functions without lock or connection, so that its rules can be tested
 * alone. */
#include "checkpoint/client/ckptd_entries.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/log.h"

#define REMEMBERED 8 /* ended saves that are kept for ckptd_client_wait */

struct ckptd_entry *ckptd_entries_add(struct ckptd_entries *entries,
	const struct snapshot *snapshot, int buffer, double since)
{
	struct ckptd_entry *entry = calloc(1, sizeof *entry), **at = &entries->first;
	if (!entry)
		return NULL;
	*entry = (struct ckptd_entry) { .snapshot = *snapshot,
		.buffer = buffer,
		.result.step = snapshot->at.step,
		.since = since };
	while (*at)
		at = &(*at)->next;
	return *at = entry;
}

void ckptd_entries_drop(struct ckptd_entries *entries, struct ckptd_entry *entry)
{
	struct ckptd_entry **at = &entries->first;
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	free(entry);
}

void ckptd_entries_clear(struct ckptd_entries *entries)
{
	while (entries->first)
		ckptd_entries_drop(entries, entries->first);
}

bool ckptd_entries_is_over(const struct ckptd_entries *entries, const struct ckptd_entry *entry)
{
	return entry->result.outcome == SAVE_DURABLE || entry->result.outcome == SAVE_FAILED
		|| entry->result.outcome == SAVE_REFUSED
		|| (entry->result.outcome == SAVE_WRITTEN && entries->part);
}

bool ckptd_entries_is_done(const struct ckptd_entries *entries, const struct ckptd_entry *entry)
{
	return ckptd_entries_is_over(entries, entry)
		&& (entry->result.outcome != SAVE_WRITTEN || entry->decided);
}

struct ckptd_entry *ckptd_entries_find(const struct ckptd_entries *entries, int64_t step)
{
	struct ckptd_entry *found = NULL;
	for (struct ckptd_entry *entry = entries->first; entry; entry = entry->next)
		if (entry->snapshot.at.step == step)
			found = entry;
	return found;
}

struct ckptd_entry *ckptd_entries_running(const struct ckptd_entries *entries, int64_t step)
{
	struct ckptd_entry *entry = entries->first;
	while (entry && (entry->snapshot.at.step != step || ckptd_entries_is_over(entries, entry)))
		entry = entry->next;
	return entry;
}

struct ckptd_entry *ckptd_entries_first_running(const struct ckptd_entries *entries)
{
	struct ckptd_entry *entry = entries->first;
	while (entry && (!entry->complete || ckptd_entries_is_over(entries, entry)))
		entry = entry->next;
	return entry;
}

bool ckptd_entries_is_free(const struct ckptd_entries *entries, int buffer)
{
	for (const struct ckptd_entry *entry = entries->first; entry; entry = entry->next)
		if (entry->buffer == buffer)
			return false;
	return true;
}

int ckptd_entries_undone(const struct ckptd_entries *entries)
{
	int count = 0;
	for (const struct ckptd_entry *entry = entries->first; entry; entry = entry->next)
		count += !ckptd_entries_is_done(entries, entry);
	return count;
}

struct ckptd_entry *ckptd_entries_first_new(const struct ckptd_entries *entries, bool complete)
{
	struct ckptd_entry *entry = entries->first;
	while (entry
		&& (entry->result.outcome != SAVE_RUNS || entry->handed || entry->complete != complete))
		entry = entry->next;
	return entry;
}

struct ckptd_entry *ckptd_entries_first_unsent(const struct ckptd_entries *entries)
{
	struct ckptd_entry *entry = entries->first;
	while (entry && (entry->sent || !entry->complete || ckptd_entries_is_done(entries, entry)))
		entry = entry->next;
	return entry;
}

bool ckptd_entries_have_new(const struct ckptd_entries *entries)
{
	return ckptd_entries_first_new(entries, true) || ckptd_entries_first_new(entries, false);
}

void ckptd_entries_unsend(struct ckptd_entries *entries)
{
	for (struct ckptd_entry *entry = entries->first; entry; entry = entry->next)
		entry->sent = false;
}

void ckptd_entries_hand(struct ckptd_entries *entries)
{
	for (struct ckptd_entry *entry = entries->first; entry; entry = entry->next)
		if (entry->sent && !entry->handed) {
			entry->handed = true;
			log_debug("checkpoint: step %" PRId64 " is handed over", entry->snapshot.at.step);
		}
}

void ckptd_entries_decide(struct ckptd_entries *entries, int64_t step)
{
	for (struct ckptd_entry *entry = entries->first; entry; entry = entry->next)
		if ((step < 0 || entry->snapshot.at.step == step) && entry->result.outcome == SAVE_WRITTEN
			&& entries->part)
			entry->decided = true;
}

void ckptd_entries_forget_old(struct ckptd_entries *entries)
{
	int over = -ckptd_entries_undone(entries);
	for (const struct ckptd_entry *entry = entries->first; entry; entry = entry->next)
		over++;
	for (struct ckptd_entry *entry = entries->first, *next; entry && over > REMEMBERED;
		 entry = next) {
		next = entry->next;
		if (!ckptd_entries_is_done(entries, entry))
			continue;
		ckptd_entries_drop(entries, entry);
		over--;
	}
}
