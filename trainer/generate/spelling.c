/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer may have fewer tokens than the model, whose vocabulary is often padded. */
#include "config.h"

#include "trainer/generate/spelling.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/auto.h"
#include "text/tokenizer.h"

struct spelling {
	struct tokenizer *tokenizer; /* NULL: bytes */
	char bytes[SPELLING_BYTES];
};

static int open_tokenizer(struct spelling *spelling, const char *path, int64_t vocabulary,
	struct err *err)
{
	spelling->tokenizer = tokenizer_open(path, err);
	if (!spelling->tokenizer)
		return -1;
	if (tokenizer_vocabulary(spelling->tokenizer) > vocabulary)
		return err_fail(err, EXIT_USAGE,
			"tokenizer: %s has %" PRId32 " tokens, and the model only %" PRId64
			": give the one that made its tokens",
			path, tokenizer_vocabulary(spelling->tokenizer), vocabulary);
	return 0;
}

static int find(struct spelling *spelling, const char *path, const char *beside, int64_t vocabulary,
	const char *otherwise, struct err *err)
{
	AUTO_FREE char *there = NULL;
	if (!path && beside && asprintf(&there, "%s/tokenizer.json", beside) < 0)
		return err_set(err, "tokenizer: out of memory");
	if (!path && there && access(there, F_OK) == 0)
		path = there;
	if (path)
		return open_tokenizer(spelling, path, vocabulary, err);
	if (vocabulary != SPELLING_BYTES)
		return err_fail(err, EXIT_USAGE,
			"the model's %" PRId64 " tokens are no bytes: give the --tokenizer that made them%s",
			vocabulary, otherwise);
	for (int i = 0; i < SPELLING_BYTES; i++)
		spelling->bytes[i] = (char)i;
	return 0;
}

struct spelling *spelling_open(const char *path, const char *beside, int64_t vocabulary,
	const char *otherwise, struct err *err)
{
	struct spelling *spelling = calloc(1, sizeof *spelling);
	if (!spelling) {
		err_set(err, "tokenizer: out of memory");
		return NULL;
	}
	if (find(spelling, path, beside, vocabulary, otherwise, err) == 0)
		return spelling;
	spelling_close(spelling);
	return NULL;
}

void spelling_close(struct spelling *spelling)
{
	if (!spelling)
		return;
	tokenizer_close(spelling->tokenizer);
	free(spelling);
}

int spelling_encode(const struct spelling *spelling, const char *text, size_t size,
	struct token_list *list, struct err *err)
{
	if (!spelling->tokenizer) {
		for (size_t i = 0; i < size; i++) {
			const int32_t token = (unsigned char)text[i];
			if (token_list_append(list, &token, 1, err) < 0)
				return -1;
		}
		return 0;
	}
	struct tokenizer_work *work = tokenizer_work_create(spelling->tokenizer);
	const int rc = work ? tokenizer_encode(spelling->tokenizer, work, text, size, 0, list, err)
						: err_set(err, "out of memory");
	tokenizer_work_destroy(work);
	return rc < 0 ? err_prefix(err, "prompt") : 0;
}

const char *spelling_bytes(const struct spelling *spelling, int32_t token, size_t *size)
{
	if (spelling->tokenizer)
		return tokenizer_bytes(spelling->tokenizer, token, size);
	*size = 1;
	return token >= 0 && token < SPELLING_BYTES ? &spelling->bytes[token] : NULL;
}
