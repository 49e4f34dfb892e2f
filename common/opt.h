/* SPDX-License-Identifier: Apache-2.0 */
/* Options as a table: one row drives the command line, --help with its default, the record in a
 * checkpoint and the comparison with that record when a run resumes. */
#ifndef MUSTER_OPT_H
#define MUSTER_OPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* What a changed value means to a resumed run. */
enum opt_kind {
	OPT_IDENTITY,  /* a different run: refused */
	OPT_SCHEDULE,  /* refused unless --change names it, then recorded */
	OPT_OPERATION, /* may change freely */
};

enum opt_type {
	OPT_SWITCH, /* bool; the option takes no argument */
	OPT_COUNT,  /* int64_t, `least` to `most`; OPT_AUTO if `automatic` allows the word "auto" */
	OPT_REAL,   /* double, `least` to `most` */
	OPT_SIZE,   /* int64_t bytes, `least` to `most`: "4GiB", "500MB", "4096"; a bare K, M, G or T is
				   binary */
	OPT_TEXT,   /* const char *, NULL if not given; points into argv or the table */
	OPT_CHOICE, /* int, index of a word in `choices` */
};

#define OPT_AUTO (-1)

#define OPT_TEXT_SIZE 4200 /* the longest value to compare or show: a path */
#define OPT_LINE_SIZE (2 * OPT_TEXT_SIZE + 80)

struct opt {
	const char *name; /* without the dashes; NULL ends the table */
	enum opt_kind kind;
	enum opt_type type;
	size_t offset;        /* of the value in the caller's struct */
	const char *fallback; /* the default, as on the command line; NULL: none (text), off (switch) */
	double least, most;
	bool automatic;
	const char *choices;  /* "gpt2|mlp" */
	const char *argument; /* name of the argument in --help */
	const char *group;    /* heading in --help; NULL: that of the row before */
	const char *mode;     /* the row counts only in this mode (the word of another option's choice);
							 NULL: always */
	const char *help;
	bool flag_only; /* about the command line itself: in no file, variable or record */
};

/* Sets every value to its default. The defaults belong to the program, so a malformed one is a
 * fault of the program. */
int opt_defaults(const struct opt *table, void *values, struct err *err);

/* Parses the command line with argp. --help, --usage and --version (argp_program_version) print and
 * exit, as argp does. given[row] tells which options were given. Status EXIT_USAGE: one line that
 * names the option and what it takes. */
int opt_parse(const struct opt *table, const char *doc, int argc, char **argv, void *values,
	bool *given, struct err *err);

/* The same for values that are set already: keeps those that no option names. */
int opt_flags(const struct opt *table, const char *doc, int argc, char **argv, void *values,
	bool *given, struct err *err);

/* Reads values from a file: lines "name = value" and comments, all of which is TOML 1.0
 * (https://toml.io/en/v1.0.0). lines[row] becomes the number of the line that gives a row's value,
 * or 0. *texts, malloc'ed, is what text values point into. On failure it is NULL; the status is
 * EXIT_USAGE, with file and line. */
int opt_read_file(const struct opt *table, const char *path, void *values, int *lines, char **texts,
	struct err *err);

/* Reads values from environment variables. given[row] tells which are set. Status EXIT_USAGE also
 * for a variable with that prefix that belongs to no option. */
int opt_read_variables(const struct opt *table, const char *prefix, void *values, bool *given,
	struct err *err);

/* The name of a row's variable: the prefix and the option's name in capitals, "_" for "-". */
char *opt_variable(const struct opt *opt, const char *prefix, char *out, size_t size);

/* The value as a line of such a file, without a newline; up to OPT_LINE_SIZE bytes. Status
 * EXIT_USAGE if none can hold it. */
int opt_line(const struct opt *opt, const void *values, char *out, size_t size, struct err *err);

/* Rows of the table. */
int opt_count(const struct opt *table);

/* The row of that name, or -1. */
int opt_find(const struct opt *table, const char *name);

/* The row whose name is near to one that is misspelt, or -1. */
int opt_near(const struct opt *table, const char *name);

/* The value as written on the command line ("on" or "off" for a switch, "" for no text). Returns
 * `out`. */
char *opt_text(const struct opt *opt, const void *values, char *out, size_t size);

/* Sets one value from text; status EXIT_USAGE. */
int opt_set(const struct opt *opt, void *values, const char *text, struct err *err);

/* The values of one kind that count in `mode`, as a JSON object: what a checkpoint records. The
 * caller's; NULL when out of memory. */
json_t *opt_record(const struct opt *table, enum opt_kind kind, const char *mode,
	const void *values);

/* Called for each row whose recorded value differs, with both values as text. Returning -1 refuses
 * the change and ends the comparison. */
typedef int opt_difference(void *arg, const struct opt *opt, const char *recorded,
	const char *present, struct err *err);

/* Compares a record with the values, row by row. A row that an older version's record lacks counts
 * as its default. A recorded name that the table lacks is refused with status EXIT_DATA. */
int opt_compare(const struct opt *table, enum opt_kind kind, const char *mode, const json_t *record,
	const void *values, opt_difference *difference, void *arg, struct err *err);

#endif
