/* SPDX-License-Identifier: Apache-2.0 */
/* Makes saves of a checkpoint directory fail, root's too: a folder has the name of their file.
 * Include after cmocka.h. */
#ifndef MUSTER_BLOCKED_SAVE_H
#define MUSTER_BLOCKED_SAVE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKED_SAVE_WORDS "model-00001-of-00001.safetensors" /* are in the error */

/* The folder of the save while it is made, or removed. */
static inline void blocked_save_folder(const char *dir, const char *state, int64_t step,
	char out[500])
{
	char owner[600], name[400];
	snprintf(name, sizeof name, "%.350s/owner.json", dir);
	FILE *file = fopen(name, "r");
	assert_non_null(file);
	owner[fread(owner, 1, sizeof owner - 1, file)] = '\0';
	fclose(file);
	const char *token = strstr(owner, "\"token\":");
	assert_non_null(token);
	token = strchr(token + strlen("\"token\":"), '"') + 1;
	snprintf(out, 500, "%.350s/%s-step-%08lld-%.32s", dir, state, (long long)step, token);
}

/* The save of `step` by the owner of `dir` will fail. */
static inline void blocked_save_begin(const char *dir, int64_t step)
{
	char folder[500], name[600];
	blocked_save_folder(dir, ".saving", step, folder);
	snprintf(name, sizeof name, "%s/" BLOCKED_SAVE_WORDS, folder);
	assert_int_equal(mkdir(folder, 0755), 0);
	assert_int_equal(mkdir(name, 0755), 0);
}

/* It has failed: the next one of the step will not. */
static inline void blocked_save_end(const char *dir, int64_t step)
{
	static const char *const states[] = { ".saving", ".removing" };
	char folder[500], name[600];
	for (int i = 0; i < 2; i++) {
		blocked_save_folder(dir, states[i], step, folder);
		snprintf(name, sizeof name, "%s/" BLOCKED_SAVE_WORDS, folder);
		rmdir(name);
		rmdir(folder);
	}
}

#endif
