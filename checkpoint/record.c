/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from a file is looked at before it becomes a number or a text of ours. */
#include "checkpoint/record.h"

#include <stdio.h>

bool record_in_range(const json_t *value, json_int_t least, json_int_t most)
{
	return json_is_integer(value) && json_integer_value(value) >= least && json_integer_value(value) <= most;
}

bool record_text(char *out, size_t size, const json_t *value)
{
	const char *text = json_string_value(value);
	return (size_t)snprintf(out, size, "%s", text ? text : "") < size && text;
}
