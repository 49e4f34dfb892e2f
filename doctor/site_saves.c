/* SPDX-License-Identifier: Apache-2.0 */
/* How long a save took, from a run's metrics (doc/metrics-format.md): the longest save of the
 * newest attempt that made one. */
#include "config.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

#include "checks/site.h"
#include "common/auto.h"
#include "common/io.h"
#include "runs/run_table.h"

static bool read_row(struct site *site, const struct run_table *table, size_t row)
{
	const double stall = run_table_value(table, "checkpoint.stall", row);
	const double flush = run_table_value(table, "checkpoint.flush", row);
	const double bytes = run_table_value(table, "checkpoint.bytes", row);
	if (isnan(stall) || isnan(flush) || isnan(bytes))
		return false;
	if (site->save_stall < 0 || stall + flush > site->save_stall + site->save_flush) {
		site->save_stall = stall;
		site->save_flush = flush;
	}
	if ((int64_t)bytes > site->save_bytes)
		site->save_bytes = (int64_t)bytes;
	return true;
}

static bool read_table(struct site *site, const struct run_table *table)
{
	bool any = false;
	for (size_t row = 0; row < table->count; row++)
		any |= read_row(site, table, row);
	return any;
}

bool site_read_metrics(struct site *site, const char *text, size_t size)
{
	struct run_table table;
	const bool any = run_table_parse(text, size, &table, NULL) == 0 && read_table(site, &table);
	run_table_clear(&table);
	return any;
}

void site_read_saves(struct site *site, const char *dir)
{
	AUTO_FREE int *attempts = NULL;
	DIR *folder = opendir(dir);
	size_t count = 0;
	bool any = false;
	if (folder && run_table_list(dirfd(folder), &attempts, &count, NULL) < 0)
		count = 0;
	while (count > 0 && !any) {
		struct run_table table;
		any = run_table_read(dirfd(folder), attempts[--count], &table, NULL) == 0
			&& read_table(site, &table);
		run_table_clear(&table);
	}
	if (folder)
		closedir(folder);
}
