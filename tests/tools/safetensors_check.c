/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files from standard input, each as its length (uint32, little-endian) and its bytes, and
 * prints a line for each: "ok", or why it is refused as a safetensors file. */
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/format/safetensors.h"
#include "common/bytes.h"

int main(void)
{
	unsigned char length[4];
	while (fread(length, sizeof length, 1, stdin) == 1) {
		size_t size = bytes_le32(length);
		char *bytes =
			malloc(size + 1); /* of the exact size, so that a sanitizer sees a read past it */
		struct err err;
		if (!bytes || fread(bytes, 1, size, stdin) != size)
			return 1;
		struct safetensors *file = safetensors_parse(bytes, size, size, &err);
		puts(file ? "ok" : err.text);
		safetensors_destroy(file);
		free(bytes);
	}
	return 0;
}
