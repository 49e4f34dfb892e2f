/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a view, waits for keys and the next moment, and gives the terminal back. */
#include "config.h"

#include "top/screen.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "top/page.h"
#include "top/plain.h"
#include "top/terminal.h"

#define CURVE_PART 6       /* of the terminal's rows the curve has one in so many */
#define ROWS_WITH_CURVE 20 /* from which on there is a curve */
#define ROWS_OF_RANKS 2    /* at least, where there is room for more than one figure */

enum { RED = 1, YELLOW };

struct screen {
	struct run *run;
	struct view view;
	enum view_order order;
	size_t top; /* the first row of the table that is seen */
	size_t seen;
	bool help;
	char said[sizeof((struct err *)NULL)->text]; /* why the run can't be read; "" */
};

static volatile sig_atomic_t ended_by;

/* ---- drawing ---- */

/* Writes a line; what is outside of the terminal is left out. With `bar` it takes the whole row. */
static void put_line(int row, attr_t how, bool bar, const char *text)
{
	char line[PAGE_LINE_SIZE];
	if (row < 0 || row >= LINES)
		return;
	attron(how);
	const int columns = plain_fit(text, COLS, line, sizeof line);
	mvaddstr(row, 0, line);
	if (bar && columns < COLS)
		hline(' ' | how, COLS - columns);
	attroff(how);
}

static void put(int row, attr_t how, const char *text)
{
	put_line(row, how, false, text);
}

static void put_bar(int row, const char *text)
{
	put_line(row, A_REVERSE, true, text);
}

static attr_t color(int pair)
{
	return has_colors() ? (attr_t)COLOR_PAIR(pair) : 0;
}

/* Draws the lines of a text from the first row on, before the row `end`. Returns the next row. */
static int put_lines(char *text, int end)
{
	int row = 0;
	char *rest = NULL;
	for (char *line = strtok_r(text, "\n", &rest); line && row < end;
		 line = strtok_r(NULL, "\n", &rest)) {
		put(row, row == 0 ? A_BOLD : 0, line);
		row++;
	}
	return row;
}

/* Returns the row after the figures and the curve. */
static int draw_figures(const struct screen *screen)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return 0;
	page_figures(&screen->view, COLS, out);
	if (LINES >= ROWS_WITH_CURVE)
		page_curve(&screen->view, COLS, LINES / CURVE_PART, out);
	if (fclose(out) != 0)
		return 0;
	const int most = LINES - 2 - ROWS_OF_RANKS; /* beside the title and the last row */
	return put_lines(text, most > 1 ? most : 1);
}

static void draw_ranks(struct screen *screen, int row)
{
	const struct view *view = &screen->view;
	const int node_width = page_node_width(view);
	char line[PAGE_LINE_SIZE];
	page_title(node_width, COLS, line, sizeof line);
	put_bar(row++, line);
	screen->seen = row < LINES - 1 ? (size_t)(LINES - 1 - row) : 0;
	const size_t last = view->count > screen->seen ? view->count - screen->seen : 0;
	screen->top = screen->top < last ? screen->top : last;
	for (size_t i = screen->top; i < view->count && i - screen->top < screen->seen; i++) {
		const struct view_rank *rank = &view->ranks[i];
		page_rank(rank, node_width, COLS, line, sizeof line);
		put(row++, rank->holds ? A_BOLD | color(RED) : rank->waits ? color(YELLOW) : 0, line);
	}
	if (view->count == 0) {
		page_note(view, line, sizeof line);
		put(row, 0, line);
	}
}

/* Which rows of the table are seen, and what there is to say about it. */
static void draw_last_row(const struct screen *screen)
{
	const struct view *view = &screen->view;
	const size_t end = screen->top + screen->seen;
	char line[PAGE_LINE_SIZE], rows[80] = "", note[PAGE_LINE_SIZE / 2] = "";
	if (view->count > 0) {
		snprintf(rows, sizeof rows, "; %zu to %zu of %zu", screen->top + 1,
			end < view->count ? end : view->count, view->count);
		page_note(view, note, sizeof note);
	}
	if (screen->said[0])
		snprintf(line, sizeof line, "not read: %s", screen->said);
	else
		snprintf(line, sizeof line, "q quits, h helps, s sorts: %s%s%s%s",
			view_order_name(screen->order), rows, note[0] ? "; " : "", note);
	if (LINES > 1)
		put_bar(LINES - 1, line);
}

static void draw_help(void)
{
	static const char *const lines[] = {
		"muster-top",
		"",
		"q, Ctrl-C            leave",
		"up, down, k, j       scroll the ranks by one",
		"page up, page down   by a page; home, end: to the first, the last",
		"s                    sort by the next of: holding, rank, node, step, time",
		"h, ?                 this help; any other key ends it",
		"",
		"for      how long a rank has stood in this place",
		"behind   how much longer ago its latest change is than that of all ranks",
		">        others wait for this rank",
		".        this rank waits for others",
		"goodput  the part of the time since the beginning that went into steps that count",
	};
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		put((int)i, i == 0 ? A_BOLD : 0, lines[i]);
}

static void draw(struct screen *screen)
{
	erase();
	if (screen->help) {
		draw_help();
	} else {
		draw_ranks(screen, draw_figures(screen));
		draw_last_row(screen);
	}
	refresh();
}

/* ---- keys ---- */

static void scroll_by(struct screen *screen, long rows)
{
	if (rows < 0 && (size_t)-rows > screen->top)
		screen->top = 0;
	else
		screen->top += (size_t)rows; /* draw_ranks() keeps it in the table */
}

/* Returns whether the user leaves. */
static bool take_key(struct screen *screen, int key)
{
	const long page = screen->seen > 1 ? (long)screen->seen - 1 : 1;
	if (screen->help && key != KEY_RESIZE) {
		screen->help = false;
		return key == 'q';
	}
	switch (key) {
	case 'q': return true;
	case 'h':
	case '?': screen->help = true; break;
	case 's':
		screen->order = (screen->order + 1) % VIEW_ORDERS;
		view_sort(&screen->view, screen->order);
		screen->top = 0;
		break;
	case KEY_UP:
	case 'k': scroll_by(screen, -1); break;
	case KEY_DOWN:
	case 'j': scroll_by(screen, 1); break;
	case KEY_PPAGE: scroll_by(screen, -page); break;
	case KEY_NPAGE:
	case ' ': scroll_by(screen, page); break;
	case KEY_HOME: screen->top = 0; break;
	case KEY_END: screen->top = screen->view.count; break;
	default: break;
	}
	return false;
}

/* ---- the terminal ---- */

static void end(int signal_number)
{
	ended_by = signal_number;
}

/* Signals come only while wait_for() waits, so that none is missed between a look and a wait. Those
 * that end a program first give the terminal back; ncurses itself takes that of a new size. */
static void take_signals(sigset_t *before)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = end };
	sigset_t held;
	ended_by = 0;
	sigemptyset(&held);
	sigaddset(&held, SIGWINCH);
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
		sigaction(signals[i], &action, NULL);
		sigaddset(&held, signals[i]);
	}
	sigprocmask(SIG_BLOCK, &held, before);
}

static int begin(struct err *err)
{
	if (terminal_check(STDOUT_FILENO, err) < 0)
		return -1;
	if (!newterm(NULL, stdout, stdin))
		return err_fail(err, EXIT_USAGE, "the terminal can't show it: give --once");
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	if (has_colors()) {
		start_color();
		use_default_colors();
		init_pair(RED, COLOR_RED, -1);
		init_pair(YELLOW, COLOR_YELLOW, -1);
	}
	return 0;
}

/* Waits for a key, a new size, a signal, or the end of so many seconds. False when the terminal is
 * gone. */
static bool wait_for(double seconds, const sigset_t *signals)
{
	struct pollfd keys = { .fd = STDIN_FILENO, .events = POLLIN };
	const struct timespec most = { .tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
	const int rc = ppoll(&keys, 1, &most, signals);
	return rc < 0 ? errno == EINTR : !(keys.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* Takes all keys that have come. Returns whether the user leaves. */
static bool take_keys(struct screen *screen)
{
	for (int key; (key = getch()) != ERR;)
		if (take_key(screen, key))
			return true;
	return false;
}

static void look(struct screen *screen)
{
	struct err err = { .text = "" };
	view_update(&screen->view, screen->run, screen->order, &err);
	memcpy(screen->said, err.text, sizeof screen->said);
}

static void watch(struct screen *screen, double interval, const sigset_t *signals)
{
	struct deadline next = deadline_in(interval);
	for (bool over = false; !over && !ended_by;) {
		draw(screen);
		over = !wait_for(deadline_left(next), signals) || take_keys(screen);
		if (over || !deadline_passed(next))
			continue;
		look(screen);
		next = deadline_in(interval);
	}
}

int screen_show(struct run *run, double interval, enum view_order order, struct err *err)
{
	struct screen screen = { .run = run, .order = order };
	sigset_t before;
	if (view_update(&screen.view, run, order, err) < 0)
		return -1;
	take_signals(&before);
	const int rc = begin(err);
	if (rc == 0) {
		watch(&screen, interval, &before);
		endwin();
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	view_clear(&screen.view);
	return rc < 0 ? -1 : ended_by;
}
