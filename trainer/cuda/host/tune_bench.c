/* SPDX-License-Identifier: Apache-2.0 */
/* Runs, compares and times the ways to compute one product. */
#include "trainer/cuda/host/tune_bench.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "trainer/cuda/host/check.h"
#include "trainer/cuda/host/finish.h"
#include "trainer/cuda/kernels/add.h"
#include "trainer/cuda/kernels/difference.h"

#define ALIGNMENT 256
#define CACHES 3 /* data between two uses of a set, in cache sizes */
#define SETS_MOST 64
#define NUMBERS \
	1048573 /* random numbers that fill the operands; prime, so that no row equals the next */
#define ROUNDS 9
#define ROUNDS_LEAST 3
#define REPEATS_MOST 8 /* runs of a way in a round */
#define ROUND_MS 0.3   /* least milliseconds of a way in a round */

static size_t place(size_t *end, size_t bytes)
{
	size_t at = *end;
	*end += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	return at;
}

/* ---- operands ---- */

static size_t bytes_of(enum gemm_type type)
{
	return type == GEMM_BF16 ? 2 : 4;
}
static enum cuda_type cuda_type_of(enum gemm_type type)
{
	return type == GEMM_BF16 ? CUDA_BF16 : CUDA_FP32;
}
static bool has_kept(const struct gemm *p)
{
	return p->epilogue == GEMM_BIAS_GELU || p->epilogue == GEMM_GELU_GRAD;
}
static bool has_vector(const struct gemm *p)
{
	return p->epilogue != GEMM_PLAIN && p->epilogue != GEMM_GELU_GRAD;
}

static struct tune_layout layout_of(const struct gemm *p)
{
	size_t rows = (size_t)p->rows, columns = (size_t)p->columns, depth = (size_t)p->depth;
	struct tune_layout l = { 0 };
	l.x = place(&l.bytes, rows * depth * bytes_of(p->in));
	l.w = place(&l.bytes, depth * columns * bytes_of(p->in));
	l.out = l.bytes;
	l.d = place(&l.out_bytes, rows * columns * bytes_of(p->out));
	l.vector = place(&l.out_bytes, has_vector(p) ? columns * bytes_of(p->out) : 0);
	l.kept = place(&l.out_bytes, has_kept(p) ? rows * columns * bytes_of(p->out) : 0);
	l.bytes += l.out_bytes;
	return l;
}

/* After the sets follow: what the first way wrote, what another wrote in its second run, random
 * numbers in bf16 and in fp32, distances. */
static char *first_out(const struct tune_bench *b)
{
	return b->memory + b->sets * b->layout.bytes;
}
static char *second_out(const struct tune_bench *b)
{
	return first_out(b) + b->layout.out_bytes;
}
static char *numbers_of(const struct tune_bench *b, enum gemm_type type)
{
	size_t bf16 = 0;
	place(&bf16, NUMBERS * sizeof(uint16_t));
	return second_out(b) + b->layout.out_bytes + (type == GEMM_BF16 ? 0 : bf16);
}
static struct difference *parts_of(const struct tune_bench *b)
{
	size_t wide = 0;
	place(&wide, NUMBERS * sizeof(float));
	return (struct difference *)(void *)(numbers_of(b, GEMM_FP32) + wide);
}

static struct gemm_operands operands_of(const struct tune_bench *b, size_t set, char *out)
{
	const struct tune_layout *l = &b->layout;
	char *at = b->memory + set * l->bytes;
	void *vector = out + l->vector;
	return (struct gemm_operands) { .d = out + l->d,
		.x = at + l->x,
		.w = at + l->w,
		.bias = vector,
		.sums = vector,
		.kept = has_kept(&b->gemm) ? out + l->kept : NULL };
}

static char *out_of(const struct tune_bench *b, size_t set)
{
	return b->memory + set * b->layout.bytes + b->layout.out;
}

/* ---- memory ---- */

static int copy(const struct tune_bench *b, void *to, const void *from, size_t bytes,
	enum cudaMemcpyKind kind, struct err *err)
{
	return CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, (cudaStream_t)b->tune->stream), err);
}

static int wait_for(const struct tune_bench *b, struct err *err)
{
	return CUDA_CHECK(cudaStreamSynchronize((cudaStream_t)b->tune->stream), err);
}

/* About normally distributed, so that the card draws as much power as in a training: sums of four
 * bytes of a linear congruential generator. */
static float number(uint64_t *state)
{
	int sum = -510;
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	for (int shift = 32; shift < 64; shift += 8)
		sum += (int)(*state >> shift & 0xff);
	return (float)sum / 148;
}

static int make_numbers(const struct tune_bench *b, struct err *err)
{
	AUTO_FREE float *wide = malloc(NUMBERS * sizeof *wide);
	AUTO_FREE uint16_t *bf16 = malloc(NUMBERS * sizeof *bf16);
	uint64_t state = 1;
	if (!wide || !bf16)
		return err_set(err, "tune: out of memory");
	for (int i = 0; i < NUMBERS; i++) {
		wide[i] = number(&state);
		bf16[i] = bytes_float_to_bf16(wide[i]);
	}
	if (copy(b, numbers_of(b, GEMM_BF16), bf16, NUMBERS * sizeof *bf16, cudaMemcpyHostToDevice, err)
			< 0
		|| copy(b, numbers_of(b, GEMM_FP32), wide, NUMBERS * sizeof *wide, cudaMemcpyHostToDevice,
			   err)
			< 0)
		return -1;
	return wait_for(b, err);
}

/* Fills memory with these numbers from the `skip`th on; each copy doubles the filled part. */
static int fill(const struct tune_bench *b, char *at, size_t bytes, enum gemm_type type,
	size_t skip, struct err *err)
{
	size_t have = (NUMBERS - skip) * bytes_of(type);
	have = have < bytes ? have : bytes;
	if (have
		&& copy(b, at, numbers_of(b, type) + skip * bytes_of(type), have, cudaMemcpyDeviceToDevice,
			   err)
			< 0)
		return -1;
	for (size_t more; have < bytes; have += more) {
		more = bytes - have < have ? bytes - have : have;
		if (copy(b, at + have, at, more, cudaMemcpyDeviceToDevice, err) < 0)
			return -1;
	}
	return 0;
}

/* Fills every result the same way, since some ways add to it or read it. */
static int fill_out(const struct tune_bench *b, char *out, struct err *err)
{
	return fill(b, out, b->layout.out_bytes, b->gemm.out, 200003, err);
}

static int fill_all(const struct tune_bench *b, struct err *err)
{
	const struct tune_layout *l = &b->layout;
	for (size_t set = 0; set < b->sets; set++) {
		char *at = b->memory + set * l->bytes;
		if (fill(b, at + l->x, l->w - l->x, b->gemm.in, 0, err) < 0
			|| fill(b, at + l->w, l->out - l->w, b->gemm.in, 100003, err) < 0
			|| fill_out(b, at + l->out, err) < 0)
			return -1;
	}
	return 0;
}

static size_t memory_of(const struct tune_bench *b)
{
	size_t bytes = b->sets * b->layout.bytes + 2 * b->layout.out_bytes;
	place(&bytes, NUMBERS * sizeof(uint16_t));
	place(&bytes, NUMBERS * sizeof(float));
	place(&bytes, DIFFERENCE_PARTS * sizeof(struct difference));
	return bytes;
}

/* 1: there is not enough memory. */
static int get_memory(struct tune_bench *b, struct err *err)
{
	void *memory = NULL;
	size_t apart = CACHES * b->tune->cache / b->layout.bytes + 1;
	b->sets = apart < SETS_MOST ? apart : SETS_MOST;
	cudaError_t code = cudaMalloc(&memory, memory_of(b));
	if (code == cudaErrorMemoryAllocation) {
		cudaGetLastError(); /* or the next launch would report it */
		return 1;
	}
	b->memory = memory;
	return cuda_check((int)code, "cudaMalloc(&memory, memory_of(b))", __FILE__, __LINE__, err);
}

static int list_ways(struct tune_bench *b, struct err *err)
{
	b->trial = gemm_trial_create(b->tune->engine, &b->gemm, TUNE_WAYS - 1, err);
	if (!b->trial)
		return -1;
	if (b->gemm.epilogue == GEMM_BIAS_GRAD)
		b->ways[b->count++] = TUNE_COMPOSED;
	for (int i = 0; i < gemm_trial_count(b->trial); i++)
		b->ways[b->count++] = i;
	if (b->gemm.epilogue != GEMM_PLAIN && b->gemm.epilogue != GEMM_BIAS_GRAD)
		b->ways[b->count++] = TUNE_COMPOSED;
	return 0;
}

int tune_bench_prepare(struct tune_bench *b, const struct tune *tune, const struct gemm *gemm,
	struct err *err)
{
	*b = (struct tune_bench) { .tune = tune, .gemm = *gemm, .layout = layout_of(gemm) };
	int rc = list_ways(b, err) < 0 ? -1 : get_memory(b, err);
	if (rc == 0)
		rc = make_numbers(b, err) < 0 || fill_all(b, err) < 0 ? -1 : 0;
	return rc;
}

void tune_bench_clear(struct tune_bench *b)
{
	gemm_trial_destroy(b->trial);
	cudaFree(b->memory);
	*b = (struct tune_bench) { 0 };
}

/* ---- runs ---- */

static int run_composed(const struct tune_bench *b, const struct gemm_operands *o, struct err *err)
{
	const struct tune *tune = b->tune;
	struct gemm plain = b->gemm;
	plain.epilogue = GEMM_PLAIN;
	if (gemm_launch(tune->engine, &plain, o, tune->stream, err) < 0)
		return -1;
	return CUDA_CHECK(cuda_finish(&b->gemm, o, tune->scratch, tune->stream), err);
}

/* The library overwrites a bias' gradient, so accumulating takes one more kernel. */
static int run(const struct tune_bench *b, int way, size_t set, char *out, struct err *err)
{
	const struct tune *tune = b->tune;
	struct gemm_operands o = operands_of(b, set, out);
	float *sums = o.sums;
	bool adds = b->gemm.epilogue == GEMM_BIAS_GRAD && b->gemm.adds;
	if (b->ways[way] == TUNE_COMPOSED)
		return run_composed(b, &o, err);
	o.sums = adds ? tune->scratch : sums;
	if (gemm_trial_run(b->trial, b->ways[way], &o, tune->stream, err) < 0)
		return -1;
	return adds
		? CUDA_CHECK(cuda_add(sums, sums, tune->scratch, (size_t)b->gemm.columns, tune->stream),
			err)
		: 0;
}

/* ---- correctness ---- */

/* The largest distance between two tensors, divided by the second's largest value. */
static int distance(const struct tune_bench *b, const char *x, const char *y, size_t count,
	double *out, struct err *err)
{
	struct difference parts[DIFFERENCE_PARTS], *device = parts_of(b), all = { 0, 0 };
	unsigned int n = difference_parts(count);
	*out = 0;
	if (count == 0)
		return 0;
	if (CUDA_CHECK(cuda_difference(device, x, y, count, cuda_type_of(b->gemm.out), b->tune->stream),
			err)
			< 0
		|| copy(b, parts, device, n * sizeof *parts, cudaMemcpyDeviceToHost, err) < 0
		|| wait_for(b, err) < 0)
		return -1;
	for (unsigned int i = 0; i < n; i++) {
		all.most = fmaxf(all.most, parts[i].most);
		all.largest = fmaxf(all.largest, parts[i].largest);
	}
	if (all.most > 0)
		*out = isfinite(all.most) && isfinite(all.largest) ? (double)all.most / (double)all.largest
														   : INFINITY;
	return 0;
}

/* The largest distance over all that a way writes. */
static int out_distance(const struct tune_bench *b, const char *x, const char *y, double *worst,
	struct err *err)
{
	const struct gemm *p = &b->gemm;
	const struct tune_layout *l = &b->layout;
	size_t area = (size_t)p->rows * (size_t)p->columns;
	const struct {
		size_t at, count;
	} pieces[] = { { l->d, area }, { l->vector, has_vector(p) ? (size_t)p->columns : 0 },
		{ l->kept, has_kept(p) ? area : 0 } };
	*worst = 0;
	for (int i = 0; i < 3; i++) {
		double one;
		if (distance(b, x + pieces[i].at, y + pieces[i].at, pieces[i].count, &one, err) < 0)
			return -1;
		*worst = one > *worst ? one : *worst;
	}
	return 0;
}

/* Sums in another order differ by their rounding, and by that of the result's type; a missing or
 * misplaced tile is off by most of the largest value. */
static double tolerance(const struct tune_bench *b)
{
	bool tf32 = b->gemm.in == GEMM_FP32 && gemm_choices(b->tune->engine)->mode == GEMM_MODE_TF32;
	return b->gemm.out == GEMM_BF16 ? 1.0 / 64 : tf32 ? 1.0 / 256 : 1e-4;
}

/* Whether a way runs, gives the first one's result (`reference`; NULL: this is the first), and
 * gives the same bits in a second run. */
static int is_right(const struct tune_bench *b, int way, const char *reference, bool *right,
	struct err *err)
{
	char *out = out_of(b, 0), *again = second_out(b);
	double repeat = 0, off = 0;
	struct err why;
	*right = false;
	if (fill_out(b, out, err) < 0 || fill_out(b, again, err) < 0)
		return -1;
	if (run(b, way, 0, out, &why) < 0 || run(b, way, 0, again, &why) < 0)
		return 0;
	if (out_distance(b, again, out, &repeat, err) < 0
		|| (reference && out_distance(b, out, reference, &off, err) < 0))
		return -1;
	*right = repeat == 0 && off <= tolerance(b);
	return 0;
}

int tune_bench_check(struct tune_bench *b, struct err *err)
{
	char text[160];
	int kept = 0, wrong = 0;
	for (int way = 0; way < b->count; way++) {
		bool right;
		if (is_right(b, way, kept ? first_out(b) : NULL, &right, err) < 0)
			return -1;
		if (!right) {
			wrong++;
			continue;
		}
		if (kept == 0
			&& copy(b, first_out(b), out_of(b, 0), b->layout.out_bytes, cudaMemcpyDeviceToDevice,
				   err)
				< 0)
			return -1;
		b->ways[kept++] = b->ways[way];
	}
	b->count = kept;
	if (kept == 0)
		return err_set(err,
			"tune: couldn't make %s: none of cuBLASLt's algorithms gave the same numbers twice",
			gemm_text(&b->gemm, text, sizeof text));
	return wrong;
}

/* ---- timing ---- */

/* The events before and after each way's runs in a round. */
struct events {
	cudaEvent_t begin[TUNE_WAYS], end[TUNE_WAYS];
};

static int make_events(struct events *events, int count, struct err *err)
{
	for (int i = 0; i < count; i++)
		if (CUDA_CHECK(cudaEventCreate(&events->begin[i]), err) < 0
			|| CUDA_CHECK(cudaEventCreate(&events->end[i]), err) < 0)
			return -1;
	return 0;
}

static void end_events(struct events *events)
{
	for (int i = 0; i < TUNE_WAYS; i++) {
		if (events->begin[i])
			cudaEventDestroy(events->begin[i]);
		if (events->end[i])
			cudaEventDestroy(events->end[i]);
	}
}

static int run_next(struct tune_bench *b, int way, struct err *err)
{
	size_t set = b->next++ % b->sets;
	return run(b, way, set, out_of(b, set), err);
}

static int record(const struct tune_bench *b, cudaEvent_t event, struct err *err)
{
	return CUDA_CHECK(cudaEventRecord(event, (cudaStream_t)b->tune->stream), err);
}

static int queue_way(struct tune_bench *b, const struct events *events, int way, int repeats,
	struct err *err)
{
	if (record(b, events->begin[way], err) < 0)
		return -1;
	for (int i = 0; i < repeats; i++)
		if (run_next(b, way, err) < 0)
			return -1;
	return record(b, events->end[way], err);
}

/* milliseconds[way] of one run. One more run goes ahead of the round: it keeps the device busy
 * while the rest is queued. */
static int run_round(struct tune_bench *b, const struct events *events, int round, int repeats,
	double *milliseconds, struct err *err)
{
	if (run_next(b, 0, err) < 0)
		return -1;
	for (int i = 0; i < b->count; i++)
		if (queue_way(b, events, (i + round) % b->count, repeats, err) < 0)
			return -1;
	if (wait_for(b, err) < 0)
		return -1;
	for (int way = 0; way < b->count; way++) {
		float elapsed = 0;
		if (CUDA_CHECK(cudaEventElapsedTime(&elapsed, events->begin[way], events->end[way]), err)
			< 0)
			return -1;
		milliseconds[way] = (double)elapsed / repeats;
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median_of(const double times[][TUNE_WAYS], int rounds, int way)
{
	double values[ROUNDS];
	for (int i = 0; i < rounds; i++)
		values[i] = times[i][way];
	qsort(values, (size_t)rounds, sizeof values[0], by_value);
	return rounds % 2 ? values[rounds / 2] : (values[rounds / 2 - 1] + values[rounds / 2]) / 2;
}

static int run_rounds(struct tune_bench *b, const struct events *events, double deadline,
	struct err *err)
{
	double times[ROUNDS][TUNE_WAYS] = { 0 };
	int rounds = 0, repeats = 1;
	if (run_round(b, events, 0, 1, times[0], err) < 0) /* warms up and shows how long a run takes */
		return -1;
	while (repeats < REPEATS_MOST && times[0][0] * repeats < ROUND_MS)
		repeats++;
	while (rounds < ROUNDS && (rounds == 0 || b->tune->now() < deadline)) {
		if (run_round(b, events, rounds, repeats, times[rounds], err) < 0)
			return -1;
		rounds++;
	}
	for (int way = 0; way < b->count; way++)
		b->medians[way] = median_of(times, rounds, way);
	return rounds < ROUNDS_LEAST ? 1 : 0;
}

int tune_bench_time(struct tune_bench *b, double deadline, struct err *err)
{
	struct events events = { 0 };
	int rc = b->tune->now() < deadline ? make_events(&events, b->count, err) : 1;
	if (rc == 0)
		rc = run_rounds(b, &events, deadline, err);
	end_events(&events);
	return rc;
}
