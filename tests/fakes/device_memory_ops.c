/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation calls the plain one with addresses that have the bit flipped that no user address
 * of x86-64 has. */
#include "tests/fakes/device_memory_ops.h"

#include <stdlib.h>
#include <string.h>

#define AWAY ((uintptr_t)1 << 47)

#define WAITING 1000 /* copies */

struct device_memory {
	struct device device;
	struct ops *plain;
	struct step_params params;
	struct remote_traffic traffic;
	struct {
		void *to;
		const void *from;
		size_t bytes;
	} waiting[WAITING];
	int count;
	bool no_pins;
};

/* clang-format off: a line each */
static struct device_memory *device_memory_of(struct device *device)
{
	return device->state;
}
static struct device *near_of(struct device *device)
{
	return device_memory_of(device)->plain->device;
}

/* From one side to the other. */
static void *flip(const void *p)
{
	return p ? (void *)((uintptr_t)p ^ AWAY) : NULL;
}

#define OPS (device_memory_of(ops->device)->plain)

static int prepare(struct ops *ops, const struct ops_shapes *shapes, struct err *err)
{
	return OPS->prepare(OPS, shapes, err);
}
static void *alloc(struct device *device, size_t bytes)
{
	return flip(near_of(device)->alloc(near_of(device), bytes));
}
static void release(struct device *device, void *p)
{
	near_of(device)->release(near_of(device), flip(p));
}

static void copy_in(struct device *device, void *to, const void *host, size_t bytes)
{
	device_memory_of(device)->traffic.in += bytes;
	memcpy(flip(to), host, bytes);
}

static void copy_out(struct device *device, void *host, const void *from, size_t bytes)
{
	device_memory_of(device)->traffic.out += bytes;
	memcpy(host, flip(from), bytes);
}

static void put(struct device *device, void *to, const void *host, size_t bytes)
{
	copy_in(device, to, host, bytes);
}
/* ---- the copy stream ---- */

static int pin(struct device *device, void *pages, size_t bytes, struct err *err)
{
	return device_memory_of(device)->no_pins ? err_set(err, "remote: no memory may be pinned") : 0;
}

static void unpin(struct device *device, void *pages) {}
static void *side_alloc(struct device *device, size_t bytes, struct err *err)
{
	return malloc(bytes);
}
static void side_release(struct device *device, void *p)
{
	free(p);
}
static int side_begin(struct device *device, int turn, struct err *err)
{
	return 0;
}
static int side_end(struct device *device, int turn, struct err *err)
{
	return 0;
}
static double side_seconds(struct device *device, int turn)
{
	return 0;
}

static int side_copy(struct device *device, void *pinned, const void *from, size_t bytes,
	struct err *err)
{
	struct device_memory *device_memory = device_memory_of(device);
	if (device_memory->count == WAITING)
		return err_set(err, "remote: too many copies");
	device_memory->waiting[device_memory->count].to = pinned;
	device_memory->waiting[device_memory->count].from = from;
	device_memory->waiting[device_memory->count++].bytes = bytes;
	return 0;
}

static int side_done(struct device *device, int turn, struct err *err)
{
	struct device_memory *device_memory = device_memory_of(device);
	for (int i = 0; i < device_memory->count; i++)
		copy_out(device, device_memory->waiting[i].to, device_memory->waiting[i].from,
			device_memory->waiting[i].bytes);
	device_memory->count = 0;
	return 1;
}

static const struct copy_stream copy_stream = { .pin = pin,
	.unpin = unpin,
	.alloc = side_alloc,
	.release = side_release,
	.begin = side_begin,
	.copy = side_copy,
	.end = side_end,
	.done = side_done,
	.wait_transfer = side_done,
	.waited = side_seconds,
	.took = side_seconds };

static void put_params(struct ops *ops)
{
	*OPS->params = *ops->params;
}
static int check(struct device *device, struct err *err)
{
	return 0;
}

static void destroy(struct ops *ops)
{
	OPS->destroy(OPS);
	free(ops->state);
	free(ops);
}

static void embedding(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	OPS->embedding(OPS, flip(out), flip(tokens), flip(wte), flip(wpe), B, T, C);
}

static void embedding_backward(struct ops *ops, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, int B, int T, int C, int V, int accumulate)
{
	OPS->embedding_backward(OPS, flip(dwte), flip(dwpe), flip(dout), flip(tokens), B, T, C, V,
		accumulate);
}

static void layernorm(struct ops *ops, float *sum, float *y, float *mean, float *rstd,
	const float *x, const float *add, const float *gamma, const float *beta, int M, int C)
{
	OPS->layernorm(OPS, flip(sum), flip(y), flip(mean), flip(rstd), flip(x), flip(add), flip(gamma),
		flip(beta), M, C);
}

static void layernorm_backward(struct ops *ops, float *dx, float *dgamma, float *dbeta,
	const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
	int M, int C, int accumulate_dx, int accumulate)
{
	OPS->layernorm_backward(OPS, flip(dx), flip(dgamma), flip(dbeta), flip(dy), flip(x),
		flip(gamma), flip(mean), flip(rstd), M, C, accumulate_dx, accumulate);
}

static void batchnorm_moments(struct ops *ops, double *moments, const float *x,
	const int32_t *targets, int M, int C)
{
	OPS->batchnorm_moments(OPS, flip(moments), flip(x), flip(targets), M, C);
}

static void batchnorm_relu(struct ops *ops, float *y, const float *x, const float *mean,
	const float *rstd, const float *gamma, const float *beta, int M, int C)
{
	OPS->batchnorm_relu(OPS, flip(y), flip(x), flip(mean), flip(rstd), flip(gamma), flip(beta), M,
		C);
}

static void batchnorm_sums(struct ops *ops, double *sums, float *dgamma, float *dbeta,
	const float *dy, const float *x, const float *mean, const float *rstd, const int32_t *targets,
	int M, int C, int accumulate)
{
	OPS->batchnorm_sums(OPS, flip(sums), flip(dgamma), flip(dbeta), flip(dy), flip(x), flip(mean),
		flip(rstd), flip(targets), M, C, accumulate);
}

static void batchnorm_backward(struct ops *ops, float *dx, const float *dy, const float *x,
	const float *mean, const float *rstd, const float *gamma, const float *means,
	const int32_t *targets, int M, int C)
{
	OPS->batchnorm_backward(OPS, flip(dx), flip(dy), flip(x), flip(mean), flip(rstd), flip(gamma),
		flip(means), flip(targets), M, C);
}

static void linear(struct ops *ops, float *y, const float *x, const float *w, const float *bias,
	int M, int K, int N)
{
	OPS->linear(OPS, flip(y), flip(x), flip(w), flip(bias), M, K, N);
}

static void linear_gelu(struct ops *ops, float *y, float *pre, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	OPS->linear_gelu(OPS, flip(y), flip(pre), flip(x), flip(w), flip(bias), M, K, N);
}

static void linear_relu(struct ops *ops, float *y, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	OPS->linear_relu(OPS, flip(y), flip(x), flip(w), flip(bias), M, K, N);
}

static void linear_backward_input(struct ops *ops, float *dx, const float *dy, const float *w,
	int M, int K, int N)
{
	OPS->linear_backward_input(OPS, flip(dx), flip(dy), flip(w), M, K, N);
}

static void linear_backward_input_gelu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *pre, int M, int K, int N)
{
	OPS->linear_backward_input_gelu(OPS, flip(dx), flip(dy), flip(w), flip(pre), M, K, N);
}

static void linear_backward_input_relu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *y, int M, int K, int N)
{
	OPS->linear_backward_input_relu(OPS, flip(dx), flip(dy), flip(w), flip(y), M, K, N);
}

static void linear_backward_weight(struct ops *ops, float *dw, float *dbias, const float *x,
	const float *dy, int M, int K, int N, int accumulate)
{
	OPS->linear_backward_weight(OPS, flip(dw), flip(dbias), flip(x), flip(dy), M, K, N, accumulate);
}

static void attention(struct ops *ops, float *y, float *lse, const float *qkv, int B, int T, int C,
	int H)
{
	OPS->attention(OPS, flip(y), flip(lse), flip(qkv), B, T, C, H);
}

static void attention_backward(struct ops *ops, float *dqkv, const float *dy, const float *qkv,
	const float *y, const float *lse, int B, int T, int C, int H)
{
	OPS->attention_backward(OPS, flip(dqkv), flip(dy), flip(qkv), flip(y), flip(lse), B, T, C, H);
}

static void head_loss(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
	const float *wte, const int32_t *targets, int M, int C, int V, int accumulate)
{
	OPS->head_loss(OPS, flip(losses), flip(dx), flip(dwte), flip(x), flip(wte), flip(targets), M, C,
		V, accumulate);
}

static void cross_entropy(struct ops *ops, float *losses, float *logits, const int32_t *targets,
	int M, int V, bool gradient)
{
	OPS->cross_entropy(OPS, flip(losses), flip(logits), flip(targets), M, V, gradient);
}

static struct adamw_state flip_state(const struct adamw_state *state)
{
	return (struct adamw_state) { flip(state->weights), flip(state->m), flip(state->v) };
}

static void adamw_chunk(struct ops *ops, const struct adamw_state *to,
	const struct adamw_state *from, float *compute, const float *grad, size_t count, int decay)
{
	const struct adamw_state near_to = flip_state(to), near_from = flip_state(from);
	OPS->adamw(OPS, &near_to, &near_from, flip(compute), flip(grad), count, decay);
}

/* One chunk after the other. */
static void adamw_chunks(struct ops *ops, const struct adamw_state *to,
	const struct adamw_state *from, float *compute, const float *grad,
	const struct adamw_chunk *chunks, size_t count)
{
	const struct adamw_chunk *near = flip(chunks);
	for (size_t i = 0; i < count; i++) {
		size_t at = near[i].first, moments = near[i].moments;
		adamw_chunk(ops,
			&(struct adamw_state) { to->weights + at, to->m + moments, to->v + moments },
			&(struct adamw_state) { from->weights + at, from->m + moments, from->v + moments },
			compute + at, grad + at, near[i].count, (int)near[i].decay);
	}
}

static void sum_losses(struct ops *ops, double *sum, const float *losses, size_t count,
	int accumulate)
{
	OPS->sum_losses(OPS, flip(sum), flip(losses), count, accumulate);
}

static void square_sums(struct ops *ops, double *sums, const float *x, size_t count)
{
	OPS->square_sums(OPS, flip(sums), flip(x), count);
}

static void add(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	OPS->add(OPS, flip(out), flip(a), flip(b), count);
}

static void zero(struct ops *ops, float *out, size_t count)
{
	OPS->zero(OPS, flip(out), count);
}

static const struct device device_table = {
	.alloc = alloc,
	.release = release,
	.copy_in = copy_in,
	.copy_out = copy_out,
	.put = put,
	.copy_stream = &copy_stream,
	.check = check,
};

static const struct ops device_memory_ops = {
	.name = "remote",
	.element = sizeof(float),
	.prepare = prepare,
	.destroy = destroy,
	.put_params = put_params,
	.embedding = embedding,
	.embedding_backward = embedding_backward,
	.layernorm = layernorm,
	.layernorm_backward = layernorm_backward,
	.batchnorm_moments = batchnorm_moments,
	.batchnorm_relu = batchnorm_relu,
	.batchnorm_sums = batchnorm_sums,
	.batchnorm_backward = batchnorm_backward,
	.linear = linear,
	.linear_gelu = linear_gelu,
	.linear_relu = linear_relu,
	.linear_backward_input = linear_backward_input,
	.linear_backward_input_gelu = linear_backward_input_gelu,
	.linear_backward_input_relu = linear_backward_input_relu,
	.linear_backward_weight = linear_backward_weight,
	.attention = attention,
	.attention_backward = attention_backward,
	.head_loss = head_loss,
	.cross_entropy = cross_entropy,
	.sum_losses = sum_losses,
	.adamw_chunks = adamw_chunks,
	.square_sums = square_sums,
	.add = add,
	.zero = zero,
};

struct ops *device_memory_ops_create(struct err *err)
{
	struct ops *ops = calloc(1, sizeof *ops);
	struct device_memory *memory = calloc(1, sizeof *memory);
	struct ops *plain = ops_cpu_create(true, err);
	if (!ops || !memory || !plain) {
		free(ops);
		free(memory);
		return NULL;
	}
	*ops = device_memory_ops;
	memory->plain = plain;
	memory->device = device_table;
	memory->device.state = ops->state = memory;
	ops->device = &memory->device;
	ops->params = &memory->params;
	return ops;
}

void device_memory_ops_refuse_pins(struct ops *ops)
{
	device_memory_of(ops->device)->no_pins = true;
}
/* clang-format on */

struct remote_traffic device_memory_ops_traffic(const struct ops *ops)
{
	return ((const struct device_memory *)ops->state)->traffic;
}
