/* SPDX-License-Identifier: Apache-2.0 */
/* The files that one option names: names and shell patterns, separated by commas, sorted by the
 * bytes of the names. So the order does not depend on locale, folder or shell. */
#ifndef MUSTER_FILE_LIST_H
#define MUSTER_FILE_LIST_H

#include <stddef.h>

#include "common/err.h"

/* A value; zeroed: none. */
struct file_list {
	char **paths;
	size_t count;
};

/* Makes the list. A text that is itself the name of an existing file means that file, even with
 * commas and stars in it. Errors are a pattern without matches, a file that is named twice
 * (EXIT_DATA), and an empty name (EXIT_USAGE). Whether a plain name exists is not checked. */
int file_list_make(struct file_list *list, const char *text, struct err *err);
void file_list_clear(struct file_list *list);

#endif
