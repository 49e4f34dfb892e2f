/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the record of where a rank stands: as it comes, and with right hashes, so
 * that what they guard is reached, too. What is accepted can be put into words of one line. */
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/hash.h"
#include "telemetry/flight.h"
#include "telemetry/flight_table.h"

#define PART 256

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void take_line(void *arg, const char *line)
{
	if (strchr(line, '\n'))
		abort();
}

static void read_record(const unsigned char *bytes, size_t size)
{
	struct flight_view view;
	struct err err = { .text = "" };
	char line[600];
	if (flight_read(bytes, size, &view, &err) < 0) {
		if (err.status != EXIT_DATA || !err.text[0] || strchr(err.text, '\n'))
			abort();
		return;
	}
	if (view.rank < 0 || view.rank >= view.world_size || !memchr(view.node, 0, sizeof view.node)
		|| !memchr(view.run, 0, sizeof view.run) || view.phase >= FLIGHT_PHASES)
		abort();
	flight_line(&view, 1e6, line, sizeof line);
	if (strchr(line, '\n'))
		abort();
	struct flight_row row = { .rank = view.rank };
	row.since = flight_words(&view, row.words, sizeof row.words) + view.wall;
	memcpy(row.node, view.node, sizeof row.node);
	flight_table(&row, 1, view.rank % 2, take_line, NULL);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	unsigned char sealed[FLIGHT_SIZE] = "MSTAND01";
	read_record(bytes, size);
	if (size > 8)
		memcpy(sealed + 8, bytes + 8, (size < FLIGHT_SIZE ? size : FLIGHT_SIZE) - 8);
	for (int part = 0; part < FLIGHT_SIZE / PART; part++)
		bytes_put_le64(sealed + part * PART + PART - 8,
			hash_bytes(sealed + part * PART, PART - 8).low);
	read_record(sealed, sizeof sealed);
	return 0;
}
