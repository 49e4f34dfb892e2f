/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_plans: the list of a model's, and the text that carries what was chosen: all of it comes
 * back, and what is not in its form is refused at its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/cuda/host/gemm_plans.h"

static const struct ops_shapes gpt2 = { .batch = 8,
	.positions = 1024,
	.width = 768,
	.heads = 12,
	.vocabulary = 50257,
	.hidden = 3072 };
static const struct ops_shapes mlp = { .batch = 32,
	.positions = 1,
	.width = 784,
	.vocabulary = 10,
	.hidden = 256 };

static bool has(const struct gemm *list, size_t count, struct gemm gemm)
{
	for (size_t i = 0; i < count; i++)
		if (gemm_equal(&list[i], &gemm))
			return true;
	return false;
}

/* 4 layers: 4 forward, 4 backward inputs, 2 · 2 · 4 backward weights, with and without a bias; the
 * head: 1 + 1 + 2; no two alike. */
static void gpt2_has_these(void **state)
{
	struct gemm list[64];
	size_t count = gemm_plans_of(&gpt2, GEMM_MODE_BF16, list, 64);
	const enum gemm_type b = GEMM_BF16;
	assert_int_equal(count, 28);
	assert_true(
		has(list, count, (struct gemm) { 8192, 2304, 768, false, false, b, b, GEMM_BIAS, false }));
	assert_true(has(list, count,
		(struct gemm) { 8192, 3072, 768, false, false, b, b, GEMM_BIAS_GELU, false }));
	assert_true(has(list, count,
		(struct gemm) { 8192, 3072, 768, false, true, b, b, GEMM_GELU_GRAD, false }));
	assert_true(
		has(list, count, (struct gemm) { 8192, 768, 3072, false, true, b, b, GEMM_PLAIN, false }));
	assert_true(has(list, count,
		(struct gemm) { 768, 2304, 8192, true, false, b, GEMM_FP32, GEMM_PLAIN, true }));
	assert_true(has(list, count,
		(struct gemm) { 768, 2304, 8192, true, false, b, GEMM_FP32, GEMM_BIAS_GRAD, true }));
	assert_true(
		has(list, count, (struct gemm) { 8192, 50304, 768, false, true, b, b, GEMM_PLAIN, false }));
	assert_true(has(list, count,
		(struct gemm) { 8192, 768, 50304, false, false, b, b, GEMM_PLAIN, false }));
	assert_true(has(list, count,
		(struct gemm) { 50304, 768, 8192, true, false, b, GEMM_FP32, GEMM_PLAIN, false }));
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < i; k++)
			assert_false(gemm_equal(&list[i], &list[k]));
	assert_int_equal(gemm_plans_of(&gpt2, GEMM_MODE_TF32, list, 64), 28);
	assert_int_equal(list[0].in, GEMM_FP32);
	assert_int_equal(gemm_plans_of(&gpt2, GEMM_MODE_TF32, list, 3), 3);
}

static void mlp_has_these(void **state)
{
	struct gemm list[64];
	size_t count = gemm_plans_of(&mlp, GEMM_MODE_FP32, list, 64);
	assert_int_equal(count, 11);
	assert_true(has(list, count, (struct gemm) { 32, 256, 784, .epilogue = GEMM_BIAS_RELU }));
	assert_true(has(list, count, (struct gemm) { 32, 256, 10, .w_transposed = true }));
	assert_true(
		has(list, count, (struct gemm) { 784, 256, 32, .x_transposed = true, .adds = true }));
}

/* Every kind of row that there can be, in two modes. */
static struct gemm_plans sample(void)
{
	struct gemm_plans plans = { .library = 130001, .mode = GEMM_MODE_BF16, .card = "NVIDIA H200" };
	struct err err;
	for (int i = 0; i < 160; i++) {
		struct gemm_choice choice = { .gemm = { .rows = i + 1,
										  .columns = INT32_MAX - i,
										  .depth = 7,
										  .x_transposed = i & 1,
										  .w_transposed = i & 2,
										  .in = (enum gemm_type)(i >> 2 & 1),
										  .out = (enum gemm_type)(i >> 3 & 1),
										  .epilogue = (enum gemm_epilogue)(i / 16 % 5),
										  .adds = i & 64 },
			.none = i % 11 == 10,
			.workspace = (uint64_t)i << 17 };
		for (int k = 0; k < GEMM_WORDS && !choice.none; k++)
			choice.algorithm[k] = 0x9e3779b97f4a7c15u * (uint64_t)(i * 8 + k + 1);
		choice.workspace = choice.none ? 0 : choice.workspace;
		assert_int_equal(gemm_plans_add(&plans, &choice, &err), 0);
	}
	return plans;
}

static void all_comes_back(void **state)
{
	struct gemm_plans plans = sample(), again;
	struct err err;
	char *text = gemm_plans_encode(&plans);
	assert_null(strchr(text, '\n'));
	assert_int_equal(gemm_plans_decode(text, &again, &err), 0);
	assert_true(again.count > plans.count);
	for (size_t i = plans.count; i < again.count; i++) /* those that a text leaves out */
		assert_true(again.rows[i].none && again.rows[i].gemm.epilogue == GEMM_BIAS_GRAD);
	assert_int_equal(again.library, 130001);
	assert_int_equal(again.mode, GEMM_MODE_BF16);
	assert_string_equal(again.card, "NVIDIA H200");
	for (size_t i = 0; i < plans.count; i++) {
		const struct gemm_choice *found = gemm_plans_find(&again, &plans.rows[i].gemm);
		assert_non_null(found);
		assert_int_equal(found->none, plans.rows[i].none);
		assert_int_equal(found->workspace, plans.rows[i].workspace);
		assert_memory_equal(found->algorithm, plans.rows[i].algorithm, sizeof found->algorithm);
	}
	char *second = gemm_plans_encode(&again);
	assert_string_equal(text, second);
	free(text);
	free(second);
	gemm_plans_clear(&plans);
	gemm_plans_clear(&again);
}

#define HEAD "muster-products 1 130001 bf16 NVIDIA H200"
#define WORDS8 \
	"00000000000000010000000000000002000000000000000300000000000000040000000000000005000000000000" \
	"000600000000000000070000000000000008"
#define ROW "8192x2304x768 nn bf16 bf16 bias set " WORDS8

static void the_form_is_that_of_the_document(void **state)
{
	struct gemm_plans plans;
	struct err err;
	assert_int_equal(gemm_plans_decode(HEAD ";" ROW
											" 33554432;1x2x3 tn fp32 fp32 gelu-grad add none",
						 &plans, &err),
		0);
	assert_int_equal(plans.count, 2);
	const struct gemm_choice *first = &plans.rows[0], *second = &plans.rows[1];
	assert_int_equal(first->gemm.rows, 8192);
	assert_int_equal(first->gemm.columns, 2304);
	assert_int_equal(first->gemm.depth, 768);
	assert_int_equal(first->algorithm[7], 8);
	assert_int_equal(first->workspace, GEMM_PLANS_WORKSPACE);
	assert_true(second->none && second->gemm.adds && second->gemm.x_transposed
		&& !second->gemm.w_transposed);
	gemm_plans_clear(&plans);
	assert_int_equal(gemm_plans_decode(HEAD, &plans, &err), 0);
	assert_int_equal(plans.count, 0);
	gemm_plans_clear(&plans);
}

static void other_forms_are_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "not in the form" },
		{ "muster-products 0 130001 bf16 X", "not in the form" },
		{ "muster-products 3 130001 bf16 X", "not in the form" },
		{ "muster-products 02 130001 bf16 X", "not in the form" },
		{ "muster-products 2 130001 bf16 X", "a row of this version is missing" },
		{ "muster-products 2 130001 bf16 X;1x2x3 tn bf16 fp32 bias-grad set none",
			"without which there is no such row" },
		{ HEAD ";1x2x3 tn bf16 fp32 bias-grad set " WORDS8 " 0",
			"a word that describes a product" },
		{ "muster-products 1 x bf16 X", "the library's version is missing at character 18" },
		{ "muster-products 1 18446744073709551616 bf16 X", "the library's version" },
		{ "muster-products 1 130001 fp16 X", "a precision is missing" },
		{ "muster-products 1 130001 bf16 ", "the card's name is missing" },
		{ "muster-products 1 130001 bf16 ;", "the card's name is missing" },
		{ HEAD ";", "the shape of a product is missing" },
		{ HEAD ";0x2x3 nn bf16 bf16 bias set none", "the shape" },
		{ HEAD ";08x2x3 nn bf16 bf16 bias set none", "the shape" },
		{ HEAD ";2147483648x2x3 nn bf16 bf16 bias set none", "the shape" },
		{ HEAD ";-1x2x3 nn bf16 bf16 bias set none", "the shape" },
		{ HEAD ";1x2 nn bf16 bf16 bias set none", "the shape" },
		{ HEAD ";1x2x3 xx bf16 bf16 bias set none", "a word that describes a product" },
		{ HEAD ";1x2x3 nn bf16 bf16 bias set", "a word that describes a product" },
		{ HEAD ";1x2x3 nn bf16 bf16 bias  set none", "a word that describes a product" },
		{ HEAD ";1x2x3 nn bf16 bf16 bias set nonesuch", "the end is missing" },
		{ HEAD ";1x2x3 nn bf16 bf16 bias set " WORDS8, "the workspace" },
		{ HEAD ";1x2x3 nn bf16 bf16 bias set " WORDS8 " 33554433", "the workspace" },
		{ HEAD ";1x2x3 nn bf16 bf16 bias set 0123", "an algorithm is missing" },
		{ HEAD ";" ROW " 0;", "the shape" },
		{ HEAD ";" ROW " 0 ", "the end is missing" },
		{ HEAD ";" ROW " 0;8192x2304x768 nn bf16 bf16 bias set none",
			"8192 x 2304 over 768, nn, bf16 to bf16, bias stands there twice" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gemm_plans plans;
		struct err err;
		if (gemm_plans_decode(cases[i].text, &plans, &err) == 0)
			fail_msg("\"%s\" was read", cases[i].text);
		assert_int_equal(err.status, EXIT_DATA);
		if (!strstr(err.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
		gemm_plans_clear(&plans);
	}
}

/* Version 2 says which gradients of biases the library makes; what ours make needs no row, and no
 * new version. */
static void gradients_of_biases_are_version_2(void **state)
{
	static const char text[] =
		"muster-products 2 130001 bf16 X;1x2x3 tn bf16 fp32 bias-grad add " WORDS8 " 4096";
	const struct gemm_choice ours = {
		.gemm = { .rows = 7, .columns = 8, .depth = 9, .epilogue = GEMM_BIAS_GRAD },
		.none = true
	};
	struct gemm_plans plans;
	struct err err;
	assert_int_equal(gemm_plans_decode(text, &plans, &err), 0);
	assert_int_equal(plans.rows[0].gemm.epilogue, GEMM_BIAS_GRAD);
	assert_int_equal(gemm_plans_add(&plans, &ours, &err), 0);
	char *again = gemm_plans_encode(&plans);
	assert_string_equal(again, text);
	free(again);
	plans.rows[0] = ours;
	plans.count = 1;
	again = gemm_plans_encode(&plans);
	assert_string_equal(again, "muster-products 1 130001 bf16 X");
	free(again);
	gemm_plans_clear(&plans);
}

/* A text that was cut anywhere is refused or is one of fewer rows. */
static void torn_texts_are_refused(void **state)
{
	struct gemm_plans plans = sample(), again;
	struct err err;
	char *text = gemm_plans_encode(&plans);
	for (size_t size = strlen(text); size-- > 0;) {
		char kept = text[size];
		text[size] = '\0';
		if (gemm_plans_decode(text, &again, &err) == 0) {
			char *second = gemm_plans_encode(&again);
			assert_true(again.count < plans.count || kept != '\0');
			assert_memory_equal(text, second, strlen(second));
			free(second);
		}
		gemm_plans_clear(&again);
		text[size] = kept;
	}
	free(text);
	gemm_plans_clear(&plans);
}

static void others_do_not_fit(void **state)
{
	struct gemm_plans plans = sample();
	struct err err;
	assert_int_equal(gemm_plans_fit(&plans, 130001, GEMM_MODE_BF16, "NVIDIA H200", &err), 0);
	assert_int_equal(gemm_plans_fit(&plans, 130100, GEMM_MODE_BF16, "NVIDIA H200", &err), -1);
	assert_non_null(strstr(err.text, "those of cuBLASLt 130001, and this is 130100"));
	assert_int_equal(gemm_plans_fit(&plans, 130001, GEMM_MODE_TF32, "NVIDIA H200", &err), -1);
	assert_non_null(strstr(err.text, "--precision bf16, and this is tf32"));
	assert_int_equal(gemm_plans_fit(&plans, 130001, GEMM_MODE_BF16, "NVIDIA H100", &err), -1);
	assert_non_null(strstr(err.text, "for NVIDIA H200, and this is NVIDIA H100"));
	gemm_plans_clear(&plans);
}

static void there_is_an_end(void **state)
{
	struct gemm_plans plans = { 0 };
	struct gemm_choice choice = { .none = true, .gemm = { .columns = 1, .depth = 1 } };
	struct err err;
	for (int i = 0; i < GEMM_PLANS_MAX; i++) {
		choice.gemm.rows = i + 1;
		assert_int_equal(gemm_plans_add(&plans, &choice, &err), 0);
	}
	assert_int_equal(gemm_plans_add(&plans, &choice, &err), -1);
	gemm_plans_clear(&plans);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2_has_these),
		cmocka_unit_test(mlp_has_these),
		cmocka_unit_test(all_comes_back),
		cmocka_unit_test(the_form_is_that_of_the_document),
		cmocka_unit_test(other_forms_are_refused),
		cmocka_unit_test(gradients_of_biases_are_version_2),
		cmocka_unit_test(torn_texts_are_refused),
		cmocka_unit_test(others_do_not_fit),
		cmocka_unit_test(there_is_an_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
