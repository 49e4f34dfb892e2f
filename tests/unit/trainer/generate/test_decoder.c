/* SPDX-License-Identifier: Apache-2.0 */
/* decoder: the logits are those of the formulas, computed here position by position in double
 * precision; and their bits depend on nothing but the tokens and the weights. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include <cmocka.h>

#include "order/philox.h"
#include "trainer/cpu/kernels.h"
#include "trainer/generate/decoder.h"
#include "trainer/ops/ops.h"

#define LAYERS 2
#define WIDTH 24 /* neither it nor the heads' width is a multiple of a vector */
#define HEADS 3
#define CONTEXT 70
#define VOCABULARY 37

static const struct gpt2_config config = { .layers = LAYERS,
	.width = WIDTH,
	.heads = HEADS,
	.context = CONTEXT,
	.vocabulary = VOCABULARY,
	.begin = -1,
	.end = -1 };

/* ---- weights: a number from the tensor's name and the element ---- */

static float weight(const struct gpt2_tensor *tensor, uint32_t element)
{
	const uint32_t counter[4] = { element, (uint32_t)tensor->part, (uint32_t)tensor->layer, 9 };
	const uint32_t key[2] = { 1, 2 };
	uint32_t words[4];
	philox(counter, key, words);
	const float value = (float)((double)words[0] / 4294967296.0 - 0.5);
	const bool is_gamma = tensor->part == GPT2_LN_1_WEIGHT || tensor->part == GPT2_LN_2_WEIGHT
		|| tensor->part == GPT2_LN_F_WEIGHT;
	return is_gamma ? 1 + value : value;
}

static int read_tensor(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	(void)source;
	(void)err;
	for (uint32_t i = 0; i < tensor->elements; i++)
		out[i] = weight(tensor, i);
	return 0;
}

static struct decoder *open_decoder(bool half)
{
	struct model_source source = { .config = config, .read = read_tensor };
	struct err err;
	struct decoder *decoder = decoder_open(&source, half, &err);
	if (!decoder)
		fail_msg("%s", err.text);
	return decoder;
}

/* ---- the formulas ---- */

static double *tensor_of(enum gpt2_part part, int layer)
{
	struct gpt2_tensor *tensors;
	struct err err;
	size_t count;
	double *values = NULL;
	assert_int_equal(gpt2_tensors(&config, &tensors, &count, &err), 0);
	for (size_t i = 0; i < count; i++) {
		if (tensors[i].part != part || tensors[i].layer != layer)
			continue;
		values = calloc(tensors[i].elements, sizeof *values);
		for (uint32_t k = 0; k < tensors[i].elements; k++)
			values[k] = (double)weight(&tensors[i], k);
	}
	free(tensors);
	assert_non_null(values);
	return values;
}

static void norm(double *y, const double *x, enum gpt2_part gamma_part, int layer)
{
	double *gamma = tensor_of(gamma_part, layer), *beta = tensor_of(gamma_part + 1, layer);
	double mean = 0, square = 0;
	for (int c = 0; c < WIDTH; c++)
		mean += x[c] / WIDTH;
	for (int c = 0; c < WIDTH; c++)
		square += (x[c] - mean) * (x[c] - mean) / WIDTH;
	for (int c = 0; c < WIDTH; c++)
		y[c] = (x[c] - mean) / sqrt(square + 1e-5) * gamma[c] + beta[c];
	free(gamma);
	free(beta);
}

static void linear(double *y, const double *x, enum gpt2_part part, int layer, int in, int out)
{
	double *w = tensor_of(part, layer), *bias = tensor_of(part + 1, layer);
	for (int n = 0; n < out; n++) {
		y[n] = bias[n];
		for (int k = 0; k < in; k++)
			y[n] += x[k] * w[k * out + n];
	}
	free(w);
	free(bias);
}

/* Attention of the last of `count` positions over all of them. */
static void attend(double *y, double qkv[][3 * WIDTH], int count)
{
	const int size = WIDTH / HEADS;
	for (int h = 0; h < HEADS; h++) {
		double p[CONTEXT], sum = 0;
		for (int s = 0; s < count; s++) {
			p[s] = 0;
			for (int d = h * size; d < (h + 1) * size; d++)
				p[s] += qkv[count - 1][d] * qkv[s][WIDTH + d];
			sum += p[s] = exp(p[s] / sqrt(size));
		}
		for (int d = h * size; d < (h + 1) * size; d++) {
			y[d] = 0;
			for (int s = 0; s < count; s++)
				y[d] += p[s] / sum * qkv[s][2 * WIDTH + d];
		}
	}
}

static void run_block(double x[][WIDTH], int count, int layer)
{
	static double qkv[CONTEXT][3 * WIDTH];
	double normed[WIDTH], attended[WIDTH], added[WIDTH], hidden[4 * WIDTH];
	for (int t = 0; t < count; t++) {
		norm(normed, x[t], GPT2_LN_1_WEIGHT, layer);
		linear(qkv[t], normed, GPT2_C_ATTN_WEIGHT, layer, WIDTH, 3 * WIDTH);
		attend(attended, qkv, t + 1);
		linear(added, attended, GPT2_ATTN_PROJ_WEIGHT, layer, WIDTH, WIDTH);
		for (int c = 0; c < WIDTH; c++)
			x[t][c] += added[c];
		norm(normed, x[t], GPT2_LN_2_WEIGHT, layer);
		linear(hidden, normed, GPT2_C_FC_WEIGHT, layer, WIDTH, 4 * WIDTH);
		for (int i = 0; i < 4 * WIDTH; i++) {
			const double u = sqrt(2 / M_PI) * (hidden[i] + 0.044715 * pow(hidden[i], 3));
			hidden[i] = hidden[i] / 2 * (1 + tanh(u));
		}
		linear(added, hidden, GPT2_MLP_PROJ_WEIGHT, layer, 4 * WIDTH, WIDTH);
		for (int c = 0; c < WIDTH; c++)
			x[t][c] += added[c];
	}
}

static void formulas(const int32_t *tokens, int count, double *logits)
{
	static double x[CONTEXT][WIDTH];
	double *wte = tensor_of(GPT2_WTE, -1), *wpe = tensor_of(GPT2_WPE, -1), normed[WIDTH];
	for (int t = 0; t < count; t++)
		for (int c = 0; c < WIDTH; c++)
			x[t][c] = wte[tokens[t] * WIDTH + c] + wpe[t * WIDTH + c];
	for (int layer = 0; layer < LAYERS; layer++)
		run_block(x, count, layer);
	norm(normed, x[count - 1], GPT2_LN_F_WEIGHT, -1);
	for (int v = 0; v < VOCABULARY; v++) {
		logits[v] = 0;
		for (int c = 0; c < WIDTH; c++)
			logits[v] += wte[v * WIDTH + c] * normed[c];
	}
	free(wte);
	free(wpe);
}

/* ---- tests ---- */

static void some_tokens(int32_t *tokens)
{
	for (int i = 0; i < CONTEXT; i++)
		tokens[i] = (i * i + 3 * i) % VOCABULARY;
}

static void feed(struct decoder *decoder, const int32_t *tokens, size_t count, float *logits)
{
	struct err err;
	if (decoder_feed(decoder, tokens, count, logits, &err) < 0)
		fail_msg("%s", err.text);
}

static void logits_are_those_of_the_formulas(void **state)
{
	static const int counts[] = { 1, 2, 33, CONTEXT };
	int32_t tokens[CONTEXT];
	(void)state;
	some_tokens(tokens);
	for (int half = 0; half < 2; half++) {
		struct decoder *decoder = open_decoder(half);
		const double bound = half ? 0.2 : 1e-4;
		for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
			float logits[VOCABULARY];
			double expected[VOCABULARY], worst = 0;
			decoder_rewind(decoder, 0);
			feed(decoder, tokens, (size_t)counts[i], logits);
			formulas(tokens, counts[i], expected);
			for (int v = 0; v < VOCABULARY; v++)
				worst = fmax(worst, fabs((double)logits[v] - expected[v]));
			if (!(worst < bound))
				fail_msg("%d tokens: logits differ by %g", counts[i], worst);
		}
		decoder_close(decoder);
	}
}

/* However the tokens are fed, and by how many threads. */
static void bits_depend_on_the_tokens_alone(void **state)
{
	int32_t tokens[CONTEXT];
	float expected[CONTEXT][VOCABULARY], logits[VOCABULARY];
	(void)state;
	some_tokens(tokens);
	for (int half = 0; half < 2; half++) {
		struct decoder *decoder = open_decoder(half);
		for (size_t i = 0; i < CONTEXT; i++)
			feed(decoder, tokens + i, 1, expected[i]);
		assert_int_equal(decoder_length(decoder), CONTEXT);
		for (size_t threads = 1; threads < 4; threads++) {
#ifdef _OPENMP
			omp_set_num_threads((int)threads);
#endif
			for (size_t first = 1; first < CONTEXT; first += 3) {
				decoder_rewind(decoder, first / 2);
				feed(decoder, tokens + first / 2, first - first / 2, logits);
				assert_memory_equal(logits, expected[first - 1], sizeof logits);
				feed(decoder, tokens + first, CONTEXT - first, logits);
				assert_memory_equal(logits, expected[CONTEXT - 1], sizeof logits);
			}
		}
		decoder_close(decoder);
	}
}

/* One table of kernels for each instruction set that this CPU has. */
static void kernels_give_the_same_bits(void **state)
{
	enum { TOKENS = 7, ROWS = 19, MOST = 53 };
	float x[TOKENS][MOST], w[ROWS * MOST], bias[ROWS], y[TOKENS][ROWS], first[TOKENS][ROWS];
	float sums[MOST], first_sums[MOST];
	uint16_t half[ROWS * MOST];
	const struct kernels *tables[3] = { &kernels_default };
	int count = 1;
	(void)state;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		tables[count++] = &kernels_avx2;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
		&& __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		tables[count++] = &kernels_avx512;
#endif
	for (int i = 0; i < TOKENS * MOST; i++)
		(&x[0][0])[i] = sinf((float)i);
	for (int i = 0; i < ROWS * MOST; i++) {
		w[i] = cosf((float)i * 0.7f);
		half[i] = (uint16_t)(0x3f00 + i % 300);
	}
	for (int i = 0; i < ROWS; i++)
		bias[i] = (float)i;
	for (int width = 1; width <= MOST; width++)
		for (int kind = 0; kind < 4; kind++)
			for (int k = 0; k < count; k++) {
				const struct row_products products = { .tokens = TOKENS,
					.first = 2,
					.last = ROWS,
					.width = width,
					.x = &x[0][0],
					.x_row = MOST,
					.w = kind & 1 ? (const void *)half : w,
					.half = kind & 1,
					.bias = kind & 2 ? bias : NULL,
					.y = &y[0][0],
					.y_row = ROWS };
				memset(y, 0, sizeof y);
				tables[k]->row_products(&products);
				tables[k]->weighted_rows(sums, bias, w, ROWS, width);
				if (k == 0) {
					memcpy(first, y, sizeof y);
					memcpy(first_sums, sums, sizeof sums);
				}
				assert_memory_equal(y, first, sizeof y);
				assert_memory_equal(sums, first_sums, (size_t)width * sizeof *sums);
				assert_true(y[TOKENS - 1][0] == 0 && y[TOKENS - 1][1] == 0);
			}
}

static void what_does_not_fit_is_refused(void **state)
{
	int32_t tokens[CONTEXT];
	float logits[VOCABULARY];
	struct err err;
	struct decoder *decoder = open_decoder(false);
	(void)state;
	some_tokens(tokens);
	tokens[3] = VOCABULARY;
	assert_int_equal(decoder_feed(decoder, tokens, 5, logits, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "token 37 is not below 37"));
	tokens[3] = -1;
	assert_int_equal(decoder_feed(decoder, tokens, 5, logits, &err), -1);
	tokens[3] = 0;
	assert_int_equal(decoder_length(decoder), 0);
	feed(decoder, tokens, CONTEXT - 1, NULL);
	assert_int_equal(decoder_feed(decoder, tokens, 2, logits, &err), -1);
	assert_non_null(strstr(err.text, "2 tokens after 69 are more than its context of 70"));
	feed(decoder, tokens, 1, logits);
	assert_int_equal(decoder_length(decoder), CONTEXT);
	decoder_close(decoder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logits_are_those_of_the_formulas),
		cmocka_unit_test(bits_depend_on_the_tokens_alone),
		cmocka_unit_test(kernels_give_the_same_bits),
		cmocka_unit_test(what_does_not_fit_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
