/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint directory with the records and metrics of a run, for the tests of what reads them.
 * Include after config.h and cmocka.h. */
#ifndef MUSTER_TEST_RUN_FOLDER_H
#define MUSTER_TEST_RUN_FOLDER_H

#include "common/bytes.h"
#include "common/clock.h"
#include "tests/unit/files.h"

#define START 1767225600.0 /* 2026-01-01T00:00:00Z */

static char folder[FILES_PATH_SIZE];

static inline FILE *open_file(const char *name)
{
	char path[FILES_PATH_SIZE + 64];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "a");
	assert_non_null(file);
	return file;
}

static inline int make_folder(void **state)
{
	(void)state;
	return files_make_folder(folder);
}

static inline int remove_folder(void **state)
{
	(void)state;
	return files_remove_folder(folder);
}

static inline void record(const char *event, int attempt, double time, int step, const char *more)
{
	FILE *file = open_file("attempts.jsonl");
	fprintf(file,
		"{\"event\":\"%s\",\"time\":%.3f,\"cluster\":\"c\",\"job\":7,\"attempt\":%d,\"step\":%d%s}"
		"\n",
		event, START + time, attempt, step, more);
	fclose(file);
}

/* The steps first to last of one second each, the first of which begins at `time`. Each has the
 * loss 1 / step, and `more`. */
static inline void steps(int attempt, int first, int last, double time, const char *more)
{
	char name[40], at[32];
	snprintf(name, sizeof name, "metrics-%d.jsonl", attempt);
	FILE *file = open_file(name);
	for (int step = first; step <= last; step++)
		fprintf(file,
			"{\"step\": %d, \"loss\": %.9g, \"loss_bits\": \"%08x\", \"milliseconds\": 1000, "
			"\"time\": \"%s\"%s}\n",
			step, 1.0 / step, bytes_of_float(1.0f / (float)step),
			clock_iso8601(START + time + step - first + 1, at, sizeof at), more);
	fclose(file);
}

static inline void save(int attempt, int step, double time, double stall)
{
	char name[40], at[32];
	snprintf(name, sizeof name, "metrics-%d.jsonl", attempt);
	FILE *file = open_file(name);
	fprintf(file,
		"{\"step\": %d, \"checkpoint\": {\"stall\": %g, \"flush\": 2, \"bytes\": 5000}, \"time\": "
		"\"%s\"}\n",
		step, stall, clock_iso8601(START + time, at, sizeof at));
	fclose(file);
}

/* The text that the model wrote after a step. */
static inline void sample(int attempt, int step)
{
	char name[40];
	snprintf(name, sizeof name, "metrics-%d.jsonl", attempt);
	FILE *file = open_file(name);
	fprintf(file, "{\"step\": %d, \"sample\": \"text %d of attempt %d\"}\n", step, step, attempt);
	fclose(file);
}

/* Three attempts: 20 steps, of which the first saves after 10 and is preempted with a save at 14,
 * the second is killed at 18, the third does 15 to 20. */
static inline void write_run(void)
{
	record("start", 0, 0, -1, ",\"world_size\":4,\"nodes\":\"n[1-4]\"");
	sample(0, 0);
	steps(0, 1, 10, 3, "");
	sample(0, 10);
	save(0, 10, 13.5, 0.5);
	steps(0, 11, 14, 13, "");
	save(0, 14, 18, 0.25);
	record("notice", 0, 16.5, 13, ",\"why\":\"SIGTERM\"");
	record("end", 0, 19, 14, ",\"why\":\"preempted\",\"status\":75");
	record("start", 1, 30, 14, ",\"world_size\":4,\"nodes\":\"n[1-4]\"");
	steps(1, 15, 18, 31, ", \"accuracy\": 0.5");
	sample(1, 18);
	/* From 37 to 47 it was in the queue. */
	record("start", 2, 50, 14,
		",\"world_size\":2,\"nodes\":\"n[5-6]\",\"submitted\":1767225637,\"started\":1767225647");
	steps(2, 15, 20, 52, ", \"accuracy\": 0.75");
	sample(2, 20);
	record("end", 2, 58.5, 20, ",\"why\":\"finished\",\"status\":0");
}

#endif
