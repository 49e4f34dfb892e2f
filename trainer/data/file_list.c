/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the text at commas, expands patterns, and sorts the names. */
#include "config.h" /* _GNU_SOURCE, for strndup */

#include "trainer/data/file_list.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"

static int add(struct file_list *list, const char *path, struct err *err)
{
	char **paths = realloc(list->paths, (list->count + 1) * sizeof *paths);
	if (!paths)
		return err_set(err, "data: no memory for the names of files");
	list->paths = paths;
	paths[list->count] = strdup(path);
	if (!paths[list->count])
		return err_set(err, "data: no memory for the names of files");
	list->count++;
	return 0;
}

/* GLOB_ERR makes an unreadable folder an error; without it the data would silently be others. */
static int add_matches(struct file_list *list, const char *pattern, struct err *err)
{
	glob_t found = { 0 };
	errno = 0;
	int rc = glob(pattern, GLOB_ERR | GLOB_NOSORT, NULL, &found);
	if (rc == GLOB_NOMATCH)
		rc = err_fail(err, EXIT_DATA, "data: couldn't find %s: no file has a name like that",
			pattern);
	else if (rc != 0)
		rc = err_fail(err, io_status_or(errno, EXIT_DATA), "data: couldn't look for %s: %s",
			pattern, rc == GLOB_NOSPACE ? "out of memory" : strerror(errno));
	for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
		rc = add(list, found.gl_pathv[i], err);
	globfree(&found);
	return rc;
}

static int add_part(struct file_list *list, const char *part, struct err *err)
{
	if (!*part)
		return err_fail(err, EXIT_USAGE,
			"data: a name between commas is empty: leave out one comma");
	if (strpbrk(part, "*?[") && access(part, F_OK) < 0)
		return add_matches(list, part, err);
	return add(list, part, err);
}

static int add_parts(struct file_list *list, const char *text, struct err *err)
{
	if (access(text, F_OK) == 0)
		return add(list, text, err);
	for (const char *p = text;; p++) {
		size_t length = strcspn(p, ",");
		AUTO_FREE char *part = strndup(p, length);
		if (!part)
			return err_set(err, "data: no memory for the names of files");
		if (add_part(list, part, err) < 0)
			return -1;
		p += length;
		if (!*p)
			return 0;
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_twice(const struct file_list *list, struct err *err)
{
	for (size_t i = 1; i < list->count; i++)
		if (strcmp(list->paths[i - 1], list->paths[i]) == 0)
			return err_fail(err, EXIT_DATA, "data: %s is named twice: each file counts once",
				list->paths[i]);
	return 0;
}

int file_list_make(struct file_list *list, const char *text, struct err *err)
{
	*list = (struct file_list) { 0 };
	int rc = add_parts(list, text, err);
	if (rc == 0) {
		qsort(list->paths, list->count, sizeof *list->paths, by_name);
		rc = check_twice(list, err);
	}
	if (rc < 0)
		file_list_clear(list);
	return rc;
}

void file_list_clear(struct file_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->paths[i]);
	free(list->paths);
	*list = (struct file_list) { 0 };
}
