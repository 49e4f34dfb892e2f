/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of its own for a test program, and files in it with given bytes. Include after
 * config.h and cmocka.h. */
#ifndef MUSTER_TEST_FILES_H
#define MUSTER_TEST_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FILES_PATH_SIZE 128

static char files_dir[FILES_PATH_SIZE];

static int files_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* A folder below TMPDIR, where a run of the tests that is ended looks for what is left. */
static inline int files_make_folder(char path[FILES_PATH_SIZE])
{
	const char *tmp = getenv("TMPDIR");
	snprintf(path, FILES_PATH_SIZE, "%.100s/muster-test.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(path) ? 0 : -1;
}

/* Who removes while he lists may miss some. */
static inline int files_remove_folder(const char *path)
{
	int result;

	do
		result = nftw(path, files_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	while (result < 0 && errno == ENOTEMPTY);
	return result;
}

static inline int files_setup(void **state)
{
	return files_make_folder(files_dir);
}

static inline int files_teardown(void **state)
{
	return files_remove_folder(files_dir);
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
