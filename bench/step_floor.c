/* SPDX-License-Identifier: Apache-2.0 */
/* How long a step of GPT-2 in bf16 takes on this GPU, op by op, and the least that the card needs
 * for it, for train_gpu.py.
 *     step_floor LAYERS WIDTH HEADS CONTEXT VOCABULARY MICROBATCH MICROBATCHES SECONDS [cudnn]
 * A step has MICROBATCHES passes over MICROBATCH samples, whose gradients add up in place, then the
 * norm and the update; the attention is cuDNN's where it is asked for. Prints one JSON object:
 *     card, libraries, peak (FLOP/s by the data sheet), parameters, token_flops,
 *     tokens        of a step
 *     step_seconds  a step, the median of several
 *     ops           of a step: name, calls, seconds, bytes, step_bytes, flops,
 *                   products [number, calls]
 *     products      of a step: name, calls, seconds (each, sustained for SECONDS), flops (each),
 *                   bare
 *     copy          bytes per second that the card copies, reads plus writes */
#include "config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/device_clock.h"
#include "bench/ops_trace.h"
#include "bench/gemm_time.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/number.h"
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/device_cuda.h"
#include "trainer/cuda/host/ops_cuda.h"
#include "trainer/model/model.h"
#include "trainer/run/mfu.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/state.h"

#define STEPS 5 /* timed, after the same number untimed */
#define PRODUCTS 128
#define TUNE_SECONDS 40.0

struct step {
	struct ops *ops;
	struct model *model;
	struct state state;
	struct batch batch;
	float *grads;
	double *sums;      /* in the ops' memory: the loss, then a sum for each block of the norm */
	double *host_sums; /* copy of `sums` in host memory */
	size_t sum_count;
	int microbatches;
	uint64_t number;
};

static const struct optimizer_config schedule = { .learning_rate = 6e-4,
	.minimal_learning_rate = 6e-4,
	.steps = 1000,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 1 };

/* ---- a step ---- */

/* Token frequencies follow a text's: the n-th of V tokens has a probability proportional to 1/n. */
static void draw_tokens(struct batch *batch, int vocabulary)
{
	uint64_t state = 7;
	int count = batch->samples * batch->positions;
	for (int i = 0; i < count; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		double rank = exp((double)(state >> 11) * 0x1p-53 * log(vocabulary));
		batch->tokens[i] = (int32_t)fmin(rank, vocabulary) - 1;
		batch->targets[i ? i - 1 : count - 1] = batch->tokens[i];
	}
}

static size_t blocks_of(const struct tensor *row)
{
	return (row->count + NORM_BLOCK - 1) / NORM_BLOCK;
}

static int open_step(struct step *s, struct ops *ops, const struct model_config *config,
	int samples, int microbatches, struct err *err)
{
	size_t tokens = (size_t)samples * (size_t)config->context;
	*s = (struct step) { .ops = ops, .microbatches = microbatches };
	s->model = model_create(config, err);
	if (!s->model || model_prepare(s->model, ops, samples, err) < 0
		|| ops->tune(ops, TUNE_SECONDS, err) < 0)
		return -1;
	const struct tensor_table *table = model_tensors(s->model);
	if (state_alloc(&s->state, ops, table, NULL, 0, err) < 0)
		return -1;
	state_init(&s->state, 1);
	s->batch = (struct batch) { .samples = samples,
		.positions = config->context,
		.tokens = calloc(tokens, sizeof(int32_t)),
		.targets = calloc(tokens, sizeof(int32_t)) };
	s->sum_count = 1;
	for (int i = 0; i < table->count; i++)
		s->sum_count += blocks_of(&table->rows[i]);
	s->host_sums = calloc(s->sum_count, sizeof *s->host_sums);
	if (!s->batch.tokens || !s->batch.targets || !s->host_sums)
		return err_set(err, "step_floor: out of memory");
	draw_tokens(&s->batch, config->vocabulary);
	if (state_upload(&s->state, err) < 0)
		return -1;
	s->grads = ops->device->alloc(ops->device, tensor_table_gradients(table) * sizeof *s->grads);
	s->sums = s->grads ? ops->device->alloc(ops->device, s->sum_count * sizeof *s->sums) : NULL;
	return s->sums ? 0 : device_check(ops->device, err);
}

static void close_step(struct step *s)
{
	if (s->grads)
		s->ops->device->release(s->ops->device, s->grads);
	if (s->sums)
		s->ops->device->release(s->ops->device, s->sums);
	state_free(&s->state);
	model_destroy(s->model);
	free(s->batch.tokens);
	free(s->batch.targets);
	free(s->host_sums);
}

/* The norm of the gradients; sets *loss to the sum that the passes left. Waits for the device. */
static double norm_of(struct step *s, double *loss)
{
	const struct tensor_table *table = model_tensors(s->model);
	double sum = 0;
	size_t at = 1;
	for (int i = 0; i < table->count; at += blocks_of(&table->rows[i++]))
		s->ops->square_sums(s->ops, s->sums + at, s->grads + table->rows[i].offset,
			table->rows[i].count);
	s->ops->device->copy_out(s->ops->device, s->host_sums, s->sums, s->sum_count * sizeof *s->sums);
	for (size_t i = 1; i < s->sum_count; i++)
		sum += s->host_sums[i];
	*loss = s->host_sums[0];
	return sqrt(sum);
}

/* Returns when the device has finished the step, since copying one number out waits for that. */
static int run_step(struct step *s, struct err *err)
{
	double loss, norm;
	float last;
	int64_t valid = (int64_t)s->batch.samples * s->batch.positions * s->microbatches;
	optimizer_begin(&schedule, ++s->number, valid, s->ops->params);
	ops_put_params(s->ops);
	model_bind(s->model, state_compute(&s->state), state_compute(&s->state));
	for (int i = 0; i < s->microbatches; i++)
		model_train(s->model, &s->batch, s->grads, i > 0, s->sums, &valid, NULL, NULL);
	norm = norm_of(s, &loss);
	if (!optimizer_clip(&schedule, loss, norm, s->ops->params))
		return device_check(s->ops->device, err) < 0
			? -1
			: err_set(err, "step_floor: the loss or the norm is not finite");
	ops_put_params(s->ops);
	state_update(&s->state, s->grads, true);
	s->ops->device->copy_out(s->ops->device, &last, s->grads, sizeof last);
	return device_check(s->ops->device, err);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median of STEPS steps, after the same number untimed; 0 on an error. */
static double step_seconds(struct step *s, struct err *err)
{
	double seconds[STEPS];
	for (int i = -STEPS; i < STEPS; i++) {
		double begin = clock_now();
		if (run_step(s, err) < 0)
			return 0;
		if (i >= 0)
			seconds[i] = clock_now() - begin;
	}
	qsort(seconds, STEPS, sizeof *seconds, compare);
	return seconds[STEPS / 2];
}

/* ---- what is printed ---- */

static json_t *ops_json(const struct ops_trace *trace, const struct trace_gemm *noted, size_t count,
	const int *number)
{
	size_t rows;
	const struct trace_row *row = ops_trace_rows(trace, &rows);
	json_t *list = json_array();
	for (size_t i = 0; i < rows; i++) {
		json_t *made = json_array();
		for (size_t k = 0; k < count; k++)
			if (noted[k].row == (int)i)
				json_array_append_new(made,
					json_pack("[i,I]", number[k], (json_int_t)noted[k].count));
		json_array_append_new(list,
			json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:o}", "name", row[i].name, "calls",
				(json_int_t)row[i].calls, "seconds", row[i].seconds, "bytes", row[i].bytes,
				"step_bytes", row[i].step_bytes, "flops", row[i].flops, "products", made));
	}
	return list;
}

static json_t *gemm_plans_json(const struct timed_gemm *plans, size_t count)
{
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++) {
		const struct gemm *p = &plans[i].gemm;
		char text[160];
		json_array_append_new(list,
			json_pack("{s:s, s:I, s:f, s:f, s:b}", "name", gemm_text(p, text, sizeof text), "calls",
				(json_int_t)plans[i].count, "seconds", plans[i].seconds, "flops",
				2.0 * p->rows * p->columns * p->depth, "bare", plans[i].bare));
	}
	return list;
}

/* Joins equal products of different rows; number[k] is the index in `plans` of the trace's k-th. */
static size_t join_gemms(const struct trace_gemm *noted, size_t count, struct timed_gemm *plans,
	int *number)
{
	size_t n = 0;
	for (size_t k = 0; k < count; k++) {
		size_t i = 0;
		while (i < n && !gemm_equal(&plans[i].gemm, &noted[k].gemm))
			i++;
		if (i == n)
			plans[n++] = (struct timed_gemm) { .gemm = noted[k].gemm };
		plans[i].count += noted[k].count;
		number[k] = (int)i;
	}
	return n;
}

/* ---- the measurement ---- */

/* Times steps, then traces one. */
static int trace_step(struct step *s, struct ops_trace *trace, struct device_clock *clock,
	json_t *out, struct err *err)
{
	double seconds = step_seconds(s, err); /* measured through the trace: its events cost little */
	if (seconds == 0)
		return -1;
	ops_trace_clear(trace);
	if (run_step(s, err) < 0 || ops_trace_settle(trace, err) < 0)
		return -1;
	const struct model_config *c = model_config_of(s->model);
	double parameters = (double)model_tensors(s->model)->parameters;
	json_object_set_new(out, "step_seconds", json_real(seconds));
	json_object_set_new(out, "parameters", json_real(parameters));
	json_object_set_new(out, "token_flops", json_real(model_flops(s->model) / c->context));
	json_object_set_new(out, "tokens",
		json_integer((json_int_t)s->batch.samples * s->batch.positions * s->microbatches));
	return device_clock_check(clock, err);
}

static int measure_gemms(struct ops *ops, const struct ops_trace *trace, double seconds,
	json_t *out, struct err *err)
{
	struct timed_gemm plans[PRODUCTS];
	int number[PRODUCTS];
	size_t count;
	const struct trace_gemm *noted = ops_trace_gemms(trace, &count);
	size_t n = join_gemms(noted, count, plans, number);
	if (gemm_time(ops, plans, n, seconds, err) < 0)
		return -1;
	double copy = copy_rate(ops, 1, err);
	if (copy == 0)
		return -1;
	json_object_set_new(out, "ops", ops_json(trace, noted, count, number));
	json_object_set_new(out, "products", gemm_plans_json(plans, n));
	json_object_set_new(out, "copy", json_real(copy));
	return 0;
}

static int measure(struct ops *ops, const struct model_config *config, const int64_t *numbers,
	json_t *out, struct err *err)
{
	struct step step = { 0 };
	struct device_clock *clock = device_clock_create(ops->device, err);
	const struct trace_clock moments = clock ? device_clock_of(clock) : (struct trace_clock) { 0 };
	struct ops_trace *trace = clock ? ops_trace_create(ops, &moments, err) : NULL;
	int rc = trace
		? open_step(&step, ops_trace_table(trace), config, (int)numbers[5], (int)numbers[6], err)
		: -1;
	if (rc == 0)
		rc = trace_step(&step, trace, clock, out, err);
	if (step.ops)
		close_step(&step);
	if (rc == 0)
		rc = measure_gemms(ops, trace, (double)numbers[7], out, err);
	ops_trace_destroy(trace);
	device_clock_destroy(clock);
	return rc;
}

/* As muster-train takes it, for the model's shapes. */
static int take_cudnn(struct ops *ops, const int64_t *numbers, struct err *err)
{
	struct attention_cudnn *attention = attention_cudnn_create((int)numbers[5], (int)numbers[3],
		(int)numbers[1], (int)numbers[2], err);
	return attention ? ops_cuda_take_attention(ops, attention, err) : -1;
}

static int on_gpu(const int64_t *numbers, bool cudnn, json_t *out, struct err *err)
{
	static const struct ident alone = { .world_size = 1, .local_world_size = 1, .node_count = 1 };
	const struct model_config config = { .kind = MODEL_GPT2,
		.layers = (int)numbers[0],
		.width = (int)numbers[1],
		.heads = (int)numbers[2],
		.context = (int)numbers[3],
		.vocabulary = (int)numbers[4] };
	struct gpu_driver driver;
	struct gpu gpu;
	uint64_t available;
	if (gpu_driver_load(&driver, err) != 0
		|| gpu_choose(&driver, &alone, device_cuda_runtime(), false, &gpu, err) != 0
		|| device_cuda_begin(&gpu, &available, err) < 0)
		return -1;
	struct ops *ops = ops_cuda_create(&gpu, GEMM_MODE_BF16, err);
	if (!ops)
		return -1;
	if (cudnn && take_cudnn(ops, numbers, err) < 0) {
		ops->destroy(ops);
		return -1;
	}
	json_object_set_new(out, "card", json_string(ops->device->card));
	json_object_set_new(out, "libraries", json_string(ops->libraries));
	json_object_set_new(out, "peak", json_real(mfu_peak_flops(gpu.name)));
	int rc = measure(ops, &config, numbers, out, err);
	ops->destroy(ops);
	return rc;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	int64_t numbers[8];
	bool cudnn = argc == 10 && strcmp(argv[9], "cudnn") == 0;
	for (int i = 0; i < 8; i++)
		if (argc != 9 + cudnn || !number_whole(argv[i + 1], 1, 1 << 24, &numbers[i])) {
			fputs("usage: step_floor LAYERS WIDTH HEADS CONTEXT VOCABULARY MICROBATCH MICROBATCHES "
				  "SECONDS [cudnn]\n",
				stderr);
			return EXIT_USAGE;
		}
	json_t *out = json_object();
	int rc = on_gpu(numbers, cudnn, out, &err);
	if (rc == 0)
		json_dumpf(out, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	else
		fprintf(stderr, "step_floor: %s\n", err.text);
	json_decref(out);
	return rc == 0 ? EXIT_OK : EXIT_FAULT;
}
