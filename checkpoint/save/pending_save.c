/* SPDX-License-Identifier: Apache-2.0 */
/* The hidden folder, and the rename that commits it. Before the rename nothing changes that a
 * reader looks at, so any earlier fault costs only this save. */
#include "checkpoint/save/pending_save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/load/ckpt.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/log.h"

/* Seconds for which an I/O error is retried while an existing folder of our step is checked. */
#define EXISTING_IO_TIMEOUT 10.0

/* ---- the folder ---- */

void pending_save_init(struct pending_save *saving, const struct ckpt_dir *dir, int64_t step,
	const char *token)
{
	*saving = (struct pending_save) { .dir = dir, .step = step, .fd = -1 };
	ckpt_step_name(step, saving->name);
	snprintf(saving->hidden, sizeof saving->hidden, CKPT_SAVING_PREFIX "%s-%s", saving->name,
		token);
}

int pending_save_open(struct pending_save *saving, struct err *err)
{
	saving->fd =
		openat(saving->dir->fd, saving->hidden, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (saving->fd >= 0)
		return 1;
	if (errno == ENOENT)
		return 0;
	return err_fail(err, io_status(errno), "checkpoint: couldn't open %s/%s: %m", saving->dir->path,
		saving->hidden);
}

int pending_save_make(struct pending_save *saving, bool fresh, struct err *err)
{
	const struct ckpt_dir *dir = saving->dir;
	if (fresh && pending_save_discard(saving, err) < 0)
		return -1;
	if (mkdirat(dir->fd, saving->hidden, 0755) < 0 && (fresh || errno != EEXIST))
		return err_fail(err, io_status(errno), "checkpoint: couldn't make %s/%s: %m", dir->path,
			saving->hidden);
	int opened = pending_save_open(saving, err);
	return opened > 0 ? 0
		: opened < 0
		? -1
		: err_fail(err, EXIT_LOST, "checkpoint: %s/%s went away: its save was given up", dir->path,
			saving->hidden);
}

void pending_save_close(struct pending_save *saving)
{
	if (saving->fd >= 0)
		close(saving->fd);
	saving->fd = -1;
}

int pending_save_discard(const struct pending_save *saving, struct err *err)
{
	return remove_saving(saving->dir, saving->hidden, err) < 0 ? -1 : 0;
}

void pending_save_give_up(const struct pending_save *saving)
{
	struct err why;
	if (pending_save_discard(saving, &why) < 0)
		log_warn("checkpoint: couldn't remove an unfinished save: %s", why.text);
}

int pending_save_put(const struct pending_save *saving, const char *name, const char *text,
	size_t size, struct err *err)
{
	if (size > MANIFEST_SIZE_MAX)
		return err_set(err, "checkpoint: %zu bytes are too many for %s: give a larger shard size",
			size, name);
	if (io_replace_durably(saving->fd, name, text, size, err) < 0)
		return err_prefix(err, "checkpoint: %s/%s", saving->dir->path, saving->hidden);
	return 0;
}

/* ---- the rename ---- */

/* Whether the folder of our step has our own manifest: then a rename whose answer was lost on the
 * network has succeeded. */
static bool is_committed(const struct pending_save *saving, const char *text, size_t size)
{
	char path[CKPT_STEP_NAME_SIZE + sizeof "/" MANIFEST_NAME];
	AUTO_FREE char *found = NULL;
	size_t found_size;
	snprintf(path, sizeof path, "%s/" MANIFEST_NAME, saving->name);
	return io_read_file(saving->dir->fd, path, MANIFEST_SIZE_MAX, &found, &found_size, NULL) == 0
		&& found_size == size && memcmp(found, text, size) == 0;
}

/* Checks an existing folder of our step. Returns 1 if it verifies (then ours is discarded), 0 if it
 * was set aside, -1 on error. */
static int look_at_existing(const struct pending_save *saving, struct err *err)
{
	struct ckpt *ckpt;
	int result = ckpt_open(saving->dir, saving->step, EXISTING_IO_TIMEOUT, &ckpt, err);
	if (result == 0) {
		result = ckpt_verify(ckpt, err);
		ckpt_close(ckpt);
	}
	if (result == CKPT_DAMAGED) {
		struct err why = *err;
		return ckpt_dir_set_aside(saving->dir, saving->step, why.text, err);
	}
	return result < 0 ? -1 : 1;
}

/* Returns 0 when renamed, 1 when a valid checkpoint already has the name, -1 on error. */
static int rename_folder(const struct pending_save *saving, const char *text, size_t size,
	struct err *err)
{
	int fd = saving->dir->fd;
	for (int attempt = 0; attempt < 2; attempt++) {
		if (renameat(fd, saving->hidden, fd, saving->name) == 0)
			return 0;
		int why = errno;
		if (is_committed(saving, text, size))
			return 0;
		if (why != EEXIST && why != ENOTEMPTY)
			return err_fail(err, io_status(why), "checkpoint: couldn't rename %s/%s to %s: %s",
				saving->dir->path, saving->hidden, saving->name, strerror(why));
		int existing = look_at_existing(saving, err);
		if (existing != 0)
			return existing;
	}
	return err_set(err, "checkpoint: couldn't commit %s/%s: its name is taken again and again",
		saving->dir->path, saving->name);
}

static void point_latest(const struct pending_save *saving)
{
	char line[CKPT_STEP_NAME_SIZE + 1];
	struct err err;
	int length = snprintf(line, sizeof line, "%s\n", saving->name);
	if (io_replace_durably(saving->dir->fd, "latest", line, (size_t)length, &err) < 0)
		log_warn("checkpoint: %s is saved, but the hint \"latest\" is not: %s", saving->name,
			err.text);
}

int pending_save_commit(const struct pending_save *saving, const char *text, size_t size,
	const char *token, bool *taken, struct err *err)
{
	if (owner_verify(saving->dir, token, err) < 0)
		return -1;
	int renamed = rename_folder(saving, text, size, err);
	if (renamed < 0)
		return -1;
	*taken = renamed == 1;
	if (*taken)
		pending_save_give_up(saving);
	if (io_sync_dir(saving->dir->fd, err) < 0)
		return err_prefix(err,
			"checkpoint: %s/%s is complete, but may not outlive a crash of the storage",
			saving->dir->path, saving->name);
	point_latest(saving);
	return 0;
}
