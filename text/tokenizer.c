/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a text in four stages: added tokens are cut out, what lies between is normalised, cut
 * into pieces, and each piece is merged. */
#include "config.h"

#include "text/tokenizer.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/auto.h"
#include "text/bpe.h"
#include "text/text_split.h"
#include "text/tokenizer_private.h"

/* ---- added tokens ---- */

/* The longest added token at this place; NULL: none. */
static const struct added *added_at(const struct tokenizer *tokenizer, const char *text,
	size_t size, bool normalized)
{
	const struct added *best = NULL;
	if (!tokenizer->first[normalized][(unsigned char)*text])
		return NULL;
	for (size_t i = 0; i < tokenizer->added_count; i++) {
		const struct added *one = &tokenizer->added[i];
		if (one->normalized == normalized && one->size <= size && (!best || one->size > best->size)
			&& memcmp(one->text, text, one->size) == 0)
			best = one;
	}
	return best;
}

/* Where the next added token begins, from `at` on; `size` where there is none. */
static size_t next_added(const struct tokenizer *tokenizer, const char *text, size_t size,
	size_t at, bool normalized, const struct added **found)
{
	for (; at < size; at++)
		if ((*found = added_at(tokenizer, text + at, size - at, normalized)))
			return at;
	*found = NULL;
	return size;
}

/* ---- pieces ---- */

struct tokenizer_work {
	struct bpe_work *bpe;
	struct text_split_work *split;
};

struct tokenizer_work *tokenizer_work_create(const struct tokenizer *tokenizer)
{
	struct tokenizer_work *work = calloc(1, sizeof *work);
	if (!work)
		return NULL;
	work->bpe = bpe_work_create();
	work->split = text_split_work_create(tokenizer->split);
	if (work->bpe && work->split)
		return work;
	tokenizer_work_destroy(work);
	return NULL;
}

void tokenizer_work_destroy(struct tokenizer_work *work)
{
	if (!work)
		return;
	bpe_work_destroy(work->bpe);
	text_split_work_destroy(work->split);
	free(work);
}

/* Normalised text without added tokens. */
static int encode_plain(const struct tokenizer *tokenizer, struct tokenizer_work *work,
	const char *text, size_t size, struct token_list *list, struct err *err)
{
	for (size_t at = 0, end; at < size; at = end) {
		const int32_t *ids;
		end = text_split_next(tokenizer->split, work->split, text, size, at, err);
		if (end == 0)
			return -1;
		const size_t count =
			bpe_encode(tokenizer->bpe, work->bpe, (const unsigned char *)text + at, end - at, &ids);
		if (count == 0)
			return err_set(err, "tokenizer: out of memory");
		if (token_list_append(list, ids, count, err) < 0)
			return -1;
	}
	return 0;
}

/* Normalised text, in which only those added tokens are looked for that are normalised, too. */
static int encode_normalized(const struct tokenizer *tokenizer, struct tokenizer_work *work,
	const char *text, size_t size, struct token_list *list, struct err *err)
{
	const struct added *added;
	for (size_t at = 0; at < size;) {
		const size_t end = next_added(tokenizer, text, size, at, true, &added);
		if (encode_plain(tokenizer, work, text + at, end - at, list, err) < 0
			|| (added && token_list_append(list, &added->id, 1, err) < 0))
			return -1;
		at = end + (added ? added->size : 0);
	}
	return 0;
}

static bool is_ascii(const char *text, size_t size)
{
	unsigned char all = 0;
	for (size_t i = 0; i < size; i++)
		all |= (unsigned char)text[i];
	return all < 0x80;
}

/* Text without the added tokens that are looked for before the normalisation. */
static int encode_raw(const struct tokenizer *tokenizer, struct tokenizer_work *work,
	const char *text, size_t size, struct token_list *list, struct err *err)
{
	if (!tokenizer->nfc || is_ascii(text, size))
		return encode_normalized(tokenizer, work, text, size, list, err);
	utf8proc_uint8_t *normal = NULL;
	const utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text,
		(utf8proc_ssize_t)size, &normal, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	if (length < 0)
		return err_set(err, "tokenizer: couldn't normalise the text: %s", utf8proc_errmsg(length));
	const int rc =
		encode_normalized(tokenizer, work, (const char *)normal, (size_t)length, list, err);
	free(normal);
	return rc;
}

/* ---- a text ---- */

static int check_text(const char *text, size_t size, uint64_t offset, struct err *err)
{
	for (size_t at = 0; at < size;) {
		utf8proc_int32_t character;
		const utf8proc_ssize_t length = (signed char)text[at] >= 0
			? 1
			: utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at),
				&character);
		if (length < 1)
			return err_fail(err, EXIT_DATA,
				"text: the byte 0x%02x at offset %" PRIu64 " is not UTF-8",
				(unsigned)(unsigned char)text[at], offset + at);
		at += (size_t)length;
	}
	return 0;
}

int tokenizer_encode(const struct tokenizer *tokenizer, struct tokenizer_work *work,
	const char *text, size_t size, uint64_t offset, struct token_list *list, struct err *err)
{
	const struct added *added;
	const size_t before = list->count;
	if (check_text(text, size, offset, err) < 0)
		return -1;
	for (size_t at = 0; at < size;) {
		const size_t end = next_added(tokenizer, text, size, at, false, &added);
		if (encode_raw(tokenizer, work, text + at, end - at, list, err) < 0
			|| (added && token_list_append(list, &added->id, 1, err) < 0)) {
			list->count = before;
			return -1;
		}
		at = end + (added ? added->size : 0);
	}
	return 0;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_visible(char c)
{
	return c > ' ' && c <= '~';
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	if (!tokenizer->can_cut)
		return 0;
	for (size_t at = size; at-- > 2;)
		if (text[at - 1] == '\n' && is_visible(text[at - 2]) && is_letter(text[at]))
			return at;
	return 0;
}

/* ---- tokens ---- */

int32_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
	int32_t count = bpe_count(tokenizer->bpe);
	for (size_t i = 0; i < tokenizer->added_count; i++)
		count = tokenizer->added[i].id >= count ? tokenizer->added[i].id + 1 : count;
	return count;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
	for (size_t i = 0; i < tokenizer->added_count; i++)
		if (strcmp(tokenizer->added[i].text, text) == 0)
			return tokenizer->added[i].id;
	return bpe_find(tokenizer->bpe, text, strlen(text));
}

const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *size)
{
	for (size_t i = 0; i < tokenizer->added_count; i++)
		if (tokenizer->added[i].id == id) {
			*size = tokenizer->added[i].size;
			return tokenizer->added[i].text;
		}
	return bpe_bytes(tokenizer->bpe, id, size);
}
