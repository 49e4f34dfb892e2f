/* SPDX-License-Identifier: Apache-2.0 */
/* machine: one line of words, whatever /proc/cpuinfo has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/utsname.h>

#include "checkpoint/attempt/machine.h"

static void the_processor_is_named(void **state)
{
	char out[MACHINE_SIZE];
	(void)state;
	machine_describe("processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7B13\nstepping\t: 0\n",
		16, 68.7e9, out);
	assert_string_equal(out, "AMD EPYC 7B13 (16 CPUs, 68.7 GB)");
	machine_describe("model name : one", 1, 999, out);
	assert_string_equal(out, "one (1 CPU, 999 B)");
}

static void without_a_name_the_architecture_is(void **state)
{
	static const char *const texts[] = { "", "model name", "model name\n: x",
		"CPU part\t: 0xd0c\n" };
	char out[MACHINE_SIZE];
	struct utsname name;
	(void)state;
	assert_int_equal(uname(&name), 0);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		machine_describe(texts[i], 2, 1e9, out);
		assert_memory_equal(out, name.machine, strlen(name.machine));
	}
}

static void any_length_is_cut(void **state)
{
	char out[MACHINE_SIZE], text[3000] = "model name\t: ";
	(void)state;
	memset(text + 13, 'x', sizeof text - 14);
	machine_describe(text, 2, 1e9, out);
	assert_non_null(strstr(out, "xxx (2 CPUs, 1.0 GB)"));
	machine_text(out);
	assert_non_null(strstr(out, " CPU"));
	assert_null(strchr(out, '\n'));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(the_processor_is_named),
		cmocka_unit_test(without_a_name_the_architecture_is), cmocka_unit_test(any_length_is_cut) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
