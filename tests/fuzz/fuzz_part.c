/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the parts of a save by several writers: up to three texts, divided by zero
 * bytes, each with its hash made right. What they join to is a valid manifest that has the files of
 * all of them; what is refused has its one line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/ckpt_save.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

#define PARTS 3
#define STEP 3
#define TOKEN "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void refused(const struct err *err)
{
	if (err->status != EXIT_DATA || !err->text[0] || strchr(err->text, '\n'))
		abort();
}

/* The text with its hash after it; malloc'ed. */
static char *close_text(const unsigned char *bytes, size_t size, size_t *closed)
{
	char hex[HASH_HEX_SIZE];
	char *text = malloc(size + 100);
	memcpy(text, bytes, size);
	*closed = size
		+ (size_t)sprintf(text + size, ",\n \"self\": \"%s\"\n}\n",
			hash_hex(hash_bytes(bytes, size), hex));
	return text;
}

static void check_join(const struct manifest *joined, char *const *texts, const size_t *sizes,
	int parts)
{
	char *text;
	size_t size, files = 0;
	struct err err;
	for (int i = 0; i < parts; i++) {
		struct manifest *part = manifest_parse_part(texts[i], sizes[i], &err);
		if (!part || ckpt_part_check(texts[i], sizes[i], STEP, TOKEN, i, parts, &err) < 0)
			abort();
		files += part->file_count;
		manifest_destroy(part);
	}
	if (files != joined->file_count || manifest_encode(joined, &text, &size, &err) < 0)
		abort();
	struct manifest *again = manifest_parse(text, size, NULL, &err);
	if (!again || again->step != STEP || again->file_count != files)
		abort();
	manifest_destroy(again);
	free(text);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char *texts[PARTS];
	size_t sizes[PARTS];
	struct err err = { .text = "" };
	int parts = 0;
	if (ckpt_part_check((const char *)bytes, size, STEP, TOKEN, 0, 1, &err) < 0)
		refused(&err);
	while (parts < PARTS && size > 0) {
		const unsigned char *end = memchr(bytes, 0, size);
		size_t length = end ? (size_t)(end - bytes) : size;
		texts[parts] = close_text(bytes, length, &sizes[parts]);
		parts++;
		bytes += length + (end != NULL);
		size -= length + (end != NULL);
	}
	struct manifest *joined = ckpt_part_join(texts, sizes, parts, STEP, TOKEN, &err);
	if (joined)
		check_join(joined, texts, sizes, parts);
	else
		refused(&err);
	manifest_destroy(joined);
	for (int i = 0; i < parts; i++)
		free(texts[i]);
	return 0;
}
