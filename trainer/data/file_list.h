/* SPDX-License-Identifier: Apache-2.0 */
/* The files that one option names: names and patterns as in a shell, between commas, sorted by the
 * bytes of their names. So the order is that of the names, whatever the locale, the folder or a
 * shell say. */
#ifndef MUSTER_FILE_LIST_H
#define MUSTER_FILE_LIST_H

#include <stddef.h>

#include "common/err.h"

/* A value; zeroed: none. */
struct file_list {
	char **paths;
	size_t count;
};

/* What exists under its very name, commas and stars included, is that file. A pattern that nothing
 * matches, a file that is named twice (EXIT_DATA) and an empty name (EXIT_USAGE) are errors; that a
 * plain name exists is not looked at. */
int file_list_make(struct file_list *list, const char *text, struct err *err);
void file_list_clear(struct file_list *list);

#endif
