/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of its own for a test program, and files in it with given bytes. Include behind cmocka.h. */
#ifndef MUSTER_TEST_FILES_H
#define MUSTER_TEST_FILES_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char files_dir[200];

static int files_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline int files_setup(void **state)
{
	const char *tmp = getenv("TMPDIR");
	snprintf(files_dir, sizeof files_dir, "%.150s/muster-test.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(files_dir) ? 0 : -1;
}

static inline int files_teardown(void **state)
{
	return nftw(files_dir, files_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the folder; valid until eight more calls. */
static inline const char *files_path(const char *name)
{
	static char paths[8][400];
	static int next;
	char *path = paths[next++ % 8];
	snprintf(path, sizeof paths[0], "%s/%s", files_dir, name);
	return path;
}

/* Writes the bytes to `name` in the folder and returns its path. */
static inline const char *files_write(const char *name, const void *bytes, size_t size)
{
	const char *path = files_path(name);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	return path;
}

#endif
