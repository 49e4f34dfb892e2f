/* SPDX-License-Identifier: Apache-2.0 */
/* Joins what the files of a checkpoint directory tell of a run. */
#include "config.h"

#include "runs/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "common/clock.h"

/* ---- reading ---- */

/* Gives an attempt's new rows to its table. */
static int add_rows(struct run_table *table, struct run_table *more, struct err *err)
{
	if (table->count > 0 || table->samples)
		return run_table_merge(table, more, err);
	run_table_clear(table);
	*table = *more;
	*more = (struct run_table) { 0 };
	return 0;
}

/* Reads what an attempt has logged since the last call. One without a metrics file has logged
 * nothing; that is no error. */
static int read_metrics(struct run *run, size_t attempt, struct err *err)
{
	struct run_table more;
	int rc = run_table_read_more(run->dir.fd, (int)attempt, &run->read[attempt], &more, err);
	if (rc < 0 && errno == ENOENT)
		rc = 0;
	else if (rc < 0)
		err_prefix(err, "%s", run->dir.path);
	if (rc == 0 && (more.count > 0 || more.samples)
		&& (run_table_merge(&run->curve, &more, err) < 0
			|| add_rows(&run->tables[attempt], &more, err) < 0))
		rc = -1;
	const int why = errno;
	run_table_clear(&more);
	errno = why;
	return rc;
}

static int make_room(struct run *run, size_t attempts, struct err *err)
{
	struct run_table *tables = realloc(run->tables, attempts * sizeof *tables);
	run->tables = tables ? tables : run->tables;
	struct history_row *rows = realloc(run->rows, attempts * sizeof *rows);
	run->rows = rows ? rows : run->rows;
	off_t *read = realloc(run->read, attempts * sizeof *read);
	run->read = read ? read : run->read;
	if (!tables || !rows || !read)
		return err_set(err, "runs: out of memory");
	for (; run->attempts < attempts; run->attempts++) {
		tables[run->attempts] = (struct run_table) { 0 };
		read[run->attempts] = 0;
	}
	return 0;
}

static size_t count_starts(const struct attempts_record *records, size_t count)
{
	size_t starts = 0;
	for (size_t i = 0; i < count; i++)
		starts += records[i].event == ATTEMPTS_START;
	return starts;
}

/* Of the attempts before the newest, those that ended by the last call have logged all they ever
 * will. */
static int read_tables(struct run *run, struct err *err)
{
	for (; run->unread < run->attempts; run->unread++)
		if (read_metrics(run, run->unread, err) < 0)
			return -1;
	run->unread--;
	return 0;
}

/* Takes the records over. */
static int read_attempts(struct run *run, struct attempts_record *records, size_t count,
	struct err *err)
{
	if (make_room(run, count_starts(records, count), err) < 0) {
		free(records);
		return -1;
	}
	free(run->records);
	run->records = records;
	run->record_count = count;
	const int rc = read_tables(run, err), why = errno;
	history_rows(records, count, run->tables, owner_beats(&run->dir), clock_wall(), run->rows);
	errno = why;
	return rc;
}

static int read_newest(struct run *run, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	if (ckpt_dir_steps(&run->dir, &steps, &count, err) < 0)
		return -1;
	for (size_t i = count; i-- > 0 && steps[i] != run->saved;) {
		struct manifest *manifest = ckpt_dir_manifest(&run->dir, steps[i], NULL);
		if (!manifest)
			continue; /* damaged, or removed in this moment */
		json_decref(run->config);
		json_decref(run->numerics);
		run->config = json_incref(manifest->config);
		run->numerics = json_incref(manifest->numerics);
		run->saved = manifest->step;
		run->saved_at = manifest->time;
		manifest_destroy(manifest);
		break;
	}
	return 0;
}

int run_read(const char *path, struct run *run, struct err *err)
{
	struct attempts_record *records;
	size_t count;
	*run = (struct run) { .dir.fd = -1, .saved = -1 };
	if (ckpt_dir_open_existing(&run->dir, path, err) < 0
		|| attempts_read(&run->dir, &records, &count, err) < 0)
		return -1;
	if (count_starts(records, count) == 0) {
		free(records);
		return err_fail(err, EXIT_USAGE,
			"%s has no record of an attempt: give the checkpoint directory of a training",
			run->dir.path);
	}
	return read_attempts(run, records, count, err) < 0 ? -1 : read_newest(run, err);
}

/* Whether these are the records of the run that was read, at the path where it was. */
static bool goes_on(const struct run *run, const struct attempts_record *records, size_t count)
{
	struct stat named, opened;
	return stat(run->dir.path, &named) == 0 && fstat(run->dir.fd, &opened) == 0
		&& named.st_dev == opened.st_dev && named.st_ino == opened.st_ino
		&& count >= run->record_count && records[0].time == run->records[0].time;
}

static int read_anew(struct run *run, struct err *err)
{
	struct run fresh;
	if (run_read(run->dir.path, &fresh, err) < 0) {
		run_close(&fresh);
		return -1;
	}
	run_close(run);
	*run = fresh;
	return 0;
}

int run_update(struct run *run, struct err *err)
{
	struct attempts_record *records;
	size_t count;
	if (attempts_read(&run->dir, &records, &count, err) < 0)
		return -1;
	if (!goes_on(run, records, count)) {
		free(records);
		return read_anew(run, err);
	}
	if (read_attempts(run, records, count, err) < 0)
		return errno == ESTALE ? read_anew(run, err) : -1;
	return read_newest(run, err);
}

void run_close(struct run *run)
{
	for (size_t n = 0; n < run->attempts; n++)
		run_table_clear(&run->tables[n]);
	run_table_clear(&run->curve);
	json_decref(run->config);
	json_decref(run->numerics);
	free(run->records);
	free(run->tables);
	free(run->rows);
	free(run->read);
	ckpt_dir_close(&run->dir);
	*run = (struct run) { .dir.fd = -1, .saved = -1 };
}

/* ---- time ---- */

static double sum_of(const struct run_table *table, const char *name)
{
	const double *values = run_table_column(table, name);
	double sum = 0;
	for (size_t row = 0; values && row < table->count; row++)
		sum += isnan(values[row]) ? 0 : values[row];
	return sum;
}

double run_starting(const struct run *run, size_t attempt)
{
	const struct run_table *table = &run->tables[attempt];
	for (size_t row = 0; row < table->count; row++) {
		const double time = run_table_value(table, "time", row);
		const double seconds = run_table_value(table, "milliseconds", row) / 1e3;
		if (!isnan(time) && !isnan(seconds))
			return fmax(time - seconds - run->rows[attempt].began, 0);
	}
	return NAN;
}

double run_saving(const struct run *run, size_t attempt)
{
	return run_table_column(&run->tables[attempt], "checkpoint.stall")
		? sum_of(&run->tables[attempt], "checkpoint.stall")
		: NAN;
}

static double known(double seconds)
{
	return isnan(seconds) ? 0 : seconds;
}

/* When the last attempt ended, or did the last thing that is known. */
static double end_of(const struct run *run)
{
	const struct history_row *last = &run->rows[run->attempts - 1];
	return last->began + known(last->seconds);
}

struct run_time run_time(const struct run *run)
{
	struct run_time time = { .wall = end_of(run) - run->rows[0].began,
		.training = sum_of(&run->curve, "milliseconds") / 1e3 };
	double steps = 0;
	for (size_t n = 0; n < run->attempts; n++) {
		steps += sum_of(&run->tables[n], "milliseconds") / 1e3;
		time.starting += known(run_starting(run, n));
		time.saving += known(run_saving(run, n));
		const double waited = fmax(known(run->rows[n].waited), 0);
		const double queued =
			n + 1 < run->attempts ? fmin(known(run->rows[n + 1].queued), waited) : 0;
		time.queued += queued;
		time.waiting += waited - queued;
	}
	time.redone = fmax(steps - time.training, 0);
	time.other =
		fmax(time.wall - steps - time.queued - time.waiting - time.starting - time.saving, 0);
	time.goodput = time.wall > 0 ? time.training / time.wall : NAN;
	return time;
}
