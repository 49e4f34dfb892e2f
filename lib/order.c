/* SPDX-License-Identifier: Apache-2.0 */
/* The order of samples, as muster-train has it. */
#include "config.h"

#include <inttypes.h>

#include "lib/muster_private.h"
#include "order/sampler.h"

static int take(const struct muster_order *given, struct sampler *sampler, struct err *err)
{
	struct muster_order whole = { 0 };
	if (muster_check_given(given, "the order", err) < 0
		|| muster_take_sized(&whole, sizeof whole, given, given->size, sizeof whole, "muster_order",
			   err)
			< 0)
		return -1;
	if (whole.count == 0 || whole.count > INT64_MAX)
		return err_fail(err, EXIT_USAGE,
			"data: couldn't order %" PRIu64 " samples: give 1 to 2^63 - 1", whole.count);
	if (whole.batch == 0 || whole.batch > INT64_MAX)
		return err_fail(err, EXIT_USAGE,
			"data: couldn't use a batch of %" PRIu64 " samples: give 1 to 2^63 - 1", whole.batch);
	*sampler = (struct sampler) { .seed = whole.seed,
		.count = whole.count,
		.global_batch = whole.batch,
		.complete = whole.complete,
		.shuffle = whole.shuffle };
	if (sampler_epoch_steps(sampler) == 0)
		return err_fail(err, EXIT_USAGE,
			"data: couldn't make a batch of %" PRIu64 " of %" PRIu64
			" samples: give a smaller batch, or more samples",
			whole.batch, whole.count);
	return 0;
}

int muster_order_steps(const struct muster_order *order, uint64_t *steps)
{
	struct sampler sampler;
	struct err err;
	if (muster_check_given(steps, "the place for the number of steps", &err) < 0)
		return muster_failed(&err);
	*steps = 0;
	if (take(order, &sampler, &err) < 0)
		return muster_failed(&err);
	*steps = sampler_epoch_steps(&sampler);
	return MUSTER_OK;
}

int muster_order_samples(const struct muster_order *order, uint64_t step, uint64_t place,
	size_t count, uint64_t *samples)
{
	struct sampler sampler;
	struct err err;
	if (take(order, &sampler, &err) < 0
		|| (count > 0 && muster_check_given(samples, "the place for the samples", &err) < 0))
		return muster_failed(&err);
	if (place > sampler.global_batch || count > sampler.global_batch - place) {
		err_fail(&err, EXIT_USAGE,
			"data: couldn't tell places %" PRIu64 " to %" PRIu64
			" of a step: its batch has %" PRIu64,
			place, place + count, sampler.global_batch);
		return muster_failed(&err);
	}
	for (size_t i = 0; i < count; i++)
		samples[i] = sampler_at(&sampler, step, place + i);
	return MUSTER_OK;
}
