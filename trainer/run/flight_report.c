/* SPDX-License-Identifier: Apache-2.0 */
/* Other ranks' records come with the goodbyes that they sent over the connections that still work.
 * For ranks that sent none, their record's file is read where that is possible. */
#include "trainer/run/flight_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "telemetry/flight_table.h"

/* Reads a rank's last words. *now is that rank's clock at that time. */
static bool hear(const struct run *run, int rank, struct flight_view *view, double *now)
{
	unsigned char record[FLIGHT_SIZE];
	struct err ignored;
	return comm_last_words(run->comm, rank, record, now)
		&& flight_read(record, sizeof record, view, &ignored) == 0 && view->rank == rank;
}

/* Whether this rank logs the table. A rank that computes hears of the failure late, so the lowest
 * rank that waited does. */
static bool is_speaker(const struct run *run)
{
	struct flight_view view;
	double now;
	for (int rank = 0; rank < run->ident.world_size; rank++)
		if (hear(run, rank, &view, &now) && view.waits > 0)
			return rank == run->ident.rank;
	return run->ident.rank == 0;
}

static void describe_silent(const struct run *run, struct flight_row *row)
{
	struct flight_view view;
	char words[160];
	row->silent = true;
	snprintf(row->words, sizeof row->words, "no answer");
	if (flight_file_peek(&run->flight_file, row->rank, &view) < 0 || view.rank != row->rank)
		return;
	double since = flight_words(&view, words, sizeof words) + view.wall;
	snprintf(row->words, sizeof row->words, "no answer; by its record it was %s", words);
	row->since = clock_wall() > since ? clock_wall() - since : 0;
}

static struct flight_row describe(const struct run *run, int rank)
{
	struct flight_row row = { .rank = rank };
	struct flight_view view;
	double now;
	const char *node = strstr(comm_peer(run->comm, rank), " on ");
	snprintf(row.node, sizeof row.node, "%.63s", node ? node + 4 : "");
	if (!hear(run, rank, &view, &now)) {
		describe_silent(run, &row);
		return row;
	}
	double since = flight_words(&view, row.words, sizeof row.words);
	row.since = since > 0 && now > since ? now - since : 0;
	return row;
}

static void say(void *arg, const char *line)
{
	log_error("  %s", line);
}

static void tell_all(const struct run *run)
{
	size_t count = (size_t)run->ident.world_size;
	AUTO_FREE struct flight_row *rows = calloc(count, sizeof *rows);
	if (!rows)
		return;
	for (size_t i = 0; i < count; i++)
		rows[i] = describe(run, (int)i);
	log_error("where the %d ranks stood:", run->ident.world_size);
	flight_table(rows, count, false, say, NULL);
}

void flight_report(const struct run *run)
{
	struct flight_view view;
	char line[600];
	double now;
	if (!hear(run, run->ident.rank, &view, &now))
		return;
	flight_line(&view, now, line, sizeof line);
	log_error("this rank stood: %s", line);
	if (run->ident.world_size > 1 && is_speaker(run))
		tell_all(run);
}
