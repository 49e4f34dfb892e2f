/* SPDX-License-Identifier: Apache-2.0 */
/* Option values from a configuration file and from environment variables. */
#include "config.h"

#include "common/opt.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"

#define FILE_LIMIT ((size_t)1 << 20)
#define BARE "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
#define BLANK " \t"

/* What follows a backslash, and what it stands for. */
static const char escapes[][2] = { { '"', '"' }, { '\\', '\\' }, { 'n', '\n' }, { 'r', '\r' },
	{ 't', '\t' } };

#define ESCAPES (sizeof escapes / sizeof escapes[0])

/* The other one of the pair whose `side` is that character; 0: there is none. */
static char escape_of(char c, int side)
{
	for (size_t i = 0; i < ESCAPES; i++)
		if (escapes[i][side] == c)
			return escapes[i][!side];
	return 0;
}

/* ---- the file ---- */

struct reader {
	const struct opt *table;
	const char *path;
	void *values;
	int *lines;
	int line;
	struct err *err;
};

/* Returns -1. */
__attribute__((format(printf, 2, 3))) static int refuse(struct reader *reader, const char *format,
	...)
{
	char text[900];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	return err_fail(reader->err, EXIT_USAGE, "%s:%d: %s", reader->path, reader->line, text);
}

/* Only blanks and a comment may come after a value. */
static int check_rest(struct reader *reader, const char *rest)
{
	rest += strspn(rest, BLANK);
	if (*rest && *rest != '#')
		return refuse(reader, "\"%s\" comes after the value: give one value a line", rest);
	return 0;
}

/* A text in quotes, decoded in its place. NULL: refused. */
static char *read_string(struct reader *reader, char *text)
{
	const char quote = *text;
	char *in = text + 1, *out = text;
	if (in[0] == quote && in[1] == quote) {
		refuse(reader, "a text of several lines has no place here");
		return NULL;
	}
	for (; *in && *in != quote; in++) {
		char c = *in;
		if (quote == '"' && c == '\\' && !(c = escape_of(*++in, 0))) {
			refuse(reader,
				"only \\\\, \\\", \\n, \\r and \\t may follow a backslash: put the text in "
				"single quotes");
			return NULL;
		}
		*out++ = c;
	}
	if (*in != quote) {
		refuse(reader, "the text has no quote at its end");
		return NULL;
	}
	if (check_rest(reader, in + 1) < 0)
		return NULL;
	*out = 0;
	return text;
}

/* Digits, with "_" between two of them; how many characters. */
static size_t digits(const char *text)
{
	size_t n = 0;
	while (isdigit((unsigned char)text[n]) || (n > 0 && text[n] == '_'))
		n++;
	return n > 0 && (text[n - 1] == '_' || memmem(text, n, "__", 2)) ? 0 : n;
}

static bool is_number(const char *text)
{
	text += *text == '+' || *text == '-';
	size_t n = digits(text);
	if (n == 0 || (n > 1 && *text == '0'))
		return false;
	text += n;
	if (*text == '.') {
		if ((n = digits(++text)) == 0)
			return false;
		text += n;
	}
	if (*text == 'e' || *text == 'E') {
		text += text[1] == '+' || text[1] == '-' ? 2 : 1;
		if ((n = digits(text)) == 0)
			return false;
		text += n;
	}
	return !*text;
}

/* A number as opt_set takes it: without a plus and without "_". */
static char *plain_number(char *text)
{
	char *out = text;
	for (const char *in = text + (*text == '+'); *in; in++)
		if (*in != '_')
			*out++ = *in;
	*out = 0;
	return text;
}

/* A word without quotes: a number, true or false. NULL: refused. */
static char *read_word(struct reader *reader, const struct opt *opt, char *text)
{
	const size_t n = strcspn(text, BLANK "#");
	if (check_rest(reader, text + n) < 0)
		return NULL;
	text[n] = 0;
	if (opt->type == OPT_SWITCH && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0))
		return strcpy(text, *text == 't' ? "on" : "off");
	if (opt->type != OPT_SWITCH && opt->type != OPT_TEXT && is_number(text))
		return plain_number(text);
	if (opt->type == OPT_SWITCH)
		refuse(reader, "%s is true or false, not %s", opt->name, *text ? text : "nothing");
	else
		refuse(reader, "%s takes %s, not %s", opt->name,
			opt->type == OPT_TEXT || opt->type == OPT_CHOICE ? "text in quotes"
															 : "a number, or text in quotes",
			*text ? text : "nothing");
	return NULL;
}

static int take_value(struct reader *reader, int row, char *text)
{
	const struct opt *opt = &reader->table[row];
	char *value =
		*text == '"' || *text == '\'' ? read_string(reader, text) : read_word(reader, opt, text);
	if (!value)
		return -1;
	if (opt_set(opt, reader->values, value, reader->err) < 0)
		return err_prefix(reader->err, "%s:%d", reader->path, reader->line);
	reader->lines[row] = reader->line;
	return 0;
}

static int find_row(struct reader *reader, const char *name)
{
	const int row = opt_find(reader->table, name), near = opt_near(reader->table, name);
	if (row >= 0 && reader->table[row].flag_only)
		return refuse(reader, "%s belongs on the command line", name);
	if (row >= 0 && reader->lines[row])
		return refuse(reader, "%s is there twice: line %d has it, too", name, reader->lines[row]);
	if (row < 0 && near >= 0)
		return refuse(reader, "unknown option %s: did you mean %s?", name,
			reader->table[near].name);
	return row < 0 ? refuse(reader, "unknown option %s (see --help)", name) : row;
}

static int read_line(struct reader *reader, char *line)
{
	char *name = line + strspn(line, BLANK), *end = name + strspn(name, BARE);
	char *equals = end + strspn(end, BLANK);
	if (!*name || *name == '#')
		return 0;
	if (end == name || *equals != '=')
		return refuse(reader,
			"\"%s\" is no \"name = value\": tables, arrays and dotted names have no "
			"place here",
			name);
	*end = 0;
	const int row = find_row(reader, name);
	return row < 0 ? -1 : take_value(reader, row, equals + 1 + strspn(equals + 1, BLANK));
}

/* TOML is UTF-8, without control characters but for the ends of lines and tabs. */
static int check_line(struct reader *reader, char *line, size_t size)
{
	if (size > 0 && line[size - 1] == '\r')
		line[--size] = 0;
	json_t *text = json_stringn(line, size);
	json_decref(text);
	if (!text)
		return refuse(reader, "this is not UTF-8");
	for (size_t i = 0; i < size; i++)
		if (iscntrl((unsigned char)line[i]) && line[i] != '\t')
			return refuse(reader, "a control character (0x%02x) has no place here",
				(unsigned)line[i]);
	return 0;
}

int opt_read_file(const struct opt *table, const char *path, void *values, int *lines, char **texts,
	struct err *err)
{
	struct reader reader = { table, path, values, lines, 1, err };
	AUTO_FREE char *bytes = NULL;
	size_t size;
	memset(lines, 0, (size_t)opt_count(table) * sizeof *lines);
	*texts = NULL;
	if (io_read_file(AT_FDCWD, path, FILE_LIMIT, &bytes, &size, err) < 0) {
		err->status = EXIT_USAGE;
		return -1;
	}
	for (char *line = bytes, *end = line + size; line < end; reader.line++) {
		char *newline = memchr(line, '\n', (size_t)(end - line));
		char *next = newline ? newline + 1 : end;
		if (newline)
			*newline = 0;
		if (check_line(&reader, line, (size_t)((newline ? newline : end) - line)) < 0
			|| read_line(&reader, line) < 0)
			return -1;
		line = next;
	}
	*texts = AUTO_TAKE(bytes);
	return 0;
}

static bool is_bare(const struct opt *opt, const char *text)
{
	return opt->type != OPT_TEXT && opt->type != OPT_CHOICE && opt->type != OPT_SIZE
		&& is_number(text);
}

/* Appends `text` in quotes, with escapes; -1 where TOML has none that opt_read_file reads, or no
 * room is left. */
static int quote_text(const char *text, char *out, size_t size)
{
	size_t n = 0;
	json_t *utf8 = json_string(text);
	json_decref(utf8);
	if (!utf8 || size < 3)
		return -1;
	out[n++] = '"';
	for (; *text; text++) {
		const char escape = escape_of(*text, 1);
		if (n + 4 > size || (iscntrl((unsigned char)*text) && !escape))
			return -1;
		if (escape)
			out[n++] = '\\';
		out[n++] = escape ? escape : *text;
	}
	out[n++] = '"';
	out[n] = 0;
	return 0;
}

int opt_line(const struct opt *opt, const void *values, char *out, size_t size, struct err *err)
{
	char text[OPT_TEXT_SIZE];
	const int n = snprintf(out, size, "%s = ", opt->name);
	opt_text(opt, values, text, sizeof text);
	if (opt->type == OPT_SWITCH)
		snprintf(out + n, size - (size_t)n, "%s", strcmp(text, "on") == 0 ? "true" : "false");
	else if (is_bare(opt, text))
		snprintf(out + n, size - (size_t)n, "%s", text);
	else if (quote_text(text, out + n, size - (size_t)n) < 0)
		return err_fail(err, EXIT_USAGE,
			"--%s has a value that no configuration file can hold: give one that is UTF-8 and "
			"has no control characters",
			opt->name);
	return 0;
}

/* ---- environment variables ---- */

char *opt_variable(const struct opt *opt, const char *prefix, char *out, size_t size)
{
	snprintf(out, size, "%s%s", prefix, opt->name);
	for (char *c = out + strlen(prefix); c < out + size && *c; c++)
		*c = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
	return out;
}

/* The row that a variable's name without the prefix is of, or -1; *near: the one it may mean. */
static int row_of_variable(const struct opt *table, const char *name, size_t length, int *near)
{
	char option[64];
	snprintf(option, sizeof option, "%.*s", (int)length, name);
	for (char *c = option; *c; c++)
		*c = (char)(*c == '_' ? '-' : tolower((unsigned char)*c));
	const int row = opt_find(table, option);
	*near = opt_near(table, option);
	return row >= 0 && !table[row].flag_only ? row : -1;
}

static int take_variable(const struct opt *table, const char *prefix, const char *variable,
	void *values, bool *given, struct err *err)
{
	char meant[80];
	int near;
	const size_t length = strcspn(variable, "=");
	const char *name = variable + strlen(prefix);
	const int row = row_of_variable(table, name, length - strlen(prefix), &near);
	const bool hint = near >= 0 && !table[near].flag_only;
	if (row < 0)
		return err_fail(err, EXIT_USAGE, "%.*s: there is no such option%s%s%s", (int)length,
			variable, hint ? ": did you mean " : ": unset it",
			hint ? opt_variable(&table[near], prefix, meant, sizeof meant) : "", hint ? "?" : "");
	if (opt_set(&table[row], values, variable + length + 1, err) < 0)
		return err_prefix(err, "%.*s", (int)length, variable);
	given[row] = true;
	return 0;
}

int opt_read_variables(const struct opt *table, const char *prefix, void *values, bool *given,
	struct err *err)
{
	memset(given, 0, (size_t)opt_count(table) * sizeof *given);
	for (char **variable = environ; *variable; variable++)
		if (strncmp(*variable, prefix, strlen(prefix)) == 0
			&& take_variable(table, prefix, *variable, values, given, err) < 0)
			return -1;
	return 0;
}
