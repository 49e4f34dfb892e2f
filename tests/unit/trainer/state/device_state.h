/* SPDX-License-Identifier: Apache-2.0 */
/* What a state on a device is, for tests to look at. A file that includes it has stdlib.h. */
#ifndef MUSTER_TESTS_DEVICE_STATE_H
#define MUSTER_TESTS_DEVICE_STATE_H

#include "trainer/state/state.h"

/* Its three arenas one after the other, as they are in a slot of a snapshot: zeros where moments
 * are not kept. The caller's. */
static inline float *device_state_read(const struct state *state)
{
	size_t elements = state->tensors->elements, at = 0;
	const struct zero_shard *own = state->own;
	const float *const moments[] = { state->on_device.m, state->on_device.v };
	float *arenas = calloc(3 * elements, sizeof *arenas);
	state->ops->device->copy_out(state->ops->device, arenas, state->on_device.weights,
		elements * sizeof *arenas);
	for (size_t i = 0; i < state->own_count; at += own[i].end - own[i].first, i++)
		for (int k = 0; k < 2; k++)
			state->ops->device->copy_out(state->ops->device,
				arenas + (size_t)(k + 1) * elements + own[i].first, moments[k] + at,
				(own[i].end - own[i].first) * sizeof *arenas);
	return arenas;
}

#endif
