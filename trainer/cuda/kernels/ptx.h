/* SPDX-License-Identifier: Apache-2.0 */
/* GPU instructions that CUDA C++ has no name for, one function each (sm_80 and later; names and
 * layouts are those of the PTX ISA's chapters "Warp level matrix instructions" and "Data
 * movement"). On the host tests/shim/ emulates them. All 32 lanes of a warp call the matrix
 * instructions (mma and ldmatrix) together. For .cu files only.
 *
 * Lane l, with g = l / 4 and t = l % 4, holds the following; a word has two bf16, the first in its
 * lower half:
 *
 *   of A[16][16], by rows:    a[0] = A[g][2t, 2t+1],   a[1] = A[g+8][2t …],
 *                             a[2] = A[g][2t+8 …],     a[3] = A[g+8][2t+8 …]
 *   of B[16][8], by columns:  b[0] = B[2t, 2t+1][g],   b[1] = B[2t+8, 2t+9][g]
 *   of D[16][8], in fp32:     d[0], d[1] = D[g][2t, 2t+1],   d[2], d[3] = D[g+8][2t, 2t+1] */
#ifndef MUSTER_CUDA_PTX_H
#define MUSTER_CUDA_PTX_H

#include "trainer/cuda/kernels/launch.h"

#ifdef __CUDACC__

/* D += A · B */
__device__ __forceinline__ void mma_m16n8k16_bf16(float d[4], const uint32_t a[4],
	const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, "
				 "%6, %7}, {%8, %9}, {%0, %1, %2, %3};"
				 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
				 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t ptx_shared_address(const void *shared)
{
	return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Reads four matrices of 8 rows of 8 elements of 2 bytes. Lane l passes the address of row l % 8 of
 * matrix l / 8 (16 bytes, aligned to 16), and gets in r[m] the elements 2t and 2t + 1 of row g of
 * matrix m. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *shared)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
				 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
				 : "r"(ptx_shared_address(shared))
				 : "memory");
}

/* The same transposed: gets the elements 2t and 2t + 1 of column g. */
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t r[4], const void *shared)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
				 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
				 : "r"(ptx_shared_address(shared))
				 : "memory");
}

/* Two matrices: lanes 0 to 15 pass their rows; the others must pass a valid address, too. */
__device__ __forceinline__ void ldmatrix_x2(uint32_t r[2], const void *shared)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
				 : "=r"(r[0]), "=r"(r[1])
				 : "r"(ptx_shared_address(shared))
				 : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t r[2], const void *shared)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
				 : "=r"(r[0]), "=r"(r[1])
				 : "r"(ptx_shared_address(shared))
				 : "memory");
}

/* Starts to copy 16 bytes, both addresses aligned to 16; if not `valid`, writes zeros and does not
 * read `global`. This thread sees the bytes after cp_async_wait(), other threads of its block after
 * a barrier that follows that. */
__device__ __forceinline__ void cp_async_16(void *shared, const void *global, bool valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ptx_shared_address(shared)),
				 "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
				 : "memory");
}

/* Makes a group of this thread's copies since the last commit. */
__device__ __forceinline__ void cp_async_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most the newest `groups` groups of this thread are in flight. */
template <int groups> __device__ __forceinline__ void cp_async_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

/* 2^x with a relative error of about 2^-22; results below the normal numbers become 0. One
 * instruction, while exp2f takes several. */
__device__ __forceinline__ float exp2_approx(float x)
{
	float result;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
	return result;
}

#else

#include <cuda_ptx.h> /* tests/shim/ */

#endif

#endif
