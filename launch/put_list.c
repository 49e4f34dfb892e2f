/* SPDX-License-Identifier: Apache-2.0 */
/* Each entry is one byte, the key's length; the key; four bytes, the value's length; the value. */
#include "launch/put_list.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

#define LENGTHS 5 /* the bytes of a key's length, and of a value's */

int put_list_add(struct put_list *list, const char *key, const void *value, size_t size)
{
	const size_t length = strlen(key);
	unsigned char *grown = realloc(list->bytes, list->size + LENGTHS + length + size);
	if (!grown)
		return -1;
	unsigned char *at = grown + list->size;
	at[0] = (unsigned char)length;
	memcpy(at + 1, key, length);
	bytes_put_le32(at + 1 + length, (uint32_t)size);
	if (size)
		memcpy(at + LENGTHS + length, value, size);
	*list = (struct put_list) { grown, list->size + LENGTHS + length + size };
	return 0;
}

const void *put_list_find(const unsigned char *bytes, size_t left, const char *key, size_t *size)
{
	while (left >= LENGTHS && left - LENGTHS >= bytes[0]) {
		const size_t length = bytes[0], value = bytes_le32(bytes + 1 + length);
		if (left - LENGTHS - length < value)
			break;
		*size = value;
		if (length == strlen(key) && memcmp(bytes + 1, key, length) == 0)
			return bytes + LENGTHS + length;
		bytes += LENGTHS + length + value;
		left -= LENGTHS + length + value;
	}
	return NULL;
}
