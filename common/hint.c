/* SPDX-License-Identifier: Apache-2.0 */
/* A line for people only. */
#include "config.h"

#include "common/hint.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void hint_next(const char *format, ...)
{
	va_list arguments;
	if (!isatty(STDERR_FILENO))
		return;
	fputs("next: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}
