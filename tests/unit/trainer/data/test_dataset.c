/* SPDX-License-Identifier: Apache-2.0 */
/* dataset: samples are the right tokens and rows, and every bad file is refused with its line. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "tests/unit/files.h"
#include "trainer/data/dataset.h"
#include "trainer/data/token_file.h"

static unsigned char buffer[16 << 20];

/* A token file in `buffer`: token i is i mod 1000. Returns its size. */
static size_t make_tokens(int count)
{
	token_file_header(buffer, count, 2);
	for (int i = 0; i < count; i++)
		bytes_put_le16(buffer + TOKEN_FILE_HEADER + 2 * i, (uint16_t)(i % 1000));
	return TOKEN_FILE_HEADER + 2 * (size_t)count;
}

static void refuses_tokens(const char *name, size_t size, int positions, const char *why)
{
	struct err err;
	const char *path = files_write(name, buffer, size);
	assert_null(dataset_open_tokens(path, positions, &err));
	assert_int_equal(err.status, EXIT_DATA);
	if (!strstr(err.text, why) || !strstr(err.text, path))
		fail_msg("\"%s\" does not say \"%s\" of %s", err.text, why, path);
	assert_null(strchr(err.text, '\n'));
}

static void check_samples(const struct dataset *data, uint64_t first, int count,
	struct batch *batch)
{
	uint64_t samples[8];
	struct err err;
	for (int i = 0; i < count; i++)
		samples[i] = first + (uint64_t)i;
	assert_int_equal(dataset_read(data, samples, count, 1000, batch, &err), 0);
	for (int row = 0; row < count; row++)
		for (int i = 0; i < batch->positions; i++) {
			uint64_t at = samples[row] * (uint64_t)batch->positions + (uint64_t)i;
			assert_int_equal(batch->tokens[row * batch->positions + i], at % 1000);
			assert_int_equal(batch->targets[row * batch->positions + i], (at + 1) % 1000);
		}
}

static void reads_both_layouts(void **state)
{
	struct err err;
	size_t size = make_tokens(5000);
	const char *paths[] = { files_write("t.bin", buffer, size),
		files_write("raw.bin", buffer + TOKEN_FILE_HEADER, size - TOKEN_FILE_HEADER),
		files_write("raw.u16", buffer + TOKEN_FILE_HEADER, size - TOKEN_FILE_HEADER),
		files_write("any-name", buffer, size) };
	for (int i = 0; i < 4; i++) {
		struct dataset *data = dataset_open_tokens(paths[i], 17, &err);
		assert_non_null(data);
		assert_int_equal(dataset_tokens(data), 5000);
		assert_int_equal(dataset_samples(data), 4999 / 17);
		assert_int_equal(dataset_features(data), 0);
		struct batch *batch = batch_alloc(data, 8, &err);
		assert_non_null(batch);
		check_samples(data, 0, 8, batch);
		check_samples(data, dataset_samples(data) - 8, 8, batch);
		batch_free(batch);
		dataset_close(data);
	}
}

/* positions + 1 tokens are one sample, and its last target is the last token of the file. */
/* Tokens of 32 bits: the same samples, and numbers that 16 bits do not have. */
static void reads_wide_tokens(void **state)
{
	const int count = 500;
	struct err err;
	token_file_header(buffer, count, 4);
	for (int i = 0; i < count; i++)
		bytes_put_le32(buffer + TOKEN_FILE_HEADER + 4 * i, (uint32_t)i % 1000);
	const char *path = files_write("wide.bin", buffer, TOKEN_FILE_HEADER + 4 * (size_t)count);
	struct dataset *data = dataset_open_tokens(path, 10, &err);
	(void)state;
	assert_non_null(data);
	assert_int_equal(dataset_samples(data), 49);
	struct batch *batch = batch_alloc(data, 4, &err);
	assert_non_null(batch);
	check_samples(data, 0, 4, batch);
	check_samples(data, 45, 4, batch);
	dataset_close(data);
	bytes_put_le32(buffer + TOKEN_FILE_HEADER + 4 * 7, 128255);
	data = dataset_open_tokens(files_write("large.bin", buffer, TOKEN_FILE_HEADER + 4 * 500), 10,
		&err);
	const uint64_t first = 0;
	assert_int_equal(dataset_read(data, &first, 1, 128256, batch, &err), 0);
	assert_int_equal(batch->tokens[7], 128255);
	assert_int_equal(batch->targets[6], 128255);
	assert_int_equal(dataset_read(data, &first, 1, 128255, batch, &err), -1);
	assert_non_null(strstr(err.text, "token 128255 of sample 0"));
	dataset_close(data);
	batch_free(batch);
}

static void smallest_file_is_one_sample(void **state)
{
	struct err err;
	const char *path = files_write("small.bin", buffer, make_tokens(9));
	struct dataset *data = dataset_open_tokens(path, 8, &err);
	assert_non_null(data);
	assert_int_equal(dataset_samples(data), 1);
	struct batch *batch = batch_alloc(data, 1, &err);
	check_samples(data, 0, 1, batch);
	assert_int_equal(batch->targets[7], 8);
	assert_int_equal(dataset_read(data, (uint64_t[]) { 1 }, 1, 1000, batch, &err), -1);
	batch_free(batch);
	dataset_close(data);
	assert_null(dataset_open_tokens(path, 9, &err));
	assert_non_null(strstr(err.text, "9 tokens are too few for one sample of 9"));
	assert_int_equal(err.status, EXIT_DATA);
}

static void missing_places_have_no_target(void **state)
{
	struct err err;
	struct dataset *data =
		dataset_open_tokens(files_write("t.bin", buffer, make_tokens(100)), 10, &err);
	struct batch *batch = batch_alloc(data, 4, &err);
	check_samples(data, 0, 4, batch);
	assert_int_equal(dataset_read(data, (uint64_t[]) { 5, SAMPLER_NONE, 6 }, 3, 1000, batch, &err),
		0);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(batch->tokens[i], 50 + i);
		assert_int_equal(batch->tokens[10 + i], 0);
		assert_int_equal(batch->targets[10 + i], -1);
		assert_int_equal(batch->tokens[20 + i], 60 + i);
		assert_int_equal(batch->targets[30 + i], -1);
	}
	assert_int_equal(dataset_read(data, (uint64_t[]) { 0, 1, 2, 3, 4 }, 5, 1000, batch, &err), -1);
	batch_free(batch);
	dataset_close(data);
}

static void refuses_bad_token_files(void **state)
{
	struct err err;
	size_t size = make_tokens(100);
	refuses_tokens("empty.bin", 0, 10, "empty");
	refuses_tokens("short.bin", 600, 10, "truncated in its header, at 600 of 1024 bytes");
	refuses_tokens("cut.bin", size - 2, 10,
		"truncated: its header says 100 tokens, so 1224 bytes; it has 1222");
	refuses_tokens("odd.bin", size - 1, 10, "truncated");
	refuses_tokens("long.bin", size + 2, 10, "longer than it should be");
	refuses_tokens("few.bin", size, 100, "too few");
	bytes_put_le32(buffer + 8, (uint32_t)-5);
	refuses_tokens("negative.bin", size, 10, "-5 tokens");
	bytes_put_le32(buffer + 4, 7);
	refuses_tokens("version.bin", size, 10, "version 7");
	bytes_put_le32(buffer, 20240522); /* llm.c's questions */
	refuses_tokens("questions.bin", size, 10, "wrong magic 20240522");
	refuses_tokens("name", size, 10, "wrong magic 20240522");
	token_file_header(buffer, 50, 4);
	refuses_tokens("narrow.bin", TOKEN_FILE_HEADER + 100, 10, "truncated");
	bytes_put_le32(buffer + 4, 1);
	refuses_tokens("old.bin", TOKEN_FILE_HEADER + 200, 10,
		"version 1 of the token file format; "
		"version 7 is known");
	refuses_tokens("raw.u16", 101, 10, "101 bytes are no whole number");
	make_tokens(0);
	refuses_tokens("none.bin", TOKEN_FILE_HEADER, 10, "0 tokens are too few");

	assert_null(dataset_open_tokens(files_path("missing.bin"), 10, &err));
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "missing.bin: No such file"));
	assert_null(dataset_open_tokens(files_dir, 10, &err));
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "not a regular file"));
	assert_int_equal(mkfifo(files_path("fifo.bin"), 0600), 0);
	assert_null(dataset_open_tokens(files_path("fifo.bin"), 10, &err));
	assert_non_null(strstr(err.text, "not a regular file"));
}

static void names_the_token_out_of_vocabulary(void **state)
{
	struct err err;
	size_t size = make_tokens(100);
	bytes_put_le16(buffer + TOKEN_FILE_HEADER + 2 * 34, 777);
	const char *path = files_write("t.bin", buffer, size);
	struct dataset *data = dataset_open_tokens(path, 10, &err);
	struct batch *batch = batch_alloc(data, 2, &err);
	assert_int_equal(dataset_read(data, (uint64_t[]) { 0, 3 }, 2, 100, batch, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "token 777 of sample 3 (place 4)"));
	assert_non_null(strstr(err.text, path));
	assert_non_null(strstr(err.text, "vocabulary of 100"));
	assert_int_equal(dataset_read(data, (uint64_t[]) { 0, 3 }, 2, 778, batch, &err), 0);
	/* A target is checked as well: sample 2's last one is token 30. */
	assert_int_equal(dataset_read(data, (uint64_t[]) { 2 }, 1, 30, batch, &err), -1);
	assert_non_null(strstr(err.text, "token 30 of sample 2 (place 10)"));
	batch_free(batch);
	dataset_close(data);
}

static struct hash128 identity_of(const void *bytes, size_t size)
{
	struct err err;
	struct dataset *data = dataset_open_tokens(files_write("id.bin", bytes, size), 10, &err);
	assert_non_null(data);
	struct hash128 identity = dataset_identity(data);
	dataset_close(data);
	return identity;
}

/* The formula of the header, computed here from the whole file. */
static struct hash128 identity_by_definition(size_t size)
{
	struct hasher *hasher = hasher_create();
	unsigned char size_bytes[8];
	bytes_put_le64(size_bytes, size);
	hasher_add(hasher, size_bytes, 8);
	hasher_add(hasher, buffer, TOKEN_FILE_HEADER);
	if (size <= 4 << 20)
		hasher_add(hasher, buffer, size);
	for (uint64_t i = 0; size > 4 << 20 && i < 64; i++)
		hasher_add(hasher, buffer + i * (size - 65536) / 63, 65536);
	struct hash128 value = hasher_value(hasher);
	hasher_destroy(hasher);
	return value;
}

static void identity_is_as_defined(void **state)
{
	size_t small = make_tokens(1000), large = make_tokens(5000000);
	assert_true(hash_equal(identity_of(buffer, large), identity_by_definition(large)));
	make_tokens(1000);
	struct hash128 before = identity_of(buffer, small);
	assert_true(hash_equal(before, identity_by_definition(small)));
	buffer[small - 1] ^= 1;
	assert_false(hash_equal(before, identity_of(buffer, small)));
	make_tokens(999);
	assert_false(hash_equal(before, identity_of(buffer, small - 2)));
}

/* `count` tokens from `first` on, without a header. */
static void write_raw(const char *name, int first, int count)
{
	for (int i = 0; i < count; i++)
		bytes_put_le16(buffer + 2 * i, (uint16_t)(first + i));
	files_write(name, buffer, 2 * (size_t)count);
}

/* Each begins anew, and what is left after its last sample is not used. */
static void several_files_are_one_data_set(void **state)
{
	static const int32_t begins[] = { 0, 8, 16, 100, 200, 208 };
	struct err err;
	write_raw("s-1.u16", 0, 25);
	write_raw("s-2.u16", 100, 16);
	write_raw("s-3.u16", 200, 17);
	struct dataset *data = dataset_open_tokens(files_path("s-?.u16"), 8, &err);
	if (!data)
		fail_msg("%s", err.text);
	assert_int_equal(dataset_shards(data), 3);
	assert_int_equal(dataset_samples(data), 6);
	assert_int_equal(dataset_tokens(data), 58);
	struct batch *batch = batch_alloc(data, 1, &err);
	for (uint64_t i = 0; i < 6; i++) {
		assert_int_equal(dataset_read(data, &i, 1, 300, batch, &err), 0);
		for (int k = 0; k < 8; k++) {
			assert_int_equal(batch->tokens[k], begins[i] + k);
			assert_int_equal(batch->targets[k], begins[i] + k + 1);
		}
	}
	assert_int_equal(dataset_read(data, (uint64_t[]) { 6 }, 1, 300, batch, &err), -1);
	assert_int_equal(dataset_read(data, (uint64_t[]) { 5 }, 1, 210, batch, &err), -1);
	assert_non_null(strstr(err.text, "token 210 of sample 1 (place 2) in "));
	assert_non_null(strstr(err.text, "s-3.u16"));
	batch_free(batch);
	dataset_close(data);
	write_raw("s-2.u16", 0, 8);
	assert_null(dataset_open_tokens(files_path("s-?.u16"), 8, &err));
	assert_non_null(strstr(err.text, "s-2.u16: its 8 tokens are too few"));
}

static struct hash128 identity_named(const char *names)
{
	struct err err;
	struct dataset *data = dataset_open_tokens(names, 10, &err);
	if (!data)
		fail_msg("%s", err.text);
	struct hash128 identity = dataset_identity(data);
	dataset_close(data);
	return identity;
}

/* 25 files: two windows each, the first bytes and the last ones. A swap of two is another data set.
 */
static void identity_of_several_is_as_defined(void **state)
{
	struct hasher *hasher = hasher_create();
	char name[40];
	for (int i = 0; i < 25; i++) {
		size_t size = i % 2 ? 4000 : 300000;
		unsigned char size_bytes[8];
		snprintf(name, sizeof name, "id-%02d.u16", i);
		write_raw(name, i, (int)size / 2);
		bytes_put_le64(size_bytes, size);
		hasher_add(hasher, size_bytes, 8);
		if (size == 4000)
			hasher_add(hasher, buffer, size);
		for (int w = 0; size > 4000 && w < 2; w++)
			hasher_add(hasher, buffer + (w ? size - 65536 : 0), 65536);
	}
	struct hash128 before = identity_named(files_path("id-*.u16"));
	assert_true(hash_equal(before, hasher_value(hasher)));
	hasher_destroy(hasher);
	assert_int_equal(rename(files_path("id-01.u16"), files_path("away")), 0);
	assert_int_equal(rename(files_path("id-03.u16"), files_path("id-01.u16")), 0);
	assert_int_equal(rename(files_path("away"), files_path("id-03.u16")), 0);
	assert_false(hash_equal(before, identity_named(files_path("id-*.u16"))));
}

/* Of a file alone it stands in checkpoints: these values, made by the first version, may never
 * change. */
static void identity_is_the_recorded_one(void **state)
{
	char hex[HASH_HEX_SIZE];
	assert_string_equal(hash_hex(identity_of(buffer, make_tokens(1000)), hex),
		"a170b6966c2095c81bf99959a6c38ae7");
	assert_string_equal(hash_hex(identity_of(buffer, make_tokens(5000000)), hex),
		"113054b02e688357a338fba2276521b7");
}

/* An .npy file in `buffer` with that dictionary, padded as numpy does it. Returns the offset of its
 * data. */
static size_t make_npy(int version, const char *dictionary)
{
	size_t prefix = version == 1 ? 10 : 12;
	size_t total = (prefix + strlen(dictionary) + 1 + 63) / 64 * 64;
	memset(buffer, ' ', total);
	memcpy(buffer, "\x93NUMPY", 6);
	buffer[6] = (unsigned char)version;
	buffer[7] = 0;
	if (version == 1)
		bytes_put_le16(buffer + 8, (uint16_t)(total - prefix));
	else
		bytes_put_le32(buffer + 8, (uint32_t)(total - prefix));
	memcpy(buffer + prefix, dictionary, strlen(dictionary));
	buffer[total - 1] = '\n';
	return total;
}

static const char *write_npy(const char *name, int version, const char *dictionary,
	const void *data, size_t size)
{
	size_t offset = make_npy(version, dictionary);
	memcpy(buffer + offset, data, size);
	return files_write(name, buffer, offset + size);
}

static const float table[4][3] = { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 10, 11, 12 } };
static const char features_header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }";

static void reads_tables(void **state)
{
	static const uint8_t u1[4] = { 0, 3, 2, 1 };
	static const int32_t i4[4] = { 0, 3, 2, 1 };
	static const int64_t i8[4] = { 0, 3, 2, 1 };
	struct err err;
	const char *x[2] = { write_npy("x1.npy", 1, features_header, table, sizeof table),
		write_npy("x2.npy", 2, features_header, table, sizeof table) };
	const char *y[3] = { write_npy("u1.npy", 1,
							 "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", u1,
							 sizeof u1),
		write_npy("i4.npy", 1, "{'shape': (4L,), \"descr\": \"<i4\", 'fortran_order':False}", i4,
			sizeof i4),
		write_npy("i8.npy", 2, "{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }", i8,
			sizeof i8) };
	for (int i = 0; i < 6; i++) {
		struct dataset *data = dataset_open_table(x[i % 2], y[i / 2], &err);
		if (!data)
			fail_msg("%s", err.text);
		assert_int_equal(dataset_samples(data), 4);
		assert_int_equal(dataset_features(data), 3);
		assert_int_equal(dataset_tokens(data), 0);
		struct batch *batch = batch_alloc(data, 3, &err);
		assert_int_equal(batch->positions, 1);
		assert_int_equal(dataset_read(data, (uint64_t[]) { 3, SAMPLER_NONE, 1 }, 3, 4, batch, &err),
			0);
		static const float want[9] = { 10, 11, 12, 0, 0, 0, 4, 5, 6 };
		assert_memory_equal(batch->inputs, want, sizeof want);
		assert_int_equal(batch->targets[0], 1);
		assert_int_equal(batch->targets[1], -1);
		assert_int_equal(batch->targets[2], 3);
		assert_int_equal(dataset_read(data, (uint64_t[]) { 0, 1 }, 2, 3, batch, &err), -1);
		assert_int_equal(err.status, EXIT_DATA);
		assert_non_null(strstr(err.text, "class 3 of sample 1"));
		batch_free(batch);
		dataset_close(data);
	}
}

static void several_tables_are_one_data_set(void **state)
{
	static const int32_t i4[2] = { 3, 2 };
	static const uint8_t classes[4] = { 0, 1, 2, 1 };
	struct err err;
	write_npy("xs-1.npy", 1, features_header, table, sizeof table);
	write_npy("xs-2.npy", 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
		table[1], 2 * sizeof table[0]);
	write_npy("ys-1.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", classes,
		sizeof classes);
	write_npy("ys-2.npy", 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", i4,
		sizeof i4);
	struct dataset *data = dataset_open_table(files_path("xs-*.npy"), files_path("ys-*.npy"), &err);
	if (!data)
		fail_msg("%s", err.text);
	assert_int_equal(dataset_shards(data), 2);
	assert_int_equal(dataset_samples(data), 6);
	struct batch *batch = batch_alloc(data, 2, &err);
	assert_int_equal(dataset_read(data, (uint64_t[]) { 5, 3 }, 2, 4, batch, &err), 0);
	static const float want[6] = { 7, 8, 9, 10, 11, 12 };
	assert_memory_equal(batch->inputs, want, sizeof want);
	assert_int_equal(batch->targets[0], 2);
	assert_int_equal(batch->targets[1], 1);
	assert_int_equal(dataset_read(data, (uint64_t[]) { 4 }, 1, 3, batch, &err), -1);
	assert_non_null(strstr(err.text, "class 3 of sample 0 in "));
	assert_non_null(strstr(err.text, "ys-2.npy"));
	batch_free(batch);
	dataset_close(data);

	assert_null(dataset_open_table(files_path("xs-*.npy"), files_path("ys-1.npy"), &err));
	assert_non_null(strstr(err.text, "names 2 files of features, but "));
	write_npy("xs-2.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", table,
		32);
	assert_null(dataset_open_table(files_path("xs-*.npy"), files_path("ys-*.npy"), &err));
	assert_non_null(strstr(err.text, "xs-2.npy has 4 columns, but "));
}

static void refuses_negative_class(void **state)
{
	static const int32_t classes[4] = { 0, -1, 2, 1 };
	struct err err;
	const char *x = write_npy("x.npy", 1, features_header, table, sizeof table);
	const char *y = write_npy("y.npy", 1,
		"{'descr': '<i4', 'fortran_order': False, 'shape': (4,), }", classes, sizeof classes);
	struct dataset *data = dataset_open_table(x, y, &err);
	struct batch *batch = batch_alloc(data, 1, &err);
	assert_int_equal(dataset_read(data, (uint64_t[]) { 1 }, 1, 4, batch, &err), -1);
	assert_non_null(strstr(err.text, "class -1 of sample 1"));
	batch_free(batch);
	dataset_close(data);
}

static void refuses_bad_tables(void **state)
{
	static const struct {
		int version;
		const char *dictionary;
		int extra; /* bytes more than the 48 of the table */
		const char *why;
	} bad[] = {
		{ 1, features_header, -1, "truncated" },
		{ 1, features_header, 1, "longer" },
		{ 3, features_header, 0, "version 3.0" },
		{ 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (4, 3), }", 0, "Fortran order" },
		{ 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3), }", 0, "'<f8'" },
		{ 1, "{'descr': '>f4', 'fortran_order': False, 'shape': (4, 3), }", 0, "'>f4'" },
		{ 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (4, 3), }", 0,
			"int32 in 2 dimensions" },
		{ 1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (12,), }", 0, "records" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (12,), }", 0, "in 1 dimensions" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", 0, "3 rows" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4294967296), }", 0,
			"truncated" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 0,
			"larger than any file" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 3), }", 0,
			"too large" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 3), }", 0,
			"something else than lengths" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), ", 0,
			"a string is missing" },
		{ 1, "{'descr': '<f4', 'fortran_order': False}", 0, "is missing" },
		{ 1, "{'descr': '<f4', 'more': 1}", 0, "not known" },
		{ 1, "[1, 2]", 0, "no dictionary" },
		{ 1, "{'descr", 0, "odd characters" },
	};
	static const uint8_t u1[4];
	static const char zeros[64];
	struct err err;
	char y[400]; /* files_path() will be called often */
	strcpy(y,
		write_npy("y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", u1,
			sizeof u1));
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const char *x = write_npy("x.npy", bad[i].version, bad[i].dictionary, zeros,
			(size_t)(48 + bad[i].extra));
		assert_null(dataset_open_table(x, y, &err));
		assert_int_equal(err.status, EXIT_DATA);
		if (!strstr(err.text, bad[i].why) || !strstr(err.text, x))
			fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].why);
	}
	assert_null(dataset_open_table(files_write("x.npy", "not one of them", 15), y, &err));
	assert_non_null(strstr(err.text, "wrong magic"));
	assert_null(dataset_open_table(files_write("x.npy", "\x93NUMPY\1\0\xff\xff{}", 12), y, &err));
	assert_non_null(strstr(err.text, "truncated in its header"));
	assert_null(dataset_open_table(files_write("x.npy", "\x93NUMPY\1\0\x04\0{'de", 14), y, &err));
	assert_non_null(strstr(err.text, "a string has no end"));
	assert_null(dataset_open_table(write_npy("x.npy", 1, features_header, table, sizeof table),
		files_path("none"), &err));
	assert_int_equal(err.status, EXIT_DATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_both_layouts),
		cmocka_unit_test(reads_wide_tokens),
		cmocka_unit_test(smallest_file_is_one_sample),
		cmocka_unit_test(missing_places_have_no_target),
		cmocka_unit_test(refuses_bad_token_files),
		cmocka_unit_test(names_the_token_out_of_vocabulary),
		cmocka_unit_test(identity_is_as_defined),
		cmocka_unit_test(several_files_are_one_data_set),
		cmocka_unit_test(identity_of_several_is_as_defined),
		cmocka_unit_test(identity_is_the_recorded_one),
		cmocka_unit_test(reads_tables),
		cmocka_unit_test(several_tables_are_one_data_set),
		cmocka_unit_test(refuses_negative_class),
		cmocka_unit_test(refuses_bad_tables),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
