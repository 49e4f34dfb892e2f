/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/trainer/cuda/host/op_cases.h"

#include <stddef.h>
#include <string.h>

#include "trainer/cuda/kernels/head.h"

/* ---- sizes ---- */

static size_t letter(char name, const struct op_sizes *s)
{
	const size_t M = (size_t)s->B * (size_t)s->T, W = OPS_VOCABULARY_ROWS((size_t)s->V);
	switch (name) {
	case 'B': return (size_t)s->B;
	case 'T': return (size_t)s->T;
	case 'C': return (size_t)s->C;
	case 'H': return (size_t)s->H;
	case 'V': return (size_t)s->V;
	case 'F': return (size_t)s->F;
	case 'K': return (size_t)s->K;
	case 'N': return (size_t)s->N;
	case 'M': return M;
	case 'Q': return 3 * (size_t)s->C;
	case 'R': return head_chunk_rows(M, W, sizeof(float));
	case 'P': return s->P;
	case 'S': return (s->P + NORM_BLOCK - 1) / NORM_BLOCK;
	case 'W': return W;
	case 'X': return (s->P + ADAMW_CHUNK - 1) / ADAMW_CHUNK;
	case '2': return 2;
	}
	return 0;
}

size_t op_elements(const char *shape, const struct op_sizes *sizes)
{
	size_t count = 1;
	while (*shape)
		count *= letter(*shape++, sizes);
	return count;
}

struct op_sizes op_sizes_of(const struct op_case *op, const struct op_sizes *sizes)
{
	struct op_sizes s = *sizes;
	s.K = op->depth ? (int)letter(op->depth, sizes) : 0;
	s.N = op->width ? (int)letter(op->width, sizes) : 0;
	return s;
}

bool op_is_there(const struct op_case *op, const struct ops *ops)
{
	void *function;
	memcpy(&function, (const char *)ops + op->function, sizeof function);
	return function != NULL;
}

/* ---- calls ---- */

/* A call of one line: `s` are the sizes, p[i] is operand i, M = B·T. */
#define CALL(name, call) \
	static void name(struct ops *ops, float *const *p, const struct op_sizes *s) \
	{ \
		const int M = s->B * s->T; \
		(void)M; \
		ops->call; \
	}
#define INTS(i) ((const int32_t *)(const void *)p[i])
#define DOUBLES(i) ((double *)(void *)p[i])

CALL(embedding, embedding(ops, p[0], INTS(1), p[2], p[3], s->B, s->T, s->C))
CALL(embedding_backward,
	embedding_backward(ops, p[0], p[1], p[2], INTS(3), s->B, s->T, s->C, s->V, 0))
CALL(embedding_backward_adds,
	embedding_backward(ops, p[0], p[1], p[2], INTS(3), s->B, s->T, s->C, s->V, 1))

CALL(layernorm, layernorm(ops, NULL, p[0], p[1], p[2], p[3], NULL, p[4], p[5], M, s->C))
CALL(layernorm_of_sum, layernorm(ops, p[6], p[0], p[1], p[2], p[3], p[7], p[4], p[5], M, s->C))
CALL(layernorm_in_place, layernorm(ops, p[3], p[0], p[1], p[2], p[3], p[6], p[4], p[5], M, s->C))
CALL(layernorm_backward,
	layernorm_backward(ops, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], M, s->C, 0, 0))
CALL(layernorm_backward_adds,
	layernorm_backward(ops, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], M, s->C, 1, 1))
CALL(layernorm_before, layernorm(ops, NULL, p[8], p[6], p[7], p[4], NULL, p[5], p[5], M, s->C))

CALL(batchnorm_moments, batchnorm_moments(ops, DOUBLES(0), p[1], INTS(2), M, s->C))
CALL(batchnorm_relu, batchnorm_relu(ops, p[0], p[1], p[2], p[3], p[4], p[5], M, s->C))
CALL(batchnorm_sums,
	batchnorm_sums(ops, DOUBLES(0), p[1], p[2], p[3], p[4], p[5], p[6], INTS(7), M, s->C, 0))
CALL(batchnorm_backward,
	batchnorm_backward(ops, p[0], p[1], p[2], p[3], p[4], p[5], p[6], INTS(7), M, s->C))

CALL(linear, linear(ops, p[0], p[1], p[2], p[3], M, s->K, s->N))
CALL(linear_without_bias, linear(ops, p[0], p[1], p[2], NULL, M, s->K, s->N))
CALL(linear_gelu, linear_gelu(ops, p[0], p[1], p[2], p[3], p[4], M, s->K, s->N))
CALL(linear_relu, linear_relu(ops, p[0], p[1], p[2], p[3], M, s->K, s->N))
CALL(linear_backward_input, linear_backward_input(ops, p[0], p[1], p[2], M, s->K, s->N))
CALL(linear_backward_input_gelu,
	linear_backward_input_gelu(ops, p[0], p[1], p[2], p[3], M, s->K, s->N))
CALL(linear_backward_input_relu,
	linear_backward_input_relu(ops, p[0], p[1], p[2], p[3], M, s->K, s->N))
CALL(linear_backward_weight, linear_backward_weight(ops, p[0], p[1], p[2], p[3], M, s->K, s->N, 0))
CALL(linear_backward_weight_adds,
	linear_backward_weight(ops, p[0], p[1], p[2], p[3], M, s->K, s->N, 1))
CALL(linear_backward_weight_alone,
	linear_backward_weight(ops, p[0], NULL, p[1], p[2], M, s->K, s->N, 0))

CALL(attention, attention(ops, p[0], p[1], p[2], s->B, s->T, s->C, s->H))
CALL(attention_backward,
	attention_backward(ops, p[0], p[1], p[2], p[3], p[4], s->B, s->T, s->C, s->H))
CALL(attention_before, attention(ops, p[3], p[4], p[2], s->B, s->T, s->C, s->H))

CALL(head_loss, head_loss(ops, p[0], NULL, NULL, p[1], p[2], INTS(3), M, s->C, s->V, 0))
CALL(head_gradient, head_loss(ops, p[0], p[1], p[2], p[3], p[4], INTS(5), M, s->C, s->V, 0))
CALL(head_gradient_adds, head_loss(ops, p[0], p[1], p[2], p[3], p[4], INTS(5), M, s->C, s->V, 1))
CALL(cross_entropy, cross_entropy(ops, p[0], p[1], INTS(2), (int)letter('R', s), s->V, false))
CALL(cross_entropy_gradient,
	cross_entropy(ops, p[0], p[1], INTS(2), (int)letter('R', s), s->V, true))

/* From p[from] on to p[0] on; one chunk after the other where there is no more than that. */
static void update(struct ops *ops, float *const *p, int from, const float *grad,
	const float *chunks_at, size_t count)
{
	const struct adamw_chunk *chunks = (const struct adamw_chunk *)(const void *)chunks_at;
	const struct adamw_state to = { p[0], p[1], p[2] }, old = { p[from], p[from + 1], p[from + 2] };
	if (ops->adamw_chunks) {
		ops->adamw_chunks(ops, &to, &old, p[3], grad, chunks, count);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		size_t at = chunks[i].first;
		ops->adamw(ops, &(struct adamw_state) { to.weights + at, to.m + at, to.v + at },
			&(struct adamw_state) { old.weights + at, old.m + at, old.v + at }, p[3] + at,
			grad + at, chunks[i].count, (int)chunks[i].decay);
	}
}
static void adamw_chunks(struct ops *ops, float *const *p, const struct op_sizes *s)
{
	update(ops, p, 4, p[7], p[8], letter('X', s));
}
static void adamw_chunks_in_place(struct ops *ops, float *const *p, const struct op_sizes *s)
{
	update(ops, p, 0, p[4], p[5], letter('X', s));
}

/* (a + b) + c */
static void tree_reduce(struct ops *ops, float *const *p, const struct op_sizes *s)
{
	if (ops->tree_reduce) {
		ops->tree_reduce(ops, p[0], (float *const[]) { p[1], p[2], p[3] },
			(const int[]) { 0, 1, 1 }, 3, s->P);
		return;
	}
	ops->add(ops, p[0], p[1], p[2], s->P);
	ops->add(ops, p[0], p[0], p[3], s->P);
}

CALL(sum_losses, sum_losses(ops, DOUBLES(0), p[1], (size_t)M, 0))
CALL(square_sums, square_sums(ops, DOUBLES(0), p[1], s->P))
CALL(add, add(ops, p[0], p[1], p[2], s->P))
CALL(zero, zero(ops, p[0], s->P))

/* ---- the table ---- */

#define CASE(op, title, call) .name = title, .function = offsetof(struct ops, op), .run = call
#define ELEMENTS(name, role, shape, scale) \
	{ \
		name, OPERAND_##role, OPERAND_ELEMENTS, shape, scale, 0, NULL \
	}
#define FLOATS(name, role, shape, scale) \
	{ \
		name, OPERAND_##role, OPERAND_FLOATS, shape, scale, 0, NULL \
	}
#define AROUND(name, role, kind, shape, scale, middle) \
	{ \
		name, OPERAND_##role, OPERAND_##kind, shape, scale, middle, NULL \
	}
#define TOKENS(name, shape) \
	{ \
		name, OPERAND_IN, OPERAND_TOKENS, shape, 0, 0, NULL \
	}
#define TARGETS(shape) \
	{ \
		"targets", OPERAND_IN, OPERAND_TARGETS, shape, 0, 0, NULL \
	}
#define GAMMA AROUND("gamma", IN, ELEMENTS, "C", 0.5f, 1)
#define BETA ELEMENTS("beta", IN, "C", 0.5f)
#define PADDED(name, role, kind, scale) \
	{ \
		name, OPERAND_##role, OPERAND_##kind, "VC", scale, 0, "WC" \
	}

#define NORM_OUT \
	ELEMENTS("y", OUT, "MC", 0), FLOATS("mean", OUT, "M", 0), FLOATS("rstd", OUT, "M", 0)
#define NORM_GRADIENT(role) \
	ELEMENTS("dx", role, "MC", 1), FLOATS("dgamma", role, "C", 1), FLOATS("dbeta", role, "C", 1), \
		ELEMENTS("dy", IN, "MC", 1), AROUND("x", IN, ELEMENTS, "MC", 2, 0.5f), GAMMA, \
		FLOATS("mean", DERIVED, "M", 0), FLOATS("rstd", DERIVED, "M", 0), \
		ELEMENTS("y", DERIVED, "MC", 0)
#define STATISTICS FLOATS("mean", IN, "C", 0.5f), AROUND("rstd", IN, FLOATS, "C", 0.5f, 1)
#define PARAMETERS(of) FLOATS("gamma", of, "C", 1), FLOATS("beta", of, "C", 1)
#define FORWARD(k, n, call, name) \
	{ \
		CASE(linear, name, call), .depth = k, .width = n, .operands = { \
			ELEMENTS("y", OUT, "MN", 0), \
			ELEMENTS("x", IN, "MK", 1), \
			ELEMENTS("w", IN, "KN", 0.1f), \
			ELEMENTS("bias", IN, "N", 0.5f) \
		} \
	}
#define TO_INPUT(op, k, n, ...) \
	{ \
		CASE(op, #op " " #k #n, op), .depth = k, .width = n, .operands = { \
			ELEMENTS("dx", OUT, "MK", 0), \
			ELEMENTS("dy", IN, "MN", 1), \
			ELEMENTS("w", IN, "KN", 0.1f), \
			__VA_ARGS__ \
		} \
	}
#define TO_WEIGHT(k, n, call, role, name) \
	{ \
		CASE(linear_backward_weight, name, call), .depth = k, .width = n, .operands = { \
			FLOATS("dw", role, "KN", 1), \
			FLOATS("dbias", role, "N", 1), \
			ELEMENTS("x", IN, "MK", 1), \
			ELEMENTS("dy", IN, "MN", 1) \
		} \
	}
#define HEAD(call, role, name) \
	{ \
		CASE(head_loss, name, call), .depth = 'C', .width = 'V', .operands = { \
			FLOATS("losses", OUT, "M", 0), \
			ELEMENTS("dx", OUT, "MC", 0), \
			PADDED("dwte", role, FLOATS, 1), \
			ELEMENTS("x", IN, "MC", 1), \
			PADDED("wte", IN, ELEMENTS, 0.1f), \
			TARGETS("M") \
		} \
	}

const struct op_case op_cases[] = {
	{ CASE(embedding, "embedding", embedding),
		.operands = { ELEMENTS("out", OUT, "MC", 0), TOKENS("tokens", "M"),
			ELEMENTS("wte", IN, "VC", 1), ELEMENTS("wpe", IN, "TC", 1) } },
	{ CASE(embedding_backward, "embedding_backward", embedding_backward),
		.operands = { FLOATS("dwte", BOTH, "VC", 1), FLOATS("dwpe", OUT, "TC", 0),
			ELEMENTS("dout", IN, "MC", 1), TOKENS("tokens", "M") } },
	{ CASE(embedding_backward, "embedding_backward, adding", embedding_backward_adds),
		.operands = { FLOATS("dwte", BOTH, "VC", 1), FLOATS("dwpe", BOTH, "TC", 1),
			ELEMENTS("dout", IN, "MC", 1), TOKENS("tokens", "M") } },
	{ CASE(layernorm, "layernorm", layernorm),
		.operands = { NORM_OUT, AROUND("x", IN, ELEMENTS, "MC", 2, 0.5f), GAMMA, BETA } },
	{ CASE(layernorm, "layernorm of a sum", layernorm_of_sum),
		.operands = { NORM_OUT, AROUND("x", IN, ELEMENTS, "MC", 2, 0.5f), GAMMA, BETA,
			ELEMENTS("sum", OUT, "MC", 0), ELEMENTS("add", IN, "MC", 2) } },
	{ CASE(layernorm, "layernorm of a sum in place", layernorm_in_place),
		.operands = { NORM_OUT, AROUND("x", BOTH, ELEMENTS, "MC", 2, 0.5f), GAMMA, BETA,
			ELEMENTS("add", IN, "MC", 2) } },
	{ CASE(layernorm_backward, "layernorm_backward", layernorm_backward),
		.derive = layernorm_before, .operands = { NORM_GRADIENT(OUT) } },
	{ CASE(layernorm_backward, "layernorm_backward, adding", layernorm_backward_adds),
		.derive = layernorm_before, .operands = { NORM_GRADIENT(BOTH) } },
	{ CASE(batchnorm_moments, "batchnorm_moments", batchnorm_moments),
		.operands = { AROUND("moments", OUT, DOUBLES, "2C", 0, 0), ELEMENTS("x", IN, "MC", 1),
			TARGETS("M") } },
	{ CASE(batchnorm_relu, "batchnorm_relu", batchnorm_relu),
		.operands = { ELEMENTS("y", OUT, "MC", 0), ELEMENTS("x", IN, "MC", 1), STATISTICS, GAMMA,
			BETA } },
	{ CASE(batchnorm_sums, "batchnorm_sums", batchnorm_sums),
		.operands = { AROUND("sums", OUT, DOUBLES, "2C", 0, 0), FLOATS("dgamma", OUT, "C", 0),
			FLOATS("dbeta", OUT, "C", 0), ELEMENTS("dy", IN, "MC", 1), ELEMENTS("x", IN, "MC", 1),
			STATISTICS, TARGETS("M") } },
	{ CASE(batchnorm_backward, "batchnorm_backward", batchnorm_backward),
		.operands = { ELEMENTS("dx", OUT, "MC", 0), ELEMENTS("dy", IN, "MC", 1),
			ELEMENTS("x", IN, "MC", 1), STATISTICS, GAMMA, FLOATS("means", IN, "2C", 0.5f),
			TARGETS("M") } },
	FORWARD('C', 'Q', linear, "linear CQ"),
	FORWARD('C', 'C', linear, "linear CC"),
	FORWARD('F', 'C', linear, "linear FC"),
	FORWARD('C', 'F', linear_without_bias, "linear CF without bias"),
	{ CASE(linear_gelu, "linear_gelu", linear_gelu), .depth = 'C', .width = 'F',
		.operands = { ELEMENTS("y", OUT, "MN", 0), ELEMENTS("pre", OUT, "MN", 0),
			ELEMENTS("x", IN, "MK", 1), ELEMENTS("w", IN, "KN", 0.1f),
			ELEMENTS("bias", IN, "N", 0.5f) } },
	{ CASE(linear_relu, "linear_relu", linear_relu), .depth = 'C', .width = 'F',
		.operands = { ELEMENTS("y", OUT, "MN", 0), ELEMENTS("x", IN, "MK", 1),
			ELEMENTS("w", IN, "KN", 0.1f), ELEMENTS("bias", IN, "N", 0.5f) } },
	TO_INPUT(linear_backward_input, 'C', 'Q', { 0 }),
	TO_INPUT(linear_backward_input, 'C', 'C', { 0 }),
	TO_INPUT(linear_backward_input, 'C', 'F', { 0 }),
	TO_INPUT(linear_backward_input_gelu, 'F', 'C', ELEMENTS("pre", IN, "MK", 2)),
	TO_INPUT(linear_backward_input_relu, 'F', 'C', ELEMENTS("y", IN, "MK", 1)),
	TO_WEIGHT('C', 'Q', linear_backward_weight, OUT, "linear_backward_weight CQ"),
	TO_WEIGHT('C', 'C', linear_backward_weight_adds, BOTH, "linear_backward_weight CC, adding"),
	TO_WEIGHT('C', 'F', linear_backward_weight, OUT, "linear_backward_weight CF"),
	TO_WEIGHT('F', 'C', linear_backward_weight_adds, BOTH, "linear_backward_weight FC, adding"),
	{ CASE(linear_backward_weight, "linear_backward_weight without bias",
		  linear_backward_weight_alone),
		.depth = 'C', .width = 'F',
		.operands = { FLOATS("dw", OUT, "KN", 0), ELEMENTS("x", IN, "MK", 1),
			ELEMENTS("dy", IN, "MN", 1) } },
	{ CASE(attention, "attention", attention),
		.operands = { ELEMENTS("y", OUT, "MC", 0), FLOATS("lse", OUT, "BHT", 0),
			ELEMENTS("qkv", IN, "MQ", 1) } },
	{ CASE(attention_backward, "attention_backward", attention_backward),
		.derive = attention_before,
		.operands = { ELEMENTS("dqkv", OUT, "MQ", 0), ELEMENTS("dy", IN, "MC", 1),
			ELEMENTS("qkv", IN, "MQ", 1), ELEMENTS("y", DERIVED, "MC", 0),
			FLOATS("lse", DERIVED, "BHT", 0) } },
	{ CASE(head_loss, "head_loss", head_loss), .depth = 'C', .width = 'V',
		.operands = { FLOATS("losses", OUT, "M", 0), ELEMENTS("x", IN, "MC", 1),
			PADDED("wte", IN, ELEMENTS, 0.1f), TARGETS("M") } },
	HEAD(head_gradient, OUT, "head_loss with gradients"),
	HEAD(head_gradient_adds, BOTH, "head_loss with gradients, adding"),
	{ CASE(cross_entropy, "cross_entropy", cross_entropy),
		.operands = { FLOATS("losses", OUT, "R", 0), ELEMENTS("logits", IN, "RV", 4),
			TARGETS("R") } },
	{ CASE(cross_entropy, "cross_entropy with gradient", cross_entropy_gradient),
		.operands = { FLOATS("losses", OUT, "R", 0), ELEMENTS("logits", BOTH, "RV", 4),
			TARGETS("R") } },
	{ CASE(adamw_chunks, "adamw_chunks", adamw_chunks),
		.operands = { FLOATS("weights", OUT, "P", 0), FLOATS("m", OUT, "P", 0),
			FLOATS("v", OUT, "P", 0), ELEMENTS("compute", OUT, "P", 0),
			FLOATS("old weights", IN, "P", 1), FLOATS("old m", IN, "P", 0.01f),
			AROUND("old v", IN, FLOATS, "P", 0.0009f, 0.001f), FLOATS("grad", IN, "P", 0.1f),
			AROUND("chunks", IN, CHUNKS, "X", 0, 0) } },
	{ CASE(adamw_chunks, "adamw_chunks in place", adamw_chunks_in_place),
		.operands = { FLOATS("weights", BOTH, "P", 1), FLOATS("m", BOTH, "P", 0.01f),
			AROUND("v", BOTH, FLOATS, "P", 0.0009f, 0.001f), ELEMENTS("compute", OUT, "P", 0),
			FLOATS("grad", IN, "P", 0.1f), AROUND("chunks", IN, CHUNKS, "X", 0, 0) } },
	{ CASE(sum_losses, "sum_losses", sum_losses),
		.operands = { AROUND("sum", OUT, DOUBLES, "", 0, 0),
			AROUND("losses", IN, FLOATS, "M", 3, 4) } },
	{ CASE(square_sums, "square_sums", square_sums),
		.operands = { AROUND("sums", OUT, DOUBLES, "S", 0, 0), FLOATS("x", IN, "P", 1) } },
	{ CASE(tree_reduce, "combine", tree_reduce),
		.operands = { FLOATS("out", OUT, "P", 0), FLOATS("a", IN, "P", 1), FLOATS("b", IN, "P", 1),
			FLOATS("c", IN, "P", 1) } },
	{ CASE(add, "add", add),
		.operands = { FLOATS("out", OUT, "P", 0), FLOATS("a", IN, "P", 1),
			FLOATS("b", IN, "P", 1) } },
	{ CASE(zero, "zero", zero), .operands = { FLOATS("out", OUT, "P", 0) } },
};
const size_t op_case_count = sizeof op_cases / sizeof op_cases[0];
