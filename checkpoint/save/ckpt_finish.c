/* SPDX-License-Identifier: Apache-2.0 */
/* Commits saves that an earlier attempt completed but did not commit. This needs none of their
 * writers to be alive. */
#include "checkpoint/save/ckpt_save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/load/shard.h"
#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/pending_save.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"

#define RETRY_SECONDS 0.5

/* A save that is not committed. */
struct leftover {
	int64_t step;
	char token[MANIFEST_TOKEN_SIZE];
};

/* ---- the list of pending saves ---- */

static bool parse_name(const char *name, struct leftover *leftover)
{
	char step[CKPT_STEP_NAME_SIZE];
	struct hash128 ignored;
	size_t prefix = strlen(CKPT_SAVING_PREFIX), length = strlen(name);
	if (strncmp(name, CKPT_SAVING_PREFIX, prefix) != 0 || length < prefix + MANIFEST_TOKEN_SIZE)
		return false;
	const char *token = name + length - (MANIFEST_TOKEN_SIZE - 1);
	size_t step_length = (size_t)(token - 1 - name) - prefix;
	if (token[-1] != '-' || step_length >= sizeof step || hash_parse(token, &ignored) < 0)
		return false;
	memcpy(step, name + prefix, step_length);
	step[step_length] = '\0';
	memcpy(leftover->token, token, MANIFEST_TOKEN_SIZE);
	leftover->step = ckpt_step_of(step);
	return leftover->step >= 0;
}

static int newest_first(const void *a, const void *b)
{
	const struct leftover *x = a, *y = b;
	if (x->step != y->step)
		return x->step > y->step ? -1 : 1;
	return strcmp(x->token, y->token);
}

/* Lists all saves that are not committed, the newest first. *leftovers is malloc'ed and the
 * caller's. */
static int list_leftovers(const struct ckpt_dir *dir, struct leftover **leftovers, size_t *count,
	struct err *err)
{
	struct dirent *entry;
	DIR *stream = io_open_list(dir->fd);
	*leftovers = NULL;
	*count = 0;
	while (stream && (errno = 0, entry = readdir(stream))) {
		struct leftover one, *more;
		if (!parse_name(entry->d_name, &one))
			continue;
		if (!(more = realloc(*leftovers, (*count + 1) * sizeof *more)))
			break;
		*leftovers = more;
		more[(*count)++] = one;
	}
	int why = errno;
	if (stream)
		closedir(stream);
	if (!stream || why)
		return err_fail(err, io_status(why), "checkpoint: couldn't list %s: %s", dir->path,
			strerror(why));
	if (*count > 0)
		qsort(*leftovers, *count, sizeof **leftovers, newest_first);
	return 0;
}

static int newest_step(const struct ckpt_dir *dir, int64_t *newest, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	if (ckpt_dir_steps(dir, &steps, &count, err) < 0)
		return -1;
	*newest = count > 0 ? steps[count - 1] : -1;
	return 0;
}

/* ---- the manifest of a pending save ---- */

/* The number of parts of the save in this folder, from the name of the first part found; 0: it has
 * none. */
static int count_parts(const struct pending_save *saving, struct err *err)
{
	struct dirent *entry;
	int parts = 0;
	DIR *stream = io_open_list(saving->fd);
	while (stream && parts == 0 && (errno = 0, entry = readdir(stream)))
		parts = ckpt_part_count(entry->d_name);
	int why = parts > 0 ? 0 : errno;
	if (stream)
		closedir(stream);
	if (!stream || why)
		return err_fail(err, EXIT_LOST, "checkpoint: couldn't list %s/%s: %s", saving->dir->path,
			saving->hidden, strerror(why));
	return parts;
}

/* -1 with EXIT_DATA: there is no such file, or it can't be one of ours. With EXIT_LOST: it can't be
 * read now. */
static int read_text(const struct pending_save *saving, const char *name, struct deadline deadline,
	char **text, size_t *size, struct err *err)
{
	for (;;) {
		if (io_read_file(saving->fd, name, MANIFEST_SIZE_MAX, text, size, err) == 0)
			return 0;
		if (errno == EINVAL || errno == EFBIG || shard_fault_of(errno) == SHARD_FAULT_DATA)
			return err_fail(err, EXIT_DATA, "%s is missing or no file of ours", name);
		if (!deadline_sleep(deadline, RETRY_SECONDS)) {
			if (err->status == EXIT_DATA)
				err->status = EXIT_LOST;
			return err_prefix(err, "checkpoint: %s/%s", saving->dir->path, saving->hidden);
		}
	}
}

/* Joins the parts in the folder; NULL when one is missing or not valid. */
static struct manifest *join_parts(const struct pending_save *saving, const char *token,
	struct deadline deadline, struct err *err)
{
	int parts = count_parts(saving, err);
	if (parts == 0)
		err_fail(err, EXIT_DATA, "it has neither a manifest nor parts");
	if (parts <= 0)
		return NULL;
	char **texts = calloc((size_t)parts, sizeof *texts);
	size_t *sizes = calloc((size_t)parts, sizeof *sizes);
	int result = texts && sizes ? 0 : err_set(err, "checkpoint: no memory");
	for (int i = 0; result == 0 && i < parts; i++) {
		char name[CKPT_PART_NAME_SIZE];
		result =
			read_text(saving, ckpt_part_name(i, parts, name), deadline, &texts[i], &sizes[i], err);
	}
	struct manifest *manifest =
		result == 0 ? ckpt_part_join(texts, sizes, parts, saving->step, token, err) : NULL;
	for (int i = 0; texts && i < parts; i++)
		free(texts[i]);
	free(texts);
	free(sizes);
	return manifest;
}

/* Whether the text is a manifest of this save. */
static bool fits(const struct pending_save *saving, const char *token, const char *text,
	size_t size)
{
	struct manifest *manifest = manifest_parse(text, size, NULL, NULL);
	bool same = manifest && manifest->step == saving->step && strcmp(manifest->token, token) == 0;
	manifest_destroy(manifest);
	return same;
}

/* Gets the text of the manifest: the one in the folder, or one made from the parts, which is then
 * written to the folder. */
static int have_manifest(const struct pending_save *saving, const char *token, double io_timeout,
	char **text, size_t *size, struct err *err)
{
	struct deadline deadline = deadline_in(io_timeout);
	if (read_text(saving, MANIFEST_NAME, deadline, text, size, err) == 0) {
		if (fits(saving, token, *text, *size))
			return 0;
		free(*text);
		*text = NULL;
	} else if (err->status != EXIT_DATA) {
		return -1;
	}
	struct manifest *manifest = join_parts(saving, token, deadline, err);
	int result = manifest ? manifest_encode(manifest, text, size, err) : -1;
	manifest_destroy(manifest);
	return result < 0 ? -1 : pending_save_put(saving, MANIFEST_NAME, *text, *size, err);
}

/* ---- finish ---- */

static int verify(const struct pending_save *saving, double io_timeout, struct err *err)
{
	struct ckpt *ckpt;
	int result =
		ckpt_open_folder(saving->dir, saving->hidden, saving->step, io_timeout, &ckpt, err);
	if (result < 0)
		return result;
	result = ckpt_verify(ckpt, err);
	ckpt_close(ckpt);
	return result;
}

/* Returns 0 when committed, CKPT_DAMAGED or -1. */
static int complete(struct pending_save *saving, const struct leftover *leftover, const char *token,
	double io_timeout, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	bool taken;
	int result = have_manifest(saving, leftover->token, io_timeout, &text, &size, err);
	if (result == 0)
		result = verify(saving, io_timeout, err);
	if (result < 0)
		return result;
	/* Its writer ended at an unknown point, so the names in the folder may not be durable yet. */
	if (io_sync_dir(saving->fd, err) < 0)
		return err_prefix(err, "checkpoint: %s/%s", saving->dir->path, saving->hidden);
	return pending_save_commit(saving, text, size, token, &taken, err);
}

/* Returns 1 when committed, 0 when not complete, -1 on error. */
static int finish(struct pending_save *saving, const struct leftover *leftover, const char *token,
	double io_timeout, struct err *err)
{
	struct stat st;
	int opened = pending_save_open(saving, err);
	if (opened <= 0)
		return opened;
	int result = complete(saving, leftover, token, io_timeout, err);
	if (result == 0) {
		log_info("checkpoint: step %" PRId64
				 ", which an earlier attempt had written but not committed, is durable",
			saving->step);
		return 1;
	}
	/* The save's writer may still exist, and discard the save right now. */
	bool gone =
		fstatat(saving->dir->fd, saving->hidden, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
	/* A save that can't be read now may be whole: it must not count as unfinished, which would
	 * remove it. */
	if (result == -1 && err->status != EXIT_DATA && !gone)
		return -1;
	log_info("checkpoint: the save of step %" PRId64 " was not completed: %s", saving->step,
		err->text);
	return 0;
}

int ckpt_finish(const struct ckpt_dir *dir, const char *token, double io_timeout, struct err *err)
{
	struct err own;
	AUTO_FREE struct leftover *leftovers = NULL;
	size_t count;
	int64_t newest;
	int result = 0;
	err = err ? err : &own;
	if (owner_verify(dir, token, err) < 0 || newest_step(dir, &newest, err) < 0
		|| list_leftovers(dir, &leftovers, &count, err) < 0)
		return -1;
	for (size_t i = 0; result == 0 && i < count && leftovers[i].step > newest; i++) {
		struct pending_save saving;
		pending_save_init(&saving, dir, leftovers[i].step, leftovers[i].token);
		result = finish(&saving, &leftovers[i], token, io_timeout, err);
		pending_save_close(&saving);
	}
	return result;
}
