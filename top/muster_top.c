/* SPDX-License-Identifier: Apache-2.0 */
/* muster-top DIR shows a run as it goes on. */
#include "config.h"

#include <argp.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "common/err.h"
#include "common/io.h"
#include "common/number.h"
#include "top/page.h"
#include "top/screen.h"
#include "top/view.h"

#define TEXT_COLUMNS 100 /* of the curve in plain text */
#define TEXT_ROWS 4

struct arguments {
	const char *dir;
	double interval;
	enum view_order order;
	bool once;
};

enum { KEY_INTERVAL = 256, KEY_ONCE, KEY_SORT };

static const struct argp_option options[] = { { .name = "interval",
												  .key = KEY_INTERVAL,
												  .arg = "SECONDS",
												  .doc = "Looks at the run so often (2)" },
	{ .name = "once",
		.key = KEY_ONCE,
		.doc = "Prints the same once, as text; so it does where the output is no terminal" },
	{ .name = "sort",
		.key = KEY_SORT,
		.arg = "holding|rank|node|step|time",
		.doc = "The first of the ranks: those that hold others up, the lowest number or node, the "
			   "earliest step, the longest in one place (holding)" },
	{ 0 } };

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct arguments *given = state->input;
	switch (key) {
	case KEY_INTERVAL:
		if (!number_real(arg, 0.1, 86400, &given->interval))
			argp_error(state, "--interval %s is no time from 0.1 to 86400 seconds", arg);
		return 0;
	case KEY_ONCE: given->once = true; return 0;
	case KEY_SORT:
		given->order = view_order_of(arg);
		if (given->order == VIEW_ORDERS)
			argp_error(state, "--sort %s is none of holding, rank, node, step and time", arg);
		return 0;
	case ARGP_KEY_ARG:
		if (given->dir)
			argp_error(state, "give one checkpoint directory");
		given->dir = arg;
		return 0;
	case ARGP_KEY_END:
		if (!given->dir)
			argp_error(state, "give the checkpoint directory of a run");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static int print_once(struct run *run, enum view_order order, struct err *err)
{
	struct view view = { 0 };
	char line[PAGE_LINE_SIZE];
	if (view_update(&view, run, order, err) < 0)
		return -1;
	page_figures(&view, PAGE_LINE_SIZE, stdout);
	page_curve(&view, TEXT_COLUMNS, TEXT_ROWS, stdout);
	page_note(&view, line, sizeof line);
	printf("%s%s", line, line[0] ? "\n" : "");
	const int node_width = page_node_width(&view);
	if (view.count > 0) {
		page_title(node_width, PAGE_LINE_SIZE, line, sizeof line);
		puts(line);
	}
	for (size_t i = 0; i < view.count; i++) {
		page_rank(&view.ranks[i], node_width, PAGE_LINE_SIZE, line, sizeof line);
		puts(line);
	}
	view_clear(&view);
	return io_flush_output(err);
}

/* Returns as screen_show does. */
static int show(struct run *run, const struct arguments *given, struct err *err)
{
#ifdef HAVE_NCURSES
	if (!given->once && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
		return screen_show(run, given->interval, given->order, err);
#endif
	return print_once(run, given->order, err);
}

int main(int argc, char **argv)
{
	struct arguments given = { .interval = 2 };
	struct argp argp = { .options = options,
		.parser = parse_one,
		.args_doc = "DIR",
		.doc = "Shows the run in the checkpoint directory DIR as it goes on: step, loss, speed, "
			   "checkpoint, attempts, and where each rank stands.\vKeys: q leaves, arrows and "
			   "pages scroll, s sorts by the next of the orders, h tells what it all means." };
	struct run run;
	struct err err;
	descriptors_raise();
	setlocale(LC_CTYPE, "");
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &given);
	int rc = run_read(given.dir, &run, &err);
	if (rc == 0)
		rc = show(&run, &given, &err);
	run_close(&run);
	if (rc > 0) {
		signal(rc, SIG_DFL);
		raise(rc);
	}
	if (rc == 0)
		return EXIT_OK;
	fprintf(stderr, "muster-top: %s\n", err.text);
	return (int)err.status;
}
