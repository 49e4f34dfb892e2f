/* SPDX-License-Identifier: Apache-2.0 */
/* shard_write: whatever the pieces, threads and way of writing, the file has the bytes and the
 * hashes are theirs; what the kernel refuses, cuts short or interrupts is seen to. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/save/shard_write.h"
#include "common/auto.h"
#include "common/io.h"
#include "tests/unit/files.h"

#define MB ((size_t)1 << 20)
#define MOST (MANIFEST_CHUNK + 3 * MB)

/* What the kernel's pwrite does in this test. */
static enum { PLAIN, NO_DIRECT, SHORT, INTERRUPTED, FAILING, STARVING } way;
static int calls, direct_calls;

/* Of threads that give way, when those of STARVING get no processor before this deadline. */
static struct deadline starving;
static pthread_mutex_t starved = PTHREAD_MUTEX_INITIALIZER; /* guards these two: */
static int late_calls;
static size_t largest;

static void starve(size_t size)
{
	if (sched_getscheduler(0) != SCHED_IDLE) {
		usleep(20000); /* so that a thread that gives way would find more to take */
		return;
	}
	deadline_sleep(starving, 60);
	pthread_mutex_lock(&starved);
	late_calls++;
	if (size > largest)
		largest = size;
	pthread_mutex_unlock(&starved);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
	int call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	bool direct = fcntl(fd, F_GETFL) & O_DIRECT;
	if (direct)
		__atomic_add_fetch(&direct_calls, 1, __ATOMIC_RELAXED);
	errno = way == NO_DIRECT ? EINVAL : way == INTERRUPTED ? EINTR : EIO;
	if ((way == NO_DIRECT && direct) || (way == INTERRUPTED && call % 2)
		|| (way == FAILING && call == 3))
		return -1;
	if (way == STARVING)
		starve(size);
	if (way == SHORT && size > 1)
		size /= 2;
	return syscall(SYS_pwrite64, fd, data, size, offset);
}

static char *memory; /* aligned to a page, more than MOST bytes */
static int folder;

static int setup(void **state)
{
	void *block;
	if (files_setup(state) < 0 || posix_memalign(&block, 4096, MOST + MB) != 0)
		return -1;
	memory = block;
	for (size_t i = 0; i < (MOST + MB) / 8; i++) {
		uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
		memcpy(memory + 8 * i, &word, 8);
	}
	folder = open(files_dir, O_RDONLY | O_DIRECTORY);
	return folder < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	close(folder);
	free(memory);
	return files_teardown(state);
}

static struct manifest_file *file_of(struct manifest *manifest, const struct shard_piece *pieces,
	size_t count)
{
	uint64_t size = 0;
	for (size_t i = 0; i < count; i++)
		size += pieces[i].size;
	return manifest_add_file(manifest, "shard", MANIFEST_OTHER, size);
}

/* The file is the pieces, and the hashes are its own. */
static void check(const struct manifest_file *file, const struct shard_piece *pieces)
{
	AUTO_FREE char *bytes = NULL;
	size_t size, at = 0;
	assert_int_equal(io_read_file(folder, "shard", 2 * MOST, &bytes, &size, NULL), 0);
	assert_int_equal(size, file->size);
	for (size_t i = 0; at < size; at += pieces[i++].size)
		assert_memory_equal(bytes + at, pieces[i].data, pieces[i].size);
	assert_true(hash_equal(file->hash, hash_bytes(bytes, size)));
	for (size_t c = 0; c < file->chunk_count; c++) {
		size_t left = size - c * MANIFEST_CHUNK;
		struct hash128 want =
			hash_bytes(bytes + c * MANIFEST_CHUNK, left < MANIFEST_CHUNK ? left : MANIFEST_CHUNK);
		assert_true(hash_equal(file->chunks[c], want));
	}
}

static uint64_t advanced;

static void advance(void *arg, uint64_t bytes)
{
	assert_true(bytes > 0);
	assert_int_equal(*(pthread_t *)arg, pthread_self());
	advanced += bytes;
}

static void write_and_check(const struct shard_piece *pieces, size_t count, int threads,
	bool buffered, double spare)
{
	struct err err;
	pthread_t self = pthread_self();
	struct manifest *manifest = manifest_create();
	struct manifest_file *file = file_of(manifest, pieces, count);
	const struct shard_writing how = { .threads = threads,
		.buffered = buffered,
		.spare = deadline_in(spare),
		.advance = advance,
		.arg = &self };
	advanced = 0;
	if (shard_write(folder, file, pieces, count, &how, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(advanced, file->size);
	check(file, pieces);
	assert_int_equal(unlinkat(folder, "shard", 0), 0);
	manifest_destroy(manifest);
}

static void every_way(const struct shard_piece *pieces, size_t count)
{
	for (int threads = 0; threads <= 5; threads += threads ? 2 : 1)
		for (int buffered = 0; buffered < 2; buffered++)
			write_and_check(pieces, count, threads, buffered, 0);
}

static void any_size_is_written(void **state)
{
	static const size_t sizes[] = { 0, 1, 4095, 4096, 65535, 65536, 65537, 100000, MB - 1,
		MB + 4096, MANIFEST_CHUNK - 1, MANIFEST_CHUNK, MANIFEST_CHUNK + 1, MOST - 5 };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		every_way(&(struct shard_piece) { memory, sizes[i] }, 1);
}

static void pieces_may_lie_anywhere(void **state)
{
	/* Adjacent; with a gap; empty ones in all places; going backwards; at odd addresses. */
	const struct shard_piece adjacent[] = { { memory, 70000 }, { memory + 70000, 0 },
		{ memory + 70000, 300000 } };
	const struct shard_piece gap[] = { { memory, 70000 }, { memory + 70001, 300000 },
		{ memory, 4096 } };
	const struct shard_piece empty[] = { { NULL, 0 }, { memory + 3, 200001 }, { NULL, 0 },
		{ memory, 1 }, { NULL, 0 } };
	const struct shard_piece back[] = { { memory + 500000, 400000 }, { memory + 99, 400000 },
		{ memory, 0 } };
	const struct shard_piece large[] = { { memory, 4096 }, { memory + 4096, MANIFEST_CHUNK - 4097 },
		{ memory + 512, MB }, { memory + MANIFEST_CHUNK, MB } };
	every_way(adjacent, 3);
	every_way(gap, 3);
	every_way(empty, 5);
	every_way(back, 3);
	every_way(large, 4);
	struct shard_piece many[3000];
	for (size_t i = 0; i < 3000; i++)
		many[i] = (struct shard_piece) { memory + i * 311, i % 200 };
	every_way(many, 3000);
}

/* In memory there may be no O_DIRECT; the fallback is then taken at the open, here at the write. */
static void what_the_kernel_refuses_is_done_otherwise(void **state)
{
	const struct shard_piece pieces[] = { { memory, 3 * MB }, { memory + 5, 500001 } };
	calls = direct_calls = 0;
	every_way(pieces, 2);
	int usual = calls;
	bool had_direct = direct_calls > 0;
	way = NO_DIRECT;
	every_way(pieces, 2);
	way = SHORT;
	every_way(pieces, 2);
	way = INTERRUPTED;
	calls = 0;
	every_way(pieces, 2);
	assert_int_equal(calls, 2 * usual);
	way = PLAIN;
	if (!had_direct)
		print_message("no O_DIRECT in %s\n", files_dir);
}

static void a_failed_write_ends_the_file(void **state)
{
	const struct shard_piece piece = { memory, MOST };
	for (int threads = 1; threads <= 4; threads++)
		for (int buffered = 0; buffered < 2; buffered++) {
			struct err err = { 0 };
			struct manifest *manifest = manifest_create();
			struct manifest_file *file = file_of(manifest, &piece, 1);
			const struct shard_writing how = { .threads = threads, .buffered = buffered };
			calls = 0;
			way = FAILING;
			assert_int_equal(shard_write(folder, file, &piece, 1, &how, &err), -1);
			way = PLAIN;
			assert_int_equal(err.status, EXIT_LOST);
			assert_non_null(strstr(err.text, "couldn't write shard: Input/output error"));
			assert_true(threads > 1 || calls == 3);
			/* Its name is taken: nothing is written over. */
			assert_int_equal(shard_write(folder, file, &piece, 1, &how, &err), -1);
			assert_non_null(strstr(err.text, "couldn't create shard: File exists"));
			assert_int_equal(unlinkat(folder, "shard", 0), 0);
			manifest_destroy(manifest);
		}
}

static void sizes_must_add_up(void **state)
{
	const struct shard_piece piece = { memory, 100 };
	struct err err;
	struct manifest *manifest = manifest_create();
	struct manifest_file *file = manifest_add_file(manifest, "shard", MANIFEST_OTHER, 101);
	assert_int_equal(shard_write(folder, file, &piece, 1, NULL, &err), -1);
	assert_non_null(strstr(err.text, "100 bytes for the 101"));
	assert_int_equal(faccessat(folder, "shard", F_OK, 0), -1);
	manifest_destroy(manifest);
}

/* The others do it all, or until a moment that may come anywhere; one thread has nobody to leave it
 * to. */
static void time_is_spared(void **state)
{
	static const double spare[] = { 60, 0.003, 0.001, 1e-4 };
	const struct shard_piece piece = { memory, MOST - 5 };
	for (size_t i = 0; i < 2 * sizeof spare / sizeof spare[0]; i++)
		write_and_check(&piece, 1, 4, i % 2, spare[i / 2]);
	write_and_check(&piece, 1, 1, false, 60);
	write_and_check(&(struct shard_piece) { memory, 5 }, 1, 4, false, 60);
}

/* They may get no processor for minutes once the machine is busy. */
static void threads_that_give_way_take_little_and_nothing_late(void **state)
{
	const struct shard_piece piece = { memory, MOST - 5 };
	for (int buffered = 0; buffered < 2; buffered++) {
		late_calls = 0;
		largest = 0;
		/* On a busy machine they may come too late to take anything. */
		for (double spare = 0.2; late_calls == 0; spare *= 2) {
			way = STARVING;
			starving = deadline_in(spare + 0.1);
			write_and_check(&piece, 1, 4, buffered, spare);
			way = PLAIN;
		}
		assert_in_range(late_calls, 1, 3);
		assert_true(largest > 0 && largest <= 2 * MB);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_size_is_written),
		cmocka_unit_test(time_is_spared),
		cmocka_unit_test(threads_that_give_way_take_little_and_nothing_late),
		cmocka_unit_test(pieces_may_lie_anywhere),
		cmocka_unit_test(what_the_kernel_refuses_is_done_otherwise),
		cmocka_unit_test(a_failed_write_ends_the_file),
		cmocka_unit_test(sizes_must_add_up),
	};
	return cmocka_run_group_tests_name("shard_write", tests, setup, teardown);
}
