/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tokenizer.json. Each member is either understood or refused: a setting that is passed over
 * would give other tokens without a word. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

#include "common/auto.h"
#include "common/io.h"
#include "common/record.h"
#include "text/tokenizer_private.h"

#define FILE_LIMIT ((size_t)256 << 20)
#define ID_LIMIT (1 << 24)

/* The pattern of GPT-2's own code, which a pre-tokenizer of type ByteLevel has in it. */
#define GPT2_PATTERN \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Patterns of which it is known that a text can be cut in front of a letter that begins a line. */
static const char *const cut_patterns[] = { GPT2_PATTERN,
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
	"?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
	"?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" };

struct reader {
	const char *name;
	struct tokenizer *tokenizer;
	char byte_of[512]; /* of a character of the byte-level alphabet; see make_alphabet */
	bool known[512];
	struct err *err;
};

static int refuse(const struct reader *reader, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(const struct reader *reader, const char *format, ...)
{
	char words[400];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(words, sizeof words, format, arguments);
	va_end(arguments);
	return err_fail(reader->err, EXIT_DATA, "tokenizer: couldn't use %s: %s", reader->name, words);
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static bool is_off(const json_t *value)
{
	return !value || json_is_null(value) || json_is_false(value)
		|| (json_is_string(value) && json_string_length(value) == 0);
}

/* ---- the byte-level alphabet ---- */

/* GPT-2 writes a byte as a character that can be seen: printable ones of Latin-1 stand for
 * themselves, the others for the characters from U+0100 on, in their order. */
static void make_alphabet(struct reader *reader)
{
	int next = 256;
	for (int byte = 0; byte < 256; byte++) {
		const bool itself =
			(byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
		const int character = itself ? byte : next++;
		reader->byte_of[character] = (char)byte;
		reader->known[character] = true;
	}
}

/* Replaces characters of the alphabet by their bytes; -1 where `text` has others. `bytes` has room
 * for as many as the text. */
static ssize_t to_bytes(const struct reader *reader, const char *text, size_t size, char *bytes)
{
	ssize_t count = 0;
	for (size_t at = 0; at < size;) {
		utf8proc_int32_t character;
		const utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
			(utf8proc_ssize_t)(size - at), &character);
		if (length < 1 || character >= 512 || !reader->known[character])
			return -1;
		bytes[count++] = reader->byte_of[character];
		at += (size_t)length;
	}
	return count;
}

/* ---- model ---- */

/* A token of the vocabulary that is not written in the alphabet must be an added one, which is
 * never made by merges. */
static bool is_added(const json_t *root, const char *text)
{
	size_t i;
	const json_t *one;
	json_array_foreach(json_object_get(root, "added_tokens"), i, one)
	{
		if (strcmp(text_of(one, "content"), text) == 0)
			return true;
	}
	return false;
}

static int read_vocabulary(struct reader *reader, const json_t *root, json_t *vocabulary)
{
	const char *text;
	json_t *value;
	json_object_foreach(vocabulary, text, value)
	{
		const size_t size = strlen(text);
		AUTO_FREE char *bytes = malloc(size + 1);
		if (!bytes)
			return err_set(reader->err, "tokenizer: out of memory");
		const ssize_t count = to_bytes(reader, text, size, bytes);
		if (!json_is_integer(value) || json_integer_value(value) < 0
			|| json_integer_value(value) >= ID_LIMIT)
			return refuse(reader, "the token \"%s\" has no id", text);
		if (count < 1 && !is_added(root, text))
			return refuse(reader, "the token \"%s\" is not made of bytes", text);
		if (count >= 1
			&& bpe_add_token(reader->tokenizer->bpe, (int32_t)json_integer_value(value), bytes,
				   (size_t)count, reader->err)
				< 0)
			return -1;
	}
	return bpe_check(reader->tokenizer->bpe, reader->err) < 0
		? refuse(reader, "its vocabulary is not byte-level: a single byte is missing")
		: 0;
}

static int32_t find_token(const struct reader *reader, const char *text, size_t size)
{
	AUTO_FREE char *bytes = malloc(size + 1);
	const ssize_t count = bytes ? to_bytes(reader, text, size, bytes) : -1;
	return count < 1 ? -1 : bpe_find(reader->tokenizer->bpe, bytes, (size_t)count);
}

/* A merge is "a b" or ["a", "b"]. */
static int read_merge(struct reader *reader, const json_t *merge, size_t number)
{
	const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
	const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
	int32_t left = -1, right = -1;
	if (space) {
		left = find_token(reader, text, (size_t)(space - text));
		right = find_token(reader, space + 1, strlen(space + 1));
	} else if (json_is_string(a) && json_is_string(b) && json_array_size(merge) == 2) {
		left = find_token(reader, json_string_value(a), json_string_length(a));
		right = find_token(reader, json_string_value(b), json_string_length(b));
	}
	if (left < 0 || right < 0)
		return refuse(reader, "merge %zu is not one of two tokens", number);
	return bpe_add_merge(reader->tokenizer->bpe, left, right, reader->err);
}

static int read_model(struct reader *reader, const json_t *root)
{
	static const char *const off[] = { "dropout", "unk_token", "continuing_subword_prefix",
		"end_of_word_suffix", "fuse_unk", "byte_fallback" };
	const json_t *model = json_object_get(root, "model"),
				 *merges = json_object_get(model, "merges");
	json_t *vocabulary = json_object_get(model, "vocab");
	size_t i;
	const json_t *merge;
	/* Files of old versions have no type. */
	if (!json_is_object(model)
		|| (json_object_get(model, "type") && strcmp(text_of(model, "type"), "BPE") != 0))
		return refuse(reader, "its model is \"%s\", not BPE", text_of(model, "type"));
	for (size_t k = 0; k < sizeof off / sizeof off[0]; k++)
		if (!is_off(json_object_get(model, off[k])))
			return refuse(reader, "its model has %s", off[k]);
	if (!json_is_object(vocabulary) || !json_is_array(merges))
		return refuse(reader, "its model has no vocab or no merges");
	reader->tokenizer->bpe = bpe_create(json_is_true(json_object_get(model, "ignore_merges")));
	if (!reader->tokenizer->bpe)
		return err_set(reader->err, "tokenizer: out of memory");
	if (read_vocabulary(reader, root, vocabulary) < 0)
		return -1;
	json_array_foreach(merges, i, merge)
	{
		if (read_merge(reader, merge, i) < 0)
			return -1;
	}
	return 0;
}

/* ---- normalizer and pre-tokenizer ---- */

static int read_normalizer(struct reader *reader, const json_t *normalizer)
{
	if (is_off(normalizer))
		return 0;
	if (strcmp(text_of(normalizer, "type"), "NFC") != 0)
		return refuse(reader, "its normalizer is \"%s\": NFC or none can be used",
			text_of(normalizer, "type"));
	reader->tokenizer->nfc = true;
	return 0;
}

/* ByteLevel; *pattern becomes its own where it uses that. */
static int read_byte_level(struct reader *reader, const json_t *part, const char **pattern)
{
	const json_t *use_regex = json_object_get(part, "use_regex");
	if (strcmp(text_of(part, "type"), "ByteLevel") != 0)
		return refuse(reader,
			"its pre-tokenizer is \"%s\": ByteLevel, or Split and ByteLevel can "
			"be used",
			text_of(part, "type"));
	if (json_is_true(json_object_get(part, "add_prefix_space")))
		return refuse(reader, "its pre-tokenizer has add_prefix_space");
	if (!use_regex || json_is_true(use_regex)) {
		if (*pattern)
			return refuse(reader, "its pre-tokenizer cuts the text twice");
		*pattern = GPT2_PATTERN;
	}
	return 0;
}

static int read_split(struct reader *reader, const json_t *part, const char **pattern)
{
	const json_t *regex = json_object_get(json_object_get(part, "pattern"), "Regex");
	if (!json_is_string(regex))
		return refuse(reader, "its pre-tokenizer cuts by another pattern than a Regex");
	if (strcmp(text_of(part, "behavior"), "Isolated") != 0
		|| json_is_true(json_object_get(part, "invert")))
		return refuse(reader, "its pre-tokenizer has the behavior \"%s\"%s: Isolated can be used",
			text_of(part, "behavior"),
			json_is_true(json_object_get(part, "invert")) ? ", inverted" : "");
	if (*pattern)
		return refuse(reader, "its pre-tokenizer cuts the text twice");
	*pattern = json_string_value(regex);
	return 0;
}

static int read_pre_tokenizer(struct reader *reader, const json_t *pre)
{
	const json_t *parts = json_object_get(pre, "pretokenizers");
	const char *pattern = NULL;
	const size_t count = json_array_size(parts);
	if (is_off(pre))
		return refuse(reader, "it has no pre-tokenizer");
	if (strcmp(text_of(pre, "type"), "Sequence") != 0) {
		if (read_byte_level(reader, pre, &pattern) < 0)
			return -1;
	} else {
		for (size_t i = 0; i + 1 < count; i++) {
			const json_t *part = json_array_get(parts, i);
			if (strcmp(text_of(part, "type"), "Split") != 0)
				return refuse(reader, "its pre-tokenizer has a part \"%s\" before the last one",
					text_of(part, "type"));
			if (read_split(reader, part, &pattern) < 0)
				return -1;
		}
		if (read_byte_level(reader, json_array_get(parts, count - 1), &pattern) < 0)
			return -1;
	}
	if (!pattern)
		return refuse(reader, "its pre-tokenizer does not cut the text");
	for (size_t i = 0; i < sizeof cut_patterns / sizeof cut_patterns[0]; i++)
		reader->tokenizer->can_cut |= strcmp(pattern, cut_patterns[i]) == 0;
	reader->tokenizer->split = text_split_create(pattern, reader->err);
	return reader->tokenizer->split ? 0 : -1;
}

/* ---- added tokens ---- */

static int read_added(struct reader *reader, const json_t *one)
{
	static const char *const off[] = { "single_word", "lstrip", "rstrip" };
	struct tokenizer *tokenizer = reader->tokenizer;
	struct added *added = &tokenizer->added[tokenizer->added_count];
	const char *text = text_of(one, "content");
	const json_t *id = json_object_get(one, "id");
	if (!*text || !json_is_integer(id) || json_integer_value(id) < 0
		|| json_integer_value(id) >= ID_LIMIT)
		return refuse(reader, "an added token has no content or no id");
	for (size_t k = 0; k < sizeof off / sizeof off[0]; k++)
		if (!is_off(json_object_get(one, off[k])))
			return refuse(reader, "the added token \"%s\" has %s", text, off[k]);
	*added = (struct added) { .text = strdup(text),
		.size = strlen(text),
		.id = (int32_t)json_integer_value(id),
		.normalized = json_is_true(json_object_get(one, "normalized")) };
	if (!added->text)
		return err_set(reader->err, "tokenizer: out of memory");
	tokenizer->added_count++;
	tokenizer->first[added->normalized][(unsigned char)*text] = true;
	for (const char *p = text; *p; p++) {
		if (*p == '\n')
			tokenizer->can_cut = false;
		if (added->normalized && tokenizer->nfc && (unsigned char)*p >= 0x80)
			return refuse(reader,
				"the added token \"%s\" is looked for in text that NFC has changed", text);
	}
	return 0;
}

static int read_all_added(struct reader *reader, const json_t *list)
{
	size_t i;
	const json_t *one;
	reader->tokenizer->added = calloc(json_array_size(list) + 1, sizeof *reader->tokenizer->added);
	if (!reader->tokenizer->added)
		return err_set(reader->err, "tokenizer: out of memory");
	json_array_foreach(list, i, one)
	{
		if (read_added(reader, one) < 0)
			return -1;
	}
	return 0;
}

/* ---- the file ---- */

static int read_root(struct reader *reader, const json_t *root)
{
	if (!is_off(json_object_get(root, "truncation")) || !is_off(json_object_get(root, "padding")))
		return refuse(reader, "it has truncation or padding");
	make_alphabet(reader);
	return read_model(reader, root) < 0
			|| read_normalizer(reader, json_object_get(root, "normalizer")) < 0
			|| read_pre_tokenizer(reader, json_object_get(root, "pre_tokenizer")) < 0
			|| read_all_added(reader, json_object_get(root, "added_tokens")) < 0
		? -1
		: 0;
}

struct tokenizer *tokenizer_parse(const char *text, size_t size, const char *name, struct err *err)
{
	struct reader reader = { .name = name, .err = err };
	reader.tokenizer = calloc(1, sizeof *reader.tokenizer);
	if (!reader.tokenizer) {
		err_set(err, "tokenizer: out of memory");
		return NULL;
	}
	json_t *root = record_parse(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, "it", err);
	int rc = root ? read_root(&reader, root) : err_prefix(err, "tokenizer: couldn't use %s", name);
	json_decref(root);
	if (rc == 0)
		return reader.tokenizer;
	tokenizer_close(reader.tokenizer);
	return NULL;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
	if (!tokenizer)
		return;
	for (size_t i = 0; i < tokenizer->added_count; i++)
		free(tokenizer->added[i].text);
	free(tokenizer->added);
	bpe_destroy(tokenizer->bpe);
	text_split_destroy(tokenizer->split);
	free(tokenizer);
}

struct tokenizer *tokenizer_open(const char *path, struct err *err)
{
	AUTO_FREE char *text = NULL, *file = NULL;
	size_t size;
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (asprintf(&file, "%s/tokenizer.json", path) < 0) {
			err_set(err, "tokenizer: out of memory");
			return NULL;
		}
		path = file;
	}
	if (io_read_file(AT_FDCWD, path, FILE_LIMIT, &text, &size, err) < 0) {
		err_prefix(err, "tokenizer");
		return NULL;
	}
	return tokenizer_parse(text, size, path, err);
}
