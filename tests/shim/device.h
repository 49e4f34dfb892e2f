/* SPDX-License-Identifier: Apache-2.0 */
/* The memory and the runs that a test of a kernel sees: of the host's shim in test_cuda_NOUN, of
 * the GPU in test_gpu_NOUN. Both are made of the same test. Whatever fails here fails the test. */
#ifndef MUSTER_SHIM_DEVICE_H
#define MUSTER_SHIM_DEVICE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* NULL, or why there is no such device: static text. */
const char *device_missing(void);

/* Memory filled with NaN (bytes of 0xff), aligned to 256 bytes, on the host of exactly this size;
 * device_free() takes it. */
void *device_make(size_t bytes);
/* The same, filled with what is at `host`. */
void *device_copy(const void *host, size_t bytes);
/* Memory that reads as zeros and takes only the room of what is written to it, for tensors of more
 * than 2^31 elements; only the host has it: elsewhere, or where the system refuses it, NULL.
 * device_free_sparse() takes it. */
void *device_make_sparse(size_t bytes);

/* Waits for the kernels before. */
void device_read(void *host, const void *device, size_t bytes);
void device_write(void *device, const void *host, size_t bytes);
void device_poison(void *device, size_t bytes);
void device_free(void *device);
void device_free_sparse(void *device, size_t bytes);

/* How many orders of threads and blocks there are to try (the GPU: 1, its own), and which one the
 * launches that follow run in: 0 ascending, 1 descending, then random ones with fixed seeds. */
int device_orders(void);
void device_order(int order);

/* Whether the thread sanitizer watches. It finds races in any order, so there is one order then; it
 * is slow, and a race that a test plants ends the test. */
bool device_watched(void);

/* Of the launches that follow only these blocks run (x fastest); count 0: all again. For the last
 * rows of a sparse tensor; nothing on the GPU. */
void device_only_blocks(uint64_t first, uint64_t count);

/* --- for both devices --- */

/* Runs `run` in each order with the `bytes` at `device` poisoned before, and checks that it leaves
 * the same bits there each time; copies them to `host`. `what` names it in a failure. */
void device_same_in_each_order(const char *what, void (*run)(void *arg), void *arg, void *host,
	void *device, size_t bytes);

/* Fails unless ||out - reference|| / ||reference|| <= bound, and all of `out` are numbers. */
void device_near(const char *what, const float *out, const float *reference, size_t count,
	double bound);
void device_near_double(const char *what, const float *out, const double *reference, size_t count,
	double bound);

/* Runs the tests; where the device is missing each is skipped, with the reason in its name: that is
 * all that cmocka prints. */
int device_run_tests(const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
	CMFixtureFunction teardown);
#define DEVICE_RUN_TESTS(tests, setup, teardown) \
	device_run_tests(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

#endif
