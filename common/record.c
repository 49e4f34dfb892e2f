/* SPDX-License-Identifier: Apache-2.0 */
/* JSON from a file may hold anything: these functions check it before it becomes a number or a text
 * in our structures. And jansson has to be watched where memory is short. */
#include "common/record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Whether jansson has got no memory in this thread. Where a buffer can't grow it says nothing: it
 * loses a character of a text that it reads (2.14, lex_save), or a name that it writes (do_dump).
 */
static _Thread_local bool lacked_memory;

static void *get_memory(size_t size)
{
	void *memory = malloc(size);
	lacked_memory |= !memory;
	return memory;
}

/* For all of this process, unless it has functions of its own. What jansson has got before is freed
 * as it would have been. */
__attribute__((constructor)) static void watch_memory(void)
{
	json_malloc_t get;
	json_free_t give_back;
	json_get_alloc_funcs(&get, &give_back);
	if (get == malloc && give_back == free)
		json_set_alloc_funcs(get_memory, free);
}

/* A library may be unloaded before jansson is. */
__attribute__((destructor)) static void watch_no_more(void)
{
	json_malloc_t get;
	json_free_t give_back;
	json_get_alloc_funcs(&get, &give_back);
	if (get == get_memory)
		json_set_alloc_funcs(malloc, give_back);
}

json_t *record_parse(const char *text, size_t size, size_t flags, const char *what, struct err *err)
{
	json_error_t why;
	lacked_memory = false;
	errno = 0;
	json_t *value = json_loadb(text, size, flags, &why);
	if (lacked_memory || (!value && errno == ENOMEM)) {
		json_decref(value);
		value = NULL;
		err_fail(err, EXIT_LOST, "%s can't be parsed: out of memory", what);
	} else if (!value) {
		err_fail(err, EXIT_DATA, "%s is not valid JSON: %s (line %d, byte %d)", what, why.text,
			why.line, why.position);
	}
	return value;
}

char *record_dump(const json_t *value, size_t flags)
{
	lacked_memory = false;
	char *text = json_dumps(value, flags);
	if (!lacked_memory)
		return text;
	free(text);
	return NULL;
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

json_t *record_append(json_t *array, json_t *value)
{
	if (json_array_append_new(array, value) == 0)
		return array;
	json_decref(array);
	return NULL;
}

json_t *record_set(json_t *object, const char *name, json_t *value)
{
	if (json_object_set_new(object, name, value) == 0)
		return object;
	json_decref(object);
	return NULL;
}

json_t *record_update(json_t *object, json_t *more)
{
	if (json_object_update_new(object, more) == 0)
		return object;
	json_decref(object);
	return NULL;
}

json_t *record_integers(const int64_t *values, int count)
{
	json_t *array = json_array();
	for (int i = 0; i < count; i++)
		array = record_append(array, json_integer(values[i]));
	return array;
}
