/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a checkpoint. The manifest says which bytes it has, and shard.c verifies them. */
#include "checkpoint/load/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory/removable.h"
#include "checkpoint/load/ckpt_private.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/io.h"
#include "common/log.h"

#define RETRY_SECONDS 0.5

int ckpt_damaged(struct err *err, const char *format, ...)
{
	char text[sizeof err->text];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	err_fail(err, EXIT_DATA, "%s", text);
	return CKPT_DAMAGED;
}

/* ---- manifest ---- */

/* Returns CKPT_DAMAGED for a file that is missing or of another kind, -1 for one that can't be read
 * now. */
static int open_fault(const char *name, struct err *err)
{
	enum shard_fault fault = shard_fault_of(errno);
	err_fail(err,
		fault == SHARD_FAULT_IO         ? EXIT_LOST
			: fault == SHARD_FAULT_DATA ? EXIT_DATA
										: EXIT_FAULT,
		"checkpoint: couldn't read %s: %m", name);
	return fault == SHARD_FAULT_DATA ? CKPT_DAMAGED : -1;
}

static int read_text(int fd, char **text, size_t *size, struct err *err)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return open_fault(MANIFEST_NAME, err);
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)MANIFEST_SIZE_MAX)
		return ckpt_damaged(err, MANIFEST_NAME " is no regular file or too large");
	*text = malloc((size_t)st.st_size + 1);
	if (!*text)
		return err_set(err, "checkpoint: no memory for a manifest of %lld bytes",
			(long long)st.st_size);
	ssize_t n = io_read_full(fd, *text, (size_t)st.st_size);
	if (n < 0)
		return open_fault(MANIFEST_NAME, err);
	*size = (size_t)n;
	return 0;
}

static int read_manifest(struct ckpt *ckpt, const struct ckpt_dir *dir, int64_t step,
	struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size = 0;
	bool newer;
	int fd = ckpt->manifest_fd =
		openat(ckpt->fd, MANIFEST_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return open_fault(MANIFEST_NAME, err);
	descriptors_own(fd); /* and its lock */
	if (removable_hold(dir, ckpt->name, ckpt->fd, fd, err) < 0)
		return -1;
	int result = read_text(fd, &text, &size, err);
	if (result < 0)
		return result;
	ckpt->manifest = manifest_parse(text, size, &newer, err);
	if (!ckpt->manifest) {
		/* The next try must read from the storage, not from the page cache. */
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		return newer || err->status != EXIT_DATA ? -1 : CKPT_DAMAGED;
	}
	if (step >= 0 && ckpt->manifest->step != step)
		return ckpt_damaged(err, "its manifest is that of step %" PRId64, ckpt->manifest->step);
	return 0;
}

/* ---- headers ---- */

static int read_header(struct source *source, struct err *err)
{
	char first[8] = { 0 };
	uint64_t size, file_size = source->shard.file->size;
	int result = shard_read(&source->shard, 0, first, file_size < 8 ? (size_t)file_size : 8, err);
	if (result < 0)
		return result;
	if (safetensors_prefix_size(first, file_size, &size, err) < 0)
		return CKPT_DAMAGED;
	AUTO_FREE char *bytes = malloc((size_t)size);
	if (!bytes)
		return err_set(err, "checkpoint: no memory for a header of %" PRIu64 " bytes", size);
	result = shard_read(&source->shard, 0, bytes, (size_t)size, err);
	if (result < 0)
		return result;
	source->header = safetensors_parse(bytes, (size_t)size, file_size, err);
	return source->header ? 0 : err->status == EXIT_DATA ? CKPT_DAMAGED : -1;
}

static int open_sources(struct ckpt *ckpt, double io_timeout, struct err *err)
{
	const struct manifest *manifest = ckpt->manifest;
	ckpt->sources = calloc(manifest->file_count + 1, sizeof *ckpt->sources);
	if (!ckpt->sources)
		return err_set(err, "checkpoint: no memory");
	for (size_t i = 0; i < manifest->file_count; i++)
		ckpt->sources[i].shard = (struct shard) { .dirfd = ckpt->fd,
			.file = &manifest->files[i],
			.cache = &ckpt->cache,
			.io_timeout = io_timeout,
			.fd = -1 };
	for (size_t i = 0; i < manifest->file_count; i++) {
		enum manifest_role role = manifest->files[i].role;
		if (role != MANIFEST_MODEL && role != MANIFEST_OPTIMIZER && role != MANIFEST_STATE)
			continue;
		int result = read_header(&ckpt->sources[i], err);
		if (result < 0)
			return result;
	}
	return 0;
}

/* ---- open and close ---- */

void ckpt_close(struct ckpt *ckpt)
{
	if (!ckpt)
		return;
	for (size_t i = 0; ckpt->sources && i < ckpt->manifest->file_count; i++) {
		shard_close(&ckpt->sources[i].shard);
		safetensors_destroy(ckpt->sources[i].header);
		json_decref(ckpt->sources[i].boxes);
	}
	if (ckpt->manifest_fd >= 0)
		close(ckpt->manifest_fd);
	if (ckpt->fd >= 0)
		close(ckpt->fd);
	manifest_destroy(ckpt->manifest);
	free(ckpt->cache.data);
	ckpt_tables_free(ckpt);
	free(ckpt->sources);
	free(ckpt);
}

static int fill(struct ckpt *ckpt, const struct ckpt_dir *dir, const char *folder, int64_t step,
	double io_timeout, struct err *err)
{
	snprintf(ckpt->name, sizeof ckpt->name, "%s", folder);
	ckpt->fd = openat(dir->fd, ckpt->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (ckpt->fd < 0)
		return open_fault(ckpt->name, err);
	int result = read_manifest(ckpt, dir, step, err);
	if (result == 0)
		result = open_sources(ckpt, io_timeout, err);
	return result == 0 ? ckpt_tables_make(ckpt, err) : result;
}

int ckpt_open(const struct ckpt_dir *dir, int64_t step, double io_timeout, struct ckpt **ckpt,
	struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE];
	return ckpt_open_folder(dir, ckpt_step_name(step, name), step, io_timeout, ckpt, err);
}

int ckpt_open_folder(const struct ckpt_dir *dir, const char *folder, int64_t step,
	double io_timeout, struct ckpt **ckpt, struct err *err)
{
	struct err own;
	struct deadline deadline = deadline_in(io_timeout);
	int mismatches = 0;
	err = err ? err : &own;
	for (;;) {
		struct ckpt *opened = calloc(1, sizeof *opened);
		if (!opened)
			return err_set(err, "checkpoint: no memory");
		opened->fd = opened->manifest_fd = -1;
		int result = fill(opened, dir, folder, step, io_timeout, err);
		if (result == 0) {
			*ckpt = opened;
			return 0;
		}
		ckpt_close(opened);
		if (result == CKPT_DAMAGED && ++mismatches == 2)
			return result;
		if (result == -1 && (err->status != EXIT_LOST || !deadline_sleep(deadline, RETRY_SECONDS)))
			return result;
	}
}

int ckpt_open_below(const struct ckpt_dir *dir, int64_t below, double io_timeout,
	struct ckpt **ckpt, struct err *err)
{
	struct err own;
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	err = err ? err : &own;
	*ckpt = NULL;
	if (ckpt_dir_steps(dir, &steps, &count, err) < 0)
		return -1;
	for (size_t i = count; i-- > 0;) {
		if (steps[i] >= below)
			continue;
		int result = ckpt_open(dir, steps[i], io_timeout, ckpt, err);
		if (result == 0)
			return 1;
		*ckpt = NULL;
		if (result != CKPT_DAMAGED)
			return err_prefix(err, "checkpoint: %s/step %" PRId64, dir->path, steps[i]);
		struct err why = *err;
		if (ckpt_dir_set_aside(dir, steps[i], why.text, err) < 0)
			return -1;
	}
	return 0;
}

int ckpt_open_newest(const struct ckpt_dir *dir, double io_timeout, struct ckpt **ckpt,
	struct err *err)
{
	struct err own, why;
	err = err ? err : &own;
	for (int64_t below = INT64_MAX;;) {
		int found = ckpt_open_below(dir, below, io_timeout, ckpt, err);
		if (found <= 0)
			return found;
		int result = ckpt_verify(*ckpt, &why);
		if (result == 0)
			return 1;
		below = (*ckpt)->manifest->step;
		ckpt_close(*ckpt);
		*ckpt = NULL;
		*err = why;
		if (result != CKPT_DAMAGED)
			return err_prefix(err, "checkpoint: %s/step %" PRId64, dir->path, below);
		if (ckpt_dir_set_aside(dir, below, why.text, err) < 0)
			return -1;
	}
}
