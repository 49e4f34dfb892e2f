/* SPDX-License-Identifier: Apache-2.0 */
/* muster-where [DIR] prints where the ranks of a training stand, or stood when they were killed. */
#include "config.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/err.h"
#include "common/io.h"
#include "common/progress.h"
#include "telemetry/flight_files.h"
#include "telemetry/flight_table.h"

struct arguments {
	const char *dir;
	bool all;
};

static const struct argp_option options[] = {
	{ .name = "all",
		.key = 'a',
		.doc = "A line for each rank, with everything that its record holds" },
	{ 0 }
};

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct arguments *given = state->input;
	switch (key) {
	case 'a': given->all = true; return 0;
	case ARGP_KEY_ARG:
		if (given->dir)
			argp_error(state, "give one checkpoint directory");
		given->dir = arg;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static void print_line(void *arg, const char *line)
{
	printf("  %s\n", line);
}

/* Prints one line for each record, with all that is known, as of its latest change. */
static void print_each(const struct flight_view *views, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char line[600], moment[32];
		const struct flight_view *view = &views[i];
		const double latest = flight_latest(view);
		flight_line(view, latest, line, sizeof line);
		printf("  rank %d on %s, process %" PRIu32 ", %s: %s\n", view->rank, view->node,
			view->process, clock_iso8601(latest + view->wall, moment, sizeof moment), line);
	}
}

static int print_groups(const struct flight_view *views, size_t count, struct err *err)
{
	AUTO_FREE struct flight_row *rows = calloc(count, sizeof *rows);
	if (!rows)
		return err_set(err, "out of memory");
	for (size_t i = 0; i < count; i++) {
		double since = flight_words(&views[i], rows[i].words, sizeof rows[i].words);
		rows[i].rank = views[i].rank;
		memcpy(rows[i].node, views[i].node, sizeof rows[i].node);
		rows[i].since = since > 0 ? since + views[i].wall : 0;
	}
	flight_table(rows, count, true, print_line, NULL);
	return 0;
}

/* Prints one run after the other. */
static int print_list(const struct flight_list *list, bool all, struct err *err)
{
	printf("%s%s:\n", list->place, list->before ? " (of an attempt before the last one)" : "");
	for (size_t i = 0, end; i < list->count; i = end) {
		for (end = i + 1;
			 end < list->count && strcmp(list->views[end].run, list->views[i].run) == 0; end++)
			;
		printf("%s: %zu of %d ranks have a record\n", list->views[i].run, end - i,
			list->views[i].world_size);
		if (all)
			print_each(list->views + i, end - i);
		else if (print_groups(list->views + i, end - i, err) < 0)
			return -1;
	}
	return 0;
}

static int show(const struct arguments *given, struct err *err)
{
	struct flight_list list;
	if (flight_files_read(given->dir, &list, err) < 0)
		return -1;
	int rc = 0;
	if (list.count > 0)
		rc = print_list(&list, given->all, err);
	else if (list.damaged == 0)
		printf("no rank has left a record in %s: what ended in order leaves none\n",
			given->dir ? given->dir : "this node's memory");
	if (rc == 0 && list.damaged)
		rc = err_fail(err, EXIT_DATA, "%d file%s in %s can't be read as a record", list.damaged,
			list.damaged > 1 ? "s" : "", list.place);
	flight_list_clear(&list);
	return rc;
}

int main(int argc, char **argv)
{
	struct arguments given = { 0 };
	struct argp argp = { .options = options,
		.parser = parse_one,
		.args_doc = "[DIR]",
		.doc =
			"Prints where the ranks of a training stand, or stood when they were killed: in which "
			"collective of which bucket of which step, or what they computed.\vDIR is the "
			"checkpoint directory of the run. Without it: the runs of this user on this node that "
			"have none." };
	struct err err;
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &given);
	if (show(&given, &err) < 0 || io_flush_output(&err) < 0) {
		fflush(stdout);
		fprintf(stderr, "muster-where: %s\n", err.text);
		return (int)err.status;
	}
	if (given.dir)
		progress_next("muster-ckpt history %s", given.dir);
	return EXIT_OK;
}
