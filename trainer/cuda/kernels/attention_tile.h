/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of bf16 in shared memory, and the tensor cores' products of them, for attention_mma*.cu.
 *
 * A tile is rows of D columns, D 64 or 128, each followed by 16 unused bytes. So the same 8 columns
 * of 8 neighbouring rows, which one ldmatrix reads, lie in different banks, and every address is a
 * register plus a constant.
 *
 * Fragments are those of mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): of a 16 × 8
 * result a lane holds rows lane / 4 and lane / 4 + 8, columns 2·(lane % 4) and the next. A result
 * of 16·M × N is [M][N / 8][4] of these. */
#ifndef MUSTER_CUDA_ATTENTION_TILE_H
#define MUSTER_CUDA_ATTENTION_TILE_H

#include "trainer/cuda/kernels/attention_shape.h"
#include "trainer/cuda/kernels/ptx.h"

#define MMA_THREADS 128
#define MMA_WARPS (MMA_THREADS / 32)
#define TILE_PITCH(D) ((D) + 8) /* bf16 from row to row */
#define LOG2_E 1.4426950408889634f

__device__ __forceinline__ int lane_of_thread(void)
{
	return (int)(threadIdx.x % 32);
}

template <int D> __device__ __forceinline__ bf16 *tile_at(bf16 *tile, int row, int column)
{
	return tile + row * TILE_PITCH(D) + column;
}

/* Starts to copy rows [first, first + ROWS) of a head; writes zeros below its last row and right of
 * its last column. */
template <int D, int ROWS>
__device__ __forceinline__ void tile_load(bf16 *tile, const bf16 *head, size_t stride, int first,
	const attention_shape &shape)
{
	constexpr int PIECES = D / 8, AT_ONCE = MMA_THREADS / PIECES;
	static_assert(ROWS % AT_ONCE == 0, "every thread copies one piece of every AT_ONCE-th row");
	int row = (int)threadIdx.x / PIECES, piece = (int)threadIdx.x % PIECES;
	const bf16 *from = head + (size_t)(first + row) * stride + (size_t)(piece * 8);
	UNROLL
	for (int i = 0; i < ROWS; i += AT_ONCE) {
		bool inside = first + row + i < shape.T && piece * 8 < shape.D;
		cp_async_16(tile_at<D>(tile, row + i, piece * 8), from,
			inside); /* outside it reads nothing */
		from += (size_t)AT_ONCE * stride;
	}
}

/* Reads 16 rows and 16 columns as operand A; transposed, as operand B of two products: columns 0–7,
 * then 8–15. */
template <int D>
__device__ __forceinline__ void tile_rows(uint32_t to[4], bf16 *tile, int row, int column)
{
	ldmatrix_x4(to,
		tile_at<D>(tile, row + lane_of_thread() % 16, column + lane_of_thread() / 16 * 8));
}

template <int D>
__device__ __forceinline__ void tile_rows_trans(uint32_t to[4], bf16 *tile, int row, int column)
{
	ldmatrix_x4_trans(to,
		tile_at<D>(tile, row + lane_of_thread() % 16, column + lane_of_thread() / 16 * 8));
}

/* Reads 16 rows and 16 columns as operand B of two products with the tile's transpose: rows 0–7,
 * then 8–15. */
template <int D>
__device__ __forceinline__ void tile_columns(uint32_t to[4], bf16 *tile, int row, int column)
{
	int lane = lane_of_thread();
	ldmatrix_x4(to, tile_at<D>(tile, row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
}

/* Operands A of 16·M rows and all columns, held in registers. */
template <int D, int M> struct held_rows {
	uint32_t at[D / 16][M][4];

	__device__ __forceinline__ void read(bf16 *tile, int row)
	{
		UNROLL
		for (int k = 0; k < D / 16; k++)
			UNROLL
		for (int m = 0; m < M; m++)
			tile_rows<D>(at[k][m], tile, row + 16 * m, 16 * k);
	}

	__device__ __forceinline__ void give(uint32_t to[M][4], int k) const
	{
		UNROLL
		for (int m = 0; m < M; m++)
			UNROLL
		for (int i = 0; i < 4; i++)
			to[m][i] = at[k][m][i];
	}
};

/* The same, read from the tile each time, where registers are scarce. */
template <int D, int M> struct tile_operand {
	bf16 *tile;
	int row;

	__device__ __forceinline__ void give(uint32_t to[M][4], int k) const
	{
		UNROLL
		for (int m = 0; m < M; m++)
			tile_rows<D>(to[m], tile, row + 16 * m, 16 * k);
	}
};

/* scores[16·M, N] = a · bᵀ over D columns; b's rows from `row` on */
template <int D, int M, int N, class A>
__device__ __forceinline__ void multiply_rows(float scores[M][N / 8][4], const A &a, bf16 *b,
	int row)
{
	UNROLL
	for (int i = 0; i < M * (N / 8) * 4; i++)
		scores[i / 4 / (N / 8)][i / 4 % (N / 8)][i % 4] = 0;
	UNROLL
	for (int k = 0; k < D / 16; k++) {
		uint32_t left[M][4];
		a.give(left, k);
		UNROLL
		for (int n = 0; n < N / 8; n += 2) {
			uint32_t right[4];
			tile_columns<D>(right, b, row + 8 * n, 16 * k);
			UNROLL
			for (int m = 0; m < M; m++) {
				mma_m16n8k16_bf16(scores[m][n], left[m], right);
				mma_m16n8k16_bf16(scores[m][n + 1], left[m], right + 2);
			}
		}
	}
}

/* results[16·M, D] += weights[16·M, N] · b; b's N rows from `row` on. The weights are rounded to
 * bf16. */
template <int D, int M, int N>
__device__ __forceinline__ void multiply_columns(float results[M][D / 8][4],
	const float weights[M][N / 8][4], bf16 *b, int row)
{
	UNROLL
	for (int k = 0; k < N / 16; k++) {
		uint32_t left[M][4];
		UNROLL
		for (int m = 0; m < M; m++)
			UNROLL
		for (int i = 0; i < 4; i++) {
			const float *pair = &weights[m][2 * k + i / 2][i % 2 * 2];
			left[m][i] = pair_of(pair[0], pair[1]);
		}
		UNROLL
		for (int n = 0; n < D / 8; n += 2) {
			uint32_t right[4];
			tile_rows_trans<D>(right, b, row + 16 * k, 8 * n);
			UNROLL
			for (int m = 0; m < M; m++) {
				mma_m16n8k16_bf16(results[m][n], left[m], right);
				mma_m16n8k16_bf16(results[m][n + 1], left[m], right + 2);
			}
		}
	}
}

/* Writes results[16·M, D] to rows from `row` on, each row times its factor. */
template <int D, int M>
__device__ __forceinline__ void store_rows(bf16 *head, size_t stride,
	const float results[M][D / 8][4], const float factors[M][2], int row,
	const attention_shape &shape)
{
	int column = lane_of_thread() % 4 * 2;
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int half = 0; half < 2; half++) {
		int at = row + 16 * m + 8 * half + lane_of_thread() / 4;
		bf16 *to = head + (size_t)at * stride + (size_t)column;
		UNROLL
		for (int n = 0; n < D / 8; n++)
			if (at < shape.T && 8 * n < shape.D)
				*(uint32_t *)(to + 8 * n) = pair_of(results[m][n][2 * half] * factors[m][half],
					results[m][n][2 * half + 1] * factors[m][half]);
	}
}

#endif
