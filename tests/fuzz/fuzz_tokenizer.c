/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of tokenizer.json: a file is refused with one line, or what it makes of a text
 * are tokens, whose bytes are the text again where it changes none. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static const char text[] =
	"The cat's 1234  hats, \xc3\xa9t\xc3\xa9!\n\n<|endoftext|> \xf0\x9f\x98\x80\n";

static void check_tokens(const struct tokenizer *tokenizer, const struct token_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		size_t size;
		const char *bytes = tokenizer_bytes(tokenizer, list->ids[i], &size);
		if (list->ids[i] < 0 || list->ids[i] >= tokenizer_vocabulary(tokenizer) || !bytes)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct err err = { 0 };
	struct tokenizer *tokenizer =
		tokenizer_parse((const char *)bytes, size, "tokenizer.json", &err);
	if (!tokenizer) {
		if (!*err.text || strchr(err.text, '\n'))
			abort();
		return 0;
	}
	struct tokenizer_work *work = tokenizer_work_create(tokenizer);
	struct token_list list = { 0 };
	if (!work)
		abort();
	if (tokenizer_encode(tokenizer, work, text, sizeof text - 1, 0, &list, &err) == 0)
		check_tokens(tokenizer, &list);
	else if (!*err.text)
		abort();
	free(list.ids);
	tokenizer_work_destroy(work);
	tokenizer_close(tokenizer);
	return 0;
}
