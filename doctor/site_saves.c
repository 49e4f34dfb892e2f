/* SPDX-License-Identifier: Apache-2.0 */
/* How long a save took, from a run's metrics (doc/metrics-format.md): the longest save of the
 * newest attempt that made one. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "checks/site.h"
#include "common/auto.h"
#include "common/io.h"

#define METRICS_LIMIT ((size_t)1 << 30)

static bool read_line(struct site *site, const json_t *line)
{
	const json_t *save = json_object_get(line, "checkpoint");
	const json_t *stall = json_object_get(save, "stall"), *flush = json_object_get(save, "flush");
	const json_t *bytes = json_object_get(save, "bytes");
	if (!json_is_number(stall) || !json_is_number(flush) || !json_is_integer(bytes))
		return false;
	double seconds = json_number_value(stall) + json_number_value(flush);
	if (site->save_stall < 0 || seconds > site->save_stall + site->save_flush) {
		site->save_stall = json_number_value(stall);
		site->save_flush = json_number_value(flush);
	}
	if (json_integer_value(bytes) > site->save_bytes)
		site->save_bytes = json_integer_value(bytes);
	return true;
}

bool site_read_metrics(struct site *site, const char *text, size_t size)
{
	bool any = false;
	for (size_t at = 0; at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t length = (end ? (size_t)(end - text) : size) - at;
		/* Most lines are about steps. A torn last line does not count. */
		json_t *line = end && memmem(text + at, length, "\"checkpoint\"", 12)
			? json_loadb(text + at, length, 0, NULL)
			: NULL;
		any |= line && read_line(site, line);
		json_decref(line);
		at += length + 1;
	}
	return any;
}

/* The highest number of a metrics file that is below `below`; -1: there is none. */
static int newest_below(DIR *folder, int below)
{
	int best = -1, number, used;
	rewinddir(folder);
	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
		if (sscanf(entry->d_name, "metrics-%9d.jsonl%n", &number, &used) == 1
			&& !entry->d_name[used] && number < below && number > best)
			best = number;
	return best;
}

void site_read_saves(struct site *site, const char *dir)
{
	DIR *folder = opendir(dir);
	bool any = false;
	for (int n = folder ? newest_below(folder, 1 << 30) : -1; n >= 0 && !any;
		 n = newest_below(folder, n)) {
		char name[64];
		AUTO_FREE char *text = NULL;
		size_t size;
		snprintf(name, sizeof name, "metrics-%d.jsonl", n);
		if (io_read_file(dirfd(folder), name, METRICS_LIMIT, &text, &size, NULL) == 0)
			any = site_read_metrics(site, text, size);
	}
	if (folder)
		closedir(folder);
}
