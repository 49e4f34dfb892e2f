/* SPDX-License-Identifier: Apache-2.0 */
/* The last error of each thread, and where log lines go. */
#include "config.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/log.h"
#include "common/record.h"
#include "lib/muster_private.h"

#define LONGEST_SECONDS 1e9

static _Thread_local struct err last;

int muster_failed(const struct err *err)
{
	log_remember(err->text);
	last = *err;
	return (int)err->status;
}

int muster_check_timeout(double timeout, struct err *err)
{
	if (timeout >= 0 && timeout <= LONGEST_SECONDS)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"libmuster: couldn't use a timeout of %g s: give up to %g s, or 0 for the default", timeout,
		LONGEST_SECONDS);
}

json_t *muster_parse_object(const char *text, struct err *err)
{
	json_t *object = record_parse(text, strlen(text), JSON_REJECT_DUPLICATES, "it", err);
	if (object && !json_is_object(object)) {
		json_decref(object);
		object = NULL;
		err_set(err, "it is not a JSON object");
	}
	if (!object && err->status != EXIT_LOST)
		err->status = EXIT_USAGE;
	return object;
}

int muster_check_given(const void *given, const char *what, struct err *err)
{
	return given ? 0 : err_fail(err, EXIT_USAGE, "libmuster: couldn't use NULL as %s", what);
}

int muster_take_sized(void *whole, size_t whole_size, const void *given, size_t given_size,
	size_t least, const char *name, struct err *err)
{
	if (given_size < least || given_size > whole_size)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use a struct %s of %zu bytes: set its size to sizeof(struct %s), "
			"and run with a libmuster that is not older than the header",
			name, given_size, name);
	memcpy(whole, given, given_size);
	return 0;
}

int muster_check(const struct muster *muster, double timeout, struct err *err)
{
	if (!muster)
		return err_fail(err, EXIT_USAGE,
			"libmuster: couldn't use NULL as the struct muster: muster_open gives one, or says why "
			"not");
	return muster_check_timeout(timeout, err);
}

const char *muster_error(void)
{
	return last.text;
}

const char *muster_version(void)
{
	return PACKAGE_VERSION;
}

static void (*user_write)(void *arg, int level, const char *line);
static bool chosen; /* the program has called muster_set_log */

static void write_line(void *arg, enum log_level level, const char *line)
{
	if (user_write)
		user_write(arg, (int)level, line);
}

void muster_set_log(void (*write)(void *arg, int level, const char *line), void *arg)
{
	user_write = write;
	chosen = true;
	log_set_level(LOG_LEVEL_DEBUG);
	log_set_writer(write_line, arg);
}

void muster_log_begin(void)
{
	log_keep_last();
	if (!chosen)
		log_set_level(LOG_LEVEL_WARN);
}
