/* SPDX-License-Identifier: Apache-2.0 */
/* continuation: as many tokens as were asked for, beyond the context too, unless the text or its
 * reader ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/generate/continuation.h"

/* Of logits that are all equal the most probable token is the lowest. */
static const struct gpt2_config config = { .layers = 1,
	.width = 4,
	.heads = 2,
	.context = 8,
	.vocabulary = 7,
	.begin = -1,
	.end = -1 };

static int fill(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	(void)err;
	const bool broken = source->config.begin == 1;
	for (uint64_t i = 0; i < tensor->elements; i++)
		out[i] = broken ? NAN : 0;
	return 0;
}

static struct decoder *decoder_of(const struct gpt2_config *some)
{
	struct model_source source = { .config = *some, .read = fill };
	struct decoder *decoder = decoder_open(&source, false, NULL);
	assert_non_null(decoder);
	return decoder;
}

/* Refuses the token when *arg, which counts down, is 0. */
static int take(void *arg, int32_t token, struct err *err)
{
	int *left = arg;
	assert_in_range(token, 0, config.vocabulary - 1);
	return (*left)-- > 0 ? 0 : err_set(err, "the reader is gone");
}

static int write_some(const struct gpt2_config *some, double temperature, size_t count, int *left,
	struct token_list *tokens, struct err *err)
{
	const struct token_choice choice = { .temperature = temperature, .top_p = 1, .seed = 3 };
	const int32_t first = continuation_first(some);
	struct decoder *decoder = decoder_of(some);
	*tokens = (struct token_list) { 0 };
	assert_int_equal(token_list_append(tokens, &first, 1, err), 0);
	const int rc = continuation_write(decoder, &choice, 0, tokens, count, take, left, err);
	decoder_close(decoder);
	return rc;
}

static void it_is_as_long_as_asked_for(void **state)
{
	struct token_list once, again;
	struct err err;
	int left = 100, more = 100, seen = 0;
	assert_int_equal(write_some(&config, 1, 50, &left, &once, &err), 0);
	assert_int_equal(write_some(&config, 1, 50, &more, &again, &err), 0);
	assert_int_equal(left, 50);
	assert_int_equal(once.count, 51);
	assert_memory_equal(once.ids, again.ids, 51 * sizeof *once.ids);
	for (int token = 0; token < config.vocabulary; token++)
		for (size_t i = 1; i < once.count; i++)
			if (once.ids[i] == token) {
				seen++;
				break;
			}
	assert_in_range(seen, 4, config.vocabulary); /* each is as probable as any other */
	free(once.ids);
	free(again.ids);
}

static void the_end_of_the_text_ends_it(void **state)
{
	struct gpt2_config ends = config;
	struct token_list tokens;
	struct err err;
	int left = 100;
	ends.begin = ends.end = 0;
	assert_int_equal(write_some(&ends, 0, 50, &left, &tokens, &err), 0);
	assert_int_equal(tokens.count, 1); /* the end itself is no part of it */
	assert_int_equal(left, 100);
	free(tokens.ids);
}

static void the_reader_may_end_it(void **state)
{
	struct token_list tokens;
	struct err err;
	int left = 3;
	assert_int_equal(write_some(&config, 0, 50, &left, &tokens, &err), -1);
	assert_string_equal(err.text, "the reader is gone");
	assert_int_equal(tokens.count, 1 + 3);
	free(tokens.ids);
}

static void weights_that_are_no_numbers_are_named(void **state)
{
	struct gpt2_config broken = config;
	struct token_list tokens;
	struct err err;
	int left = 100;
	broken.begin = 1;
	assert_int_equal(write_some(&broken, 1, 50, &left, &tokens, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	free(tokens.ids);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_as_long_as_asked_for),
		cmocka_unit_test(the_end_of_the_text_ends_it),
		cmocka_unit_test(the_reader_may_end_it),
		cmocka_unit_test(weights_that_are_no_numbers_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
