/* SPDX-License-Identifier: Apache-2.0 */
/* A list of tokens that grows. */
#ifndef MUSTER_TOKEN_LIST_H
#define MUSTER_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* To be zeroed before its first use; the owner frees `ids`. */
struct token_list {
	int32_t *ids;
	size_t count, room;
};

/* -1 with err set when out of memory; then the list is as it was. */
int token_list_append(struct token_list *list, const int32_t *ids, size_t count, struct err *err);

#endif
