/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a snapshot in stages: write the files into a hidden folder, each durable; write the
 * manifest, or a part's text, last; then commit by one rename. */
#include "checkpoint/save/ckpt_save.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/format/manifest.h"
#include "common/record.h"
#include "checkpoint/save/ckpt_files.h"
#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/pending_save.h"
#include "checkpoint/save/shard_write.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"

/* The state that the stages of one save share. */
struct work {
	const struct snapshot *snapshot;
	const struct ckpt_save_options *options;
	struct pending_save saving;
	struct ckpt_files files;
	struct manifest *manifest;
	char *text; /* text of the manifest or of the part */
	size_t size;
	uint64_t done, total; /* bytes */
};

/* ---- the manifest ---- */

static json_t *parse_group(const char *what, const char *text, struct err *err)
{
	char name[60];
	snprintf(name, sizeof name, "checkpoint: the snapshot's %s", what);
	if (text)
		return record_parse(text, strlen(text), JSON_REJECT_DUPLICATES, name, err);
	err_set(err, "%s is missing", name);
	return NULL;
}

/* Makes the manifest, except for the hashes of the files. */
static int make_manifest(struct work *work, const char *token, struct err *err)
{
	const struct snapshot *snapshot = work->snapshot;
	struct manifest *manifest = work->manifest = manifest_create();
	if (!manifest)
		return err_set(err, "checkpoint: no memory");
	manifest->step = snapshot->at.step;
	manifest->attempt = snapshot->attempt;
	manifest->world_size = snapshot->world_size;
	manifest->time = clock_wall();
	manifest->seed = snapshot->seed;
	manifest->cursor = snapshot->at.cursor;
	manifest->loss = snapshot->at.loss;
	manifest->validation_loss = snapshot->at.validation_loss;
	snprintf(manifest->token, sizeof manifest->token, "%s", token);
	manifest->config = parse_group("configuration", snapshot->config_json, err);
	manifest->numerics =
		manifest->config ? parse_group("numerics", snapshot->numerics_json, err) : NULL;
	if (!manifest->numerics)
		return -1;
	for (size_t i = 0; i < work->files.count; i++) {
		const struct ckpt_file *file = &work->files.files[i];
		if (!manifest_add_file(manifest, file->name, file->role, file->size))
			return err_set(err, "checkpoint: no memory");
		work->total += file->size;
	}
	return 0;
}

/* ---- the files ---- */

static void advance(void *arg, uint64_t bytes)
{
	struct work *work = arg;
	work->done += bytes;
	if (work->options->progress)
		work->options->progress(work->options->arg, work->done, work->total);
}

static int write_files(struct work *work, struct err *err)
{
	const struct shard_writing how = { .threads = work->options->threads,
		.buffered = work->options->buffered,
		.spare = deadline_in(work->options->spare),
		.advance = advance,
		.arg = work };
	for (size_t i = 0; i < work->files.count; i++) {
		const struct ckpt_file *file = &work->files.files[i];
		if (shard_write(work->saving.fd, &work->manifest->files[i], file->pieces, file->count, &how,
				err)
			< 0)
			return -1;
	}
	return 0;
}

/* Plans the files first, so that a snapshot which can't be saved changes nothing on the disk. */
static int start(struct work *work, const struct ckpt_dir *dir, const struct snapshot *snapshot,
	const char *token, const struct ckpt_save_options *options, struct err *err)
{
	static const struct ckpt_save_options defaults;
	*work = (struct work) { .snapshot = snapshot, .options = options ? options : &defaults };
	pending_save_init(&work->saving, dir, snapshot->at.step, token);
	if (ckpt_files_plan(snapshot, &work->files, err) < 0)
		return -1;
	return make_manifest(work, token, err);
}

static void finish(struct work *work)
{
	pending_save_close(&work->saving);
	manifest_destroy(work->manifest);
	ckpt_files_free(&work->files);
	free(work->text);
}

/* ---- one writer ---- */

static int save(struct work *work, const char *token, bool *taken, struct err *err)
{
	struct pending_save *saving = &work->saving;
	if (pending_save_make(saving, true, err) < 0 || write_files(work, err) < 0
		|| manifest_encode(work->manifest, &work->text, &work->size, err) < 0
		|| pending_save_put(saving, MANIFEST_NAME, work->text, work->size, err) < 0)
		return -1;
	return pending_save_commit(saving, work->text, work->size, token, taken, err);
}

int ckpt_save(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	const struct ckpt_save_options *options, struct save_result *result, struct err *err)
{
	struct err own;
	struct work work;
	double began = clock_now();
	bool taken = false;
	err = err ? err : &own;
	int rc = start(&work, dir, snapshot, token, options, err);
	if (rc == 0 && snapshot->parts > 1)
		rc = err_set(err, "checkpoint: a snapshot of %d parts can't be saved as one",
			snapshot->parts);
	if (rc == 0) {
		rc = save(&work, token, &taken, err);
		if (rc < 0)
			pending_save_give_up(&work.saving);
	}
	if (rc == 0 && result)
		*result = (struct save_result) { .outcome = SAVE_DURABLE,
			.step = snapshot->at.step,
			.bytes = work.total + work.size,
			.seconds = clock_now() - began,
			.taken = taken };
	finish(&work);
	return rc;
}

/* ---- one of several writers ---- */

/* Removes the files of this part. The part's own file goes first, since it says that the others are
 * whole. */
static int remove_part(const struct work *work, const char *name, struct err *err)
{
	for (size_t i = 0; i <= work->files.count; i++) {
		const char *one = i == 0 ? name : work->files.files[i - 1].name;
		if (unlinkat(work->saving.fd, one, 0) < 0 && errno != ENOENT)
			return err_fail(err, io_status(errno), "checkpoint: couldn't remove %s/%s/%s: %m",
				work->saving.dir->path, work->saving.hidden, one);
	}
	return 0;
}

/* Checks that the hidden folder still has its name: no other process discarded the save meanwhile,
 * and perhaps began another of the same step. */
static int check_folder(const struct pending_save *saving, struct err *err)
{
	if (!ckpt_dir_names(saving->dir, saving->hidden, saving->fd))
		return err_fail(err, EXIT_LOST, "checkpoint: %s/%s went away: its save was given up",
			saving->dir->path, saving->hidden);
	return 0;
}

static int save_part(struct work *work, const char *name, struct err *err)
{
	struct pending_save *saving = &work->saving;
	if (write_files(work, err) < 0
		|| manifest_encode(work->manifest, &work->text, &work->size, err) < 0
		|| pending_save_put(saving, name, work->text, work->size, err) < 0)
		return -1;
	/* Makes the folder's own name durable: this writer does no rename later that would do so. */
	if (io_sync_dir(saving->dir->fd, err) < 0)
		return err_prefix(err, "checkpoint: %s", saving->dir->path);
	return check_folder(saving, err);
}

static int open_part(struct work *work, const char *name, struct err *err)
{
	if (pending_save_make(&work->saving, false, err) < 0)
		return -1;
	return remove_part(work, name, err);
}

int ckpt_save_part(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	const struct ckpt_save_options *options, char **text, size_t *size, struct save_result *result,
	struct err *err)
{
	struct err own, why;
	struct work work;
	char name[CKPT_PART_NAME_SIZE];
	double began = clock_now();
	err = err ? err : &own;
	int rc = start(&work, dir, snapshot, token, options, err);
	if (rc == 0) {
		work.manifest->part = snapshot->part;
		work.manifest->parts = snapshot->parts > 0 ? snapshot->parts : 1;
		ckpt_part_name(snapshot->part, work.manifest->parts, name);
		rc = ckpt_part_plan(snapshot, work.manifest->plan, err);
	}
	if (rc == 0)
		rc = open_part(&work, name, err);
	if (rc == 0 && (rc = save_part(&work, name, err)) < 0 && remove_part(&work, name, &why) < 0)
		log_warn("%s", why.text);
	if (rc == 0) {
		*text = work.text;
		*size = work.size;
		work.text = NULL;
		if (result)
			*result = (struct save_result) { .outcome = SAVE_WRITTEN,
				.step = snapshot->at.step,
				.bytes = work.total + *size,
				.seconds = clock_now() - began };
	}
	finish(&work);
	return rc;
}
