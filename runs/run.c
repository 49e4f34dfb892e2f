/* SPDX-License-Identifier: Apache-2.0 */
/* Joins what the files of a checkpoint directory tell of a run. */
#include "config.h"

#include "runs/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "common/clock.h"

/* ---- reading ---- */

/* An attempt without a metrics file has logged nothing; that is no error. */
static int read_table(const struct ckpt_dir *dir, size_t attempt, struct run_table *table,
	struct err *err)
{
	if (run_table_read(dir->fd, (int)attempt, table, err) == 0 || errno == ENOENT)
		return 0;
	return err_prefix(err, "%s", dir->path);
}

static int read_attempts(struct run *run, struct err *err)
{
	size_t starts = 0;
	if (attempts_read(&run->dir, &run->records, &run->record_count, err) < 0)
		return -1;
	for (size_t i = 0; i < run->record_count; i++)
		starts += run->records[i].event == ATTEMPTS_START;
	if (starts == 0)
		return err_fail(err, EXIT_USAGE,
			"%s has no record of an attempt: give the checkpoint directory of a training",
			run->dir.path);
	run->tables = calloc(starts, sizeof *run->tables);
	run->rows = calloc(starts, sizeof *run->rows);
	if (!run->tables || !run->rows)
		return err_set(err, "runs: out of memory");
	run->attempts = starts;
	for (size_t n = 0; n < starts; n++)
		if (read_table(&run->dir, n, &run->tables[n], err) < 0
			|| run_table_merge(&run->curve, &run->tables[n], err) < 0)
			return -1;
	history_rows(run->records, run->record_count, run->tables, owner_beats(&run->dir), clock_wall(),
		run->rows);
	return 0;
}

static int read_config(struct run *run, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	if (ckpt_dir_steps(&run->dir, &steps, &count, err) < 0)
		return -1;
	for (size_t i = count; i-- > 0;) {
		struct manifest *manifest = ckpt_dir_manifest(&run->dir, steps[i], NULL);
		if (!manifest)
			continue; /* damaged, or removed in this moment */
		run->config = json_incref(manifest->config);
		run->numerics = json_incref(manifest->numerics);
		manifest_destroy(manifest);
		break;
	}
	return 0;
}

int run_read(const char *path, struct run *run, struct err *err)
{
	*run = (struct run) { .dir.fd = -1 };
	if (ckpt_dir_open_existing(&run->dir, path, err) < 0 || read_attempts(run, err) < 0
		|| read_config(run, err) < 0)
		return -1;
	return 0;
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
	ckpt_dir_close(&run->dir);
	*run = (struct run) { .dir.fd = -1 };
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
		time.waiting += fmax(known(run->rows[n].waited), 0);
	}
	time.redone = fmax(steps - time.training, 0);
	time.other = fmax(time.wall - steps - time.waiting - time.starting - time.saving, 0);
	time.goodput = time.wall > 0 ? time.training / time.wall : NAN;
	return time;
}
