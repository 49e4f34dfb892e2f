/* SPDX-License-Identifier: Apache-2.0 */
/* JSON from a file may hold anything: these functions check it before it becomes a number or a text
 * in our structures. */
#include "checkpoint/format/record.h"

#include <errno.h>
#include <stdio.h>

json_t *record_parse(const char *text, size_t size, size_t flags, const char *what, struct err *err)
{
	json_error_t why;
	errno = 0;
	json_t *value = json_loadb(text, size, flags, &why);
	if (!value && errno == ENOMEM)
		err_fail(err, EXIT_LOST, "%s can't be parsed: out of memory", what);
	else if (!value)
		err_fail(err, EXIT_DATA, "%s is not valid JSON: %s (line %d, byte %d)", what, why.text,
			why.line, why.position);
	return value;
}

bool record_in_range(const json_t *value, json_int_t least, json_int_t most)
{
	return json_is_integer(value) && json_integer_value(value) >= least
		&& json_integer_value(value) <= most;
}

bool record_text(char *out, size_t size, const json_t *value)
{
	const char *text = json_string_value(value);
	return (size_t)snprintf(out, size, "%s", text ? text : "") < size && text;
}
