/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated instructions: the PTX ISA's lane layouts, taken down to the element. */
#include "config.h"

#include "tests/shim/ptx.h"

#include "common/bytes.h"
#include "tests/shim/block.h"
#include "tests/shim/fiber.h"
#include "tests/shim/shared.h"
#include "tests/shim/warp.h"

#define ALL 0xffffffffu
#define PENDING_MOST 256 /* copies of a thread */

/* Copies of one thread, oldest first. */
static struct pending {
	unsigned int block; /* which they are of, by block_count */
	unsigned int first, end, committed;
	struct ptx_copy copy[PENDING_MOST];
	unsigned int group[PENDING_MOST];
} pending[FIBERS_MOST];
static unsigned int block_count;

UNWATCHED void ptx_reset(void)
{
	block_count++;
}

/* The 16 elements of a row of A, or of a column of B. Four lanes brought them, each in two words
 * that are `stride` apart: of A words 0 and 2, or 1 and 3 for the rows from 8 on; of B 4 and 5. */
UNWATCHED static void take(float elements[16], const uint32_t (*words)[WARP_WORDS], int lane,
	int word, int stride)
{
	for (int i = 0; i < 8; i++) {
		uint32_t two = words[lane + i % 4][word + i / 4 * stride];
		elements[2 * i] = bytes_bf16_to_float((uint16_t)two);
		elements[2 * i + 1] = bytes_bf16_to_float((uint16_t)(two >> 16));
	}
}

UNWATCHED void ptx_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	const uint32_t brought[6] = { a[0], a[1], a[2], a[3], b[0], b[1] };
	const uint32_t(*words)[WARP_WORDS] = warp_meet(WARP_MMA, ALL, brought, 6);
	int row = (int)warp_lane() / 4, column = (int)warp_lane() % 4 * 2;
	float rows[2][16], columns[2][16]; /* row and row + 8, column and column + 1 */
	for (int i = 0; i < 2; i++) {
		take(rows[i], words, row * 4, i, 2);
		take(columns[i], words, (column + i) * 4, 4, 1);
	}
	for (int i = 0; i < 4; i++) {
		double sum = (double)d[i];
		for (int k = 0; k < 16; k++)
			sum += (double)rows[i / 2][k] * (double)columns[i % 2][k];
		d[i] = (float)sum;
	}
	warp_leave();
}

UNWATCHED static void check_address(const char *what, const void *p, bool shared)
{
	if ((uintptr_t)p % 16)
		block_fault("%s of %p, which is not aligned to 16 bytes", what, p);
	if (shared && !shared_holds(p, 16))
		block_fault("%s of %p, where the block has no 16 bytes of shared memory", what, p);
}

UNWATCHED void ptx_rows(const void *own, const void **rows, int count)
{
	union {
		const void *address;
		uint32_t words[2];
	} u = { own };
	check_address("ldmatrix", own, true);
	const uint32_t(*words)[WARP_WORDS] = warp_meet(WARP_LDMATRIX, ALL, u.words, 2);
	for (int i = 0; i < count; i++) {
		u.words[0] = words[i][0];
		u.words[1] = words[i][1];
		rows[i] = u.address;
	}
	warp_leave();
}

/* The running thread's. */
UNWATCHED static struct pending *own_copies(void)
{
	struct pending *own = &pending[block_thread()];
	if (own->block != block_count) {
		own->block = block_count;
		own->first = own->end = own->committed = 0;
	}
	return own;
}

UNWATCHED bool ptx_copies_now(const struct ptx_copy *copy)
{
	struct pending *own = own_copies();
	check_address("cp.async into shared memory", copy->to, true);
	check_address("cp.async", copy->from, false);
	if (block_coin())
		return true;
	if (own->end - own->first == PENDING_MOST)
		block_fault("has %d copies under way, and the shim room for no more", PENDING_MOST);
	own->copy[own->end % PENDING_MOST] = *copy;
	own->group[own->end++ % PENDING_MOST] = own->committed;
	return false;
}

UNWATCHED void ptx_commit(void)
{
	own_copies()->committed++;
}

UNWATCHED bool ptx_finished(int groups, struct ptx_copy *copy)
{
	struct pending *own = own_copies();
	if (own->first == own->end
		|| own->group[own->first % PENDING_MOST] + (unsigned int)groups >= own->committed)
		return false;
	*copy = own->copy[own->first++ % PENDING_MOST];
	return true;
}
