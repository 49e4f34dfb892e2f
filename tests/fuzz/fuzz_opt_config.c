/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of configuration files: a file is refused with one line, or each of its values
 * is written as a line that gives the same value again. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/opt.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

struct values {
	int mode;
	int64_t layers, every, most;
	double rate;
	const char *path;
	bool loud;
};

#define AT(field) offsetof(struct values, field)

static const struct opt table[] = { { "mode", OPT_IDENTITY, OPT_CHOICE, AT(mode), "deep",
										.choices = "deep|wide" },
	{ "layers", OPT_IDENTITY, OPT_COUNT, AT(layers), "12", -100, 100, .argument = "N" },
	{ "every", OPT_SCHEDULE, OPT_COUNT, AT(every), "auto", 1, 9e15, .automatic = true },
	{ "most-bytes", OPT_SCHEDULE, OPT_SIZE, AT(most), "4GiB", 1, 1e15, .argument = "SIZE" },
	{ "rate", OPT_SCHEDULE, OPT_REAL, AT(rate), "0.1", -10, 1e9, .argument = "X" },
	{ "path", OPT_OPERATION, OPT_TEXT, AT(path), .argument = "FILE" },
	{ "loud", OPT_OPERATION, OPT_SWITCH, AT(loud) }, { 0 } };

#define ROWS (sizeof table / sizeof table[0])

static int read_bytes(struct values *values, const void *bytes, size_t size, int *lines,
	char **texts, struct err *err)
{
	char path[64];
	int fd = memfd_create("config", 0);
	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || opt_defaults(table, values, err) < 0)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int rc = opt_read_file(table, path, values, lines, texts, err);
	close(fd);
	return rc;
}

static void check_row(int row, const struct values *values)
{
	char line[OPT_LINE_SIZE], a[OPT_TEXT_SIZE], b[OPT_TEXT_SIZE], *texts;
	struct values again;
	struct err err;
	int lines[ROWS];
	if (values->path && strlen(values->path) >= OPT_TEXT_SIZE)
		return;
	/* A tab is all that a text in a file has of control characters. */
	if (opt_line(&table[row], values, line, sizeof line, &err) < 0
		|| read_bytes(&again, line, strlen(line), lines, &texts, &err) < 0 || lines[row] != 1
		|| strcmp(opt_text(&table[row], values, a, sizeof a),
			   opt_text(&table[row], &again, b, sizeof b))
			!= 0)
		abort();
	free(texts);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct values values;
	struct err err = { 0 };
	int lines[ROWS];
	char *texts;
	if (read_bytes(&values, bytes, size, lines, &texts, &err) < 0) {
		if (texts || err.status != EXIT_USAGE || !*err.text || strchr(err.text, '\n'))
			abort();
	} else {
		for (int i = 0; table[i].name; i++)
			if (lines[i])
				check_row(i, &values);
	}
	free(texts);
	return 0;
}
