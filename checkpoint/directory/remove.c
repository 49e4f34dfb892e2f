/* SPDX-License-Identifier: Apache-2.0 */
/* Removes checkpoints and leftovers. A folder is renamed before its files are removed, so that a
 * reader finds it whole or not at all. */
#include "checkpoint/directory/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/pin.h"
#include "checkpoint/directory/removable.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/log.h"

#define REMOVING_PREFIX ".removing-"

/* Returns the number of files removed, or -1. *open is set when NFS keeps some: its client renames
 * a file that is removed while a process has it open, and removes it when the process closes it. */
static int remove_files(int fd, const char *name, bool *open, struct err *err)
{
	DIR *stream = io_open_list(fd);
	struct dirent *entry;
	int removed = 0;
	bool failed = false;
	if (!stream)
		return err_fail(err, io_status(errno), "checkpoint: couldn't list %s: %m", name);
	while ((entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(fd, entry->d_name, 0) == 0)
			removed++;
		else if (errno == EBUSY && strncmp(entry->d_name, ".nfs", 4) == 0)
			*open = true;
		else if (errno != ENOENT)
			failed = err_fail(err, io_status(errno), "checkpoint: couldn't remove %s/%s: %m", name,
				entry->d_name);
	}
	closedir(stream);
	return failed ? -1 : removed;
}

int remove_folder(int dirfd, const char *name, struct err *err)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT
			? 0
			: err_fail(err, io_status(errno), "checkpoint: couldn't open %s: %m", name);
	/* The manifest first: a half removed folder must not look whole. */
	if (unlinkat(fd, MANIFEST_NAME, 0) < 0 && errno != ENOENT)
		return err_fail(err, io_status(errno),
			"checkpoint: couldn't remove %s/" MANIFEST_NAME ": %m", name);
	int removed;
	bool open;
	/* Repeat: a server that lists by position skips some names while others are removed. */
	do {
		open = false;
		removed = remove_files(fd, name, &open, err);
		if (removed < 0)
			return -1;
		if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
	} while (removed > 0 && (errno == ENOTEMPTY || errno == EEXIST));
	return open ? 0 : err_fail(err, io_status(errno), "checkpoint: couldn't remove %s: %m", name);
}

/* Gives a folder that was renamed for removal its name back, unless a newer folder has that name by
 * now. */
static int rename_back(const struct ckpt_dir *dir, const char *away, const char *name,
	struct err *err)
{
	if (renameat(dir->fd, away, dir->fd, name) < 0)
		return err_fail(err, io_status(errno),
			"checkpoint: couldn't rename the pinned %s/%s back to %s: %m", dir->path, away, name);
	return io_sync_dir(dir->fd, err);
}

static bool holds_manifest(int dirfd, const char *folder)
{
	char path[CKPT_STEP_NAME_SIZE + 64 + sizeof "/" MANIFEST_NAME];
	snprintf(path, sizeof path, "%s/" MANIFEST_NAME, folder);
	return faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether `away` is a pinned checkpoint, left by a removal that was killed before it looked for a
 * pin. If so, it gets its name back, or at least stays. */
static bool is_saved_by_pin(const struct ckpt_dir *dir, const char *away)
{
	static const char prefix[] = REMOVING_PREFIX;
	char name[CKPT_STEP_NAME_SIZE];
	struct stat st;
	struct err why;
	const char *step = away + sizeof prefix - 1, *end = strrchr(away, '-');
	if (strncmp(away, prefix, sizeof prefix - 1) != 0 || end <= step
		|| end - step >= CKPT_STEP_NAME_SIZE)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)(end - step), step);
	if (ckpt_step_of(name) < 0 || !holds_manifest(dir->fd, away)
		|| pin_is_set(dir->fd, away, NULL) == 0
		|| fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return false;
	if (rename_back(dir, away, name, &why) < 0)
		log_warn("%s", why.text);
	return true;
}

/* Renames `name` to `away`, which is to be removed. Returns 1, 0 if `name` does not exist, -1 on
 * error. */
static int move_away(const struct ckpt_dir *dir, const char *name, const char *away,
	struct err *err)
{
	/* A killed removal may have left a pinned checkpoint at `away`: it gets its name back, or the
	 * rename below fails. */
	if (!is_saved_by_pin(dir, away) && remove_folder(dir->fd, away, err) < 0)
		return -1;
	if (renameat(dir->fd, name, dir->fd, away) == 0)
		return 1;
	return errno == ENOENT
		? 0
		: err_fail(err, io_status(errno), "checkpoint: couldn't rename %s/%s to remove it: %m",
			dir->path, name);
}

int remove_saving(const struct ckpt_dir *dir, const char *name, struct err *err)
{
	char away[CKPT_STEP_NAME_SIZE + 80];
	const char *rest = strchr(name, '-');
	snprintf(away, sizeof away, REMOVING_PREFIX "%s", rest ? rest + 1 : name);
	int moved = move_away(dir, name, away, err);
	return moved <= 0 ? moved : remove_folder(dir->fd, away, err) < 0 ? -1 : 1;
}

int remove_step(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE], away[CKPT_STEP_NAME_SIZE + 64];
	AUTO_CLOSE int lock = -1;
	snprintf(away, sizeof away, REMOVING_PREFIX "%s-%s", ckpt_step_name(step, name), token);
	if (owner_verify(dir, token, err) < 0)
		return -1;
	if (!removable_check(dir, step, &lock, err))
		return 1;
	int moved = move_away(dir, name, away, err);
	if (moved <= 0)
		return moved < 0
			? -1
			: err_fail(err, EXIT_FAULT, "checkpoint: there is no %s/%s to remove", dir->path, name);
	/* Durable before the first file goes, so that no crash brings the name back without the
	 * files. */
	if (io_sync_dir(dir->fd, err) < 0)
		return err_prefix(err, "checkpoint: %s: %s", dir->path, name);
	/* Not earlier: pin_set, if it creates a pin later, finds that the name is gone (pin.c). */
	const int pinned = pin_is_set(dir->fd, away, err);
	if (pinned != 0) {
		if (rename_back(dir, away, name, err) < 0)
			return -1;
		err_fail(err, pinned > 0 ? EXIT_FAULT : EXIT_LOST, "checkpoint: step %" PRId64 " stays: %s",
			step, pinned > 0 ? "it is pinned" : "whether it is pinned can't be known");
		return 1;
	}
	/* NFS does not remove a file that is open. A reader that locks the manifest from now on sees
	 * that the name is gone. */
	if (lock >= 0)
		close(lock);
	lock = -1;
	return remove_folder(dir->fd, away, err);
}

/* Whether a killed process of another owner left `name` behind. The temporary files of owner.json
 * are removed by owner_claim. */
static bool is_leftover(const char *name, const char *token)
{
	static const char *const prefixes[] = { CKPT_SAVING_PREFIX "step-", REMOVING_PREFIX "step-",
		".probe-", ".latest." };
	size_t length = strlen(name), tail = strlen(token);
	if (length > tail && strcmp(name + length - tail, token) == 0)
		return false;
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static int remove_leftover(const struct ckpt_dir *dir, const char *name, struct err *err)
{
	if (strncmp(name, CKPT_SAVING_PREFIX, sizeof CKPT_SAVING_PREFIX - 1) == 0)
		return remove_saving(dir, name, err) < 0 ? -1 : 0;
	return remove_folder(dir->fd, name, err);
}

int remove_leftovers(const struct ckpt_dir *dir, const char *token, struct err *err)
{
	int removed = 0;
	struct dirent *entry;
	if (owner_verify(dir, token, err) < 0)
		return -1;
	DIR *stream = io_open_list(dir->fd);
	if (!stream)
		return err_fail(err, io_status(errno), "checkpoint: couldn't list %s: %m", dir->path);
	while ((entry = readdir(stream))) {
		struct err why;
		if (!is_leftover(entry->d_name, token) || is_saved_by_pin(dir, entry->d_name))
			continue;
		if (unlinkat(dir->fd, entry->d_name, 0) == 0
			|| remove_leftover(dir, entry->d_name, &why) == 0)
			removed++;
		else
			log_warn("%s", why.text);
	}
	closedir(stream);
	return removed;
}

/* The step of `name` if it is the hidden folder of a save or of a removal by the owner with
 * `token`; else -1. */
static int64_t own_leftover(const char *name, const char *token)
{
	static const char *const prefixes[] = { CKPT_SAVING_PREFIX, REMOVING_PREFIX };
	char folder[CKPT_STEP_NAME_SIZE], own[CKPT_STEP_NAME_SIZE + 64];
	int64_t step;
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
		size_t length = strlen(prefixes[i]);
		if (strncmp(name, prefixes[i], length) != 0
			|| sscanf(name + length, "step-%" SCNd64, &step) != 1 || step < 0)
			continue;
		snprintf(own, sizeof own, "%s%s-%s", prefixes[i], ckpt_step_name(step, folder), token);
		return strcmp(name, own) == 0 ? step : -1;
	}
	return -1;
}

void remove_own_leftovers(const struct ckpt_dir *dir, int64_t step, const char *token)
{
	struct dirent *entry;
	struct err why;
	DIR *stream = io_open_list(dir->fd);
	while (stream && (entry = readdir(stream))) {
		int64_t left = own_leftover(entry->d_name, token);
		if (left >= 0 && left <= step && !is_saved_by_pin(dir, entry->d_name)
			&& remove_leftover(dir, entry->d_name, &why) < 0)
			log_warn("%s", why.text);
	}
	if (stream)
		closedir(stream);
}

/* What retention needs to know of a checkpoint. One that can't be read now counts as pinned, until
 * the next time. */
static struct retention_item describe(const struct ckpt_dir *dir, int64_t step, bool losses)
{
	char name[CKPT_STEP_NAME_SIZE];
	struct retention_item item = { .step = step, .validation_loss = NAN };
	item.pinned = pin_is_set(dir->fd, ckpt_step_name(step, name), NULL) != 0;
	struct manifest *manifest = losses ? ckpt_dir_manifest(dir, step, NULL) : NULL;
	if (manifest)
		item.validation_loss = manifest->validation_loss;
	else if (losses)
		item.pinned |= errno != 0 && errno != ENOENT;
	manifest_destroy(manifest);
	return item;
}

int remove_expired(const struct ckpt_dir *dir, const struct retention *policy, const char *token,
	struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	struct err why;
	if (owner_verify(dir, token, err) < 0)
		return -1;
	if (ckpt_dir_steps(dir, &steps, &count, &why) < 0) {
		log_warn("%s", why.text);
		return 0;
	}
	AUTO_FREE struct retention_item *items = calloc(count + 1, sizeof *items);
	AUTO_FREE int64_t *remove = calloc(count + 1, sizeof *remove);
	for (size_t i = 0; items && i < count; i++)
		items[i] = describe(dir, steps[i], policy->keep_best > 0);
	size_t picked = items && remove ? retention_pick(policy, items, count, remove) : 0;
	for (size_t i = 0; i < picked; i++) {
		if (remove_step(dir, remove[i], token, &why) >= 0)
			continue;
		if (owner_verify(dir, token, err) < 0)
			return -1;
		log_warn("%s", why.text);
	}
	return 0;
}
