/* SPDX-License-Identifier: Apache-2.0 */
/* Finds all faults of a checkpoint, for people. A load stops at the first wrong byte; this goes on
 * to the end, since people want to know how much is lost. Each stage trusts only what the stages
 * before it checked: the manifest by its own hash, then sizes, then bytes, then their meaning. */
#include "checkpoint/load/ckpt_check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/load/shard.h"
#include "common/auto.h"
#include "common/io.h"

/* Seconds for which an I/O error is retried, once for the headers and once per file. */
#define IO_TIMEOUT 1.0

struct checking {
	const struct ckpt_check *check;
	int folder;
	struct err *err;
	bool faulty, unknown;
};

/* err keeps the first fault, which also replaces an earlier reason for an unknown result. */
static void add_fault(struct checking *c, const char *file, uint64_t first, uint64_t size,
	const char *what)
{
	if (!c->faulty && size)
		err_fail(c->err, EXIT_DATA, "%s, bytes %" PRIu64 " to %" PRIu64 ": %s", file, first,
			first + size - 1, what);
	else if (!c->faulty)
		err_fail(c->err, EXIT_DATA, "%s: %s", file, what);
	c->faulty = true;
	if (c->check->fault)
		c->check->fault(c->check->arg, file, first, size, what);
}

static void add_unknown(struct checking *c, enum exit_status status, const char *text)
{
	if (!c->faulty && !c->unknown)
		err_fail(c->err, status, "%s", text);
	c->unknown = true;
}

/* Sorts an errno of opening or reading into damage or an unknown result. */
static void add_errno(struct checking *c, const char *file, const char *verb)
{
	char text[400];
	enum shard_fault fault = shard_fault_of(errno);
	snprintf(text, sizeof text, "couldn't %s it: %s", verb, strerror(errno));
	if (fault == SHARD_FAULT_DATA) {
		add_fault(c, file, 0, 0, text);
		return;
	}
	snprintf(text, sizeof text, "checkpoint: couldn't %s %s: %s", verb, file, strerror(errno));
	add_unknown(c, fault == SHARD_FAULT_IO ? EXIT_LOST : EXIT_FAULT, text);
}

/* ---- the manifest ---- */

static struct manifest *read_manifest(struct checking *c)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	bool newer;
	struct err why;
	if (io_read_file(c->folder, MANIFEST_NAME, MANIFEST_SIZE_MAX, &text, &size, &why) < 0) {
		if (errno == EINVAL || errno == EFBIG)
			add_fault(c, MANIFEST_NAME, 0, 0, why.text);
		else
			add_errno(c, MANIFEST_NAME, "read");
		return NULL;
	}
	struct manifest *manifest = manifest_parse(text, size, &newer, &why);
	if (!manifest && (newer || why.status != EXIT_DATA))
		add_unknown(c, why.status, why.text);
	else if (!manifest)
		add_fault(c, MANIFEST_NAME, 0, 0, why.text);
	return manifest;
}

/* ---- bytes ---- */

/* One file while it is read whole. */
struct reading {
	struct checking *checking;
	const struct manifest_file *file;
	bool missed; /* some chunk couldn't be read or is damaged */
};

static bool add_chunk(void *arg, size_t chunk, int result, const struct err *why)
{
	char what[80];
	struct reading *reading = arg;
	struct checking *c = reading->checking;
	uint64_t first = (uint64_t)chunk * MANIFEST_CHUNK, left = reading->file->size - first;
	uint64_t size = left < MANIFEST_CHUNK ? left : MANIFEST_CHUNK;
	snprintf(what, sizeof what, "chunk %zu does not have its hash", chunk);
	if (result == SHARD_DAMAGED)
		add_fault(c, reading->file->name, first, size, what);
	else if (result < 0)
		add_unknown(c, why->status, why->text);
	reading->missed |= result < 0;
	if (c->check->progress)
		c->check->progress(c->check->arg, size);
	return true;
}

static void check_bytes(struct checking *c, const struct manifest_file *file)
{
	struct err why;
	struct reading reading = { .checking = c, .file = file };
	struct shard shard = { .dirfd = c->folder, .file = file, .io_timeout = IO_TIMEOUT, .fd = -1 };
	const struct shard_scanning how = { .told = add_chunk, .arg = &reading };
	int result = shard_scan(&shard, 0, file->size, &how, &why);
	shard_close(&shard);
	if (result == SHARD_DAMAGED && !reading.missed)
		add_fault(c, file->name, 0, 0, "it does not have its hash as a whole");
	else if (result < 0 && !reading.missed)
		add_unknown(c, why.status, why.text);
}

static void check_file(struct checking *c, const struct manifest_file *file)
{
	struct stat st;
	char what[120];
	AUTO_CLOSE int fd =
		openat(c->folder, file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0) {
		add_errno(c, file->name, "open");
		return;
	}
	snprintf(what, sizeof what, "it has %lld bytes, not %" PRIu64, (long long)st.st_size,
		file->size);
	if (!S_ISREG(st.st_mode))
		add_fault(c, file->name, 0, 0, "it is no regular file");
	else if ((uint64_t)st.st_size != file->size)
		add_fault(c, file->name, 0, 0, what);
	else if (c->check->deep)
		check_bytes(c, file);
}

/* ---- the meaning of the bytes ---- */

static void add_meaning(struct checking *c, const char *name, int result, const struct err *why)
{
	if (result == CKPT_DAMAGED)
		add_fault(c, name, 0, 0, why->text);
	else if (result < 0)
		add_unknown(c, why->status, why->text);
}

static void check_folder(struct checking *c, const struct ckpt_dir *dir, const char *name)
{
	struct ckpt *ckpt = NULL;
	struct err why;
	struct manifest *manifest = read_manifest(c);
	if (!manifest)
		return;
	/* Open the checkpoint from here on, as any reader does, so that retention does not remove it.
	 * The result counts only if the bytes are right. */
	int result = ckpt_open_folder(dir, name, ckpt_step_of(name), IO_TIMEOUT, &ckpt, &why);
	for (size_t i = 0; i < manifest->file_count; i++)
		check_file(c, &manifest->files[i]);
	if (!c->faulty && !c->unknown)
		add_meaning(c, name, result, &why);
	manifest_destroy(manifest);
	if (result == 0)
		ckpt_close(ckpt);
}

enum ckpt_verdict ckpt_check(const struct ckpt_dir *dir, const char *name,
	const struct ckpt_check *check, struct err *err)
{
	AUTO_CLOSE int folder = openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct checking c = { .check = check, .folder = folder, .err = err };
	if (folder < 0)
		add_errno(&c, name, "open");
	else
		check_folder(&c, dir, name);
	if ((c.faulty || c.unknown) && faccessat(dir->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0
		&& errno == ENOENT) {
		err_fail(err, EXIT_USAGE, "checkpoint: %s is not there, or was removed meanwhile", name);
		return CKPT_GONE;
	}
	return c.faulty ? CKPT_FAULTY : c.unknown ? CKPT_UNKNOWN : CKPT_VALID;
}

uint64_t ckpt_check_bytes(const struct ckpt_dir *dir, const char *name)
{
	char path[NAME_MAX + 32];
	AUTO_FREE char *text = NULL;
	size_t size;
	uint64_t total = 0;
	snprintf(path, sizeof path, "%s/" MANIFEST_NAME, name);
	if (io_read_file(dir->fd, path, MANIFEST_SIZE_MAX, &text, &size, NULL) < 0)
		return 0;
	struct manifest *manifest = manifest_parse(text, size, NULL, NULL);
	for (size_t i = 0; manifest && i < manifest->file_count; i++)
		total += manifest->files[i].size;
	manifest_destroy(manifest);
	return total;
}
