/* SPDX-License-Identifier: Apache-2.0 */
/* A radix sort, stable and without atomics. Every warp has a run of tokens and counts their digits
 * in order; the counts of all warps before it, and of all lower digits, tell where each token goes.
 * It takes microseconds for a step's tokens: it moves 28·M bytes a digit. */
#include "trainer/cuda/kernels/token_sort.h"

#include "trainer/cuda/kernels/launch.h"

#define WARPS 8
#define THREADS (WARPS * LANES) /* as many as digits, so that a digit can be one thread's */
#define DIGITS 256
#define DIGIT_BITS 8
#define STRIPS (TOKEN_SORT_TILE / THREADS) /* strips of 32 tokens in a warp's run */

/* The pass of one digit: sorts tokens and their places (NULL: 0, 1, …) from one set into the
 * other. */
struct sort_pass {
	const uint32_t *tokens, *places; /* [M] */
	uint32_t *to_tokens, *to_places; /* [M] */
	uint32_t *counts;                /* [tiles][256], then where each digit's first token goes */
	uint32_t M;
	int shift;
};

/* The lanes that have this lane's digit. */
__device__ __forceinline__ uint32_t same_digit(uint32_t digit, uint32_t present)
{
	uint32_t same = present;
	UNROLL
	for (int bit = 0; bit < DIGIT_BITS; bit++) {
		const uint32_t set = __ballot_sync(0xffffffffu, digit >> bit & 1);
		same &= digit >> bit & 1 ? set : ~set;
	}
	return same;
}

/* Goes over a warp's run, strip by strip. seen[digit] is the warp's own count, in the end that of
 * its whole run. Calls found(the token's number, its digit, seen[digit] plus the number of earlier
 * lanes with this digit). */
template <typename F>
__device__ __forceinline__ void walk_run(const struct sort_pass &pass, uint32_t *seen, F found)
{
	const uint32_t lane = threadIdx.x % LANES,
				   run = blockIdx.x * TOKEN_SORT_TILE + threadIdx.x / LANES * LANES * STRIPS;
	for (int strip = 0; strip < STRIPS; strip++) {
		const uint32_t i = run + strip * LANES + lane;
		const uint32_t digit = i < pass.M ? pass.tokens[i] >> pass.shift & (DIGITS - 1) : 0;
		const uint32_t same = same_digit(digit, __ballot_sync(0xffffffffu, i < pass.M));
		const uint32_t before = i < pass.M ? seen[digit] : 0;
		const uint32_t rank = __popc(same & ((1u << lane) - 1));
		__syncwarp();
		if (i < pass.M && rank == 0)
			seen[digit] = before + __popc(same);
		__syncwarp();
		if (i < pass.M)
			found(i, digit, before + rank);
	}
}

/* counts[tile][digit] = number of the tile's tokens with this digit */
__global__ void LAUNCH_BOUNDS(THREADS) token_count_kernel(const struct sort_pass pass)
{
	SHARED(uint32_t, seen, WARPS * DIGITS);
	uint32_t count = 0;
	for (int w = 0; w < WARPS; w++)
		seen[w * DIGITS + threadIdx.x] = 0;
	__syncthreads();
	walk_run(pass, seen + threadIdx.x / LANES * DIGITS, [](uint32_t, uint32_t, uint32_t) {});
	__syncthreads();
	for (int w = 0; w < WARPS; w++)
		count += seen[w * DIGITS + threadIdx.x];
	pass.counts[(size_t)blockIdx.x * DIGITS + threadIdx.x] = count;
}

/* One block: counts[tile][digit] becomes the number of tokens with a lower digit, or with this one
 * in an earlier tile. */
__global__ void LAUNCH_BOUNDS(THREADS) token_place_kernel(uint32_t *counts, uint32_t tiles)
{
	SHARED(uint32_t, totals, DIGITS);
	uint32_t total = 0, first = 0;
#pragma unroll 8
	for (uint32_t t = 0; t < tiles; t++)
		total += counts[(size_t)t * DIGITS + threadIdx.x];
	totals[threadIdx.x] = total;
	__syncthreads();
	for (uint32_t d = 0; d < threadIdx.x; d++)
		first += totals[d];
#pragma unroll 8
	for (uint32_t t = 0; t < tiles; t++) {
		const uint32_t count = counts[(size_t)t * DIGITS + threadIdx.x];
		counts[(size_t)t * DIGITS + threadIdx.x] = first;
		first += count;
	}
}

/* Moves each token and its place to where they belong by this digit. */
__global__ void LAUNCH_BOUNDS(THREADS) token_move_kernel(const struct sort_pass pass)
{
	SHARED(uint32_t, seen, WARPS * DIGITS);
	uint32_t *const own = seen + threadIdx.x / LANES * DIGITS;
	uint32_t at;
	for (int w = 0; w < WARPS; w++)
		seen[w * DIGITS + threadIdx.x] = 0;
	__syncthreads();
	walk_run(pass, own, [](uint32_t, uint32_t, uint32_t) {});
	__syncthreads();
	/* Turns the warps' counts of a digit into where each warp's first token goes. */
	at = pass.counts[(size_t)blockIdx.x * DIGITS + threadIdx.x];
	for (int w = 0; w < WARPS; w++) {
		const uint32_t count = seen[w * DIGITS + threadIdx.x];
		seen[w * DIGITS + threadIdx.x] = at;
		at += count;
	}
	__syncthreads();
	walk_run(pass, own, [&](uint32_t i, uint32_t, uint32_t to) {
		pass.to_tokens[to] = pass.tokens[i];
		pass.to_places[to] = pass.places ? pass.places[i] : i;
	});
}

static int sort_by_digit(const struct sort_pass &pass, void *stream)
{
	const unsigned int tiles = (pass.M + TOKEN_SORT_TILE - 1) / TOKEN_SORT_TILE;
	int error = LAUNCH(token_count_kernel, tiles, THREADS, 0, stream, pass);
	if (!error)
		error = LAUNCH(token_place_kernel, 1u, THREADS, 0, stream, pass.counts, tiles);
	return error ? error : LAUNCH(token_move_kernel, tiles, THREADS, 0, stream, pass);
}

extern "C" int cuda_token_sort(const uint32_t **sorted, const uint32_t **places, uint32_t *scratch,
	const int32_t *tokens, int M, int V, void *stream)
{
	uint32_t *const set[2] = { scratch, scratch + 2 * (size_t)M };
	struct sort_pass pass = { (const uint32_t *)tokens, NULL, NULL, NULL, scratch + 4 * (size_t)M,
		(uint32_t)M, 0 };
	int error = 0;
	for (int digit = 0;
		 !error && digit < 4 && (digit == 0 || (uint32_t)(V - 1) >> digit * DIGIT_BITS); digit++) {
		pass.to_tokens = set[digit % 2];
		pass.to_places = pass.to_tokens + M;
		pass.shift = digit * DIGIT_BITS;
		error = sort_by_digit(pass, stream);
		pass.tokens = pass.to_tokens;
		pass.places = pass.to_places;
	}
	*sorted = pass.tokens;
	*places = pass.places;
	return error;
}
