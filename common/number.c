/* SPDX-License-Identifier: Apache-2.0 */
/* strtoll() and its kin skip spaces, accept signs and stop anywhere, so this checks the whole text
 * first. */
#include "common/number.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

/* Parses the number at the start of the text; *end is the first character after it. */
static bool read_whole(const char *text, int64_t *value, const char **end)
{
	const char *first = text + (*text == '-');
	*end = first + strspn(first, DIGITS);
	errno = 0;
	*value = strtoll(text, NULL, 10);
	return *end != first && errno == 0;
}

bool number_whole(const char *text, int64_t least, int64_t most, int64_t *value)
{
	int64_t number;
	const char *end;
	if (!read_whole(text, &number, &end) || *end || number < least || number > most
		|| (*text == '-' && least >= 0))
		return false;
	*value = number;
	return true;
}

int64_t number_option(struct argp_state *state, const char *name, const char *text, int64_t least,
	int64_t most)
{
	int64_t value = 0;
	if (!number_whole(text, least, most, &value))
		argp_error(state, "--%s=%s is no whole number from %" PRId64 " to %" PRId64, name, text,
			least, most);
	return value;
}

bool number_u64(const char *text, uint64_t *value)
{
	size_t length = strspn(text, DIGITS);
	if (length == 0 || text[length] || (text[0] == '0' && length > 1))
		return false;
	errno = 0;
	unsigned long long number = strtoull(text, NULL, 10);
	if (errno)
		return false;
	*value = number;
	return true;
}

bool number_real(const char *text, double least, double most, double *value)
{
	char *end;
	double number = strtod(text, &end);
	if (end == text || *end || !isfinite(number) || number < least || number > most)
		return false;
	*value = number;
	return true;
}

/* Binary units first, largest first: the order in which number_bytes_text() tries them. */
static const struct {
	const char *name;
	int64_t bytes;
} units[] = {
	{ "TiB", (int64_t)1 << 40 },
	{ "GiB", 1 << 30 },
	{ "MiB", 1 << 20 },
	{ "KiB", 1 << 10 },
	{ "", 1 },
	{ "B", 1 },
	{ "T", (int64_t)1 << 40 },
	{ "G", 1 << 30 },
	{ "M", 1 << 20 },
	{ "K", 1 << 10 },
	{ "TB", 1000000000000 },
	{ "GB", 1000000000 },
	{ "MB", 1000000 },
	{ "KB", 1000 },
	{ "kB", 1000 },
};

bool number_bytes(const char *text, int64_t least, int64_t most, int64_t *value)
{
	int64_t number, bytes;
	const char *unit;
	if (!read_whole(text, &number, &unit) || *text == '-')
		return false;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (strcmp(unit, units[i].name) != 0)
			continue;
		if (__builtin_mul_overflow(number, units[i].bytes, &bytes) || bytes < least || bytes > most)
			return false;
		*value = bytes;
		return true;
	}
	return false;
}

char *number_bytes_text(int64_t value, char *out, size_t size)
{
	size_t unit = 0;
	while (value % units[unit].bytes || (value == 0 && units[unit].bytes > 1))
		unit++;
	snprintf(out, size, "%lld%s", (long long)(value / units[unit].bytes), units[unit].name);
	return out;
}
