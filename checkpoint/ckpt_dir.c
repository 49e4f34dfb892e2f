/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the checkpoint directory, and the three things that happen to step folders: listed, set aside, removed. */
#include "checkpoint/ckpt_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/manifest.h"
#include "checkpoint/owner.h"
#include "checkpoint/pin.h"
#include "checkpoint/removable.h"
#include "checkpoint/retention.h"
#include "checkpoint/saving.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/log.h"

#define PROBE_BYTES 4096
#define DAMAGED_MAX 1000
#define REMOVING_PREFIX ".removing-"

/* ---- opening ---- */

static int path_fault(const char *verb, const char *path, struct err *err)
{
	return err_fail(err, io_status_or(errno, EXIT_USAGE), "checkpoint: couldn't %s %s: %m; give a directory on shared storage "
		"that you can write to and that has room", verb, path);
}

/* Makes one folder and its name durable. */
static int make_folder(const char *path, struct err *err)
{
	char parent[sizeof ((struct ckpt_dir *)0)->path];
	if (mkdir(path, 0755) < 0)
		return errno == EEXIST ? 0 : path_fault("make", path, err);
	snprintf(parent, sizeof parent, "%s", path);
	char *slash = strrchr(parent, '/');
	if (!slash)
		strcpy(parent, ".");
	else
		slash[slash == parent] = '\0';
	AUTO_CLOSE int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return path_fault("fsync", parent, err);
	return 0;
}

static int make_path(const char *path, struct err *err)
{
	char part[sizeof ((struct ckpt_dir *)0)->path];
	struct stat st;
	snprintf(part, sizeof part, "%s", path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		/* Parents that exist need not be writable. */
		if (stat(part, &st) < 0 && make_folder(part, err) < 0)
			return -1;
		*slash = '/';
	}
	return stat(path, &st) == 0 ? 0 : make_folder(path, err);
}

/* Writes a block for good: a directory that can't be written to, or has no room, is told of before the training. */
static int probe(const struct ckpt_dir *dir, struct err *err)
{
	static const char block[PROBE_BYTES];
	char name[300], host[64] = "";
	gethostname(host, sizeof host - 1);
	snprintf(name, sizeof name, ".probe-%s-%d", host, (int)getpid());
	unlinkat(dir->fd, name, 0);
	int fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return path_fault("create a file in", dir->path, err);
	int failed = io_write_full(fd, block, sizeof block) < 0 || fsync(fd) < 0;
	int why = errno;
	if (close(fd) < 0 && !failed) {
		failed = 1;
		why = errno;
	}
	unlinkat(dir->fd, name, 0);
	errno = why;
	return failed ? path_fault("write in", dir->path, err) : 0;
}

/* Takes the path over, without slashes at its end. */
static int set_path(struct ckpt_dir *dir, const char *path, struct err *err)
{
	dir->fd = -1;
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	if (length == 0 || length >= sizeof dir->path)
		return err_fail(err, EXIT_USAGE, "checkpoint: the directory's path is empty or too long");
	snprintf(dir->path, sizeof dir->path, "%.*s", (int)length, path);
	return 0;
}

int ckpt_dir_open_existing(struct ckpt_dir *dir, const char *path, struct err *err)
{
	if (set_path(dir, path, err) < 0)
		return -1;
	dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return err_fail(err, io_status_or(errno, EXIT_USAGE), "checkpoint: couldn't open %s: %m; give a checkpoint directory",
			dir->path);
	return 0;
}

int ckpt_dir_open(struct ckpt_dir *dir, const char *path, struct err *err)
{
	if (set_path(dir, path, err) < 0 || make_path(dir->path, err) < 0)
		return -1;
	dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return path_fault("open", dir->path, err);
	if (probe(dir, err) < 0) {
		ckpt_dir_close(dir);
		return -1;
	}
	return 0;
}

void ckpt_dir_close(struct ckpt_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
}

/* ---- names ---- */

char *ckpt_step_name(int64_t step, char out[CKPT_STEP_NAME_SIZE])
{
	snprintf(out, CKPT_STEP_NAME_SIZE, "step-%08" PRId64, step);
	return out;
}

int64_t ckpt_step_of(const char *name)
{
	char again[CKPT_STEP_NAME_SIZE];
	int64_t step;
	if (strlen(name) >= CKPT_STEP_NAME_SIZE || sscanf(name, "step-%" SCNd64, &step) != 1 || step < 0 ||
		strcmp(ckpt_step_name(step, again), name) != 0)
		return -1;
	return step;
}

static int by_step(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

int ckpt_dir_steps(const struct ckpt_dir *dir, int64_t **steps, size_t *count, struct err *err)
{
	*steps = NULL;
	*count = 0;
	DIR *stream = io_open_list(dir->fd);
	if (!stream)
		return err_fail(err, io_status(errno), "checkpoint: couldn't list %s: %m", dir->path);
	struct dirent *entry;
	while (errno = 0, (entry = readdir(stream))) {
		int64_t step = ckpt_step_of(entry->d_name);
		if (step < 0)
			continue;
		int64_t *more = realloc(*steps, (*count + 1) * sizeof **steps);
		if (!more) {
			errno = ENOMEM;
			break;
		}
		*steps = more;
		more[(*count)++] = step;
	}
	int why = errno;
	closedir(stream);
	if (why) {
		free(*steps);
		*steps = NULL;
		errno = why;
		return err_fail(err, io_status(why), "checkpoint: couldn't list %s: %m", dir->path);
	}
	if (*count > 0) /* else *steps is NULL */
		qsort(*steps, *count, sizeof **steps, by_step);
	return 0;
}

bool ckpt_dir_names(const struct ckpt_dir *dir, const char *name, int fd)
{
	struct stat named, opened;
	return fstatat(dir->fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0
		&& named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

struct manifest *ckpt_dir_manifest(const struct ckpt_dir *dir, int64_t step, struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE], path[CKPT_STEP_NAME_SIZE + sizeof "/" MANIFEST_NAME];
	AUTO_FREE char *text = NULL;
	size_t size;
	snprintf(path, sizeof path, "%s/" MANIFEST_NAME, ckpt_step_name(step, name));
	if (io_read_file(dir->fd, path, MANIFEST_SIZE_MAX, &text, &size, err) < 0)
		return NULL;
	struct manifest *manifest = manifest_parse(text, size, NULL, err);
	errno = 0;
	return manifest;
}

/* ---- set aside ---- */

int ckpt_dir_set_aside(const struct ckpt_dir *dir, int64_t step, const char *why, struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE], aside[CKPT_STEP_NAME_SIZE + 32];
	struct stat st;
	ckpt_step_name(step, name);
	for (int n = 1; n <= DAMAGED_MAX; n++) {
		snprintf(aside, sizeof aside, "%s.damaged-%d", name, n);
		if (fstatat(dir->fd, aside, &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (renameat(dir->fd, name, dir->fd, aside) == 0) {
			log_error("checkpoint: %s/%s is DAMAGED (%s); it is kept as %s and an older one is used", dir->path, name,
				why, aside);
			return io_sync_dir(dir->fd, err);
		}
		if (errno != EEXIST && errno != ENOTEMPTY)
			break;
	}
	return err_fail(err, io_status(errno), "checkpoint: couldn't set the damaged %s/%s aside: %m", dir->path, name);
}

/* ---- removing ---- */

/* Returns how many were removed, or -1. *open: some are kept by NFS, whose clients rename a file that is removed while a
 * process has it open, and remove it when that closes it. */
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
			failed = err_fail(err, io_status(errno), "checkpoint: couldn't remove %s/%s: %m", name, entry->d_name);
	}
	closedir(stream);
	return failed ? -1 : removed;
}

int ckpt_remove_folder(int dirfd, const char *name, struct err *err)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_fail(err, io_status(errno), "checkpoint: couldn't open %s: %m", name);
	/* The manifest first: what is left half removed must not look whole. */
	if (unlinkat(fd, MANIFEST_NAME, 0) < 0 && errno != ENOENT)
		return err_fail(err, io_status(errno), "checkpoint: couldn't remove %s/" MANIFEST_NAME ": %m", name);
	int removed;
	bool open;
	/* Again, since a server that lists by position passes over some names while others are removed. */
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

/* Gives a folder that was renamed to be removed its name back. A newer one that has the name by now stays. */
static int rename_back(const struct ckpt_dir *dir, const char *away, const char *name, struct err *err)
{
	if (renameat(dir->fd, away, dir->fd, name) < 0)
		return err_fail(err, io_status(errno), "checkpoint: couldn't rename the pinned %s/%s back to %s: %m", dir->path, away,
			name);
	return io_sync_dir(dir->fd, err);
}

static bool holds_manifest(int dirfd, const char *folder)
{
	char path[CKPT_STEP_NAME_SIZE + 64 + sizeof "/" MANIFEST_NAME];
	snprintf(path, sizeof path, "%s/" MANIFEST_NAME, folder);
	return faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether `away` is what a removal that was killed before it could look for a pin has left of a checkpoint that has one. It
 * gets its name back, or at least stays. */
static bool is_saved_by_pin(const struct ckpt_dir *dir, const char *away)
{
	static const char prefix[] = REMOVING_PREFIX;
	char name[CKPT_STEP_NAME_SIZE];
	struct stat st;
	struct err why;
	const char *step = away + sizeof prefix - 1, *end = strrchr(away, '-');
	if (strncmp(away, prefix, sizeof prefix - 1) != 0 || end <= step || end - step >= CKPT_STEP_NAME_SIZE)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)(end - step), step);
	if (ckpt_step_of(name) < 0 || !holds_manifest(dir->fd, away) || pin_is_set(dir->fd, away, NULL) == 0
		|| fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return false;
	if (rename_back(dir, away, name, &why) < 0)
		log_warn("%s", why.text);
	return true;
}

/* Renames `name` to `away`, which is to be removed. Returns 1, 0 if it is not there, -1 on error. */
static int move_away(const struct ckpt_dir *dir, const char *name, const char *away, struct err *err)
{
	/* A killed removal may have left a checkpoint there that is pinned: it gets its name back, or is in the way. */
	if (!is_saved_by_pin(dir, away) && ckpt_remove_folder(dir->fd, away, err) < 0)
		return -1;
	if (renameat(dir->fd, name, dir->fd, away) == 0)
		return 1;
	return errno == ENOENT ? 0 : err_fail(err, io_status(errno), "checkpoint: couldn't rename %s/%s to remove it: %m",
		dir->path, name);
}

int ckpt_dir_take_away(const struct ckpt_dir *dir, const char *name, struct err *err)
{
	char away[CKPT_STEP_NAME_SIZE + 80];
	const char *rest = strchr(name, '-');
	snprintf(away, sizeof away, REMOVING_PREFIX "%s", rest ? rest + 1 : name);
	int moved = move_away(dir, name, away, err);
	return moved <= 0 ? moved : ckpt_remove_folder(dir->fd, away, err) < 0 ? -1 : 1;
}

int ckpt_dir_remove(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err)
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
		return moved < 0 ? -1 : err_fail(err, EXIT_FAULT, "checkpoint: there is no %s/%s to remove", dir->path, name);
	/* Durable before the first file goes, so that no crash brings back the name without the files. */
	if (io_sync_dir(dir->fd, err) < 0)
		return err_prefix(err, "checkpoint: %s: %s", dir->path, name);
	/* Only now: a pin that comes later finds that the name is gone (pin.c). */
	if (pin_is_set(dir->fd, away, err) != 0) {
		if (rename_back(dir, away, name, err) < 0)
			return -1;
		err_set(err, "checkpoint: step %" PRId64 " stays: it is pinned", step);
		return 1;
	}
	/* NFS does not remove a file that is open. A reader that locks the manifest later sees that the name is gone. */
	if (lock >= 0)
		close(lock);
	lock = -1;
	return ckpt_remove_folder(dir->fd, away, err);
}

/* What a killed process leaves behind; the temporary names of owner.json are owner_claim's to remove. */
static bool is_leftover(const char *name, const char *token)
{
	static const char *const prefixes[] = { SAVING_PREFIX "step-", REMOVING_PREFIX "step-", ".probe-", ".latest." };
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
	if (strncmp(name, SAVING_PREFIX, sizeof SAVING_PREFIX - 1) == 0)
		return ckpt_dir_take_away(dir, name, err) < 0 ? -1 : 0;
	return ckpt_remove_folder(dir->fd, name, err);
}

int ckpt_dir_clean(const struct ckpt_dir *dir, const char *token, struct err *err)
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
		if (unlinkat(dir->fd, entry->d_name, 0) == 0 || remove_leftover(dir, entry->d_name, &why) == 0)
			removed++;
		else
			log_warn("%s", why.text);
	}
	closedir(stream);
	return removed;
}

/* The step of `name` if it is the hidden folder of a save or of a removal by the owner of `token`; else -1. */
static int64_t own_leftover(const char *name, const char *token)
{
	static const char *const prefixes[] = { SAVING_PREFIX, REMOVING_PREFIX };
	char folder[CKPT_STEP_NAME_SIZE], own[CKPT_STEP_NAME_SIZE + 64];
	int64_t step;
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
		size_t length = strlen(prefixes[i]);
		if (strncmp(name, prefixes[i], length) != 0 || sscanf(name + length, "step-%" SCNd64, &step) != 1 || step < 0)
			continue;
		snprintf(own, sizeof own, "%s%s-%s", prefixes[i], ckpt_step_name(step, folder), token);
		return strcmp(name, own) == 0 ? step : -1;
	}
	return -1;
}

void ckpt_dir_tidy(const struct ckpt_dir *dir, int64_t step, const char *token)
{
	struct dirent *entry;
	struct err why;
	DIR *stream = io_open_list(dir->fd);
	while (stream && (entry = readdir(stream))) {
		int64_t left = own_leftover(entry->d_name, token);
		if (left >= 0 && left <= step && !is_saved_by_pin(dir, entry->d_name) &&
			remove_leftover(dir, entry->d_name, &why) < 0)
			log_warn("%s", why.text);
	}
	if (stream)
		closedir(stream);
}

/* What retention asks about a checkpoint. One that can't be looked at now counts as pinned, until the next time. */
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

int ckpt_dir_retain(const struct ckpt_dir *dir, const struct retention *policy, const char *token, struct err *err)
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
		if (ckpt_dir_remove(dir, remove[i], token, &why) >= 0)
			continue;
		if (owner_verify(dir, token, err) < 0)
			return -1;
		log_warn("%s", why.text);
	}
	return 0;
}
