/* SPDX-License-Identifier: Apache-2.0 */
/* Parses an option table's command line: its rows become argp's vectors, argp's errors become one
 * line each. */
#include "config.h"

#include "common/opt.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

#define FIRST_KEY 1000 /* above every character: options have no one-letter forms */

/* Under ARGP_NO_ERRS argp's own --help prints nothing, so these three are ours. */
enum { KEY_HELP = 900, KEY_USAGE, KEY_VERSION };

static const struct argp_option own_options[] = {
	{ "help", KEY_HELP, NULL, 0, "Give this help list", -1 },
	{ "usage", KEY_USAGE, NULL, 0, "Give a short usage message", -1 },
	{ "version", KEY_VERSION, NULL, 0, "Print program version", -1 },
};

#define OWN (sizeof own_options / sizeof own_options[0])

struct parse {
	const struct opt *table;
	int count;
	void *values;
	bool *given;
	struct err *err;
	bool failed;
	int next; /* index in argv of the word after the last one understood */
};

static const char *kind_note(enum opt_kind kind)
{
	return kind == OPT_IDENTITY ? "identity" : kind == OPT_SCHEDULE ? "schedule" : NULL;
}

/* "HELP (identity; default 12)", malloc'ed. */
static char *help_text(const struct opt *opt)
{
	char *out = NULL;
	const char *note = kind_note(opt->kind);
	if (opt->fallback
		&& asprintf(&out, "%s (%s%sdefault %s)", opt->help, note ? note : "", note ? "; " : "",
			   opt->fallback)
			< 0)
		return NULL;
	if (!opt->fallback && note && asprintf(&out, "%s (%s)", opt->help, note) < 0)
		return NULL;
	return out ? out : strdup(opt->help);
}

static void free_options(struct argp_option *options)
{
	for (struct argp_option *o = options; o && (o->name || o->doc); o++)
		if (o->name && o->key >= FIRST_KEY)
			free((char *)o->doc);
	free(options);
}

/* Makes argp's vector: a heading row where a group begins, then the group's rows. */
static struct argp_option *make_options(const struct opt *table, int count)
{
	struct argp_option *options = calloc((size_t)count * 2 + OWN + 1, sizeof *options),
					   *o = options;
	int group = 0;
	for (int i = 0; options && i < count; i++) {
		if (table[i].group)
			*o++ = (struct argp_option) { .doc = table[i].group, .group = ++group };
		char *help = help_text(&table[i]);
		if (!help) {
			free_options(options);
			return NULL;
		}
		*o++ = (struct argp_option) { .name = table[i].name,
			.key = FIRST_KEY + i,
			.doc = help,
			.group = group,
			.arg = table[i].type == OPT_SWITCH ? NULL
				: table[i].type == OPT_CHOICE  ? table[i].choices
											   : table[i].argument };
	}
	if (options)
		memcpy(o, own_options, sizeof own_options);
	return options;
}

static void tell_and_exit(int key, const struct argp_state *state)
{
	if (key == KEY_VERSION)
		puts(argp_program_version);
	else
		argp_help(state->root_argp, stdout,
			key == KEY_HELP ? ARGP_HELP_LONG | ARGP_HELP_SHORT_USAGE | ARGP_HELP_DOC
							: ARGP_HELP_USAGE,
			state->name);
	exit(fflush(stdout) == 0 ? EXIT_OK : EXIT_FAULT);
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct parse *parse = state->input;
	if (key == ARGP_KEY_ARG) {
		err_fail(parse->err, EXIT_USAGE,
			"\"%s\" belongs to no option: quote a pattern that the shell must not expand (see "
			"--help)",
			arg);
		parse->failed = true;
		return EINVAL;
	}
	if (key == KEY_HELP || key == KEY_USAGE || key == KEY_VERSION)
		tell_and_exit(key, state);
	if (key < FIRST_KEY || key >= FIRST_KEY + parse->count)
		return ARGP_ERR_UNKNOWN;
	const struct opt *opt = &parse->table[key - FIRST_KEY];
	if (opt_set(opt, parse->values, opt->type == OPT_SWITCH ? "on" : arg, parse->err) < 0) {
		parse->failed = true;
		return EINVAL;
	}
	parse->given[key - FIRST_KEY] = true;
	parse->next = state->next;
	return 0;
}

/* The edit distance (Levenshtein) of two words, for the suggestion. Words are cut at 31
 * characters. */
static int edits(const char *a, const char *b)
{
	int row[32];
	/* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): each table has a row */
	int n = (int)strnlen(b, 31), m = (int)strnlen(a, 31);
	for (int j = 0; j <= n; j++)
		row[j] = j;
	for (int i = 1; i <= m; i++) {
		int diagonal = row[0];
		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int best = diagonal + (a[i - 1] != b[j - 1]);
			diagonal = row[j];
			best = row[j] + 1 < best ? row[j] + 1 : best;
			row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
		}
	}
	return row[n];
}

int opt_near(const struct opt *table, const char *name)
{
	int nearest = 0;
	for (int i = 0; table[i].name; i++)
		if (edits(name, table[i].name) < edits(name, table[nearest].name))
			nearest = i;
	return edits(name, table[nearest].name) <= 3 ? nearest : -1;
}

/* Explains what getopt refused: an option without its value, an ambiguous or an unknown one. */
static int refuse(const struct opt *table, const char *word, struct err *err)
{
	if (strncmp(word, "--", 2) != 0)
		return err_fail(err, EXIT_USAGE,
			"unknown option %s: options are long ones, such as --steps (see --help)", word);
	char name[64];
	snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
	int row = opt_find(table, name), near = opt_near(table, name), matches = 0;
	for (int i = 0; table[i].name; i++)
		matches += strncmp(table[i].name, name, strlen(name)) == 0;
	if (row >= 0 && table[row].type == OPT_SWITCH)
		return err_fail(err, EXIT_USAGE, "--%s takes no value", name);
	if (row >= 0 || matches == 1)
		return err_fail(err, EXIT_USAGE, "--%s needs a value (see --help)", name);
	if (matches > 1)
		return err_fail(err, EXIT_USAGE, "--%s is the beginning of several options (see --help)",
			name);
	if (near >= 0)
		return err_fail(err, EXIT_USAGE, "unknown option --%s: did you mean --%s?", name,
			table[near].name);
	return err_fail(err, EXIT_USAGE, "unknown option --%s (see --help)", name);
}

int opt_parse(const struct opt *table, const char *doc, int argc, char **argv, void *values,
	bool *given, struct err *err)
{
	if (opt_defaults(table, values, err) < 0)
		return -1;
	return opt_flags(table, doc, argc, argv, values, given, err);
}

int opt_flags(const struct opt *table, const char *doc, int argc, char **argv, void *values,
	bool *given, struct err *err)
{
	int count = opt_count(table);
	struct parse parse = { table, count, values, given, err, false, 1 };
	memset(given, 0, (size_t)count * sizeof *given);
	struct argp_option *options = make_options(table, count);
	if (!options)
		return err_set(err, "options: out of memory");
	struct argp argp = { .options = options, .parser = parse_one, .doc = doc };
	error_t error =
		argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_IN_ORDER, NULL, &parse);
	free_options(options);
	if (!error)
		return 0;
	if (parse.failed)
		return -1;
	return refuse(table, argv[parse.next < argc ? parse.next : argc - 1], err);
}
