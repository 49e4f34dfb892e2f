/* SPDX-License-Identifier: Apache-2.0 */
/* Options as a table: one row drives the command line, --help with its defaults, the record in a
 * checkpoint and the comparison with that record when a run is resumed. */
#ifndef MUSTER_OPT_H
#define MUSTER_OPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* What a change of the value means to a run that is resumed. */
enum opt_kind {
	OPT_IDENTITY,  /* another run: refused */
	OPT_SCHEDULE,  /* refused unless named by --change, then recorded */
	OPT_OPERATION, /* free */
};

enum opt_type {
	OPT_SWITCH, /* bool; the option takes no argument */
	OPT_COUNT,  /* int64_t, `least` to `most`; OPT_AUTO where `automatic` allows the word "auto" */
	OPT_REAL,   /* double, `least` to `most` */
	OPT_SIZE,   /* int64_t bytes, `least` to `most`: "4GiB", "500MB", "4096"; a bare K, M, G or T is
				   binary */
	OPT_TEXT,   /* const char *, NULL when not given; points into argv or the table */
	OPT_CHOICE, /* int, the index of a word of `choices` */
};

#define OPT_AUTO (-1)

struct opt {
	const char *name; /* without the dashes; NULL ends the table */
	enum opt_kind kind;
	enum opt_type type;
	size_t offset;        /* of the value in the caller's struct */
	const char *fallback; /* the default, as it would stand on the command line; NULL: none (text),
							 off (switch) */
	double least, most;
	bool automatic;
	const char *choices;  /* "gpt2|mlp" */
	const char *argument; /* name of the argument in --help */
	const char *group;    /* heading in --help; NULL: that of the row before */
	const char *mode;     /* the row counts only in this mode (the word of another option's choice);
							 NULL: always */
	const char *help;
};

/* Sets every value to its default. The defaults are the program's own, so a bad one is a fault of
 * the program. */
int opt_defaults(const struct opt *table, void *values, struct err *err);

/* Parses the command line by argp. --help, --usage and --version (argp_program_version) print and
 * exit, as argp does. given[row] tells which options were there. Status EXIT_USAGE: one line naming
 * the option and what it takes. */
int opt_parse(const struct opt *table, const char *doc, int argc, char **argv, void *values,
	bool *given, struct err *err);

/* Rows of the table. */
int opt_count(const struct opt *table);

/* The row of that name or -1. */
int opt_find(const struct opt *table, const char *name);

/* The value as it would stand on the command line ("on" and "off" for a switch, "" for no text);
 * returns `out`. */
char *opt_text(const struct opt *opt, const void *values, char *out, size_t size);

/* Sets one value from text; status EXIT_USAGE. */
int opt_set(const struct opt *opt, void *values, const char *text, struct err *err);

/* The values of one kind that count in `mode`, as a JSON object: what a checkpoint records. NULL
 * when out of memory. */
json_t *opt_record(const struct opt *table, enum opt_kind kind, const char *mode,
	const void *values);

/* Called for each row whose recorded value differs: both as text. Returns -1 to refuse, which ends
 * the comparison. */
typedef int opt_difference(void *arg, const struct opt *opt, const char *recorded,
	const char *present, struct err *err);

/* Compares a record with the values, row by row. A row that the record lacks (it is of an older
 * version) is taken to have had its default; a recorded name that the table lacks is refused with
 * status EXIT_DATA. */
int opt_compare(const struct opt *table, enum opt_kind kind, const char *mode, const json_t *record,
	const void *values, opt_difference *difference, void *arg, struct err *err);

#endif
