/* SPDX-License-Identifier: Apache-2.0 */
/* PCRE2 does the matching. Its \s is not Oniguruma's: with Unicode properties it takes U+180E for a
 * space, so the spaces are spelled out. */
#include "config.h"

#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/text_split.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

/* The characters with the property White_Space (https://www.unicode.org/Public/UCD/latest/ucd/
 * PropList.txt). */
#define SPACES \
	"\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
	"\\x{3000}"

struct text_split {
	pcre2_code *code;
};

struct text_split_work {
	pcre2_match_data *match;
	size_t begin, end; /* of the match that comes next, when it is known */
	bool known;
};

/* What Oniguruma and PCRE2 take in the same way; *length becomes that of the construct at `p`. Of
 * the rest some mean another thing to each: classes in classes, ^ and $, \w, \h and others. */
static bool is_common(const char *p, bool in_class, size_t *length)
{
	static const char *const groups[] = { "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
	*length = 1;
	if (*p == '\\') {
		*length = 2;
		return p[1] && (!isalnum((unsigned char)p[1]) || strchr("pPsSdDrntf", p[1]));
	}
	if (in_class)
		return *p != '[' && strncmp(p, "&&", 2) != 0;
	if (*p == '^' || *p == '$')
		return false;
	if (*p == '[')
		*length = p[1] == '^' ? 2 : 1;
	if (strncmp(p, "(?", 2) != 0)
		return true;
	for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
		if (strncmp(p, groups[i], strlen(groups[i])) == 0) {
			*length = strlen(groups[i]);
			return true;
		}
	return false;
}

/* Writes the pattern with its spaces spelled out. */
static int spell(const char *pattern, FILE *out, struct err *err)
{
	bool in_class = false;
	size_t length;
	for (const char *p = pattern; *p; p += length) {
		if (!is_common(p, in_class, &length) || (in_class && strncmp(p, "\\S", 2) == 0))
			return err_fail(err, EXIT_DATA,
				"tokenizer: couldn't use the pattern %s: PCRE2 may take \"%.4s\" otherwise",
				pattern, p);
		if (strncmp(p, "\\s", 2) == 0)
			fprintf(out, in_class ? "%s" : "[%s]", SPACES);
		else if (strncmp(p, "\\S", 2) == 0)
			fprintf(out, "[^%s]", SPACES);
		else
			fwrite(p, 1, length, out);
		in_class = *p == '[' || (in_class && *p != ']');
	}
	return 0;
}

static pcre2_code *compile(const char *pattern, const char *spelt, struct err *err)
{
	int number;
	PCRE2_SIZE offset;
	PCRE2_UCHAR words[200];
	pcre2_code *code = pcre2_compile((PCRE2_SPTR)spelt, PCRE2_ZERO_TERMINATED,
		PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &number, &offset, NULL);
	if (!code) {
		pcre2_get_error_message(number, words, sizeof words);
		err_fail(err, EXIT_DATA, "tokenizer: couldn't use the pattern %s: %s", pattern,
			(const char *)words);
		return NULL;
	}
	pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where there is none, it is slower */
	return code;
}

struct text_split *text_split_create(const char *pattern, struct err *err)
{
	AUTO_FREE char *spelt = NULL;
	size_t size;
	FILE *out = open_memstream(&spelt, &size);
	const int rc = out ? spell(pattern, out, err) : err_set(err, "tokenizer: out of memory");
	if (out && fclose(out) && rc == 0)
		err_set(err, "tokenizer: out of memory");
	if (rc < 0 || !spelt)
		return NULL;
	struct text_split *split = calloc(1, sizeof *split);
	if (!split) {
		err_set(err, "tokenizer: out of memory");
		return NULL;
	}
	split->code = compile(pattern, spelt, err);
	if (split->code)
		return split;
	text_split_destroy(split);
	return NULL;
}

void text_split_destroy(struct text_split *split)
{
	if (!split)
		return;
	pcre2_code_free(split->code);
	free(split);
}

struct text_split_work *text_split_work_create(const struct text_split *split)
{
	struct text_split_work *work = calloc(1, sizeof *work);
	if (work)
		work->match = pcre2_match_data_create_from_pattern(split->code, NULL);
	if (work && work->match)
		return work;
	text_split_work_destroy(work);
	return NULL;
}

void text_split_work_destroy(struct text_split_work *work)
{
	if (!work)
		return;
	pcre2_match_data_free(work->match);
	free(work);
}

/* Finds the next match from `at` on that is not empty. */
static int find(const struct text_split *split, struct text_split_work *work, const char *text,
	size_t size, size_t at, struct err *err)
{
	const int rc = pcre2_match(split->code, (PCRE2_SPTR)text, size, at,
		PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, work->match, NULL);
	if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
		PCRE2_UCHAR words[200];
		pcre2_get_error_message(rc, words, sizeof words);
		return err_fail(err, EXIT_DATA, "tokenizer: couldn't cut the text: %s",
			(const char *)words);
	}
	const PCRE2_SIZE *place = pcre2_get_ovector_pointer(work->match);
	work->begin = rc < 0 ? size : place[0];
	work->end = rc < 0 ? size : place[1];
	work->known = true;
	return 0;
}

size_t text_split_next(const struct text_split *split, struct text_split_work *work,
	const char *text, size_t size, size_t at, struct err *err)
{
	if (at == 0)
		work->known = false;
	if (!work->known && find(split, work, text, size, at, err) < 0)
		return 0;
	if (at < work->begin)
		return work->begin; /* between two matches */
	work->known = false;
	return work->end;
}
