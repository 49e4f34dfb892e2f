/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a unit test, it runs those tests alone that match CMOCKA_TEST_FILTER, a pattern
 * with * and ?. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void filter(void)
{
	const char *pattern = getenv("CMOCKA_TEST_FILTER");
	void (*set)(const char *) =
		(void (*)(const char *))dlsym(RTLD_DEFAULT, "cmocka_set_test_filter");
	if (pattern && set)
		set(pattern);
}
