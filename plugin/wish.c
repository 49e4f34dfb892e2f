/* SPDX-License-Identifier: Apache-2.0 */
/* Stored as one argument a line, in a file of root's. */
#include "plugin/wish.h"

#include <stdio.h>
#include <string.h>

#include "plugin/job_folder.h"

#define BATCH_NAME "batch-host"
#define FINAL "--final="

static const char *const names[] = { [WISH_ASKED] = "requeue-asked", [WISH_IN_VAIN] = "requeue" };

static bool is_final(char *const *argv)
{
	for (; *argv; argv++)
		if (strncmp(*argv, FINAL, strlen(FINAL)) == 0)
			return true;
	return false;
}

void wish_write(const char *run, uint32_t job, enum wish_kind kind, char *const *argv)
{
	struct wish old;
	char text[WISH_SIZE] = "";
	size_t used = 0;
	if (wish_read(run, job, kind, &old) && (is_final(argv) || !is_final(old.argv)))
		return;
	for (; *argv; argv++) {
		/* Only a path for --progress can be too long or contain a newline: it is left out. */
		if (strchr(*argv, '\n') || used + strlen(*argv) + 2 > sizeof text)
			continue;
		used += (size_t)sprintf(text + used, "%s\n", *argv);
	}
	job_folder_need(run, job);
	job_folder_write(run, job, names[kind], text, NULL);
}

bool wish_read(const char *run, uint32_t job, enum wish_kind kind, struct wish *wish)
{
	char *rest = NULL;
	int n = 0;
	if (!job_folder_read(run, job, names[kind], wish->text, sizeof wish->text))
		return false;
	for (char *line = strtok_r(wish->text, "\n", &rest); line && n < WISH_ARGUMENTS;
		 line = strtok_r(NULL, "\n", &rest))
		wish->argv[n++] = line;
	wish->argv[n] = NULL;
	return n > 0;
}

void wish_drop(const char *run, uint32_t job, enum wish_kind kind)
{
	struct wish wish;
	if (wish_read(run, job, kind, &wish))
		job_folder_write(run, job, names[kind], "", NULL);
}

void wish_mark_batch_host(const char *run, uint32_t job)
{
	job_folder_need(run, job);
	job_folder_write(run, job, BATCH_NAME, "1\n", NULL);
}

bool wish_is_batch_host(const char *run, uint32_t job)
{
	char text[8];
	return job_folder_read(run, job, BATCH_NAME, text, sizeof text);
}
