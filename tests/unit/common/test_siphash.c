/* SPDX-License-Identifier: Apache-2.0 */
/* siphash: answers that its paper and its authors' reference code give for the key 00 01 … 0f and
 * the message 00 01 …. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/siphash.h"

static const struct {
	size_t size;
	uint64_t tag;
} answers[] = {
	{ 0, UINT64_C(0x726fdb47dd0e0e31) },
	{ 1, UINT64_C(0x74f839c593dc67fd) },
	{ 7, UINT64_C(0xab0200f58b01d137) },
	{ 8, UINT64_C(0x93f5f5799a932462) },
	{ 15, UINT64_C(0xa129ca6149be45e5) }, /* the paper's, appendix A */
	{ 63, UINT64_C(0x958a324ceb064572) },
};

static void known_answers(void **state)
{
	unsigned char key[16], message[64];
	for (unsigned i = 0; i < sizeof message; i++)
		message[i] = (unsigned char)i;
	for (unsigned i = 0; i < sizeof key; i++)
		key[i] = (unsigned char)i;
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
		assert_int_equal(siphash(key, message, answers[i].size), answers[i].tag);
	key[15] ^= 1;
	assert_int_not_equal(siphash(key, message, 15), answers[4].tag);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(known_answers) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
