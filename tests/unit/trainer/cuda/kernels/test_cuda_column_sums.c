/* SPDX-License-Identifier: Apache-2.0 */
/* Column sums and their parts on the GPU: against fp64, over shapes with one part and with more
 * than the last stage has runs. */
#include "config.h"

#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "trainer/cuda/kernels/column_sums.h"

static const struct shape {
	int M, N, shift;
} shapes[] = { { 1, 1, 0 }, { 0, 5, 0 }, { 3, 31, 0 }, { 16, 33, 0 }, { 17, 255, 0 },
	{ 31, 257, 0 }, { 33, 256, 0 }, { 65, 768, 0 }, { 65, 768, 1 }, { 530, 8, 0 }, { 1025, 40, 0 },
	{ 257, 3, 0 } };

struct sums {
	float *dbias, *scratch;
	const void *dy;
	struct shape s;
	int accumulate;
	enum cuda_type type;
};

static void run(void *arg)
{
	struct sums *a = arg;
	assert_int_equal(cuda_column_sums(a->dbias, a->scratch, a->dy, a->s.M, a->s.N, a->accumulate,
						 a->type, NULL),
		0);
}

static void check(struct shape s, int accumulate, enum cuda_type type)
{
	const size_t M = (size_t)s.M, N = (size_t)s.N;
	const float *dy = kernel_floats(M * N, 1, 1, type), *before = kernel_floats(N, 1, 2, CUDA_FP32);
	double *expected = kernel_host(N * sizeof *expected);
	struct sums a = { kernel_output("dbias", accumulate ? before : NULL, N * 4, 0),
		kernel_output("scratch", NULL, cuda_column_sums_scratch(s.M, s.N) * 4, 0),
		kernel_tensor(dy, M * N, type, s.shift), s, accumulate, type };
	kernel_run(run, &a);
	for (size_t n = 0; n < N; n++) {
		expected[n] = accumulate ? (double)before[n] : 0;
		for (size_t m = 0; m < M; m++)
			expected[n] += (double)dy[m * N + n];
	}
	device_near_double("dbias", kernel_result(a.dbias), expected, N, 1e-5);
	kernel_done();
}

static void sums_are_those_in_fp64(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 4; k++)
			check(shapes[i], k / 2, k % 2 ? CUDA_BF16 : CUDA_FP32);
}

/* Their number must follow from the rows alone, and what sums them has blocks for 1,024. */
static void parts_cover_all_rows(void **state)
{
	for (int M = 0; M < 1 << 21; M += M < 3000 ? 1 : 4099) {
		assert_true(partial_count(M) <= 1024);
		assert_true((long)partial_count(M) * partial_rows(M) >= M);
		assert_true(M == 0 || (long)(partial_count(M) - 1) * partial_rows(M) < M);
	}
}

/* One column of the last rows of a matrix of more than 2^31 elements: all other blocks have nothing
 * to add. */
static void last_rows_lie_beyond_2_to_the_31(void **state)
{
	const int M = (1 << 20) + 1, N = 2048, parts = partial_count(M);
	const size_t bytes = (size_t)M * N * 2, scratch_bytes = cuda_column_sums_scratch(M, N) * 4;
	char *dy = device_make_sparse(bytes), *scratch = device_make_sparse(scratch_bytes);
	float *dbias = device_make(N * 4), *sums = kernel_host(N * 4);
	const uint16_t one = 0x3f80;
	if (!dy || !scratch)
		skip();
	device_write(dy + bytes - 2, &one, 2);
	device_only_blocks((uint64_t)parts * 8 - 1,
		1); /* the last one of 8 × parts; then no block of the last stage runs */
	assert_int_equal(cuda_column_sums(dbias, (float *)scratch, dy, M, N, 0, CUDA_BF16, NULL), 0);
	device_only_blocks(0, 0);
	device_read(sums, scratch + scratch_bytes - N * 4, N * 4);
	for (int n = 0; n < N; n++)
		assert_true(sums[n] == (n == N - 1));
	device_free_sparse(dy, bytes);
	device_free_sparse(scratch, scratch_bytes);
	device_free(dbias);
	kernel_done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_those_in_fp64),
		cmocka_unit_test(parts_cover_all_rows),
		cmocka_unit_test(last_rows_lie_beyond_2_to_the_31),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
