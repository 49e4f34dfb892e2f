/* SPDX-License-Identifier: Apache-2.0 */
/* Where lanes of a warp meet. */
#include "config.h"

#include "tests/shim/warp.h"

#include <stdbool.h>

#include "tests/shim/block.h"
#include "tests/shim/fiber.h"

#define WARPS (FIBERS_MOST / WARP_LANES)

/* Lanes that have come to one call with one mask. It is there until the last of them has read what
 * the others brought: the first may long be at their next ones. */
struct meeting {
	enum warp_call call;
	uint32_t mask;    /* bits: the lanes that it is of, */
	uint32_t waiting; /* those that have come, until all have, */
	uint32_t reading; /* and those that have not read yet, once all have come */
	uint32_t words[WARP_LANES][WARP_WORDS];
	uint64_t token;
};

static struct warp {
	uint32_t lanes, left; /* bits: that the block has, and that have left the kernel */
	uint32_t used;        /* bits of meetings: a lane is in one at most */
	struct meeting *read_by[WARP_LANES]; /* the one that a lane reads */
	struct meeting meeting[WARP_LANES];
} warps[WARPS];

static const char *const names[] = { "__syncwarp()", "__shfl_sync()", "__shfl_up_sync()",
	"__shfl_down_sync()", "__shfl_xor_sync()", "__ballot_sync()", "__any_sync()", "__all_sync()",
	"__match_any_sync()", "mma", "ldmatrix" };

UNWATCHED unsigned int warp_lane(void)
{
	return block_thread() % WARP_LANES;
}

UNWATCHED static struct warp *own_warp(void)
{
	return &warps[block_thread() / WARP_LANES];
}

UNWATCHED static unsigned int lowest(uint32_t bits)
{
	return (unsigned int)__builtin_ctz(bits);
}

UNWATCHED void warps_reset(unsigned int threads)
{
	for (unsigned int w = 0; w * WARP_LANES < threads; w++) {
		unsigned int lanes = threads - w * WARP_LANES;
		warps[w].lanes = lanes >= WARP_LANES ? ~UINT32_C(0) : (UINT32_C(1) << lanes) - 1;
		warps[w].left = warps[w].used = 0;
	}
}

UNWATCHED void warp_left(unsigned int thread)
{
	struct warp *warp = &warps[thread / WARP_LANES];
	uint32_t bit = UINT32_C(1) << thread % WARP_LANES;
	warp->left |= bit;
	for (uint32_t rest = warp->used; rest; rest &= rest - 1) {
		const struct meeting *other = &warp->meeting[lowest(rest)];
		if (other->waiting && other->mask & bit)
			block_fault(
				"leaves the kernel, but lane %u of its warp waits for it at %s with mask 0x%08x",
				lowest(other->waiting), names[other->call], other->mask);
	}
}

/* What makes a call undefined on the GPU. */
UNWATCHED static void check(const struct warp *warp, enum warp_call call, uint32_t mask)
{
	uint32_t own = UINT32_C(1) << warp_lane();
	if (!(mask & own))
		block_fault("calls %s with mask 0x%08x, which does not name its own lane %u", names[call],
			mask, warp_lane());
	if (mask & ~warp->lanes)
		block_fault("calls %s with mask 0x%08x, which names lane %u, but the block ends before it",
			names[call], mask, lowest(mask & ~warp->lanes));
	if (mask & warp->left)
		block_fault("calls %s with mask 0x%08x, which names lane %u, but that has left the kernel",
			names[call], mask, lowest(mask & warp->left));
	for (uint32_t rest = warp->used; rest; rest &= rest - 1) {
		const struct meeting *other = &warp->meeting[lowest(rest)];
		if (other->waiting & mask && other->mask & own
			&& (other->mask != mask || other->call != call))
			block_fault(
				"calls %s with mask 0x%08x, but lane %u waits for it at %s with mask 0x%08x",
				names[call], mask, lowest(other->waiting & mask), names[other->call], other->mask);
	}
}

/* The meeting of this call and mask that lanes wait in, or a new one. */
UNWATCHED static struct meeting *find(struct warp *warp, enum warp_call call, uint32_t mask)
{
	for (uint32_t rest = warp->used; rest; rest &= rest - 1) {
		struct meeting *other = &warp->meeting[lowest(rest)];
		if (other->waiting && other->mask == mask && other->call == call)
			return other;
	}
	unsigned int unused = lowest(~warp->used);
	struct meeting *meeting = &warp->meeting[unused];
	warp->used |= UINT32_C(1) << unused;
	meeting->call = call;
	meeting->mask = mask;
	meeting->waiting = 0;
	return meeting;
}

/* Wakes all lanes of a meeting that is whole. */
UNWATCHED static void wake(struct meeting *meeting)
{
	unsigned int first = block_thread() - warp_lane();
	meeting->reading = meeting->mask;
	meeting->waiting = 0;
	for (uint32_t rest = meeting->mask; rest; rest &= rest - 1)
		block_wake(first + lowest(rest));
}

/* Returns when all lanes in `mask` have come. */
UNWATCHED static const struct meeting *meet(enum warp_call call, uint32_t mask,
	const uint32_t *brought, int words)
{
	struct warp *warp = own_warp();
	unsigned int lane = warp_lane();
	check(warp, call, mask);
	struct meeting *meeting = find(warp, call, mask);
	for (int i = 0; i < words; i++)
		meeting->words[lane][i] = brought[i];
	meeting->waiting |= UINT32_C(1) << lane;
	if (call == WARP_SYNC)
		fiber_release(&meeting->token);
	if (meeting->waiting == mask)
		wake(meeting);
	block_sleep(names[call]);
	if (call == WARP_SYNC)
		fiber_acquire(&meeting->token);
	return warp->read_by[lane] = meeting;
}

UNWATCHED void warp_leave(void)
{
	struct warp *warp = own_warp();
	struct meeting *meeting = warp->read_by[warp_lane()];
	meeting->reading &= ~(UINT32_C(1) << warp_lane());
	if (!meeting->reading)
		warp->used &= ~(UINT32_C(1) << (meeting - warp->meeting));
}

UNWATCHED const uint32_t (
	*warp_meet(enum warp_call call, uint32_t mask, const uint32_t *brought, int words))[WARP_WORDS]
{
	return meet(call, mask, brought, words)->words;
}

UNWATCHED void warp_sync(uint32_t mask)
{
	meet(WARP_SYNC, mask, NULL, 0);
	warp_leave();
}

UNWATCHED uint32_t warp_ballot(enum warp_call call, uint32_t mask, int predicate)
{
	uint32_t brought = predicate != 0, ballot = 0;
	const struct meeting *meeting = meet(call, mask, &brought, 1);
	for (uint32_t rest = mask; rest; rest &= rest - 1)
		ballot |= meeting->words[lowest(rest)][0] << lowest(rest);
	warp_leave();
	return ballot;
}

/* The lane that a shuffle reads: PTX's shfl.sync. A lane outside of the segment of `width` lanes:
 * the own one. */
UNWATCHED static unsigned int source_lane(enum warp_call call, int operand, int width)
{
	int lane = (int)warp_lane(), first = lane & -width, last = first + width - 1, source = lane;
	if (call == WARP_SHUFFLE)
		source = first | (operand & (width - 1));
	if (call == WARP_SHUFFLE_UP)
		source = lane - operand < first ? lane : lane - operand;
	if (call == WARP_SHUFFLE_DOWN)
		source = lane + operand > last ? lane : lane + operand;
	if (call == WARP_SHUFFLE_XOR)
		source = (lane ^ operand) > last ? lane : lane ^ operand;
	return (unsigned int)source;
}

UNWATCHED uint64_t warp_shuffle(enum warp_call call, uint32_t mask, uint64_t value, int operand,
	int width)
{
	if (width < 1 || width > WARP_LANES || width & (width - 1))
		block_fault("calls %s with width %d, which is no power of two up to 32", names[call],
			width);
	uint32_t brought[2] = { (uint32_t)value, (uint32_t)(value >> 32) };
	unsigned int source = source_lane(call, operand, width);
	const struct meeting *meeting = meet(call, mask, brought, 2);
	if (!(mask >> source & 1))
		block_fault("calls %s with mask 0x%08x, which does not name lane %u that it reads",
			names[call], mask, source);
	const uint32_t *words = meeting->words[source];
	value = (uint64_t)words[1] << 32 | words[0];
	warp_leave();
	return value;
}
