/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the attention kernels: the shape of their operands, and how blocks are mapped to it.
 * For .cu files only. */
#ifndef MUSTER_CUDA_ATTENTION_SHAPE_H
#define MUSTER_CUDA_ATTENTION_SHAPE_H

#include <math.h>
#include <stddef.h>

#include "trainer/cuda/kernels/bf16.h"
#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/type.h"

struct attention_shape {
	int B, T, C, H, D;
	float scale; /* 1 / sqrt(D) */
};

/* The operands of the backward pass; `sums` [B,H,T] are those of dy ⊙ y over a head's columns. */
struct attention_gradients {
	void *dqkv;
	float *sums;
	const void *dy, *qkv, *y;
	const float *lse;
};

/* Offsets of one head of one sample: column d of position t is at qkv + t·3C + d (k and v C and 2C
 * further) and at y + t·C + d; its row of lse is at lse + t. */
struct attention_head {
	size_t qkv, y, lse;
};

__device__ __forceinline__ attention_head attention_head_at(unsigned int index,
	const attention_shape &shape)
{
	size_t b = index / (unsigned int)shape.H, h = index % (unsigned int)shape.H,
		   row = b * (size_t)shape.T;
	return { (row * 3) * (size_t)shape.C + h * (size_t)shape.D,
		row * (size_t)shape.C + h * (size_t)shape.D, (size_t)index * (size_t)shape.T };
}

/* Number of blocks in a grid, each of `tile` rows of one head. */
static inline unsigned int attention_blocks(const attention_shape &shape, int tile)
{
	return (
		unsigned int)((size_t)shape.B * (size_t)shape.H * (size_t)((shape.T + tile - 1) / tile));
}

/* The head and the first row of this block. Long blocks start first, so that the last to run are
 * short: with `last_first` the tiles of a head go from its end, where a query has the most keys. */
struct attention_block {
	unsigned int head;
	int first;
};

__device__ __forceinline__ attention_block attention_block_at(const attention_shape &shape,
	int tile, bool last_first)
{
	unsigned int tiles = (unsigned int)((shape.T + tile - 1) / tile), at = blockIdx.x % tiles;
	return { blockIdx.x / tiles, (int)(last_first ? tiles - 1 - at : at) * tile };
}

int attention_plain(void *y, float *lse, const void *qkv, const attention_shape &shape,
	cuda_type type, void *stream);
int attention_plain_backward(const attention_gradients &g, const attention_shape &shape,
	cuda_type type, void *stream);
int attention_mma(void *y, float *lse, const void *qkv, const attention_shape &shape, void *stream);
int attention_mma_backward(const attention_gradients &g, const attention_shape &shape,
	void *stream);

#endif
