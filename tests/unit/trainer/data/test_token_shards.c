/* SPDX-License-Identifier: Apache-2.0 */
/* token_shards: whatever comes in which pieces, the files one after the other are what one file
 * would be, each but the last is full, and none is empty. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/io.h"
#include "tests/unit/files.h"
#include "trainer/data/token_shards.h"

#define TOKENS 5000

static int32_t tokens[TOKENS];

/* Reads the raw tokens of a file behind those that were read before. */
static size_t read_file(const char *path, int32_t *into)
{
	struct err err;
	char *data;
	size_t size;
	if (io_read_file(AT_FDCWD, path, 1 << 20, &data, &size, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < size / 2; i++)
		into[i] = bytes_le16(data + 2 * i);
	free(data);
	return size / 2;
}

static void add_in_pieces(struct token_shards *shards)
{
	struct err err;
	for (size_t done = 0, n; done < TOKENS; done += n) {
		n = 1 + (size_t)rand() % 700;
		n = n < TOKENS - done ? n : TOKENS - done;
		assert_int_equal(token_shards_add_ids(shards, tokens + done, n, &err), 0);
	}
	assert_int_equal(token_shards_tokens(shards), TOKENS);
}

static void check_files(size_t files, uint64_t most, size_t count)
{
	int32_t found[TOKENS + 1];
	size_t all = 0;
	for (size_t i = 1; i <= files; i++) {
		char name[40];
		snprintf(name, sizeof name, "t_%06zu.u16", i);
		const size_t n = read_file(files_path(name), found + all);
		assert_true(i < files ? n == most : n > 0 && n <= most);
		all += n;
		assert_int_equal(unlink(files_path(name)), 0);
	}
	assert_int_equal(all, count);
	assert_memory_equal(found, tokens, count * sizeof *tokens);
}

static void files_are_the_stream(void **state)
{
	static const uint64_t sizes[] = { 7, 100, 1000, 2500, 4999, 5000, 5001 };
	struct err err;
	(void)state;
	for (size_t i = 0; i < TOKENS; i++)
		tokens[i] = (int32_t)(i * 7919 % 60000);
	for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++) {
		const uint64_t most = sizes[s / 2];
		const uint64_t tail = s % 2 ? 1 + (uint64_t)rand() % (TOKENS - 1) : 0;
		int32_t moved[TOKENS];
		struct token_shards *shards =
			token_shards_create(files_path("t.u16"), most, 60000, false, &err);
		struct token_writer *rest = token_writer_create(files_path("rest.u16"), 60000, true, &err);
		assert_non_null(shards);
		assert_non_null(rest);
		add_in_pieces(shards);
		assert_int_equal(token_shards_move_tail(shards, rest, tail, &err), 0);
		const size_t files = token_shards_count(shards);
		assert_int_equal(files, (TOKENS - tail + most - 1) / most);
		assert_int_equal(token_shards_commit(shards, &err), 0);
		assert_int_equal(token_writer_commit(rest, &err), 0);
		check_files(files, most, TOKENS - tail);
		assert_int_equal(read_file(files_path("rest.u16"), moved), tail);
		assert_memory_equal(moved, tokens + TOKENS - tail, tail * sizeof *moved);
		token_writer_destroy(rest);
		token_shards_destroy(shards);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(files_are_the_stream) };
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
