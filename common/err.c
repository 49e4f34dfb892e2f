/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as values: libraries fill them in, main() prints them. */
#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text from outside may hold anything: the error stays one line, and no control character reaches a
 * terminal. */
static void keep_one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

static void fill(struct err *err, enum exit_status status, const char *format, va_list args)
{
	vsnprintf(err->text, sizeof err->text, format, args);
	keep_one_line(err->text);
	err->status = status;
}

int err_set(struct err *err, const char *format, ...)
{
	if (!err)
		return -1;
	va_list args;
	va_start(args, format);
	fill(err, EXIT_FAULT, format, args);
	va_end(args);
	return -1;
}

int err_fail(struct err *err, enum exit_status status, const char *format, ...)
{
	if (!err)
		return -1;
	va_list args;
	va_start(args, format);
	fill(err, status, format, args);
	va_end(args);
	return -1;
}

int err_prefix(struct err *err, const char *format, ...)
{
	if (!err)
		return -1;
	char old[sizeof err->text];
	memcpy(old, err->text, sizeof old);
	va_list args;
	va_start(args, format);
	int n = vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	if (n >= 0 && (size_t)n < sizeof err->text)
		snprintf(err->text + n, sizeof err->text - (size_t)n, ": %.*s", (int)(sizeof old - 1), old);
	keep_one_line(err->text);
	return -1;
}
