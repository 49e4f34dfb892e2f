/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of tokenizers, in a build without their libraries: none can be opened. */
#include "config.h"

#include "text/tokenizer.h"

struct tokenizer *tokenizer_open(const char *path, struct err *err)
{
	err_fail(err, EXIT_USAGE,
		"tokenizer: couldn't use %s: this build has no BPE tokenizers; install libpcre2-dev and "
		"libutf8proc-dev, and build again",
		path);
	return NULL;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
	(void)tokenizer;
}

int32_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
	(void)tokenizer;
	return 0;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
	(void)tokenizer;
	(void)text;
	return -1;
}

const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *size)
{
	(void)tokenizer;
	(void)id;
	(void)size;
	return NULL;
}

struct tokenizer_work *tokenizer_work_create(const struct tokenizer *tokenizer)
{
	(void)tokenizer;
	return NULL;
}

void tokenizer_work_destroy(struct tokenizer_work *work)
{
	(void)work;
}

int tokenizer_encode(const struct tokenizer *tokenizer, struct tokenizer_work *work,
	const char *text, size_t size, uint64_t offset, struct token_list *list, struct err *err)
{
	(void)tokenizer;
	(void)work;
	(void)text;
	(void)size;
	(void)offset;
	(void)list;
	return err_set(err, "tokenizer: this build has none");
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	(void)tokenizer;
	(void)text;
	(void)size;
	return 0;
}
