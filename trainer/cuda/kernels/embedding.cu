/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding, bound by memory. In elements or bytes: forward moves M·C·(wte, out) and T·C of
 * wpe; backward M·C of dout twice (the second time for dwpe), 8·C bytes for each token that occurs,
 * and 4·T·C bytes for dwpe. */
#include "trainer/cuda/kernels/embedding.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define WARPS 8
#define THREADS (WARPS * LANES)
#define AHEAD 8 /* rows that are loaded at once, before they are added */
#define RUN 128 /* a token with as many rows is a frequent one */

/* out: [M,C]; tokens: [M]; wte: [V,C]; wpe: [T,C]; a warp a row, P columns a lane at a time */
template <typename E, int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	embedding_kernel(E *out, const int32_t *tokens, const E *wte, const E *wpe, int M, int T, int C)
{
	const int m = (int)(blockIdx.x * WARPS + threadIdx.x / LANES);
	if (m >= M)
		return;
	const E *const token = wte + (size_t)tokens[m] * C, *const position = wpe + (size_t)(m % T) * C;
#pragma unroll 4
	for (int c = threadIdx.x % LANES * P; c < C; c += LANES * P) {
		float sum[P], other[P];
		load(sum, token + c);
		load(other, position + c);
		UNROLL
		for (int e = 0; e < P; e++)
			sum[e] += other[e];
		store(out + (size_t)m * C + c, sum);
	}
}

/* dwpe: [T,C]; dout: [B,T,C]; a thread has P columns of a position */
template <typename E, int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	embedding_positions_kernel(float *dwpe, const E *dout, int B, size_t elements, int accumulate)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * P;
	float sum[P] = {}, row[P];
	if (i >= elements)
		return;
	if (accumulate)
		load(sum, dwpe + i);
#pragma unroll 8
	for (int b = 0; b < B; b++) {
		load(row, dout + b * elements + i);
		UNROLL
		for (int e = 0; e < P; e++)
			sum[e] += row[e];
	}
	store(dwpe + i, sum);
}

/* Adds the first `count` of 32 rows of dout, one after the other; each lane has its row's number.
 * ROWS of them are under way at once: none is loaded under a condition, since the branch would wait
 * for it, so what comes after the last row is that row again. */
template <typename E, int P, int ROWS>
__device__ __forceinline__ void add_rows(float (&sum)[P], const E *dout, uint32_t place, int count,
	int C)
{
	for (int first = 0; first < count; first += ROWS) {
		float row[ROWS][P];
		UNROLL
		for (int n = 0; n < ROWS; n++) {
			const int lane = first + n < count ? first + n : count - 1;
			load(row[n], dout + (size_t)__shfl_sync(0xffffffffu, place, lane) * C);
		}
		UNROLL
		for (int n = 0; n < ROWS; n++)
			UNROLL
		for (int e = 0; e < P; e++)
			sum[e] = first + n < count ? sum[e] + row[n][e] : sum[e];
	}
}

/* The sorted tokens and their places: [M] */
struct sorted_tokens {
	const uint32_t *tokens, *places;
	uint32_t M;
};

/* A warp adds to columns [c, c + P) of each lane all rows of the token that occurs first at
 * `first`. dwte: [V,C]; dout: [M,C] */
template <int P, int ROWS, typename E>
__device__ __forceinline__ void add_token(float *dwte, const E *dout,
	const struct sorted_tokens &sorted, uint32_t first, int c, int C)
{
	const uint32_t token = sorted.tokens[first], last = sorted.M - 1;
	const int column = c < C ? c : C - P; /* for a lane beyond the row, which stores nothing */
	float *const row = dwte + (size_t)token * C + c;
	size_t i = (size_t)first + threadIdx.x % LANES;
	uint32_t at = i < sorted.M ? (uint32_t)i : last, other = sorted.tokens[at],
			 place = sorted.places[at];
	float sum[P] = {};
	int count;
	if (c < C)
		load(sum, row);
	do {
		const uint32_t own = place;
		count = __popc(__ballot_sync(0xffffffffu, i < sorted.M && other == token));
		/* Those of the next round are under way meanwhile. */
		i += LANES;
		at = i < sorted.M ? (uint32_t)i : last;
		other = sorted.tokens[at];
		place = sorted.places[at];
		add_rows<E, P, ROWS>(sum, dout + column, own, count, C);
	} while (count == LANES);
	if (c < C)
		store(row, sum);
}

/* Warp (x, y) has columns [32·P·y, …) of the token whose first occurrence is sorted[x], unless it
 * is a frequent one; a warp whose x is not a first occurrence has nothing to do. */
template <typename E, int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	embedding_tokens_kernel(float *dwte, const E *dout, const struct sorted_tokens sorted, int C)
{
	const uint32_t first = blockIdx.x * WARPS + threadIdx.x / LANES;
	const size_t mark = ((size_t)first + RUN - 1) / RUN * RUN;
	if (first >= sorted.M || (first > 0 && sorted.tokens[first - 1] == sorted.tokens[first])
		|| (mark < sorted.M && sorted.tokens[mark] == sorted.tokens[first]))
		return;
	add_token<P, AHEAD>(dwte, dout, sorted, first,
		(int)(blockIdx.y * LANES + threadIdx.x % LANES) * P, C);
}

/* The frequent ones are those that occur at a multiple of RUN: the rows of one are added one after
 * the other, so that it takes as long as its loads are late. Here a lane has one column, and more
 * rows under way. Warp (x, y) has columns [32·y, …) of the token at RUN·x, unless an earlier warp
 * has it. */
template <typename E>
__global__ void LAUNCH_BOUNDS(THREADS)
	embedding_frequent_kernel(float *dwte, const E *dout, const struct sorted_tokens sorted, int C)
{
	const uint32_t lane = threadIdx.x % LANES;
	const size_t mark = ((size_t)blockIdx.x * WARPS + threadIdx.x / LANES) * RUN;
	if (mark >= sorted.M || (mark > 0 && sorted.tokens[mark - RUN] == sorted.tokens[mark]))
		return;
	const uint32_t token = sorted.tokens[mark];
	uint32_t first = (uint32_t)mark;
	for (uint32_t before = lane + 1; before <= RUN; before += LANES)
		first -= __popc(
			__ballot_sync(0xffffffffu, before <= mark && sorted.tokens[mark - before] == token));
	add_token<1, LANES>(dwte, dout, sorted, first, (int)(blockIdx.y * LANES + lane), C);
}

static unsigned int parts(size_t count, size_t own)
{
	return (unsigned int)((count + own - 1) / own);
}

template <typename E, int P>
static int launch_forward(void *out, const int32_t *tokens, const void *wte, const void *wpe, int M,
	int T, int C, void *stream)
{
	auto kernel = embedding_kernel<E, P>;
	return LAUNCH(kernel, parts((size_t)M, WARPS), THREADS, 0, stream, (E *)out, tokens,
		(const E *)wte, (const E *)wpe, M, T, C);
}

template <typename E>
static int forward(void *out, const int32_t *tokens, const void *wte, const void *wpe, int M, int T,
	int C, void *stream)
{
	return C % pack_of<E> == 0 && is_wide(out, wte, wpe)
		? launch_forward<E, pack_of<E>>(out, tokens, wte, wpe, M, T, C, stream)
		: launch_forward<E, 1>(out, tokens, wte, wpe, M, T, C, stream);
}

extern "C" int cuda_embedding(void *out, const int32_t *tokens, const void *wte, const void *wpe,
	int B, int T, int C, enum cuda_type type, void *stream)
{
	if (B == 0 || T == 0)
		return 0;
	return type == CUDA_FP32 ? forward<float>(out, tokens, wte, wpe, B * T, T, C, stream)
							 : forward<bf16>(out, tokens, wte, wpe, B * T, T, C, stream);
}

/* The operands of the backward pass: B·T = M tokens in ascending order. */
struct backward {
	float *dwte, *dwpe;
	const void *dout;
	const uint32_t *sorted, *places;
	int B, T, C, accumulate;
};

template <typename E, int P> static int launch_backward(const struct backward &b, void *stream)
{
	const unsigned int M = (unsigned int)(b.B * b.T);
	const size_t elements = (size_t)b.T * b.C;
	auto positions = embedding_positions_kernel<E, P>;
	auto tokens = embedding_tokens_kernel<E, P>;
	auto frequent = embedding_frequent_kernel<E>;
	int error = LAUNCH(positions, parts(elements, THREADS * P), THREADS, 0, stream, b.dwpe,
		(const E *)b.dout, b.B, elements, b.accumulate);
	if (error || M == 0)
		return error;
	const struct sorted_tokens sorted = { b.sorted, b.places, M };
	error = LAUNCH(tokens, dim3(parts(M, WARPS), parts((size_t)b.C, LANES * P)), THREADS, 0, stream,
		b.dwte, (const E *)b.dout, sorted, b.C);
	return error ? error
				 : LAUNCH(frequent, dim3(parts(M, WARPS * RUN), parts((size_t)b.C, LANES)), THREADS,
					 0, stream, b.dwte, (const E *)b.dout, sorted, b.C);
}

template <typename E> static int backward(const struct backward &b, void *stream)
{
	return b.C % pack_of<E> == 0 && is_wide(b.dwte, b.dwpe, b.dout)
		? launch_backward<E, pack_of<E>>(b, stream)
		: launch_backward<E, 1>(b, stream);
}

extern "C" int cuda_embedding_backward(float *dwte, float *dwpe, void *scratch, const void *dout,
	const int32_t *tokens, int B, int T, int C, int V, int accumulate, enum cuda_type type,
	void *stream)
{
	struct backward b = { dwte, dwpe, dout, NULL, NULL, B, T, C, accumulate };
	int error = 0;
	if (T == 0)
		return 0;
	if (B > 0)
		error =
			cuda_token_sort(&b.sorted, &b.places, (uint32_t *)scratch, tokens, B * T, V, stream);
	if (error)
		return error;
	return type == CUDA_FP32 ? backward<float>(b, stream) : backward<bf16>(b, stream);
}
