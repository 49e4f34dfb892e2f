/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and appends attempts.jsonl, one JSON object a line. A crash can tear only the last line.
 * The next append starts with a newline, so that the torn text becomes a line of its own, which
 * every reader skips. */
#include "checkpoint/directory/attempts.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"

#define SIZE_LIMIT (256u << 20)

static const char *const events[] = {
	[ATTEMPTS_START] = "start",
	[ATTEMPTS_NOTICE] = "notice",
	[ATTEMPTS_END] = "end",
};

#define EVENTS (sizeof events / sizeof events[0])

/* ---- append ---- */

/* Seconds since the epoch; 0: not known. */
static json_t *set_time(json_t *object, const char *name, double time)
{
	return time > 0 ? record_set(object, name, json_real(time)) : object;
}

static json_t *set_words(json_t *object, const char *name, const char *words)
{
	return words[0] ? record_set(object, name, json_string(words)) : object;
}

static json_t *encode(const struct attempts_record *record)
{
	double time = record->time > 0 ? record->time : clock_wall();
	json_t *object = json_pack("{s:s, s:f, s:s, s:I, s:i, s:I}", "event", events[record->event],
		"time", time, "cluster", record->cluster, "job", (json_int_t)record->job, "attempt",
		record->attempt, "step", (json_int_t)record->step);
	if (record->restart)
		object = record_set(object, "restart", json_integer(record->restart));
	if (record->event == ATTEMPTS_START) {
		object = record_set(object, "world_size", json_integer(record->world_size));
		object = record_set(object, "nodes", json_string(record->nodes));
		object = set_words(object, "left_out", record->left_out);
		object = set_words(object, "machine", record->machine);
		object = set_words(object, "version", record->version);
		object = set_time(object, "submitted", record->submitted);
		object = set_time(object, "started", record->started);
		object = set_time(object, "limit", record->limit);
		if (record->steps > 0)
			object = record_set(object, "steps", json_integer(record->steps));
	} else {
		object = record_set(object, "why", json_string(record->why));
	}
	if (record->event == ATTEMPTS_END)
		object = record_set(object, "status", json_integer(record->status));
	return object;
}

/* Whether the file ends in the middle of a line. */
static bool is_torn(int fd)
{
	struct stat st;
	char last;
	return fstat(fd, &st) == 0 && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1
		&& last != '\n';
}

int attempts_append(const struct ckpt_dir *dir, const struct attempts_record *record,
	struct err *err)
{
	json_t *object = encode(record);
	AUTO_FREE char *text = record_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(object);
	if (!text)
		return err_set(err, "attempts: couldn't encode a record");
	AUTO_FREE char *line = malloc(strlen(text) + 3);
	if (!line)
		return err_set(err, "attempts: no memory");
	int fd =
		openat(dir->fd, ATTEMPTS_NAME, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return err_fail(err, io_status(errno), "attempts: couldn't open %s/" ATTEMPTS_NAME ": %m",
			dir->path);
	int length = sprintf(line, "%s%s\n", is_torn(fd) ? "\n" : "", text);
	bool failed = io_write_full(fd, line, (size_t)length) < 0 || fsync(fd) < 0;
	int why = errno;
	if (close(fd) < 0 && !failed) {
		failed = true;
		why = errno;
	}
	errno = why;
	if (failed)
		return err_fail(err, io_status(why), "attempts: couldn't write %s/" ATTEMPTS_NAME ": %m",
			dir->path);
	return io_sync_dir(dir->fd, err);
}

/* ---- read ---- */

static bool decode(const json_t *object, struct attempts_record *record)
{
	const char *event = json_string_value(json_object_get(object, "event"));
	const json_t *attempt = json_object_get(object, "attempt"),
				 *job = json_object_get(object, "job"),
				 *restart = json_object_get(object, "restart");
	const json_t *step = json_object_get(object, "step");
	size_t kind = 0;
	while (event && kind < EVENTS && strcmp(events[kind], event) != 0)
		kind++;
	if (!event || kind == EVENTS || !record_in_range(attempt, 0, INT_MAX)
		|| !record_in_range(job, 0, UINT32_MAX)
		|| (restart && !record_in_range(restart, 0, INT_MAX))
		|| !record_in_range(step, -1, INT64_MAX))
		return false;
	*record = (struct attempts_record) {
		.event = (enum attempts_event)kind,
		.time = json_number_value(json_object_get(object, "time")),
		.job = (uint32_t)json_integer_value(job),
		.attempt = (int)json_integer_value(attempt),
		.restart = (int)json_integer_value(restart),
		.step = json_integer_value(step),
		.world_size = (int)json_integer_value(json_object_get(object, "world_size")),
		.submitted = json_number_value(json_object_get(object, "submitted")),
		.started = json_number_value(json_object_get(object, "started")),
		.limit = json_number_value(json_object_get(object, "limit")),
		.steps = json_integer_value(json_object_get(object, "steps")),
		.status = (int)json_integer_value(json_object_get(object, "status")),
	};
	record_text(record->cluster, sizeof record->cluster, json_object_get(object, "cluster"));
	record_text(record->nodes, sizeof record->nodes, json_object_get(object, "nodes"));
	record_text(record->left_out, sizeof record->left_out, json_object_get(object, "left_out"));
	record_text(record->machine, sizeof record->machine, json_object_get(object, "machine"));
	record_text(record->version, sizeof record->version, json_object_get(object, "version"));
	record_text(record->why, sizeof record->why, json_object_get(object, "why"));
	return true;
}

/* 1: a record; 0: none, as another version of Muster or a crash may have left; -1: no memory. */
static int parse_line(const char *line, size_t length, struct attempts_record *record)
{
	struct err why = { 0 };
	json_t *object = record_parse(line, length, JSON_REJECT_DUPLICATES, "a line", &why);
	bool good = object && decode(object, record);
	json_decref(object);
	return why.status == EXIT_LOST ? -1 : good;
}

/* A last line without its newline was never acknowledged: it does not count, even if it can be
 * parsed. */
int attempts_parse(const char *text, size_t size, struct attempts_record **records, size_t *count,
	struct err *err)
{
	*records = NULL;
	*count = 0;
	for (const char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text)));
		 line = end + 1) {
		struct attempts_record record, *more = NULL;
		int rc = parse_line(line, (size_t)(end - line), &record);
		if (rc == 0)
			continue;
		if (rc > 0)
			more = realloc(*records, (*count + 1) * sizeof record);
		if (!more) {
			free(*records);
			*records = NULL;
			return err_set(err, "attempts: no memory");
		}
		*records = more;
		more[(*count)++] = record;
	}
	return 0;
}

int attempts_read(const struct ckpt_dir *dir, struct attempts_record **records, size_t *count,
	struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	*records = NULL;
	*count = 0;
	if (faccessat(dir->fd, ATTEMPTS_NAME, F_OK, 0) < 0 && errno == ENOENT)
		return 0;
	if (io_read_file(dir->fd, ATTEMPTS_NAME, SIZE_LIMIT, &text, &size, err) < 0)
		return err_prefix(err, "attempts");
	return attempts_parse(text, size, records, count, err);
}

/* ---- the crash loop breaker ---- */

/* What is known about an attempt while its records are read from the last to the first. */
struct seen {
	double notice; /* time of the notice; 0: none */
	bool failed, finished;
};

/* A notice in the second half of an attempt's time does not excuse it: Slurm sends one at the time
 * limit too, even to an attempt that hangs before its first step. */
static bool was_cut_short(const struct seen *seen, const struct attempts_record *start)
{
	return seen->notice > 0 && !seen->failed
		&& (start->limit <= 0 || seen->notice - start->time < (start->limit - start->time) / 2);
}

/* When a rank crashes, the job is requeued, and the other ranks take the SIGTERM of that requeue
 * for a notice. The status of the attempt's end tells the two apart. */
static void see(struct seen *seen, const struct attempts_record *record)
{
	if (record->event == ATTEMPTS_NOTICE)
		seen->notice = record->time;
	if (record->event != ATTEMPTS_END)
		return;
	seen->failed = record->status != EXIT_REQUEUE;
	seen->finished |= record->status == EXIT_OK;
}

int attempts_without_progress(const struct attempts_record *records, size_t count,
	const struct attempts_asker *asker, int64_t newest)
{
	int streak = 0, attempt = asker->attempt, restart = asker->restart;
	struct seen seen = { 0 };
	if (asker->job == 0)
		return 0;
	for (size_t i = count; i-- > 0;) {
		const struct attempts_record *record = &records[i];
		if (record->job != asker->job
			|| (record->attempt == asker->attempt && record->restart == asker->restart)
			|| strcmp(record->cluster, asker->cluster) != 0)
			continue;
		see(&seen, record);
		if (record->event != ATTEMPTS_START)
			continue;
		/* `newest` is now the newest step that was durable when this attempt ended */
		if (was_cut_short(&seen, record) || seen.finished || newest > record->step)
			return streak;
		streak += record->attempt != attempt || record->restart != restart;
		attempt = record->attempt;
		restart = record->restart;
		newest = record->step;
		seen = (struct seen) { 0 };
	}
	return streak;
}
