/* SPDX-License-Identifier: Apache-2.0 */
/* Retention as a pure function, so that its choice can be tested without a disk. */
#include "checkpoint/directory/retention.h"

#include <math.h>

/* Whether fewer than policy->keep_best checkpoints are better: have a lower loss, or the same loss
 * and are newer. */
static bool is_best(const struct retention *policy, const struct retention_item *items,
	size_t count, size_t at)
{
	size_t better = 0;
	if (isnan(items[at].validation_loss))
		return false;
	for (size_t i = 0; i < count; i++)
		better += items[i].validation_loss < items[at].validation_loss
			|| (items[i].validation_loss == items[at].validation_loss && i > at);
	return better < policy->keep_best;
}

size_t retention_pick(const struct retention *policy, const struct retention_item *items,
	size_t count, int64_t *remove)
{
	size_t picked = 0;
	if (policy->keep_last == 0 || count <= policy->keep_last)
		return 0;
	for (size_t i = 0; i < count - policy->keep_last; i++) {
		bool periodic = policy->keep_every > 0 && items[i].step % policy->keep_every == 0;
		if (!items[i].pinned && !periodic && !is_best(policy, items, count, i))
			remove[picked++] = items[i].step;
	}
	return picked;
}
