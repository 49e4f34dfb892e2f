/* SPDX-License-Identifier: Apache-2.0 */
/* Retention as a pure function, so that what it removes can be tested without a disk. */
#include "checkpoint/retention.h"

size_t retention_pick(const struct retention *policy, const int64_t *steps, size_t count, int64_t *remove)
{
	size_t picked = 0;
	if (policy->keep_last == 0 || count <= policy->keep_last)
		return 0;
	for (size_t i = 0; i < count - policy->keep_last; i++) {
		if (policy->keep_every > 0 && steps[i] % policy->keep_every == 0)
			continue;
		remove[picked++] = steps[i];
	}
	return picked;
}
