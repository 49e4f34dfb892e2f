/* SPDX-License-Identifier: Apache-2.0 */
/* Commits a save by several writers once all parts are durable, and discards one. */
#include "checkpoint/save/ckpt_save.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/pending_save.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"

/* Checks that each file exists with its size, so that no folder is renamed that can't be whole. The
 * writers have made the bytes durable and hashed them. */
static int check_files(const struct pending_save *saving, const struct manifest *manifest,
	uint64_t *bytes, struct err *err)
{
	struct stat st;
	for (size_t i = 0; i < manifest->file_count; i++) {
		const struct manifest_file *file = &manifest->files[i];
		if (fstatat(saving->fd, file->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_fail(err, errno == ENOENT ? EXIT_LOST : io_status(errno),
				"checkpoint: couldn't find %s/%s/%s: %m", saving->dir->path, saving->hidden,
				file->name);
		if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != file->size)
			return err_fail(err, EXIT_DATA,
				"checkpoint: %s/%s/%s does not have its %" PRIu64 " bytes", saving->dir->path,
				saving->hidden, file->name, file->size);
		*bytes += file->size;
	}
	return 0;
}

static int commit(struct pending_save *saving, const struct manifest *manifest, const char *token,
	struct save_result *made, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	if (manifest_encode(manifest, &text, &size, err) < 0)
		return -1;
	int there = pending_save_open(saving, err);
	/* Without a folder the save may already be committed, which the rename finds out. */
	if (there < 0
		|| (there
			&& (check_files(saving, manifest, &made->bytes, err) < 0
				|| pending_save_put(saving, MANIFEST_NAME, text, size, err) < 0)))
		return -1;
	made->bytes += size;
	return pending_save_commit(saving, text, size, token, &made->taken, err);
}

int ckpt_commit(const struct ckpt_dir *dir, int64_t step, const char *token, int parts,
	char *const *texts, const size_t *sizes, struct save_result *result, struct err *err)
{
	struct err own;
	struct pending_save saving;
	struct save_result made = { .outcome = SAVE_DURABLE, .step = step };
	double began = clock_now();
	err = err ? err : &own;
	pending_save_init(&saving, dir, step, token);
	struct manifest *manifest = ckpt_part_join(texts, sizes, parts, step, token, err);
	int rc = manifest ? commit(&saving, manifest, token, &made, err) : -1;
	if (rc < 0)
		pending_save_give_up(&saving);
	pending_save_close(&saving);
	manifest_destroy(manifest);
	made.seconds = clock_now() - began;
	if (rc == 0 && result)
		*result = made;
	return rc;
}

int ckpt_discard(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err)
{
	struct pending_save saving;
	pending_save_init(&saving, dir, step, token);
	return pending_save_discard(&saving, err);
}
