/* SPDX-License-Identifier: Apache-2.0 */
/* Option values in a caller's struct, as a table describes it: their text and JSON forms. */
#include "common/opt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/number.h"

static void *value_of(const struct opt *opt, void *values)
{
	return (char *)values + opt->offset;
}

static const void *value_at(const struct opt *opt, const void *values)
{
	return (const char *)values + opt->offset;
}

int opt_count(const struct opt *table)
{
	int n = 0;
	while (table[n].name)
		n++;
	return n;
}

int opt_find(const struct opt *table, const char *name)
{
	for (int i = 0; table[i].name; i++)
		if (strcmp(table[i].name, name) == 0)
			return i;
	return -1;
}

/* The index of `word` in "a|b|c", or -1. */
static int choice_index(const char *choices, const char *word)
{
	size_t length = strlen(word);
	int index = 0;
	for (const char *p = choices;; index++) {
		size_t n = strcspn(p, "|");
		if (n == length && strncmp(p, word, n) == 0)
			return index;
		if (!p[n])
			return -1;
		p += n + 1;
	}
}

static void choice_word(const char *choices, int index, char *out, size_t size)
{
	const char *p = choices;
	for (; index > 0 && p[strcspn(p, "|")]; index--)
		p += strcspn(p, "|") + 1;
	snprintf(out, size, "%.*s", (int)strcspn(p, "|"), p);
}

static int set_count(const struct opt *opt, int64_t *value, const char *text, struct err *err)
{
	if (opt->automatic && strcmp(text, "auto") == 0) {
		*value = OPT_AUTO;
		return 0;
	}
	if (!number_whole(text, (int64_t)opt->least, (int64_t)opt->most, value))
		return err_fail(err, EXIT_USAGE,
			"--%s takes a whole number from %.0f to %.0f%s, not \"%s\"", opt->name, opt->least,
			opt->most, opt->automatic ? " or auto" : "", text);
	return 0;
}

static int set_real(const struct opt *opt, double *value, const char *text, struct err *err)
{
	if (!number_real(text, opt->least, opt->most, value))
		return err_fail(err, EXIT_USAGE, "--%s takes a number from %g to %g, not \"%s\"", opt->name,
			opt->least, opt->most, text);
	return 0;
}

static int set_size(const struct opt *opt, int64_t *value, const char *text, struct err *err)
{
	if (!number_bytes(text, (int64_t)opt->least, (int64_t)opt->most, value))
		return err_fail(err, EXIT_USAGE,
			"--%s takes a size from %.0f bytes up, such as 4GiB or 500MB, not \"%s\"", opt->name,
			opt->least, text);
	return 0;
}

static int set_switch(const struct opt *opt, bool *value, const char *text, struct err *err)
{
	if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
		return err_fail(err, EXIT_USAGE, "--%s is on or off, not \"%s\"", opt->name, text);
	*value = strcmp(text, "on") == 0;
	return 0;
}

static int set_choice(const struct opt *opt, int *value, const char *text, struct err *err)
{
	int index = choice_index(opt->choices, text);
	if (index < 0)
		return err_fail(err, EXIT_USAGE, "--%s takes one of %s, not \"%s\"", opt->name,
			opt->choices, text);
	*value = index;
	return 0;
}

int opt_set(const struct opt *opt, void *values, const char *text, struct err *err)
{
	switch (opt->type) {
	case OPT_SWITCH: return set_switch(opt, value_of(opt, values), text, err);
	case OPT_COUNT: return set_count(opt, value_of(opt, values), text, err);
	case OPT_SIZE: return set_size(opt, value_of(opt, values), text, err);
	case OPT_REAL: return set_real(opt, value_of(opt, values), text, err);
	case OPT_CHOICE: return set_choice(opt, value_of(opt, values), text, err);
	case OPT_TEXT:
		if (!*text)
			return err_fail(err, EXIT_USAGE, "--%s is empty: it takes %s", opt->name,
				opt->argument);
		*(const char **)value_of(opt, values) = text;
		return 0;
	}
	return err_set(err, "--%s has no type", opt->name);
}

int opt_defaults(const struct opt *table, void *values, struct err *err)
{
	for (const struct opt *opt = table; opt->name; opt++) {
		if (opt->fallback) {
			if (opt_set(opt, values, opt->fallback, err) < 0)
				return err_prefix(err, "default");
		} else if (opt->type == OPT_SWITCH) {
			*(bool *)value_of(opt, values) = false;
		} else if (opt->type == OPT_TEXT) {
			*(const char **)value_of(opt, values) = NULL;
		} else {
			return err_set(err, "default: --%s has none", opt->name);
		}
	}
	return 0;
}

/* The shortest decimal that reads back as the same double; whole numbers without an exponent. */
static void real_text(double value, char *out, size_t size)
{
	if (value == floor(value) && fabs(value) < 1e15) {
		snprintf(out, size, "%.0f", value);
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, size, "%.*g", digits, value);
		if (strtod(out, NULL) == value)
			return;
	}
}

char *opt_text(const struct opt *opt, const void *values, char *out, size_t size)
{
	const void *value = value_at(opt, values);
	switch (opt->type) {
	case OPT_SWITCH: snprintf(out, size, "%s", *(const bool *)value ? "on" : "off"); break;
	case OPT_COUNT:
		if (opt->automatic && *(const int64_t *)value == OPT_AUTO)
			snprintf(out, size, "auto");
		else
			snprintf(out, size, "%lld", (long long)*(const int64_t *)value);
		break;
	case OPT_SIZE: number_bytes_text(*(const int64_t *)value, out, size); break;
	case OPT_REAL: real_text(*(const double *)value, out, size); break;
	case OPT_CHOICE: choice_word(opt->choices, *(const int *)value, out, size); break;
	case OPT_TEXT:
		snprintf(out, size, "%s", *(const char *const *)value ? *(const char *const *)value : "");
		break;
	}
	return out;
}

static bool counts(const struct opt *opt, enum opt_kind kind, const char *mode)
{
	return opt->kind == kind && !opt->flag_only
		&& (!opt->mode || (mode && strcmp(opt->mode, mode) == 0));
}

static json_t *value_json(const struct opt *opt, const void *values)
{
	char text[OPT_TEXT_SIZE];
	const void *value = value_at(opt, values);
	switch (opt->type) {
	case OPT_SWITCH: return json_boolean(*(const bool *)value);
	case OPT_COUNT:
		if (opt->automatic && *(const int64_t *)value == OPT_AUTO)
			return json_string("auto");
		return json_integer(*(const int64_t *)value);
	case OPT_REAL: return json_real(*(const double *)value);
	default: return json_string(opt_text(opt, values, text, sizeof text));
	}
}

json_t *opt_record(const struct opt *table, enum opt_kind kind, const char *mode,
	const void *values)
{
	json_t *record = json_object();
	for (const struct opt *opt = table; record && opt->name; opt++) {
		if (!counts(opt, kind, mode))
			continue;
		if (json_object_set_new(record, opt->name, value_json(opt, values)) < 0) {
			json_decref(record);
			return NULL;
		}
	}
	return record;
}

/* A recorded value as text, in the form that opt_text gives the present one. */
static char *recorded_text(const struct opt *opt, const json_t *value, char *out, size_t size)
{
	if (!value)
		snprintf(out, size, "%s",
			opt->fallback                 ? opt->fallback
				: opt->type == OPT_SWITCH ? "off"
										  : "");
	else if (json_is_boolean(value))
		snprintf(out, size, "%s", json_is_true(value) ? "on" : "off");
	else if (json_is_integer(value) && opt->type == OPT_REAL)
		real_text((double)json_integer_value(value), out, size);
	else if (json_is_integer(value))
		snprintf(out, size, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		real_text(json_real_value(value), out, size);
	else if (json_is_string(value))
		snprintf(out, size, "%s", json_string_value(value));
	else
		snprintf(out, size, "something that is no value");
	return out;
}

int opt_compare(const struct opt *table, enum opt_kind kind, const char *mode, const json_t *record,
	const void *values, opt_difference *difference, void *arg, struct err *err)
{
	const char *name;
	json_t *value;
	if (!json_is_object(record))
		return err_fail(err, EXIT_DATA,
			"configuration: the checkpoint's record of options is no JSON object");
	json_object_foreach((json_t *)record, name,
		value) if (opt_find(table, name) < 0) return err_fail(err, EXIT_DATA,
		"configuration: the checkpoint records an option %s that this version does not know: use "
		"the version that wrote it, or a newer one",
		name);
	for (const struct opt *opt = table; opt->name; opt++) {
		char recorded[OPT_TEXT_SIZE], present[OPT_TEXT_SIZE];
		if (!counts(opt, kind, mode))
			continue;
		recorded_text(opt, json_object_get(record, opt->name), recorded, sizeof recorded);
		opt_text(opt, values, present, sizeof present);
		if (strcmp(recorded, present) != 0 && difference(arg, opt, recorded, present, err) < 0)
			return -1;
	}
	return 0;
}
