/* SPDX-License-Identifier: Apache-2.0 */
/* event_file: the bytes that TensorBoard expects, and no torn record on a full disk. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/io.h"
#include "tests/unit/files.h"
#include "trainer/run/event_file.h"

static char folder[FILES_PATH_SIZE];
static int dir;

static int make_folder(void **state)
{
	(void)state;
	if (files_make_folder(folder) < 0)
		return -1;
	dir = open(folder, O_RDONLY | O_DIRECTORY);
	return dir < 0 ? -1 : 0;
}

static int remove_folder(void **state)
{
	(void)state;
	close(dir);
	return files_remove_folder(folder);
}

/* The examples of RFC 3720, appendix B.4. */
static void the_sums_are_those_of_the_standard(void **state)
{
	unsigned char bytes[32] = { 0 };
	(void)state;
	assert_int_equal(event_file_crc(bytes, 0), 0);
	assert_int_equal(event_file_crc(memset(bytes, 0, 32), 32), 0x8a9136aa);
	assert_int_equal(event_file_crc(memset(bytes, 255, 32), 32), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		bytes[i] = (unsigned char)i;
	assert_int_equal(event_file_crc(bytes, 32), 0x46dd794e);
	for (int i = 0; i < 32; i++)
		bytes[i] = (unsigned char)(31 - i);
	assert_int_equal(event_file_crc(bytes, 32), 0x113fdb5c);
}

static char *read_all(size_t *size)
{
	char *bytes;
	struct err err;
	if (io_read_file(dir, "events", 1 << 20, &bytes, size, &err) < 0)
		fail_msg("%s", err.text);
	return bytes;
}

/* Where the record at `at` ends; *event is what it holds. */
static size_t record(const char *bytes, size_t size, size_t at, const unsigned char **event,
	uint64_t *length)
{
	assert_true(at + 12 <= size);
	memcpy(length, bytes + at, 8);
	assert_true(at + 16 + *length <= size);
	*event = (const unsigned char *)bytes + at + 12;
	for (int part = 0; part < 2; part++) {
		const void *summed = part ? (const void *)*event : bytes + at;
		uint32_t mask, crc = event_file_crc(summed, part ? (size_t)*length : 8);
		memcpy(&mask, part ? bytes + at + 12 + *length : bytes + at + 8, 4);
		mask -= 0xa282ead8;
		assert_int_equal(mask >> 17 | mask << 15, crc);
	}
	return at + 16 + (size_t)*length;
}

static void the_bytes_are_those_of_the_format(void **state)
{
	static const unsigned char version[] = "\x10\x00\x1a\x0d"
										   "brain.Event:2",
							   start[] = "\x10\xac\x02\x3a\x02\x08\x01",
							   values[] = "\x10\xad\x02\x2a\x17"
										  "\x0a\x0b\x0a\x04loss\x15\x00\x00\x80\x3f"
										  "\x0a\x08\x0a\x01n\x15\x00\x00\x00\x40";
	const struct event_scalar scalars[] = { { "loss", 1 }, { "n", 2 } };
	const struct {
		const unsigned char *bytes;
		size_t size;
	} expected[] = { { version, sizeof version - 1 }, { start, sizeof start - 1 },
		{ values, sizeof values - 1 } };
	struct err err;
	size_t size, at = 0;
	(void)state;
	struct event_file *file = event_file_open(dir, "events", 300, &err);
	assert_non_null(file);
	assert_int_equal(event_file_scalars(file, 301, scalars, 2, &err), 0);
	event_file_close(file);
	char *bytes = read_all(&size);
	for (int i = 0; i < 3; i++) {
		const unsigned char *event;
		uint64_t length;
		at = record(bytes, size, at, &event, &length);
		/* The first field is the time. */
		assert_int_equal(event[0], 0x09);
		assert_int_equal(length, 9 + expected[i].size);
		assert_memory_equal(event + 9, expected[i].bytes, expected[i].size);
	}
	assert_int_equal(at, size);
	free(bytes);
	assert_null(event_file_open(dir, "events", 1, &err));
	assert_non_null(strstr(err.text, "couldn't create events"));
}

/* The file may grow to some size, at which the disk is full in the middle of a record; then there
 * is room again. */
static void a_full_disk_tears_no_record(void **state)
{
	const struct event_scalar scalar = { "loss", 1 };
	struct rlimit before, limit;
	struct stat st;
	struct err err;
	size_t size, at = 0, records = 0;
	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	struct event_file *file = event_file_open(dir, "events", 1, &err);
	assert_non_null(file);
	assert_int_equal(fstatat(dir, "events", &st, 0), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit) { (rlim_t)st.st_size + 60, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(event_file_scalars(file, 1, &scalar, 1, &err), 0);
	for (int step = 2; step < 4; step++) {
		assert_int_equal(event_file_scalars(file, (uint64_t)step, &scalar, 1, &err), -1);
		assert_non_null(strstr(err.text, "couldn't write events"));
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(event_file_scalars(file, 4, &scalar, 1, &err), 0);
	event_file_close(file);
	char *bytes = read_all(&size);
	for (; at < size; records++) {
		const unsigned char *event;
		uint64_t length;
		at = record(bytes, size, at, &event, &length);
	}
	assert_int_equal(records, 4);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sums_are_those_of_the_standard),
		cmocka_unit_test_setup_teardown(the_bytes_are_those_of_the_format, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(a_full_disk_tears_no_record, make_folder, remove_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
