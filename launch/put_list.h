/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank has put, as one piece of bytes: the body of a message of doc/bootstrap.md. */
#ifndef MUSTER_PUT_LIST_H
#define MUSTER_PUT_LIST_H

#include <stddef.h>

/* Zeroed at first; `bytes` is the owner's to free. */
struct put_list {
	unsigned char *bytes;
	size_t size;
};

/* Adds a value; `key` has up to 255 characters. -1: no memory. */
int put_list_add(struct put_list *list, const char *key, const void *value, size_t size);

/* Looks for a key in a list that came from elsewhere, which may be none. Returns its value, within
 * `bytes`, or NULL. */
const void *put_list_find(const unsigned char *bytes, size_t left, const char *key, size_t *size);

#endif
