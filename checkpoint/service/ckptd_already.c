/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for the names that a finished commit or part leaves. Any doubt counts as no: then the save
 * is done as if it were new. */
#include "checkpoint/service/ckptd_already.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/ckpt_save.h"
#include "checkpoint/save/pending_save.h"
#include "common/auto.h"
#include "common/io.h"

bool ckptd_already_committed(const struct ckpt_dir *dir, int64_t step, const char *token)
{
	char path[CKPT_STEP_NAME_SIZE + sizeof "/" MANIFEST_NAME];
	AUTO_FREE char *text = NULL;
	struct stat st;
	size_t size;
	ckpt_step_name(step, path);
	if (fstatat(dir->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	strcat(path, "/" MANIFEST_NAME);
	if (io_read_file(dir->fd, path, MANIFEST_SIZE_MAX, &text, &size, NULL) < 0)
		return false;
	struct manifest *manifest = manifest_parse(text, size, NULL, NULL);
	bool ours = manifest && manifest->step == step && strcmp(manifest->token, token) == 0;
	manifest_destroy(manifest);
	/* The earlier service may have died after the rename and before it was durable. */
	return ours && io_sync_dir(dir->fd, NULL) == 0;
}

char *ckptd_already_part(const struct ckpt_dir *dir, int64_t step, const char *token, int part,
	int parts, size_t *size)
{
	char name[CKPT_PART_NAME_SIZE];
	struct pending_save saving;
	AUTO_FREE char *text = NULL;
	pending_save_init(&saving, dir, step, token);
	if (pending_save_open(&saving, NULL) <= 0)
		return NULL;
	bool good = io_read_file(saving.fd, ckpt_part_name(part, parts, name), MANIFEST_SIZE_MAX, &text,
					size, NULL)
			== 0
		&& ckpt_part_check(text, *size, step, token, part, parts, NULL) == 0
		&& io_sync_dir(saving.fd, NULL) == 0 && io_sync_dir(dir->fd, NULL) == 0;
	pending_save_close(&saving);
	return good ? AUTO_TAKE(text) : NULL;
}
