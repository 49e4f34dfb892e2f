/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of kernels share on either device. */
#include "config.h"

#include "tests/shim/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *device_copy(const void *host, size_t bytes)
{
	void *memory = device_make(bytes);
	device_write(memory, host, bytes);
	return memory;
}

void device_same_in_each_order(const char *what, void (*run)(void *arg), void *arg, void *host,
	void *device, size_t bytes)
{
	unsigned char *again = malloc(bytes ? bytes : 1);
	assert_non_null(again);
	for (int order = 0; order < device_orders(); order++) {
		device_poison(device, bytes);
		device_order(order);
		run(arg);
		device_order(0);
		device_read(order ? again : host, device, bytes);
		for (size_t i = 0; order && i < bytes; i++)
			if (again[i] != ((unsigned char *)host)[i])
				fail_msg("%s: byte %zu is 0x%02x in order %d, 0x%02x in order 0", what, i, again[i],
					order, ((unsigned char *)host)[i]);
	}
	free(again);
}

void device_near_double(const char *what, const float *out, const double *reference, size_t count,
	double bound)
{
	double error = 0, size = 0;
	for (size_t i = 0; i < count; i++) {
		double difference = (double)out[i] - reference[i];
		if (!isfinite(out[i]))
			fail_msg("%s[%zu] of %zu is %g, not %g", what, i, count, (double)out[i], reference[i]);
		error += difference * difference;
		size += reference[i] * reference[i];
	}
	if (sqrt(error) > bound * sqrt(size))
		fail_msg("%s: off by %.3g of its norm, at most %.3g allowed (%zu elements)", what,
			sqrt(error / size), bound, count);
}

void device_near(const char *what, const float *out, const float *reference, size_t count,
	double bound)
{
	double *exact = malloc((count ? count : 1) * sizeof *exact);
	assert_non_null(exact);
	for (size_t i = 0; i < count; i++)
		exact[i] = (double)reference[i];
	device_near_double(what, out, exact, count, bound);
	free(exact);
}

static void skip_it(void **state)
{
	skip();
}

int device_run_tests(const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
	CMFixtureFunction teardown)
{
	const char *why = device_missing();
	if (!why)
		return _cmocka_run_group_tests("tests", tests, count, setup, teardown);
	struct CMUnitTest *skipped = calloc(count, sizeof *skipped);
	char(*names)[300] = calloc(count, sizeof *names);
	assert_true(skipped && names);
	for (size_t i = 0; i < count; i++) {
		snprintf(names[i], sizeof names[i], "%s: no GPU: %s", tests[i].name, why);
		skipped[i] = (struct CMUnitTest) { .name = names[i], .test_func = skip_it };
	}
	int failed = _cmocka_run_group_tests("tests", skipped, count, NULL, NULL);
	free(skipped), free(names);
	return failed;
}
