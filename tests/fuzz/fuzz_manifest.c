/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the manifest and of the text of a part: once as it is, which the hash stops,
 * and once with its hash made right, so that all after it is reached. What is accepted encodes to
 * a text that stays the same; what is refused has its one line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format/manifest.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

typedef struct manifest *parser(const void *text, size_t size, struct err *err);

static struct manifest *parse_whole(const void *text, size_t size, struct err *err)
{
	return manifest_parse(text, size, NULL, err);
}

static void encode_again(const struct manifest *manifest, parser *parse)
{
	char *first, *second;
	size_t first_size, second_size;
	struct err err;
	if (manifest_encode(manifest, &first, &first_size, &err) < 0)
		abort();
	struct manifest *again = parse(first, first_size, &err);
	if (!again || manifest_encode(again, &second, &second_size, &err) < 0
		|| first_size != second_size || memcmp(first, second, first_size) != 0)
		abort();
	manifest_destroy(again);
	free(first);
	free(second);
}

static void try(const void *text, size_t size, parser *parse)
{
	struct err err = { .text = "" };
	struct manifest *manifest = parse(text, size, &err);
	if (manifest)
		encode_again(manifest, parse);
	else if (err.status != EXIT_DATA || !err.text[0] || strchr(err.text, '\n'))
		abort();
	manifest_destroy(manifest);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char hex[HASH_HEX_SIZE];
	char *text = malloc(size + 100);
	try(bytes, size, parse_whole);
	memcpy(text, bytes, size);
	int tail =
		sprintf(text + size, ",\n \"self\": \"%s\"\n}\n", hash_hex(hash_bytes(bytes, size), hex));
	try(text, size + (size_t)tail, parse_whole);
	try(text, size + (size_t)tail, manifest_parse_part);
	free(text);
	return 0;
}
