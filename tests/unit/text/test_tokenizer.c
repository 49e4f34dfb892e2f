/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer and text_encoder: what a tokenizer.json asks for is done or refused by its name, and a
 * text has the same tokens in one piece and in many. */
#include "config.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/text_encoder.h"
#include "text/tokenizer.h"

#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}"
#define SPLIT(pattern) \
	"{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": " \
	"\"" pattern "\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", " \
	"\"add_prefix_space\": false, \"use_regex\": false}]}"
#define LLAMA3 \
	SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
		  "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")

struct parts {
	const char *model, *normalizer, *pre, *added, *more;
};

/* The character of the byte-level alphabet that stands for a byte, as it stands in JSON. */
static void add_character(FILE *out, int byte)
{
	int character = byte, next = 256;
	for (int b = 0; b <= byte; b++) {
		const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
		if (b == byte && !itself)
			character = next;
		next += !itself;
	}
	if (character == '"' || character == '\\')
		fputc('\\', out);
	if (character < 0x80)
		fputc(character, out);
	else
		fprintf(out, "%c%c", 0xc0 | character >> 6, 0x80 | (character & 0x3f));
}

/* Bytes are the tokens 0 to 255; "he", "ll", "llo", "hello" and the two bytes of a capital A with
 * diaeresis follow. */
static char *make_json(const struct parts *parts)
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	fprintf(out,
		"{\"version\": \"1.0\", %s \"added_tokens\": [%s], \"normalizer\": %s, "
		"\"pre_tokenizer\": %s, \"model\": {\"type\": \"BPE\", %s \"vocab\": {",
		parts->more ? parts->more : "", parts->added ? parts->added : "",
		parts->normalizer ? parts->normalizer : "null", parts->pre ? parts->pre : BYTE_LEVEL,
		parts->model ? parts->model : "");
	for (int byte = 0; byte < 256; byte++) {
		fputc('"', out);
		add_character(out, byte);
		fprintf(out, "\": %d, ", byte);
	}
	fputs("\"he\": 256, \"ll\": 257, \"llo\": 258, \"hello\": 259, \"\xc3\x83\xc4\xa6\": 260}, "
		  "\"merges\": [\"h e\", [\"l\", \"l\"], \"ll o\", \"he llo\", \"\xc3\x83 \xc4\xa6\"]}}",
		out);
	fclose(out);
	return text;
}

static struct tokenizer *open_parts(const struct parts *parts)
{
	char *text = make_json(parts);
	struct err err;
	struct tokenizer *tokenizer = tokenizer_parse(text, strlen(text), "t.json", &err);
	free(text);
	if (!tokenizer)
		fail_msg("%s", err.text);
	return tokenizer;
}

static void expect(const struct tokenizer *tokenizer, const char *text, const char *expected)
{
	struct tokenizer_work *work = tokenizer_work_create(tokenizer);
	struct token_list list = { 0 };
	struct err err;
	char found[1000] = "";
	if (tokenizer_encode(tokenizer, work, text, strlen(text), 0, &list, &err) < 0)
		fail_msg("%s: %s", text, err.text);
	for (size_t i = 0; i < list.count; i++)
		sprintf(found + strlen(found), "%s%" PRId32, i ? " " : "", list.ids[i]);
	if (strcmp(found, expected) != 0)
		fail_msg("%s: %s, not %s", text, found, expected);
	free(list.ids);
	tokenizer_work_destroy(work);
}

static void text_becomes_tokens_and_they_become_text(void **state)
{
	(void)state;
	struct tokenizer *tokenizer = open_parts(&(struct parts) { 0 });
	size_t size;
	assert_int_equal(tokenizer_vocabulary(tokenizer), 261);
	expect(tokenizer, "", "");
	expect(tokenizer, "hello hell", "259 32 256 257");
	expect(tokenizer, "\xc3\x84", "260");
	expect(tokenizer, "A\xcc\x88", "65 204 136");
	assert_int_equal(tokenizer_find(tokenizer, "hello"), 259);
	assert_int_equal(tokenizer_find(tokenizer, "world"), -1);
	assert_memory_equal(tokenizer_bytes(tokenizer, 260, &size), "\xc3\x84", 2);
	assert_int_equal(size, 2);
	assert_null(tokenizer_bytes(tokenizer, 261, &size));
	tokenizer_close(tokenizer);
	tokenizer = open_parts(&(struct parts) { .normalizer = "{\"type\": \"NFC\"}", .pre = LLAMA3 });
	expect(tokenizer, "A\xcc\x88", "260");
	expect(tokenizer, "hello\n\nhello", "259 10 10 259");
	tokenizer_close(tokenizer);
}

static void added_tokens_are_found_in_the_text(void **state)
{
	(void)state;
	struct tokenizer *tokenizer = open_parts(&(struct parts) { .normalizer = "{\"type\": \"NFC\"}",
		.added =
			"{\"id\": 300, \"content\": \"<end>\", \"normalized\": false}, {\"id\": 301, "
			"\"content\": \"<end>>\", \"normalized\": false, \"special\": true}, {\"id\": 302, "
			"\"content\": \"he\", \"normalized\": true}" });
	size_t size;
	assert_int_equal(tokenizer_vocabulary(tokenizer), 303);
	expect(tokenizer, "<end>", "300");
	expect(tokenizer, "x<end>>y<end>", "120 301 121 300");
	expect(tokenizer, "<en<end>d>", "60 101 110 300 100 62");
	expect(tokenizer, "hello", "302 258");
	expect(tokenizer, "A<end>\xcc\x88", "65 300 204 136"); /* not composed across it */
	assert_int_equal(tokenizer_find(tokenizer, "<end>>"), 301);
	assert_memory_equal(tokenizer_bytes(tokenizer, 301, &size), "<end>>", 6);
	tokenizer_close(tokenizer);
}

static void what_is_no_utf8_is_named_by_its_offset(void **state)
{
	static const struct {
		const char *text;
		int offset; /* -1: it is UTF-8 */
	} cases[] = { { "ab\xff", 2 }, { "\x80", 0 }, { "a\xc3", 1 }, { "\xc0\x80", 0 },
		{ "\xe0\x9f\xbf", 0 }, { "\xed\xa0\x80", 0 }, { "\xed\x9f\xbf", -1 },
		{ "\xf0\x8f\xbf\xbf", 0 }, { "\xf4\x8f\xbf\xbf", -1 }, { "\xf4\x90\x80\x80", 0 },
		{ "\xf5\x80\x80\x80", 0 }, { "ok\xe2\x82z", 2 }, { "\xe2\x82\xac\xf0\x9f\x98\x80", -1 } };
	struct tokenizer *tokenizer = open_parts(&(struct parts) { 0 });
	struct tokenizer_work *work = tokenizer_work_create(tokenizer);
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct token_list list = { 0 };
		struct err err;
		char words[100];
		const int rc = tokenizer_encode(tokenizer, work, cases[i].text, strlen(cases[i].text), 1000,
			&list, &err);
		assert_int_equal(rc, cases[i].offset < 0 ? 0 : -1);
		snprintf(words, sizeof words, "at offset %d is not UTF-8", 1000 + cases[i].offset);
		if (rc < 0 && !strstr(err.text, words))
			fail_msg("case %zu: %s", i, err.text);
		assert_true(rc == 0 || (list.count == 0 && err.status == EXIT_DATA));
		free(list.ids);
	}
	tokenizer_work_destroy(work);
	tokenizer_close(tokenizer);
}

static void what_is_not_understood_is_refused_by_name(void **state)
{
	static const struct {
		struct parts parts;
		const char *words;
	} cases[] = {
		{ { .model = "\"dropout\": 0.1," }, "has dropout" },
		{ { .model = "\"unk_token\": \"<unk>\"," }, "has unk_token" },
		{ { .model = "\"byte_fallback\": true," }, "has byte_fallback" },
		{ { .normalizer = "{\"type\": \"NFKC\"}" }, "normalizer is \"NFKC\"" },
		{ { .pre = "null" }, "no pre-tokenizer" },
		{ { .pre = "{\"type\": \"Whitespace\"}" }, "pre-tokenizer is \"Whitespace\"" },
		{ { .pre = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}" }, "add_prefix_space" },
		{ { .pre = "{\"type\": \"ByteLevel\", \"use_regex\": false}" }, "does not cut the text" },
		{ { .pre = SPLIT("a(") }, "couldn't use the pattern a(" },
		{ { .pre = SPLIT("[\\\\S]") }, "PCRE2 may take \"\\S]\" otherwise" },
		{ { .pre = SPLIT("[a-z&&[^b]]") }, "may take \"&&[^\" otherwise" },
		{ { .pre = SPLIT("[a[b]]") }, "may take \"[b]]\" otherwise" },
		{ { .pre = SPLIT("^x") }, "may take \"^x\" otherwise" },
		{ { .pre = SPLIT("\\\\w+") }, "may take \"\\w+\" otherwise" },
		{ { .pre = SPLIT("(?m:x)") }, "may take \"(?m:\" otherwise" },
		{ { .added = "{\"id\": 300, \"content\": \"<x>\", \"lstrip\": true}" },
			"\"<x>\" has lstrip" },
		{ { .added = "{\"content\": \"<x>\"}" }, "no content or no id" },
		{ { .more = "\"truncation\": {\"max_length\": 5}," }, "truncation or padding" },
	};
	struct err err = { 0 };
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *text = make_json(&cases[i].parts);
		if (tokenizer_parse(text, strlen(text), "t.json", &err))
			fail_msg("accepted: %s", cases[i].words);
		if (!strstr(err.text, cases[i].words) || err.status != EXIT_DATA)
			fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].words);
		free(text);
	}
	assert_null(tokenizer_parse("{", 1, "t.json", &err));
	assert_non_null(strstr(err.text, "t.json: it is not valid JSON"));
	assert_non_null(strstr(err.text, "(line 1, "));
	assert_null(tokenizer_open("/nonexistent", &err));
	assert_int_equal(err.status, EXIT_DATA);
}

/* ---- long texts ---- */

static int collect(void *arg, const int32_t *ids, size_t count, struct err *err)
{
	return token_list_append(arg, ids, count, err);
}

/* Lines of letters, spaces, signs and characters of other scripts. */
static char *random_text(size_t size)
{
	static const char *const parts[] = { "hello", " ", "  ", "\n", "\n\n", ".\n", "x\n", "1234",
		"\xe2\x82\xac", "\xd0\xb6\xd0\xb8", "!?", "\t", "'ll ", "A\xcc\x88", " \n", "Hello", "\r\n",
		"<end>" };
	char *text = malloc(size + 20);
	text[0] = '\0';
	for (size_t at = 0; at < size;)
		at += (size_t)sprintf(text + at, "%s",
			parts[(size_t)rand() % (sizeof parts / sizeof *parts)]);
	return text;
}

static struct token_list encode(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	struct tokenizer_work *work = tokenizer_work_create(tokenizer);
	struct token_list list = { 0 };
	struct err err;
	assert_int_equal(tokenizer_encode(tokenizer, work, text, size, 0, &list, &err), 0);
	tokenizer_work_destroy(work);
	return list;
}

static void end_document(struct text_encoder *encoder)
{
	struct err err;
	assert_int_equal(text_encoder_end_document(encoder, &err), 0);
	assert_int_equal(text_encoder_flush(encoder, &err), 0);
}

static void in_many_pieces(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	struct token_list whole = encode(tokenizer, text, size), parts = { 0 };
	struct text_encoder *encoder = text_encoder_create(tokenizer, -1, collect, &parts);
	struct err err;
	for (size_t at = 0, n; at < size; at += n) {
		n = (size_t)rand() % 300000;
		n = n < size - at ? n : size - at;
		assert_int_equal(text_encoder_add(encoder, text + at, n, &err), 0);
	}
	end_document(encoder);
	assert_int_equal(parts.count, whole.count);
	assert_memory_equal(parts.ids, whole.ids, whole.count * sizeof *whole.ids);
	text_encoder_destroy(encoder);
	free(whole.ids);
	free(parts.ids);
}

/* Lines with no character of several bytes, so that they may begin anywhere. */
static void at_each_cut(const struct tokenizer *tokenizer)
{
	int cuts = 0;
	for (int round = 0; round < 300; round++) {
		static const char letters[] = "ab \n\n.'1\t\r";
		char text[60];
		for (size_t i = 0; i < sizeof text; i++)
			text[i] = letters[(size_t)rand() % (sizeof letters - 1)];
		const size_t cut = tokenizer_cut(tokenizer, text, sizeof text);
		if (cut == 0)
			continue;
		struct token_list whole = encode(tokenizer, text, sizeof text);
		struct token_list first = encode(tokenizer, text, cut);
		struct token_list second = encode(tokenizer, text + cut, sizeof text - cut);
		assert_int_equal(whole.count, first.count + second.count);
		assert_memory_equal(whole.ids, first.ids, first.count * sizeof *first.ids);
		assert_memory_equal(whole.ids + first.count, second.ids, second.count * sizeof *second.ids);
		free(whole.ids);
		free(first.ids);
		free(second.ids);
		cuts++;
	}
	assert_in_range(cuts, 50, 300);
}

static void a_text_has_its_tokens_however_it_is_cut(void **state)
{
	static const struct parts kinds[] = {
		{ .added = "{\"id\": 300, \"content\": \"<end>\", \"normalized\": true}" },
		{ .pre = LLAMA3, .normalizer = "{\"type\": \"NFC\"}", .model = "\"ignore_merges\": true," },
		{ .pre = SPLIT("\\\\S+|\\\\s+") }, /* of which no place to cut is known */
	};
	(void)state;
	srand(3);
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
		struct tokenizer *tokenizer = open_parts(&kinds[k]);
		char *text = random_text(9 << 20);
		in_many_pieces(tokenizer, text, strlen(text));
		if (k < 2)
			at_each_cut(tokenizer);
		else
			assert_int_equal(tokenizer_cut(tokenizer, "x\na", 3), 0);
		free(text);
		tokenizer_close(tokenizer);
	}
}

/* Documents of all sizes, also empty ones, in pieces: each has the tokens that it has alone, and a
 * separator after it. */
static void documents_do_not_touch(void **state)
{
	static const size_t sizes[] = { 0, 1, 7, 0, 3000, 2500000, 10, 900000, 0, 40000, 1200000, 1 };
	struct tokenizer *tokenizer = open_parts(&(struct parts) { 0 });
	const int32_t separator = 3;
	struct token_list parts = { 0 }, wanted = { 0 };
	struct err err;
	struct text_encoder *encoder = text_encoder_create(tokenizer, separator, collect, &parts);
	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		char *text = random_text(sizes[i]);
		const size_t size = strlen(text);
		struct token_list alone = encode(tokenizer, text, size);
		assert_int_equal(token_list_append(&wanted, alone.ids, alone.count, &err), 0);
		assert_int_equal(token_list_append(&wanted, &separator, 1, &err), 0);
		for (size_t at = 0, n; at < size; at += n) {
			n = 1 + (size_t)rand() % 300000;
			n = n < size - at ? n : size - at;
			assert_int_equal(text_encoder_add(encoder, text + at, n, &err), 0);
		}
		assert_int_equal(text_encoder_end_document(encoder, &err), 0);
		free(alone.ids);
		free(text);
	}
	assert_int_equal(text_encoder_flush(encoder, &err), 0);
	assert_int_equal(parts.count, wanted.count);
	assert_memory_equal(parts.ids, wanted.ids, wanted.count * sizeof *wanted.ids);
	text_encoder_destroy(encoder);
	free(wanted.ids);
	free(parts.ids);
	tokenizer_close(tokenizer);
}

static void a_bad_byte_of_a_long_document_is_named(void **state)
{
	struct tokenizer *tokenizer = open_parts(&(struct parts) { 0 });
	struct token_list list = { 0 };
	struct err err;
	char *text = random_text(5 << 20);
	const size_t size = strlen(text), bad = 4500000;
	(void)state;
	struct text_encoder *encoder = text_encoder_create(tokenizer, -1, collect, &list);
	/* A document before it does not count. */
	assert_int_equal(text_encoder_add(encoder, "hello", 5, &err), 0);
	end_document(encoder);
	assert_int_equal(list.count, 1);
	memset(text + bad, 'a', 4);
	text[bad + 2] = '\xff';
	int rc = text_encoder_add(encoder, text, size, &err);
	if (rc == 0)
		rc = text_encoder_end_document(encoder, &err);
	if (rc == 0)
		rc = text_encoder_flush(encoder, &err);
	assert_int_equal(rc, -1);
	const char *said = strstr(err.text, "at offset ");
	assert_non_null(said);
	/* The character before may have lost its end. */
	assert_in_range(atol(said + 10), bad - 3, bad + 2);
	text_encoder_destroy(encoder);
	free(list.ids);
	free(text);
	tokenizer_close(tokenizer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_becomes_tokens_and_they_become_text),
		cmocka_unit_test(added_tokens_are_found_in_the_text),
		cmocka_unit_test(what_is_no_utf8_is_named_by_its_offset),
		cmocka_unit_test(what_is_not_understood_is_refused_by_name),
		cmocka_unit_test(a_text_has_its_tokens_however_it_is_cut),
		cmocka_unit_test(documents_do_not_touch),
		cmocka_unit_test(a_bad_byte_of_a_long_document_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
