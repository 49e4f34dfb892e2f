/* SPDX-License-Identifier: Apache-2.0 */
/* pages: memory of any size begins at a page and has whole ones; of what is large, the kernel is
 * asked for huge pages. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/pages.h"

#define MB ((size_t)1 << 20)

static void memory_of_any_size_has_whole_pages(void **state)
{
	static const size_t sizes[] = { 0, 1, 4095, 4096, 4097, 2 * MB - 1, 2 * MB, 2 * MB + 1,
		16 * MB };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		size_t whole = sizes[i] > 0 ? pages_round(sizes[i]) : PAGES_ONE;
		assert_true(
			whole % PAGES_ONE == 0 && whole >= sizes[i] && whole < sizes[i] + 2 * PAGES_ONE);
		char *memory = pages_alloc(sizes[i]);
		assert_non_null(memory);
		assert_int_equal((uintptr_t)memory % PAGES_ONE, 0);
		memset(memory, 7, whole);
		free(memory);
	}
	assert_null(pages_alloc(SIZE_MAX / 2));
}

/* Whether the mapping that holds the address was advised so: "hg" among its flags. */
static bool is_advised(const void *address)
{
	char line[512];
	bool here = false;
	uintptr_t begin, end;
	FILE *maps = fopen("/proc/self/smaps", "r");
	assert_non_null(maps);
	while (fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
			here = begin <= (uintptr_t)address && (uintptr_t)address < end;
		if (here && strncmp(line, "VmFlags:", 8) == 0)
			break;
	}
	bool advised = here && strstr(line, " hg");
	fclose(maps);
	return advised;
}

static void large_memory_is_to_be_of_huge_pages(void **state)
{
	if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) {
		print_message("this kernel has no huge pages to give\n");
		skip();
	}
	AUTO_FREE char *large = pages_alloc(16 * MB + 1), *small = pages_alloc(MB);
	assert_true(large && small);
	assert_int_equal((uintptr_t)large % (2 * MB), 0);
	assert_true(is_advised(large));
	assert_true(is_advised(large + 16 * MB));
	assert_false(is_advised(small));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_any_size_has_whole_pages),
		cmocka_unit_test(large_memory_is_to_be_of_huge_pages),
	};
	return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
