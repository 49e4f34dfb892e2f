/* SPDX-License-Identifier: Apache-2.0 */
/* The values that a rank has put, as one byte string: the body of a message of doc/bootstrap.md. */
#ifndef MUSTER_PUT_LIST_H
#define MUSTER_PUT_LIST_H

#include <stddef.h>

/* Start with zeros; the owner frees `bytes`. */
struct put_list {
	unsigned char *bytes;
	size_t size;
};

/* Adds a value; `key` has at most 255 characters. -1: out of memory. */
int put_list_add(struct put_list *list, const char *key, const void *value, size_t size);

/* Finds a key in a received list, which may be malformed. Returns its value, inside `bytes`, or
 * NULL. */
const void *put_list_find(const unsigned char *bytes, size_t left, const char *key, size_t *size);

#endif
