/* SPDX-License-Identifier: Apache-2.0 */
/* shard: ranges and whole files of any size come back, on however many threads; damage and faults
 * in any chunk are found and told apart; what the kernel refuses, cuts short or interrupts is seen
 * to. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "checkpoint/load/shard.h"
#include "checkpoint/save/shard_write.h"
#include "common/auto.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"

#define CHUNK ((size_t)MANIFEST_CHUNK)
#define MOST (4 * CHUNK + 12345)

/* What the kernel's pread does in this test. */
static enum { PLAIN, NO_DIRECT, SHORT, INTERRUPTED, PASSING, FAILING, DEAD } way;
static off_t fault_at;  /* PASSING and FAILING: of reads that hold this byte, only the first or all;
						   DEAD: of all reads */
static int calls, held; /* of pread; those that held this byte */
static size_t got;      /* bytes that it has read */

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
	int call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	bool here = offset <= fault_at && fault_at < offset + (off_t)size;
	if (way == NO_DIRECT && fcntl(fd, F_GETFL) & O_DIRECT) {
		errno = EINVAL;
		return -1;
	}
	if (way == INTERRUPTED && call % 2) {
		errno = EINTR;
		return -1;
	}
	int nth = here ? __atomic_add_fetch(&held, 1, __ATOMIC_RELAXED) : 0;
	if (way == DEAD || (way == FAILING && here) || (way == PASSING && nth == 1)) {
		errno = EIO;
		return -1;
	}
	if (way == SHORT && size > 8192)
		size = size / 2 / 4096 * 4096;
	ssize_t rc = syscall(SYS_pread64, fd, data, size, offset);
	if (rc > 0)
		__atomic_add_fetch(&got, (size_t)rc, __ATOMIC_RELAXED);
	return rc;
}

static char *bytes, *out; /* what is saved, and what came back */
static const char nothing[CHUNK];
static int folder;
static struct manifest *manifest;
static struct shard_cache cache;

static int setup(void **state)
{
	if (files_setup(state) < 0 || !(bytes = malloc(MOST)) || !(out = malloc(MOST)))
		return -1;
	for (size_t i = 0; i + 8 <= MOST; i += 8) {
		uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
		memcpy(bytes + i, &word, 8);
	}
	folder = open(files_dir, O_RDONLY | O_DIRECTORY);
	return folder < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	close(folder);
	free(bytes);
	free(out);
	return files_teardown(state);
}

/* A file of `size` bytes, open for reading. */
static struct shard begin(size_t size)
{
	struct err err;
	const struct shard_piece piece = { bytes, size };
	manifest = manifest_create();
	struct manifest_file *file = manifest_add_file(manifest, "shard", MANIFEST_OTHER, size);
	if (shard_write(folder, file, &piece, 1, NULL, &err) < 0)
		fail_msg("%s", err.text);
	cache = (struct shard_cache) { 0 };
	return (struct shard) { .dirfd = folder,
		.file = file,
		.cache = &cache,
		.io_timeout = HANG_SECONDS,
		.fd = -1 };
}

static void end(struct shard *shard)
{
	shard_close(shard);
	free(cache.data);
	manifest_destroy(manifest);
	assert_int_equal(unlinkat(folder, "shard", 0), 0);
}

/* The whole file comes back, in ranges that overlap, and each byte of it is read once. */
static void scan_all(struct shard *shard)
{
	struct err err;
	size_t size = (size_t)shard->file->size, third = size / 3;
	const struct shard_range ranges[] = { { 0, 2 * third, out }, { third, size, out + third },
		{ size - third, size, out + size - third } };
	const struct shard_scanning how = { .ranges = ranges, .count = 3 };
	memset(out, 0, MOST);
	got = 0;
	if (shard_scan(shard, 0, size, &how, &err) < 0)
		fail_msg("%s", err.text);
	assert_memory_equal(out, bytes, size);
	if (way == PLAIN)
		assert_int_equal(got, size);
	assert_int_equal(shard_scan(shard, 0, size, NULL, &err), 0);
}

static void files_of_any_size_come_back(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, 100001, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK,
		MOST };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct shard shard = begin(sizes[i]);
		scan_all(&shard);
		end(&shard);
	}
}

static void any_range_comes_back(void **state)
{
	static const size_t edges[] = { 0, 1, 4097, CHUNK - 1, CHUNK, 2 * CHUNK + 5, 3 * CHUNK,
		MOST - 1, MOST };
	struct shard shard = begin(MOST);
	struct err err;
	for (size_t a = 0; a < sizeof edges / sizeof edges[0]; a++)
		for (size_t b = a; b < sizeof edges / sizeof edges[0]; b++) {
			size_t size = edges[b] - edges[a];
			memset(out, 0, size);
			if (shard_read(&shard, edges[a], out, size, &err) < 0)
				fail_msg("%s", err.text);
			assert_memory_equal(out, bytes + edges[a], size);
		}
	assert_int_equal(shard_read(&shard, MOST - 5, out, 6, &err), -1);
	assert_int_equal(shard_read(&shard, MOST + 1, out, 0, &err), -1);
	end(&shard);
}

static void what_the_kernel_refuses_is_done_otherwise(void **state)
{
	for (way = NO_DIRECT; way <= INTERRUPTED; way++) {
		struct shard shard = begin(MOST);
		scan_all(&shard);
		end(&shard);
	}
	way = PLAIN;
}

static void flip(off_t byte)
{
	char c;
	AUTO_CLOSE int fd = openat(folder, "shard", O_RDWR);
	assert_int_equal(syscall(SYS_pread64, fd, &c, 1, byte), 1);
	c ^= 4;
	assert_int_equal(pwrite(fd, &c, 1, byte), 1);
}

/* In each chunk in turn; what lies in the others can be read. */
static void damage_in_any_chunk_is_found(void **state)
{
	struct shard shard = begin(MOST);
	struct err err;
	for (size_t chunk = 0; chunk < shard.file->chunk_count; chunk++) {
		off_t byte = (off_t)(chunk * CHUNK + 777 * chunk);
		flip(byte);
		assert_int_equal(shard_scan(&shard, 0, MOST, NULL, &err), SHARD_DAMAGED);
		assert_int_equal(err.status, EXIT_DATA);
		assert_non_null(strstr(err.text, "does not have its hash"));
		cache.shard = NULL;
		for (size_t other = 0; other < shard.file->chunk_count; other++)
			assert_int_equal(shard_read(&shard, other * CHUNK, out, 10, &err),
				other == chunk ? SHARD_DAMAGED : 0);
		flip(byte);
	}
	scan_all(&shard);
	shard_close(&shard);
	assert_int_equal(truncate(files_path("shard"), MOST - 1), 0);
	assert_int_equal(shard_scan(&shard, 0, MOST, NULL, &err), SHARD_DAMAGED);
	end(&shard);
}

static void the_hash_of_the_whole_is_compared_too(void **state)
{
	for (size_t size = 100; size < MOST; size += 2 * CHUNK) {
		struct shard shard = begin(size);
		struct err err;
		manifest->files[0].hash.low ^= 1;
		assert_int_equal(shard_scan(&shard, 0, size, NULL, &err), SHARD_DAMAGED);
		assert_non_null(strstr(err.text, "as a whole"));
		assert_int_equal(shard_scan(&shard, 0, size - 1, NULL, &err), 0);
		end(&shard);
	}
}

/* A fault is not damage: one that passes is not noticed, one that stays is told of as what it is.
 */
static void a_fault_is_retried(void **state)
{
	struct shard shard = begin(MOST);
	struct err err;
	for (size_t chunk = 0; chunk < shard.file->chunk_count; chunk += 2) {
		fault_at = (off_t)(chunk * CHUNK + 5);
		way = PASSING;
		held = 0;
		scan_all(&shard);
		assert_true(held > 1);
		way = FAILING;
		shard.io_timeout = 0.1;
		assert_int_equal(shard_scan(&shard, 0, MOST, NULL, &err), -1);
		assert_int_equal(err.status, EXIT_LOST);
		assert_non_null(strstr(err.text, "couldn't read shard: Input/output error"));
		way = PLAIN;
		shard.io_timeout = HANG_SECONDS;
	}
	end(&shard);
}

/* What a scan told of the chunks, in the order in which it did. */
static struct {
	size_t count, until; /* it ends after `until` of them */
	int results[MOST / CHUNK + 1];
	char first[200]; /* why the first of them can't be had */
} heard;

static bool hear(void *arg, size_t chunk, int result, const struct err *err)
{
	assert_int_equal(chunk, heard.count);
	if (result < 0 && !heard.first[0])
		snprintf(heard.first, sizeof heard.first, "%s", err->text);
	heard.results[heard.count++] = result;
	return heard.count < heard.until;
}

static int scan_and_hear(struct shard *shard, size_t until, struct err *err)
{
	const struct shard_range all = { 0, MOST, out };
	const struct shard_scanning how = { .ranges = &all, .count = 1, .told = hear };
	memset(out, 0, MOST);
	memset(&heard, 0, sizeof heard);
	heard.until = until;
	return shard_scan(shard, 0, MOST, &how, err);
}

/* A caller that wants to know of every chunk hears of them in order, also after those that can't be
 * had; the rest is copied. */
static void a_scan_can_go_on_after_what_is_bad(void **state)
{
	struct shard shard = begin(MOST);
	struct err err;
	const size_t count = shard.file->chunk_count;
	assert_int_equal(scan_and_hear(&shard, count, &err), 0);
	assert_int_equal(heard.count, count);
	for (size_t bad = 0; bad + 2 < count; bad++) {
		flip((off_t)(bad * CHUNK + 9));
		fault_at = (off_t)((bad + 2) * CHUNK + 9);
		way = FAILING;
		shard.io_timeout = 0.1;
		assert_int_equal(scan_and_hear(&shard, count, &err), SHARD_DAMAGED);
		assert_int_equal(heard.count, count);
		assert_string_equal(heard.first, err.text);
		for (size_t chunk = 0; chunk < count; chunk++) {
			assert_int_equal(heard.results[chunk],
				chunk == bad           ? SHARD_DAMAGED
					: chunk == bad + 2 ? -1
									   : 0);
			assert_memory_equal(out + chunk * CHUNK,
				chunk == bad || chunk == bad + 2 ? nothing : bytes + chunk * CHUNK,
				chunk + 1 < count ? CHUNK : MOST % CHUNK);
		}
		way = PLAIN;
		assert_int_equal(scan_and_hear(&shard, bad + 1, &err), SHARD_DAMAGED);
		assert_int_equal(heard.count, bad + 1);
		flip((off_t)(bad * CHUNK + 9));
	}
	end(&shard);
}

/* A dead disk is waited for once, not once for each chunk. There are more chunks than threads, so
 * the last is taken when another has been waited for. */
static void errors_of_a_whole_file_are_waited_for_once(void **state)
{
	struct shard shard = begin(MOST);
	struct err err;
	way = DEAD;
	fault_at = MOST - 1;
	held = 0;
	shard.io_timeout = 0.2;
	assert_int_equal(scan_and_hear(&shard, shard.file->chunk_count, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_int_equal(heard.count, shard.file->chunk_count);
	assert_int_equal(held, 1);
	way = PLAIN;
	end(&shard);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_of_any_size_come_back),
		cmocka_unit_test(any_range_comes_back),
		cmocka_unit_test(what_the_kernel_refuses_is_done_otherwise),
		cmocka_unit_test(damage_in_any_chunk_is_found),
		cmocka_unit_test(the_hash_of_the_whole_is_compared_too),
		cmocka_unit_test(a_fault_is_retried),
		cmocka_unit_test(a_scan_can_go_on_after_what_is_bad),
		cmocka_unit_test(errors_of_a_whole_file_are_waited_for_once),
	};
	return cmocka_run_group_tests_name("shard", tests, setup, teardown);
}
