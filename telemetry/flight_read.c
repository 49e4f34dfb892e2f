/* SPDX-License-Identifier: Apache-2.0 */
/* Reads another process's flight record (doc/flight-recorder-format.md), and words it. It trusts
 * nothing in the record. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "common/hash.h"
#include "telemetry/flight.h"

#define MAGIC "MSTAND01"
#define PART 256
#define HASHED (PART - 8)
#define WORLD_LIMIT (1 << 24)
#define TIME_LIMIT 1e12 /* seconds */

static bool is_sealed(const unsigned char *part)
{
	return bytes_le64(part + HASHED) == hash_bytes(part, HASHED).low;
}

/* A time; 0 for a value that can't be one. */
static double get_time(const unsigned char *at)
{
	uint64_t bits = bytes_le64(at);
	double value;
	memcpy(&value, &bits, sizeof value);
	return isfinite(value) && fabs(value) < TIME_LIMIT ? value : 0;
}

/* False unless the text ends within its field and is printable. */
static bool get_text(const unsigned char *at, char *out, size_t size)
{
	if (!memchr(at, 0, size))
		return false;
	memset(out, 0, size);
	for (size_t i = 0; at[i]; i++) {
		if (at[i] < ' ' || at[i] == 127)
			return false;
		out[i] = (char)at[i];
	}
	return true;
}

static int read_header(const unsigned char *at, struct flight_view *view, struct err *err)
{
	uint32_t rank = bytes_le32(at + 8), world = bytes_le32(at + 12), attempt = bytes_le32(at + 16);
	if (memcmp(at, MAGIC, 6) != 0)
		return err_fail(err, EXIT_DATA, "it is no record of where a rank stands");
	if (memcmp(at, MAGIC, 8) != 0)
		return err_fail(err, EXIT_DATA,
			"it was written by another version of Muster: read it with that one's muster-where");
	if (!is_sealed(at))
		return err_fail(err, EXIT_DATA, "its head is damaged");
	if (world > WORLD_LIMIT || rank >= world || attempt > INT32_MAX
		|| !get_text(at + 32, view->node, sizeof view->node)
		|| !get_text(at + 96, view->run, sizeof view->run))
		return err_fail(err, EXIT_DATA, "its head has values that no rank has");
	view->rank = (int)rank;
	view->world_size = (int)world;
	view->attempt = (int)attempt;
	view->process = bytes_le32(at + 20);
	view->wall = get_time(at + 24);
	return 0;
}

/* The newer whole entry of the two at `parts`; NULL for none. */
static const unsigned char *newer(const unsigned char *parts)
{
	const unsigned char *best = NULL;
	uint64_t highest = 0;
	for (int i = 0; i < 2; i++) {
		const unsigned char *entry = parts + i * PART;
		uint64_t number = bytes_le64(entry);
		if (number > highest && number % 2 == (i == 0) && is_sealed(entry)) {
			best = entry;
			highest = number;
		}
	}
	return best;
}

static void read_training(const unsigned char *entry, struct flight_view *view)
{
	uint32_t phase = bytes_le32(entry + 20);
	if (phase == 0 || phase >= FLIGHT_PHASES)
		return;
	view->phase = (enum flight_phase)phase;
	view->step = bytes_le64(entry + 8);
	view->slot = (int)bytes_le32(entry + 16);
	view->since = get_time(entry + 24);
	view->waits = get_time(entry + 32);
}

static void read_operation(const unsigned char *at, struct flight_operation *operation)
{
	operation->step = bytes_le64(at);
	operation->bytes = bytes_le64(at + 8);
	operation->entered = get_time(at + 16);
	operation->bucket = (int)bytes_le32(at + 24);
	if (!get_text(at + 32, operation->operation, sizeof operation->operation)
		|| !get_text(at + 48, operation->label, sizeof operation->label))
		*operation = (struct flight_operation) { .bucket = -1 };
}

int flight_read(const void *bytes, size_t size, struct flight_view *view, struct err *err)
{
	const unsigned char *at = bytes;
	*view = (struct flight_view) { .slot = -1, .now.bucket = -1, .finished.bucket = -1 };
	if (size != FLIGHT_SIZE)
		return err_fail(err, EXIT_DATA, "it has %zu bytes instead of %d", size, FLIGHT_SIZE);
	if (read_header(at, view, err) < 0)
		return -1;
	const unsigned char *training = newer(at + PART), *communicator = newer(at + 3 * PART);
	if (training)
		read_training(training, view);
	if (!communicator)
		return 0;
	view->finished_at = get_time(communicator + 8);
	read_operation(communicator + 16, &view->now);
	read_operation(communicator + 128, &view->finished);
	return 0;
}

/* ---- words ---- */

/* The words for a phase of a step, or of a slot of it. */
static const char *const phases[FLIGHT_PHASES] = {
	[FLIGHT_DATA] = "taking data for",
	[FLIGHT_COMPUTE] = "computing",
	[FLIGHT_REDUCE] = "ending the reduction of",
	[FLIGHT_UPDATE] = "updating the weights of",
	[FLIGHT_VALIDATE] = "validating after",
	[FLIGHT_SAVE] = "handing over the save of",
	[FLIGHT_CLOSE] = "ending the run after",
	[FLIGHT_FORWARD] = "in the forward pass of",
	[FLIGHT_BACKWARD] = "in the backward pass of",
	[FLIGHT_STEP] = "in",
	[FLIGHT_WORD] = "waiting for the other ranks after",
	[FLIGHT_SAMPLE] = "writing the sample text after",
};

static void phase_words(const struct flight_view *view, char *out, size_t size)
{
	const char *doing = phases[view->phase];
	if (!doing)
		snprintf(out, size, "%s",
			view->phase == FLIGHT_START ? "preparing the run" : "where its record does not tell");
	else if (view->slot >= 0)
		snprintf(out, size, "%s slot %d of step %" PRIu64, doing, view->slot, view->step);
	else if (view->step > 0)
		snprintf(out, size, "%s step %" PRIu64, doing, view->step);
	else
		snprintf(out, size, "%s a step", doing);
}

double flight_words(const struct flight_view *view, char *out, size_t size)
{
	if (view->waits > 0 && view->now.operation[0]) {
		snprintf(out, size, "waiting in %s of %s", view->now.operation, view->now.label);
		return view->now.entered > view->waits ? view->now.entered : view->waits;
	}
	phase_words(view, out, size);
	return view->since;
}

double flight_latest(const struct flight_view *view)
{
	return fmax(fmax(view->since, view->waits), fmax(view->now.entered, view->finished_at));
}

/* Never negative, since machines' clocks differ and a record may lie. */
static double ago(double now, double then)
{
	return now > then ? now - then : 0;
}

void flight_line(const struct flight_view *view, double now, char *out, size_t size)
{
	char words[160], bytes[48] = "", under_way[200] = "", finished[160] = "";
	double since = flight_words(view, words, sizeof words);
	if (view->now.operation[0] && view->waits > 0)
		snprintf(bytes, sizeof bytes, " (%" PRIu64 " bytes)", view->now.bytes);
	else if (view->now.operation[0])
		snprintf(under_way, sizeof under_way,
			", with %s of %s (%" PRIu64 " bytes, for %.1f s) under way", view->now.operation,
			view->now.label, view->now.bytes, ago(now, view->now.entered));
	if (view->finished.operation[0])
		snprintf(finished, sizeof finished, "; complete last: %s of %s, %.1f s ago",
			view->finished.operation, view->finished.label, ago(now, view->finished_at));
	snprintf(out, size, "%s%s for %.1f s%s%s", words, bytes, ago(now, since), under_way, finished);
}
