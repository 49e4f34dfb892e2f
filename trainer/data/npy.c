/* SPDX-License-Identifier: Apache-2.0 */
/* A parser for the one Python dictionary at the head of an .npy file, such as
 * {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), } */
#include "trainer/data/npy.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "common/bytes.h"

#define PREFIX 8 /* bytes of magic, major and minor version */

static const struct {
	const char *descr, *name;
	size_t size;
} types[] = {
	[NPY_FLOAT32] = { "<f4", "float32", 4 },
	[NPY_UINT8] = { "|u1", "uint8", 1 },
	[NPY_INT32] = { "<i4", "int32", 4 },
	[NPY_INT64] = { "<i8", "int64", 8 },
};

/* The text that is left to read, and the result. */
struct parser {
	const char *at, *end;
	const char *name; /* of the file, for messages */
	struct npy *npy;
	bool have_descr, have_order, have_shape;
	struct err *err;
};

const char *npy_type_name(enum npy_type type)
{
	return types[type].name;
}

size_t npy_type_size(enum npy_type type)
{
	return types[type].size;
}

static int malformed(struct parser *p, const char *what)
{
	return err_fail(p->err, EXIT_DATA, "data: couldn't read %s: no valid .npy header: %s", p->name,
		what);
}

static void skip_blanks(struct parser *p)
{
	while (p->at < p->end && isspace((unsigned char)*p->at))
		p->at++;
}

/* Takes `c` if it comes next, after blanks. */
static bool take(struct parser *p, char c)
{
	skip_blanks(p);
	if (p->at == p->end || *p->at != c)
		return false;
	p->at++;
	return true;
}

static bool take_word(struct parser *p, const char *word)
{
	size_t n = strlen(word);
	skip_blanks(p);
	if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
		return false;
	p->at += n;
	return true;
}

/* A quoted string of printable characters without escapes, the only kind in these headers. */
static int parse_string(struct parser *p, char *out, size_t size)
{
	char quote = take(p, '\'') ? '\'' : take(p, '"') ? '"' : 0;
	size_t n = 0;
	if (!quote)
		return malformed(p, "a string is missing");
	while (p->at < p->end && *p->at != quote) {
		if (!isprint((unsigned char)*p->at) || *p->at == '\\' || n + 1 >= size)
			return malformed(p, "a string is too long or holds odd characters");
		out[n++] = *p->at++;
	}
	if (p->at == p->end)
		return malformed(p, "a string has no end");
	p->at++;
	out[n] = '\0';
	return 0;
}

static int parse_descr(struct parser *p)
{
	char descr[32];
	if (take(p, '['))
		return err_fail(p->err, EXIT_DATA,
			"data: couldn't read %s: its elements are records; float32, uint8, int32 or int64 is "
			"needed",
			p->name);
	if (parse_string(p, descr, sizeof descr) < 0)
		return -1;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (strcmp(descr, types[i].descr) == 0) {
			p->npy->type = (enum npy_type)i;
			p->have_descr = true;
			return 0;
		}
	return err_fail(p->err, EXIT_DATA,
		"data: couldn't read %s: its elements are '%s'; little-endian float32, uint8, int32 or "
		"int64 is needed (numpy: x.astype('<f4'))",
		p->name, descr);
}

static int parse_order(struct parser *p)
{
	if (take_word(p, "True"))
		return err_fail(p->err, EXIT_DATA,
			"data: couldn't read %s: it is in Fortran order; save it in C order (numpy: "
			"np.ascontiguousarray(x))",
			p->name);
	if (!take_word(p, "False"))
		return malformed(p, "fortran_order is neither True nor False");
	p->have_order = true;
	return 0;
}

static int parse_length(struct parser *p, uint64_t *length)
{
	*length = 0;
	if (p->at == p->end || !isdigit((unsigned char)*p->at))
		return malformed(p, "the shape holds something else than lengths");
	for (; p->at < p->end && isdigit((unsigned char)*p->at); p->at++)
		if (__builtin_mul_overflow(*length, 10, length)
			|| __builtin_add_overflow(*length, (uint64_t)(*p->at - '0'), length))
			return malformed(p, "a length of the shape is too large");
	if (p->at < p->end && *p->at == 'L') /* Python 2 wrote long integers with it */
		p->at++;
	return 0;
}

static int parse_shape(struct parser *p)
{
	p->npy->dims = 0;
	if (!take(p, '('))
		return malformed(p, "the shape is not a tuple");
	while (!take(p, ')')) {
		if (p->npy->dims == NPY_DIMS)
			return malformed(p, "the shape has too many dimensions");
		if (parse_length(p, &p->npy->shape[p->npy->dims++]) < 0)
			return -1;
		if (!take(p, ',')) {
			if (!take(p, ')'))
				return malformed(p, "the shape has no end");
			break;
		}
	}
	p->have_shape = true;
	return 0;
}

static int parse_entry(struct parser *p)
{
	char key[32];
	if (parse_string(p, key, sizeof key) < 0)
		return -1;
	if (!take(p, ':'))
		return malformed(p, "a key has no value");
	if (strcmp(key, "descr") == 0)
		return parse_descr(p);
	if (strcmp(key, "fortran_order") == 0)
		return parse_order(p);
	if (strcmp(key, "shape") == 0)
		return parse_shape(p);
	return malformed(p, "it holds a key that is not known");
}

static int parse_dictionary(struct parser *p)
{
	if (!take(p, '{'))
		return malformed(p, "no dictionary");
	while (!take(p, '}')) {
		if (parse_entry(p) < 0)
			return -1;
		if (!take(p, ',')) {
			if (!take(p, '}'))
				return malformed(p, "the dictionary has no end");
			break;
		}
	}
	if (!p->have_descr || !p->have_order || !p->have_shape)
		return malformed(p, "descr, fortran_order or shape is missing");
	return 0;
}

/* Finds the dictionary's text after magic and version; its length has 2 bytes in version 1.0 and 4
 * in 2.0. */
static int find_text(struct parser *p, const unsigned char *bytes, size_t size)
{
	if (size < PREFIX + 4 || memcmp(bytes, "\x93NUMPY", 6) != 0)
		return err_fail(p->err, EXIT_DATA, "data: couldn't read %s: wrong magic, not an .npy file",
			p->name);
	if ((bytes[6] != 1 && bytes[6] != 2) || bytes[7] != 0)
		return err_fail(p->err, EXIT_DATA,
			"data: couldn't read %s: version %d.%d of .npy; 1.0 and 2.0 are known", p->name,
			bytes[6], bytes[7]);
	size_t length_bytes = bytes[6] == 1 ? 2 : 4;
	size_t start = PREFIX + length_bytes;
	size_t length = bytes[6] == 1 ? bytes_le16(bytes + PREFIX) : bytes_le32(bytes + PREFIX);
	if (length > size - start)
		return err_fail(p->err, EXIT_DATA, "data: couldn't read %s: truncated in its header",
			p->name);
	p->at = (const char *)bytes + start;
	p->end = p->at + length;
	p->npy->offset = start + length;
	return 0;
}

static int check_size(struct parser *p, size_t size)
{
	uint64_t expected = npy_type_size(p->npy->type);
	bool overflow = false;
	for (int i = 0; i < p->npy->dims; i++)
		overflow |= __builtin_mul_overflow(expected, p->npy->shape[i], &expected);
	overflow |= __builtin_add_overflow(expected, p->npy->offset, &expected);
	if (overflow)
		return malformed(p, "its shape is larger than any file");
	if (size != expected)
		return err_fail(p->err, EXIT_DATA,
			"data: couldn't read %s: %s: its shape takes %llu bytes; it has %zu", p->name,
			size < expected ? "truncated" : "longer than it should be",
			(unsigned long long)expected, size);
	return 0;
}

int npy_parse(const unsigned char *bytes, size_t size, const char *name, struct npy *npy,
	struct err *err)
{
	struct parser p = { .name = name, .npy = npy, .err = err };
	*npy = (struct npy) { 0 };
	if (find_text(&p, bytes, size) < 0 || parse_dictionary(&p) < 0)
		return -1;
	return check_size(&p, size);
}
