/* SPDX-License-Identifier: Apache-2.0 */
/* Groups the ranks by the place where they stand, and prints one line a group. */
#include "telemetry/flight_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

#define NODES_NAMED 8 /* nodes that a line names; the rest are only counted */
#define RANGES_NAMED 16

static int compare(const void *a, const void *b)
{
	const struct flight_row *x = a, *y = b;
	int words = strcmp(x->words, y->words);
	if (x->silent != y->silent)
		return x->silent - y->silent;
	return words ? words : (x->rank > y->rank) - (x->rank < y->rank);
}

static bool same_place(const struct flight_row *a, const struct flight_row *b)
{
	return a->silent == b->silent && strcmp(a->words, b->words) == 0;
}

static void append(char *out, size_t size, const char *separator, const char *text)
{
	size_t length = strlen(out);
	snprintf(out + length, size - length, "%s%s", length ? separator : "", text);
}

/* "0, 2-5"; rows are sorted by rank. */
static void name_ranks(const struct flight_row *rows, size_t count, char *out, size_t size)
{
	int ranges = 0;
	out[0] = '\0';
	for (size_t i = 0, end; i < count; i = end) {
		char range[40];
		for (end = i + 1; end < count && rows[end].rank == rows[end - 1].rank + 1; end++)
			;
		if (ranges++ == RANGES_NAMED) {
			snprintf(range, sizeof range, "and %zu more", count - i);
			append(out, size, " ", range);
			return;
		}
		if (end - i > 1)
			snprintf(range, sizeof range, "%d-%d", rows[i].rank, rows[end - 1].rank);
		else
			snprintf(range, sizeof range, "%d", rows[i].rank);
		append(out, size, ", ", range);
	}
}

/* " on n1, n3": each node once, in rank order; "" if none is known. */
static void name_nodes(const struct flight_row *rows, size_t count, char *out, size_t size)
{
	int nodes = 0;
	char more[40], named[NODES_NAMED][64];
	out[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		bool known = !rows[i].node[0];
		for (int j = 0; j < nodes && j < NODES_NAMED && !known; j++)
			known = strcmp(named[j], rows[i].node) == 0;
		if (known)
			continue;
		if (nodes < NODES_NAMED) {
			memcpy(named[nodes], rows[i].node, sizeof named[nodes]);
			append(out, size, ", ", rows[i].node);
		}
		nodes++;
	}
	snprintf(more, sizeof more, "and more");
	if (nodes > NODES_NAMED)
		append(out, size, " ", more);
}

static void name_time(const struct flight_row *rows, size_t count, bool moments, char *out,
	size_t size)
{
	double least = rows[0].since, most = rows[0].since;
	char moment[32];
	for (size_t i = 1; i < count; i++) {
		least = rows[i].since < least ? rows[i].since : least;
		most = rows[i].since > most ? rows[i].since : most;
	}
	if (least <= 0)
		out[0] = '\0';
	else if (moments)
		snprintf(out, size, " since %s", clock_iso8601(least, moment, sizeof moment));
	else if (most - least < 0.1)
		snprintf(out, size, " for %.1f s", most);
	else
		snprintf(out, size, " for %.1f to %.1f s", least, most);
}

/* Prints one group; the group's first rank decides its position among those that answered. */
static void say_group(const struct flight_row *rows, size_t count, bool moments, flight_say *say,
	void *arg)
{
	char line[1600], ranks[400], nodes[600], time[64];
	name_ranks(rows, count, ranks, sizeof ranks);
	name_nodes(rows, count, nodes, sizeof nodes);
	name_time(rows, count, moments, time, sizeof time);
	snprintf(line, sizeof line, "%s %s%s%s: %s%s", count > 1 ? "ranks" : "rank", ranks,
		nodes[0] ? " on " : "", nodes, rows[0].words, time);
	say(arg, line);
}

void flight_table(struct flight_row *rows, size_t count, bool moments, flight_say *say, void *arg)
{
	if (count > 0)
		qsort(rows, count, sizeof *rows, compare);
	for (size_t i = 0, end; i < count; i = end) {
		for (end = i + 1; end < count && same_place(&rows[i], &rows[end]); end++)
			;
		say_group(rows + i, end - i, moments, say, arg);
	}
}
