/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of attempts.jsonl: whatever a crash has left in the file, a record that is
 * appended to it after a newline is the last one read, and no record before it changes. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/directory/attempts.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static const char appended[] = "\n{\"event\":\"end\",\"time\":5.5,\"cluster\":\"c\",\"job\":7,"
							   "\"attempt\":3,\"step\":11,\"why\":\"finished\",\"status\":0}\n";

static struct attempts_record *parse(const char *text, size_t size, size_t *count)
{
	struct attempts_record *records;
	struct err err;
	if (attempts_parse(text, size, &records, count, &err) < 0)
		abort();
	for (size_t i = 0; i < *count; i++)
		if (records[i].event > ATTEMPTS_END || !memchr(records[i].why, 0, sizeof records[i].why)
			|| !memchr(records[i].nodes, 0, sizeof records[i].nodes))
			abort();
	return records;
}

static void check_last(const struct attempts_record *last)
{
	if (last->event != ATTEMPTS_END || last->time != 5.5 || strcmp(last->cluster, "c") != 0
		|| last->job != 7 || last->attempt != 3 || last->step != 11
		|| strcmp(last->why, "finished") != 0 || last->status != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char *text = malloc(size + sizeof appended);
	size_t torn, whole, more;
	memcpy(text, bytes, size);
	memcpy(text + size, appended, sizeof appended);
	struct attempts_record *before = parse(text, size, &torn),
						   *closed = parse(text, size + 1, &whole);
	struct attempts_record *after = parse(text, size + sizeof appended - 1, &more);
	/* The newline may have completed the last line. */
	if (whole < torn || whole > torn + 1 || more != whole + 1)
		abort();
	check_last(&after[whole]);
	if (whole > 0 && memcmp(closed, after, whole * sizeof *after) != 0)
		abort();
	int vain = attempts_without_progress(after, more, &(struct attempts_asker) { "c", 7, 3 }, 11);
	if (vain < 0 || (size_t)vain > more)
		abort();
	free(before);
	free(closed);
	free(after);
	free(text);
	return 0;
}
