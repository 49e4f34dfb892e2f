/* SPDX-License-Identifier: Apache-2.0 */
/* Measures matrix products and copies on random data that exceeds the device's last cache, as a
 * training step's data does. */
#include "bench/gemm_time.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "trainer/cuda/host/ops_cuda_private.h"

#define ALIGN 256u
#define CACHES 4 /* operands cycle through this many times the size of the device's last cache */
#define COPIES 20
#define RANDOM_BYTES ((size_t)1 << 24) /* block of random bytes that is repeated */

/* Memory for operands of one kind, handed out one after the other and reused from the beginning. */
struct region {
	char *memory;
	size_t bytes, next;
};

struct bench {
	struct ops *ops;
	struct ops_cuda *cuda;
	struct region in, kept, out; /* inputs; what an epilogue reads or writes; results */
	size_t beyond_cache;         /* bytes */
	struct timed_gemm *plans;
	size_t count;
};

static size_t bytes_of(enum gemm_type type, int rows, int columns)
{
	return (size_t)rows * (size_t)columns * (type == GEMM_BF16 ? 2 : 4);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static bool keeps(const struct gemm *p)
{
	return p->epilogue == GEMM_BIAS_GELU || p->epilogue == GEMM_GELU_GRAD;
}

static void *walk(struct region *region, size_t bytes)
{
	if (region->next + bytes > region->bytes)
		region->next = 0;
	void *at = region->memory + region->next;
	region->next += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	return at;
}

/* ---- random data ---- */

/* Approximately normal with variance 1, as activations are: the sum of four uniform numbers. */
static float draw(uint64_t *state)
{
	float sum = 0;
	for (int i = 0; i < 4; i++) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
	}
	return sum * 1.7320508f;
}

static void draw_all(void *block, size_t bytes, bool bf16, uint64_t *state)
{
	for (size_t i = 0; i < bytes / (bf16 ? 2 : 4); i++) {
		float x = draw(state);
		uint32_t bits;
		memcpy(&bits, &x, sizeof bits);
		if (bf16)
			((uint16_t *)block)[i] = (uint16_t)(bits >> 16);
		else
			((float *)block)[i] = x;
	}
}

/* Fills a region with new numbers at each call. */
static int fill(struct bench *b, struct region *region, struct err *err)
{
	static uint64_t state = 1;
	size_t size = region->bytes < RANDOM_BYTES ? region->bytes : RANDOM_BYTES;
	AUTO_FREE void *block = malloc(size);
	if (!block)
		return err_set(err, "bench: out of memory");
	draw_all(block, size, b->ops->element == 2, &state);
	for (size_t at = 0; at < region->bytes; at += size)
		b->ops->device->copy_in(b->ops->device, region->memory + at, block,
			region->bytes - at < size ? region->bytes - at : size);
	return 0;
}

static int open_region(struct bench *b, struct region *region, size_t largest, bool random,
	struct err *err)
{
	region->bytes = larger(b->beyond_cache, (2 * largest + ALIGN - 1) / ALIGN * ALIGN);
	region->memory = b->ops->device->alloc(b->ops->device, region->bytes);
	if (!region->memory)
		return device_check(b->ops->device, err) < 0 ? -1 : err_set(err, "bench: out of memory");
	return random ? fill(b, region, err) : 0;
}

static int open_regions(struct bench *b, struct err *err)
{
	size_t in = 0, out = 0, kept = 0;
	for (size_t i = 0; i < b->count; i++) {
		const struct gemm *p = &b->plans[i].gemm;
		in = larger(in,
			larger(bytes_of(p->in, p->rows, p->depth), bytes_of(p->in, p->depth, p->columns)));
		out = larger(out, bytes_of(p->out, p->rows, p->columns));
		if (keeps(p))
			kept = larger(kept, bytes_of(p->out, p->rows, p->columns));
	}
	return open_region(b, &b->in, in, true, err) < 0
			|| open_region(b, &b->kept, kept, true, err) < 0
			|| open_region(b, &b->out, out, false, err) < 0
		? -1
		: 0;
}

static void close_regions(struct bench *b)
{
	struct region *const regions[] = { &b->in, &b->kept, &b->out };
	for (int i = 0; i < 3; i++)
		if (regions[i]->memory)
			b->ops->device->release(b->ops->device, regions[i]->memory);
}

/* ---- time ---- */

static int look(struct bench *b, struct err *err)
{
	int cache = 0;
	if (CUDA_CHECK(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize,
					   cuda_of(b->ops->device)->number),
			err)
		< 0)
		return -1;
	b->beyond_cache = ((size_t)cache * CACHES + ALIGN - 1) / ALIGN * ALIGN;
	return 0;
}

static int finish(struct bench *b, struct err *err)
{
	return CUDA_CHECK(cudaStreamSynchronize(b->cuda->stream), err);
}

static int launch(struct bench *b, const struct gemm *p, struct err *err)
{
	const size_t result = bytes_of(p->out, p->rows, p->columns);
	const struct gemm_operands operands = { .x = walk(&b->in, bytes_of(p->in, p->rows, p->depth)),
		.w = walk(&b->in, bytes_of(p->in, p->depth, p->columns)),
		.bias = b->in.memory,
		.d = walk(&b->out, result),
		.kept = keeps(p) ? walk(&b->kept, result) : NULL };
	return gemm_launch(b->cuda->engine, p, &operands, b->cuda->stream, err);
}

/* Runs all products of a step once and adds their times to `sums`. */
static int run_step(struct bench *b, double *sums, struct err *err)
{
	for (size_t i = 0; i < b->count; i++) {
		double begin = clock_now();
		for (size_t n = 0; n < b->plans[i].count; n++)
			if (launch(b, &b->plans[i].gemm, err) < 0)
				return -1;
		if (finish(b, err) < 0)
			return -1;
		sums[i] += clock_now() - begin;
	}
	return 0;
}

static int run_for(struct bench *b, double seconds, double *sums, size_t *steps, struct err *err)
{
	struct deadline end = deadline_in(seconds);
	for (*steps = 0; *steps == 0 || !deadline_passed(end); (*steps)++)
		if (run_step(b, sums, err) < 0)
			return -1;
	return 0;
}

static int choose(struct bench *b, struct err *err)
{
	for (size_t i = 0; i < b->count; i++) {
		struct timed_gemm *p = &b->plans[i];
		struct err none = { 0 };
		if (gemm_is_there(b->cuda->engine, &p->gemm, &none))
			continue;
		if (none.text[0]) {
			*err = none;
			return -1;
		}
		p->bare = true;
		p->gemm.epilogue = GEMM_PLAIN;
		if (gemm_choose(b->cuda->engine, &p->gemm, err) < 0)
			return -1;
	}
	return 0;
}

static int measure(struct bench *b, double seconds, struct err *err)
{
	AUTO_FREE double *sums = calloc(b->count, sizeof *sums);
	size_t steps;
	if (!sums)
		return err_set(err, "bench: out of memory");
	if (choose(b, err) < 0 || open_regions(b, err) < 0
		|| run_for(b, seconds / 10, sums, &steps, err) < 0)
		return -1;
	memset(sums, 0, b->count * sizeof *sums);
	if (run_for(b, seconds, sums, &steps, err) < 0)
		return -1;
	for (size_t i = 0; i < b->count; i++)
		b->plans[i].seconds = sums[i] / (double)steps / (double)b->plans[i].count;
	return 0;
}

int gemm_time(struct ops *ops, struct timed_gemm *plans, size_t count, double seconds,
	struct err *err)
{
	struct bench b = { .ops = ops, .cuda = ops_cuda_of(ops), .plans = plans, .count = count };
	int rc = look(&b, err) < 0 ? -1 : measure(&b, seconds, err);
	close_regions(&b);
	return rc;
}

/* Seconds that `count` copies take; 0 on an error. */
static double copy(struct bench *b, int count, struct err *err)
{
	double begin = clock_now();
	for (int i = 0; i < count; i++)
		if (CUDA_CHECK(cudaMemcpyAsync(b->out.memory, b->in.memory, b->beyond_cache,
						   cudaMemcpyDeviceToDevice, b->cuda->stream),
				err)
			< 0)
			return 0;
	return finish(b, err) < 0 ? 0 : clock_now() - begin;
}

double copy_rate(struct ops *ops, double seconds, struct err *err)
{
	struct bench b = { .ops = ops, .cuda = ops_cuda_of(ops) };
	double elapsed = 0, once = 0;
	int done = 0;
	if (look(&b, err) == 0 && open_region(&b, &b.in, 0, true, err) == 0
		&& open_region(&b, &b.out, 0, false, err) == 0)
		once = copy(&b, COPIES, err); /* warm-up */
	while (once > 0 && elapsed < seconds) {
		once = copy(&b, COPIES, err);
		elapsed += once;
		done += COPIES;
	}
	close_regions(&b);
	return once > 0 ? 2.0 * (double)b.beyond_cache * done / elapsed : 0;
}
