/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding on the GPU: in fp32 the bits of the CPU's plain one, in bf16 what it gives for the
 * same rounded operands; and the sort that its backward pass is built on. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cuda/kernels/embedding.h"

static const struct shape {
	int B, T, C, V, shift;
} shapes[] = { { 1, 1, 1, 1, 0 }, { 1, 3, 31, 2, 0 }, { 2, 33, 33, 300, 0 }, { 3, 5, 257, 7, 0 },
	{ 1, 31, 3, 50257, 0 }, { 4, 16, 264, 9, 0 }, { 4, 16, 264, 9, 1 }, { 2, 64, 768, 3, 0 },
	{ 2, 333, 8, 5, 0 }, { 3, 200, 65, 2, 0 }, { 3, 683, 4, 70000, 0 } };

struct embedding {
	void *out;
	const int32_t *tokens;
	const void *wte, *wpe, *dout;
	float *dwte, *dwpe;
	void *scratch;
	struct shape s;
	int accumulate;
	enum cuda_type type;
};

static void run_forward(void *arg)
{
	struct embedding *e = arg;
	assert_int_equal(cuda_embedding(e->out, e->tokens, e->wte, e->wpe, e->s.B, e->s.T, e->s.C,
						 e->type, NULL),
		0);
}

/* The first and the last token of the vocabulary are among them. */
static int32_t *make_tokens(int M, int V)
{
	int32_t *tokens = kernel_host((size_t)M * sizeof *tokens), *random = fixture_tokens(M, V, 9);
	memcpy(tokens, random, (size_t)M * sizeof *tokens);
	free(random);
	tokens[M / 2] = 0;
	tokens[M - 1] = V - 1;
	return tokens;
}

static void check_forward(struct shape s, enum cuda_type type)
{
	const size_t M = (size_t)s.B * (size_t)s.T, C = (size_t)s.C;
	const int32_t *tokens = make_tokens(s.B * s.T, s.V);
	const float *wte = kernel_floats((size_t)s.V * C, 1, 1, type),
				*wpe = kernel_floats((size_t)s.T * C, 1, 2, type);
	float *out = kernel_host(M * C * 4);
	struct embedding e = { .out = kernel_output_tensor("out", NULL, M * C, type, s.shift),
		.tokens = kernel_operand(tokens, M * 4, 0),
		.wte = kernel_tensor(wte, (size_t)s.V * C, type, s.shift),
		.wpe = kernel_tensor(wpe, (size_t)s.T * C, type, s.shift),
		.s = s,
		.type = type };
	kernel_run(run_forward, &e);
	kernel_reference()->embedding(kernel_reference(), out, tokens, wte, wpe, s.B, s.T, s.C);
	cuda_floats_round(out, M * C, type);
	fixture_same_bits("out", kernel_values(e.out, M * C, type), out, M * C * 4);
	kernel_done();
}

static void forward_has_the_bits_of_the_cpu(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 2; k++)
			check_forward(shapes[i], k ? CUDA_BF16 : CUDA_FP32);
}

static void run_backward(void *arg)
{
	struct embedding *e = arg;
	assert_int_equal(cuda_embedding_backward(e->dwte, e->dwpe, e->scratch, e->dout, e->tokens,
						 e->s.B, e->s.T, e->s.C, e->s.V, e->accumulate, e->type, NULL),
		0);
}

/* Gradients are fp32 sums in the CPU's order whatever the type of dout is: the same bits. */
static void check_backward(struct shape s, int accumulate, enum cuda_type type)
{
	const size_t M = (size_t)s.B * (size_t)s.T, C = (size_t)s.C, V = (size_t)s.V, T = (size_t)s.T;
	const int32_t *tokens = make_tokens(s.B * s.T, s.V);
	const float *dout = kernel_floats(M * C, 1, 1, type),
				*before = kernel_floats(V * C, 1, 2, CUDA_FP32);
	const float *positions = kernel_floats(T * C, 1, 3, CUDA_FP32);
	float *dwte = kernel_host(V * C * 4), *dwpe = kernel_host(T * C * 4);
	memcpy(dwte, before, V * C * 4);
	memcpy(dwpe, positions, T * C * 4);
	struct embedding e = { .dwte = kernel_output_tensor("dwte", before, V * C, CUDA_FP32, s.shift),
		.dwpe =
			kernel_output_tensor("dwpe", accumulate ? positions : NULL, T * C, CUDA_FP32, s.shift),
		.scratch = kernel_output("scratch", NULL, cuda_embedding_scratch((int)M), 0),
		.dout = kernel_tensor(dout, M * C, type, s.shift),
		.tokens = kernel_operand(tokens, M * 4, 0),
		.s = s,
		.accumulate = accumulate,
		.type = type };
	kernel_run(run_backward, &e);
	kernel_reference()->embedding_backward(kernel_reference(), dwte, dwpe, dout, tokens, s.B, s.T,
		s.C, s.V, accumulate);
	fixture_same_bits("dwte", kernel_result(e.dwte), dwte, V * C * 4);
	fixture_same_bits("dwpe", kernel_result(e.dwpe), dwpe, T * C * 4);
	kernel_done();
}

static void backward_has_the_bits_of_the_cpu(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 2; k++)
			check_backward(shapes[i], (int)i % 2, k ? CUDA_BF16 : CUDA_FP32);
}

/* The row of a token after 2^31 elements of wte, forward and backward. */
static void rows_lie_beyond_2_to_the_31(void **state)
{
	const int C = 2048, token = (1 << 20) + 3;
	const size_t at = (size_t)token * C, bytes = (at + C) * 4;
	char *table = device_make_sparse(bytes);
	if (!table)
		skip();
	const float *row = kernel_floats((size_t)C, 1, 1, CUDA_FP32);
	const void *zeros = kernel_operand(kernel_host((size_t)C * 4), (size_t)C * 4, 0);
	float *out = device_make((size_t)C * 4), *read = kernel_host((size_t)C * 4),
		  *dwpe = device_make((size_t)C * 4);
	const int32_t *tokens = kernel_operand(&token, 4, 0);
	void *scratch = device_make(cuda_embedding_scratch(1));
	device_write(table + at * 4, row, (size_t)C * 4);
	assert_int_equal(cuda_embedding(out, tokens, table, zeros, 1, 1, C, CUDA_FP32, NULL), 0);
	device_read(read, out, (size_t)C * 4);
	fixture_same_bits("out", read, row, (size_t)C * 4);
	assert_int_equal(cuda_embedding_backward((float *)table, dwpe, scratch, out, tokens, 1, 1, C,
						 token + 1, 0, CUDA_FP32, NULL),
		0);
	device_read(read, table + at * 4, (size_t)C * 4);
	for (int c = 0; c < C; c++)
		assert_true(read[c] == 2 * row[c]);
	device_free_sparse(table, bytes);
	device_free(out), device_free(dwpe), device_free(scratch);
	kernel_done();
}

struct sort {
	uint32_t *scratch;
	const int32_t *tokens;
	const uint32_t *sorted, *places;
	int M, V;
};

static void run_sort(void *arg)
{
	struct sort *s = arg;
	assert_int_equal(cuda_token_sort(&s->sorted, &s->places, s->scratch, s->tokens, s->M, s->V,
						 NULL),
		0);
}

static void check_sort(int M, int V, bool all_alike)
{
	int32_t *tokens = make_tokens(M, V);
	/* Its highest digit alone sends the first token far. */
	for (tokens[0] = V - 1; tokens[0] & (tokens[0] - 1);)
		tokens[0] &= tokens[0] - 1;
	for (int i = 0; all_alike && i < M; i++)
		tokens[i] = V - 1;
	struct sort s = { kernel_output("scratch", NULL, token_sort_scratch(M) * 4, 0),
		kernel_operand(tokens, (size_t)M * 4, 0), .M = M, .V = V };
	kernel_run(run_sort, &s);
	const uint32_t *result = kernel_result(s.scratch);
	const uint32_t *sorted = result + (s.sorted - s.scratch),
				   *places = result + (s.places - s.scratch);
	for (int i = 0; i < M; i++) {
		assert_true(places[i] < (uint32_t)M && (uint32_t)tokens[places[i]] == sorted[i]);
		assert_true(i == 0 || sorted[i - 1] < sorted[i]
			|| (sorted[i - 1] == sorted[i] && places[i - 1] < places[i]));
	}
	kernel_done();
}

/* As many digits as the vocabulary asks for, from one to four; one tile and more. */
static void sort_is_stable(void **state)
{
	check_sort(1, 1, false);
	check_sort(33, 2, false);
	check_sort(255, 256, false);
	check_sort(2047, 257, false);
	check_sort(257, 1 << 24, false);
	check_sort(31, INT32_MAX, false);
	check_sort(2049, 65537, false);
	check_sort(4097, 3, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forward_has_the_bits_of_the_cpu),
		cmocka_unit_test(backward_has_the_bits_of_the_cpu),
		cmocka_unit_test(rows_lie_beyond_2_to_the_31),
		cmocka_unit_test(sort_is_stable),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
