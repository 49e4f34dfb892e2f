/* SPDX-License-Identifier: Apache-2.0 */
/* philox: the known answers that the paper's authors publish (Random123, kat_vectors, philox4x32
 * with 10 rounds). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "order/philox.h"

struct answer {
	uint32_t counter[4], key[2], out[4];
};

static const struct answer answers[] = {
	{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
	{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
		{ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
	{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
		{ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

static void known_answers(void **state)
{
	for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
		uint32_t out[4];
		philox(answers[i].counter, answers[i].key, out);
		assert_memory_equal(out, answers[i].out, sizeof out);
	}
}

static void output_may_overwrite_counter(void **state)
{
	uint32_t words[4] = { 0, 0, 0, 0 };
	philox(words, answers[0].key, words);
	assert_memory_equal(words, answers[0].out, sizeof words);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(output_may_overwrite_counter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
