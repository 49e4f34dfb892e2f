/* SPDX-License-Identifier: Apache-2.0 */
/* Host lists: each name at its place and found there again, and nothing but an error for what is
 * malformed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/hostlist.h"

static const struct {
	const char *list, *names;
} lists[] = {
	{ "n1", "n1" },
	{ "n1,m2", "n1 m2" },
	{ "n[1-4,7],m2", "n1 n2 n3 n4 n7 m2" },
	{ "n[07-10]", "n07 n08 n09 n10" },
	{ "n[098-101]", "n098 n099 n100 n101" },
	{ "n[9-11]", "n9 n10 n11" },
	{ "a.b.c,d", "a.b.c d" },
	{ "n[5,1]", "n5 n1" },
	{ "rack[3]node[12-14]-x", "rack3node12-x rack3node13-x rack3node14-x" },
	{ "r[0-1]n[1,3]", "r0n1 r0n3 r1n1 r1n3" },
	{ "gpu-a100-[1-2],x[1],y", "gpu-a100-1 gpu-a100-2 x1 y" },
};

static void every_name_is_at_its_place(void **state)
{
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		char names[200], host[64], *rest = NULL;
		long place = 0;
		snprintf(names, sizeof names, "%s", lists[i].names);
		for (char *name = strtok_r(names, " ", &rest); name;
			 name = strtok_r(NULL, " ", &rest), place++) {
			assert_int_equal(hostlist_nth(lists[i].list, place, host, sizeof host), 0);
			assert_string_equal(host, name);
			assert_int_equal(hostlist_find(lists[i].list, name), place);
		}
		assert_int_equal(hostlist_nth(lists[i].list, place, host, sizeof host), -1);
		assert_int_equal(hostlist_nth(lists[i].list, -1, host, sizeof host), -1);
		assert_int_equal(hostlist_find(lists[i].list, "n"), -1);
		assert_int_equal(hostlist_find(lists[i].list, ""), -1);
	}
}

static void malformed_lists_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		",a",
		"n[",
		"n]",
		"n[]",
		"n[a]",
		"n[1-4",
		"n[4-1]",
		"n[1-]",
		"n[-1]",
		"n[1,]",
		"n[,1]",
		"n[1--2]",
		"n[[1]]",
		"n[1]]",
		"n[0-99999999]",
		"n[1-1000]m[1-1000]k[1-1000]",
		"n[1-99999999999999999999999]",
		"n[ 1]",
		"[",
		"]",
		"[]",
	};
	char host[64];
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(hostlist_nth(bad[i], 0, host, sizeof host), -1);
		assert_int_equal(hostlist_find(bad[i], "n1"), -1);
	}
	assert_int_equal(hostlist_nth("n1,,n2", 1, host, sizeof host), -1);
	assert_int_equal(hostlist_find("n1,,n2", "n2"), -1);
}

static void a_name_that_does_not_fit_is_refused(void **state)
{
	char host[5];
	assert_int_equal(hostlist_nth("n[1-9999]", 998, host, sizeof host), 0);
	assert_string_equal(host, "n999");
	assert_int_equal(hostlist_nth("n[1-9999]", 999, host, sizeof host), -1);
	assert_int_equal(hostlist_find("n[1-9999]", "n9999"), 9998);
}

/* The names of a large cluster with gaps, as a machine with 10,000 nodes has them. */
static void a_name_among_thousands_is_found_at_once(void **state)
{
	static char list[20 + 5000 * 6];
	char name[32];
	size_t used = (size_t)sprintf(list, "n[");
	for (int i = 1; i < 5000; i++)
		used += (size_t)sprintf(list + used, "%05d,", 2 * i);
	sprintf(list + used, "10000-60000]x");
	clock_t start = clock(); /* of the processor: a busy machine is no fault */
	for (long place = 0; place < 50000; place += 97) {
		assert_int_equal(hostlist_nth(list, place, name, sizeof name), 0);
		assert_int_equal(hostlist_find(list, name), place);
	}
	assert_int_equal(hostlist_find(list, "n00003x"), -1);
	assert_int_equal(hostlist_find(list, "n2x"), -1);
	assert_int_equal(hostlist_find(list, "n000002x"), -1);
	assert_int_equal(hostlist_find(list, "n99999999999999999999x"), -1);
	assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_name_is_at_its_place),
		cmocka_unit_test(malformed_lists_are_refused),
		cmocka_unit_test(a_name_that_does_not_fit_is_refused),
		cmocka_unit_test(a_name_among_thousands_is_found_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
