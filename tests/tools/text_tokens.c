/* SPDX-License-Identifier: Apache-2.0 */
/* text_tokens TOKENIZER: reads texts from standard input, each behind its length (32 bits,
 * little-endian), and prints the ids of each on a line, or why it has none. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/bytes.h"
#include "common/err.h"
#include "text/tokenizer.h"

static int encode(const struct tokenizer *tokenizer, struct tokenizer_work *work, size_t size)
{
	struct token_list list = { 0 };
	struct err err;
	char *text = malloc(size + 1);
	if (!text || fread(text, 1, size, stdin) != size)
		return -1;
	if (tokenizer_encode(tokenizer, work, text, size, 0, &list, &err) < 0)
		printf("%s", err.text);
	for (size_t i = 0; i < list.count; i++)
		printf("%s%" PRId32, i ? " " : "", list.ids[i]);
	putchar('\n');
	free(list.ids);
	free(text);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned char size[4];
	struct err err;
	struct tokenizer *tokenizer = argc == 2 ? tokenizer_open(argv[1], &err) : NULL;
	struct tokenizer_work *work = tokenizer ? tokenizer_work_create(tokenizer) : NULL;
	if (!work) {
		fprintf(stderr, "text_tokens: %s\n", argc == 2 ? err.text : "give a tokenizer.json");
		return 1;
	}
	while (fread(size, 1, sizeof size, stdin) == sizeof size)
		if (encode(tokenizer, work, bytes_le32(size)) < 0)
			return 1;
	tokenizer_work_destroy(work);
	tokenizer_close(tokenizer);
	return 0;
}
