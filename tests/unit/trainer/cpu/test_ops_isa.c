/* SPDX-License-Identifier: Apache-2.0 */
/* ops: a pinned instruction set holds for kernels and library, and cannot change once products have
 * begun. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cpu/cpu.h"
#include "trainer/cpu/isa.h"
#include "trainer/cpu/kernels.h"
#include "trainer/cpu/gemm.h"

static void unknown_names_are_refused(void **state)
{
	struct err err = { 0 };

	assert_int_equal(ops_cpu_pin_isa("sse9", &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "sse9"));
	assert_int_equal(ops_cpu_pin_isa("auto", &err), 0);
	assert_non_null(strstr(ops_cpu_versions(), "glibc "));
}

static void pinned_before_the_first_gemm(void **state)
{
	enum { M = 37, K = 100, N = 65 };
	struct ops *plain = fixture_ops(true, 1, M, K, 1, N), *fast;
	float *x = fixture_floats(M * K, 1, 1), *w = fixture_floats(K * N, 1, 2);
	float *a = fixture_floats(M * N, NAN, 0), *b = fixture_floats(M * N, NAN, 0);
	enum cpu_isa best = cpu_isa();
	struct err err;

	assert_int_equal(ops_cpu_pin_isa("default", &err), 0);
	assert_string_equal(ops_cpu_isa(), "default");
	fast = fixture_ops(false, 1, M, K, 1, N);
	assert_ptr_equal(cpu_of(fast)->kernels, &kernels_default);
	plain->linear(plain, a, x, w, NULL, M, K, N);
	fast->linear(fast, b, x, w, NULL, M, K, N);
	fixture_near("linear", b, a, M * N, 1e-5);
	if (!strcmp(gemm_provider(), "dnnl") && best >= CPU_ISA_AVX2) {
		assert_int_equal(ops_cpu_pin_isa("avx2", &err), -1);
		assert_non_null(strstr(err.text, "has begun"));
	}
	assert_int_equal(ops_cpu_pin_isa("auto", &err), -1);
	assert_string_equal(ops_cpu_isa(), "default");
	free(x), free(w), free(a), free(b);
	plain->destroy(plain);
	fast->destroy(fast);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_names_are_refused),
		cmocka_unit_test(pinned_before_the_first_gemm),
	};

	return cmocka_run_group_tests_name("ops_isa", tests, NULL, NULL);
}
