/* SPDX-License-Identifier: Apache-2.0 */
/* Reads blocks, or lines of JSON. */
#include "config.h"

#include "trainer/tools/text_input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"
#include "common/record.h"

#define READ_BYTES (1 << 20)

static int read_failed(const char *name, struct err *err)
{
	return err_fail(err, io_status_or(errno, EXIT_DATA), "text: couldn't read %s: %m", name);
}

static int is_caught(const struct text_taker *taker, struct err *err)
{
	return *taker->caught ? err_set(err, "text: ended by signal %d", (int)*taker->caught) : 0;
}

static int read_blocks(int fd, const char *name, const struct text_taker *taker, struct err *err)
{
	AUTO_FREE char *block = malloc(READ_BYTES);
	if (!block)
		return err_set(err, "text: no memory");
	for (;;) {
		const ssize_t n = read(fd, block, READ_BYTES);
		if (is_caught(taker, err) < 0)
			return -1;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return read_failed(name, err);
		if (n == 0)
			return taker->end_document(taker->arg, err);
		if (taker->add(taker->arg, block, (size_t)n, err) < 0)
			return -1;
		taker->progress(taker->arg, (size_t)n);
	}
}

/* ---- JSONL ---- */

/* The text of a line, borrowed from its object. */
static const json_t *text_of(const json_t *object, const char *field, struct err *err)
{
	const json_t *text = json_object_get(object, field);
	if (!json_is_object(object))
		err_fail(err, EXIT_DATA, "it is no object of JSON: leave --field out where a file is text");
	else if (!text)
		err_fail(err, EXIT_DATA, "it has no member \"%s\" (--field)", field);
	else if (!json_is_string(text))
		err_fail(err, EXIT_DATA, "its member \"%s\" (--field) is no text", field);
	return json_is_string(text) ? text : NULL;
}

/* What can't be used is an error in `bad`, without the name of the place. */
static int take_line(const char *line, size_t size, const char *field,
	const struct text_taker *taker, struct err *bad, struct err *err)
{
	json_t *object = record_parse(line, size, JSON_ALLOW_NUL, "it", bad);
	const json_t *text = object ? text_of(object, field, bad) : NULL;
	int rc = 0;
	if (text)
		rc = taker->add(taker->arg, json_string_value(text), json_string_length(text), err) < 0
				|| taker->end_document(taker->arg, err) < 0
			? -1
			: 0;
	json_decref(object);
	return rc;
}

static int read_lines(FILE *file, const char *name, const char *field,
	const struct text_taker *taker, struct err *err)
{
	AUTO_FREE char *line = NULL;
	size_t room = 0;
	uint64_t number = 0;
	ssize_t size;
	while ((size = getline(&line, &room, file)) >= 0 && !*taker->caught) {
		struct err bad = { .text = "" };
		number++;
		if (strspn(line, " \t\r\n") < (size_t)size
			&& take_line(line, (size_t)size, field, taker, &bad, err) < 0)
			return -1;
		if (bad.text[0])
			return err_fail(err, bad.status, "text: %s: couldn't use line %" PRIu64 ": %s", name,
				number, bad.text);
		taker->progress(taker->arg, (size_t)size);
	}
	if (is_caught(taker, err) < 0)
		return -1;
	return feof(file) ? 0 : read_failed(name, err);
}

/* ---- files ---- */

int text_input_read(const char *name, const char *field, const struct text_taker *taker,
	struct err *err)
{
	const bool standard = strcmp(name, "-") == 0;
	const char *called = standard ? "standard input" : name;
	AUTO_CLOSE int fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
								 : open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "text: couldn't open %s: %m", called);
	if (!field)
		return read_blocks(fd, called, taker, err);
	AUTO_FCLOSE FILE *file = fdopen(fd, "r");
	if (!file)
		return err_set(err, "text: couldn't open %s: %m", called);
	fd = -1; /* the file closes it */
	return read_lines(file, called, field, taker, err);
}
