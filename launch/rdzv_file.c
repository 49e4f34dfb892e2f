/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous through a folder that all ranks share (MUSTER_RDZV_DIR), for launchers without PMIx.
 *
 * Each run has its own folder in it, named by the run and its attempt:
 *   here.RANK      "WORLD_SIZE NODE", made when a rank opens; must not exist before
 *   world          all these lines; made by rank 0 when all ranks have opened
 *   put.KEY.RANK   a value; replaced durably, so never seen in part; a passing one goes when all
 *                  have come to the fence after the one before which it was put
 *   fence.N.RANK   RANK has reached its N-th fence
 *   all.N          all ranks have; made by rank 0. Both go two fences later
 *   abort          "RANK WHY" of the first rank that gave up; ends every fence
 *   bye.RANK       RANK has closed; when all have, rank 0 removes the folder
 *
 * Only rank 0 lists the folder, repeatedly; the others look for one name, so that a larger world
 * does not cost each of them more. If rank 0 fails, they list the folder themselves once their time
 * is up. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"
#include "launch/rdzv_provider.h"

#define FIRST_SLEEP 0.001
#define LONGEST_SLEEP 0.1
#define LONGEST_SLEEP_OF_RANK_0 0.02 /* all other ranks wait for it */
#define FAREWELL_SECONDS 5.0
#define VALUE_LIMIT (64 * 1024)
#define LINE_LIMIT 300
#define AREA "rendezvous: " /* who hears a reason says it again */

/* The file of a value that this rank has put. */
struct passing {
	struct passing *next;
	int fence; /* before which it was put */
	char name[100];
};

struct file {
	int base, dir;  /* MUSTER_RDZV_DIR, and the run's folder in it */
	char name[200]; /* of the run's folder */
	char path[600]; /* for messages */
	int rank, world_size, fences;
	char (*nodes)[RDZV_NODE_SIZE]; /* each rank's, "" until it was read */
	char why[600];                 /* why a fence has failed; "": none has */
	struct passing *passing;       /* the latest first */
};

/* A name for this run and no other: a stale folder must never match. */
static int run_name(const struct ident *ident, char *name, size_t size, struct err *err)
{
	const char *id = getenv("MUSTER_RDZV_ID"), *torch_id = getenv("TORCHELASTIC_RUN_ID");
	const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
	char slurm_id[128];
	snprintf(slurm_id, sizeof slurm_id, "%s-%u.%u", ident->cluster, ident->job, ident->step);
	if (!id || !id[0])
		id = ident->job ? slurm_id : torch_id && strcmp(torch_id, "none") != 0 ? torch_id : NULL;
	if (!id || !id[0])
		return err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't tell this run from earlier ones in MUSTER_RDZV_DIR: set "
			"MUSTER_RDZV_ID to a value that is the same on all ranks and new for each run");
	int n = snprintf(name, size, "muster-%s-%d.%s", id, ident->attempt, restarts ? restarts : "0");
	if (n < 0 || (size_t)n >= size)
		return err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't use MUSTER_RDZV_ID: longer than %zu characters", size - 40);
	for (char *c = name; *c; c++)
		if (*c == '/' || (unsigned char)*c < 0x20)
			*c = '_';
	return 0;
}

static int open_folder(struct file *file, const char *base, struct err *err)
{
	file->base = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (file->base < 0)
		return err_fail(err, io_status(errno), "rendezvous: couldn't open MUSTER_RDZV_DIR=%s: %m",
			base);
	if (mkdirat(file->base, file->name, 0700) < 0 && errno != EEXIST)
		return err_fail(err, io_status(errno),
			"rendezvous: couldn't make a folder in MUSTER_RDZV_DIR=%s: %m", base);
	file->dir = openat(file->base, file->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (file->dir < 0)
		return err_fail(err, io_status(errno), "rendezvous: couldn't open %s: %m", file->path);
	struct stat st;
	if (fstat(file->dir, &st) < 0 || st.st_uid != geteuid())
		return err_set(err, "rendezvous: couldn't trust %s: it belongs to user %u", file->path,
			(unsigned)st.st_uid);
	return 0;
}

static int taken(const struct file *file, struct err *err)
{
	return err_set(err,
		"rendezvous: couldn't meet in %s: an earlier run met there: set a new MUSTER_RDZV_ID, or "
		"remove the folder",
		file->path);
}

/* Makes an empty file that must not exist yet. */
static int make_mark(struct file *file, const char *name, struct err *err)
{
	AUTO_CLOSE int fd = openat(file->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return taken(file, err);
	if (fd < 0)
		return err_fail(err, io_status(errno), "rendezvous: couldn't create %s/%s: %m", file->path,
			name);
	return 0;
}

/* Makes a file that must not exist yet. It gets its name once it is complete, so that nobody reads
 * half of it. */
static int make_file(struct file *file, const char *name, const char *text, struct err *err)
{
	char temporary[64];
	snprintf(temporary, sizeof temporary, ".%s.%d", name, file->rank);
	AUTO_CLOSE int fd =
		openat(file->dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_fail(err, io_status(errno), "rendezvous: couldn't create %s/%s: %m", file->path,
			temporary);
	if (io_write_full(fd, text, strlen(text)) < 0 || fsync(fd) < 0)
		return err_fail(err, io_status(errno), "rendezvous: couldn't write %s/%s: %m", file->path,
			temporary);
	int rc = linkat(file->dir, temporary, file->dir, name, 0), error = errno;
	unlinkat(file->dir, temporary, 0);
	if (rc < 0 && error == EEXIST)
		return taken(file, err);
	if (rc < 0)
		return err_fail(err, io_status(error), "rendezvous: couldn't create %s/%s: %s", file->path,
			name, strerror(error));
	return 0;
}

static int rank_in_name(const char *name, const char *prefix, int world_size)
{
	size_t length = strlen(prefix);
	int rank, end = 0;
	if (strncmp(name, prefix, length) != 0 || sscanf(name + length, "%d%n", &rank, &end) != 1
		|| name[length + (size_t)end])
		return -1;
	return rank >= 0 && rank < world_size ? rank : -1;
}

/* Returns -1, with the reason of a rank that has given up. `dir` is the run's folder. */
static int hear_abort(const struct file *file, int dir, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	int rank, end = 0;
	if (io_read_file(dir, "abort", 1000, &text, &size, NULL) < 0
		|| sscanf(text, "%d %n", &rank, &end) != 1 || end == 0)
		return err_fail(err, EXIT_LOST, "rendezvous: a rank gave up, and %s/abort doesn't say why",
			file->path);
	return err_fail(err, EXIT_LOST, "rendezvous: rank %d gave up: %s", rank,
		text[end] ? text + end : "it gave no reason");
}

/* NFS looks again only when a folder is opened anew. */
static int reopen(const struct file *file, struct err *err)
{
	int dir = openat(file->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir >= 0 ? dir
					: err_fail(err, EXIT_LOST, "rendezvous: couldn't list %s: %m", file->path);
}

static bool exists(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, 0) == 0;
}

/* Returns whether `name` exists, -1 if a rank has given up. It looks for "abort" first: a rank that
 * gives up after this fence must not end it for those who have still to see that all have come. */
static int look(const struct file *file, const char *name, struct err *err)
{
	AUTO_CLOSE int dir = reopen(file, err);
	if (dir < 0)
		return -1;
	const bool aborted = exists(dir, "abort");
	if (exists(dir, name))
		return 1;
	return aborted ? hear_abort(file, dir, err) : 0;
}

/* Marks in `seen` the ranks whose PREFIX.RANK exists. Returns whether all do, -1 if a rank has
 * given up, as look. */
static int list(const struct file *file, const char *prefix, bool *seen, struct err *err)
{
	int fd = reopen(file, err), count = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	const bool aborted = exists(fd, "abort");
	memset(seen, 0, (size_t)file->world_size);
	for (struct dirent *entry; (entry = readdir(dir));) {
		int rank = rank_in_name(entry->d_name, prefix, file->world_size);
		if (rank >= 0 && !seen[rank]) {
			seen[rank] = true;
			count++;
		}
	}
	int rc = count == file->world_size ? 1 : aborted ? hear_abort(file, fd, err) : 0;
	closedir(dir);
	return rc;
}

static void node_of(const void *arg, int rank, char node[RDZV_NODE_SIZE])
{
	const struct file *file = arg;
	memcpy(node, file->nodes[rank], RDZV_NODE_SIZE);
}

/* Waits until every rank has its PREFIX.RANK, or rank 0 says so with the file `all`. */
static int wait_for_all(const struct file *file, const char *prefix, const char *all,
	double timeout, struct err *err)
{
	struct deadline deadline = deadline_in(timeout);
	double pause = FIRST_SLEEP, longest = file->rank == 0 ? LONGEST_SLEEP_OF_RANK_0 : LONGEST_SLEEP;
	AUTO_FREE bool *seen = calloc((size_t)file->world_size, sizeof *seen);
	if (!seen)
		return err_set(err, "rendezvous: no memory");
	for (;;) {
		int rc = file->rank == 0 ? list(file, prefix, seen, err) : look(file, all, err);
		if (rc != 0)
			return rc < 0 ? -1 : 0;
		if (!deadline_sleep(deadline, pause))
			break;
		pause = pause * 2 < longest ? pause * 2 : longest;
	}
	int rc = list(file, prefix, seen, err);
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	return rdzv_missing(seen, file->world_size, timeout, node_of, file, err);
}

/* ---- opening ---- */

/* Parses the line of `rank`. */
static int read_line(struct file *file, int rank, const char *line, struct err *err)
{
	int world_size = 0;
	if (sscanf(line, "%d %255s", &world_size, file->nodes[rank]) != 2)
		return err_fail(err, EXIT_LOST,
			"rendezvous: couldn't read what rank %d says in %s: not ours", rank, file->path);
	if (world_size != file->world_size)
		return err_set(err,
			"rendezvous: couldn't agree on the world size: rank %d says %d, rank %d says %d", rank,
			world_size, file->rank, file->world_size);
	return 0;
}

/* Reads each rank's line; the lines go to `world`. */
static int read_each(struct file *file, FILE *world, struct err *err)
{
	for (int rank = 0; rank < file->world_size; rank++) {
		char name[32];
		AUTO_FREE char *line = NULL;
		size_t size;
		snprintf(name, sizeof name, "here.%d", rank);
		if (io_read_file(file->dir, name, LINE_LIMIT, &line, &size, err) < 0)
			return err_prefix(err, "rendezvous");
		if (read_line(file, rank, line, err) < 0)
			return -1;
		fputs(line, world);
	}
	return 0;
}

/* Parses the lines that rank 0 has gathered. Ranks that disagree on the world size notice in the
 * first line. */
static int read_world(struct file *file, const char *text, struct err *err)
{
	for (int rank = 0; rank < file->world_size; rank++) {
		if (read_line(file, rank, text, err) < 0)
			return -1;
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return 0;
}

/* On rank 0, and on all if it failed: reads each rank's line. Rank 0 makes `world`, which must not
 * exist yet. */
static int gather(struct file *file, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	FILE *world = open_memstream(&text, &size);
	if (!world)
		return err_set(err, "rendezvous: no memory");
	int rc = read_each(file, world, err);
	if (fclose(world) != 0 && rc == 0)
		rc = err_set(err, "rendezvous: no memory");
	if (rc == 0 && file->rank == 0)
		rc = make_file(file, "world", text, err);
	return rc;
}

static void file_abort(void *state, int status, const char *why);

static int meet(struct file *file, const struct ident *ident, double timeout, struct err *err)
{
	char name[32], line[LINE_LIMIT];
	AUTO_FREE char *text = NULL;
	size_t size;
	snprintf(name, sizeof name, "here.%d", file->rank);
	snprintf(line, sizeof line, "%d %s\n", file->world_size, ident->node[0] ? ident->node : "?");
	if (make_file(file, name, line, err) < 0
		|| wait_for_all(file, "here.", "world", timeout, err) < 0)
		return -1;
	if (file->rank != 0
		&& io_read_file(file->dir, "world", LINE_LIMIT * (size_t)file->world_size, &text, &size,
			   NULL)
			== 0)
		return read_world(file, text, err);
	if (gather(file, err) == 0)
		return 0;
	file_abort(file, err->status, err->text);
	return -1;
}

static void drop_passing(struct passing **at)
{
	struct passing *passing = *at;
	*at = passing->next;
	free(passing);
}

static void file_free(struct file *file)
{
	if (file->dir >= 0)
		close(file->dir);
	if (file->base >= 0)
		close(file->base);
	free(file->nodes);
	while (file->passing)
		drop_passing(&file->passing);
	free(file);
}

static void *file_open(const struct ident *ident, double timeout, struct err *err)
{
	const char *base = getenv("MUSTER_RDZV_DIR");
	if (!base || !base[0]) {
		err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't use the provider file: set MUSTER_RDZV_DIR to a folder that all "
			"nodes share");
		return NULL;
	}
	struct file *file = calloc(1, sizeof *file);
	if (!file) {
		err_set(err, "rendezvous: no memory");
		return NULL;
	}
	file->base = file->dir = -1;
	file->rank = ident->rank;
	file->world_size = ident->world_size;
	file->nodes = calloc((size_t)ident->world_size, sizeof *file->nodes);
	if (!file->nodes)
		err_set(err, "rendezvous: no memory for %d ranks", ident->world_size);
	else if (run_name(ident, file->name, sizeof file->name, err) == 0) {
		snprintf(file->path, sizeof file->path, "%s/%s", base, file->name);
		if (open_folder(file, base, err) == 0 && meet(file, ident, timeout, err) == 0)
			return file;
	}
	file_free(file);
	return NULL;
}

static void value_name(char *name, size_t size, const char *key, int rank)
{
	snprintf(name, size, "put.%s.%d", key, rank);
}

static int file_put(void *state, enum rdzv_life life, const char *key, const void *value,
	size_t size, struct err *err)
{
	struct file *file = state;
	char name[100];
	value_name(name, sizeof name, key, file->rank);
	if (faccessat(file->dir, name, F_OK, 0) == 0)
		return err_set(err, "rendezvous: couldn't put %s: it was put before", key);
	struct passing *passing = life == RDZV_PASSING ? calloc(1, sizeof *passing) : NULL;
	if (life == RDZV_PASSING && !passing)
		return err_set(err, "rendezvous: no memory");
	if (passing) {
		*passing = (struct passing) { .next = file->passing, .fence = file->fences };
		memcpy(passing->name, name, sizeof name);
		file->passing = passing;
	}
	if (io_replace_durably(file->dir, name, value, size, err) < 0)
		return err_prefix(err, "rendezvous");
	return 0;
}

static void fence_name(char *name, size_t size, int fence, int rank)
{
	snprintf(name, size, "fence.%d.%d", fence, rank);
}

/* This rank is through the fence before this one, to which all have come: so all are through the
 * one before that, and have read what was passing. */
static void forget(struct file *file)
{
	const int old = file->fences - 2;
	char name[48];
	if (old < 0 || file->why[0])
		return;
	fence_name(name, sizeof name, old, file->rank);
	unlinkat(file->dir, name, 0);
	snprintf(name, sizeof name, "all.%d", old);
	if (file->rank == 0)
		unlinkat(file->dir, name, 0);
	for (struct passing **at = &file->passing; *at;)
		if ((*at)->fence <= old) {
			unlinkat(file->dir, (*at)->name, 0);
			drop_passing(at);
		} else
			at = &(*at)->next;
}

static int file_fence(void *state, double timeout, struct err *err)
{
	struct file *file = state;
	char prefix[32], name[48], all[32];
	forget(file);
	snprintf(prefix, sizeof prefix, "fence.%d.", file->fences);
	fence_name(name, sizeof name, file->fences, file->rank);
	snprintf(all, sizeof all, "all.%d", file->fences);
	file->fences++;
	if (make_mark(file, name, err) == 0 && wait_for_all(file, prefix, all, timeout, err) == 0
		&& (file->rank != 0 || make_mark(file, all, err) == 0))
		return 0;
	const char *why =
		strncmp(err->text, AREA, strlen(AREA)) == 0 ? err->text + strlen(AREA) : err->text;
	snprintf(file->why, sizeof file->why, "%s", why);
	return -1;
}

static int file_get(void *state, enum rdzv_life life, int rank, const char *key, void **value,
	size_t *size, double timeout, struct err *err)
{
	struct file *file = state;
	struct deadline deadline = deadline_in(timeout);
	char name[100];
	char *text = NULL;
	value_name(name, sizeof name, key, rank);
	/* After a fence the file exists, but a network file system may take a moment to show it. */
	while (io_read_file(file->dir, name, VALUE_LIMIT, &text, size, err) < 0) {
		if (errno != ENOENT && errno != ESTALE)
			return err_prefix(err, "rendezvous");
		if (!deadline_sleep(deadline, LONGEST_SLEEP))
			return err_fail(err, EXIT_LOST,
				"rendezvous: couldn't get %s of rank %d (on %s) within %g s: it was not put", key,
				rank, file->nodes[rank], timeout);
	}
	*value = text;
	return 0;
}

/* If another rank has given up before, its reason stays. */
static void file_abort(void *state, int status, const char *why)
{
	struct file *file = state;
	char text[900];
	snprintf(text, sizeof text, "%d %s", file->rank, why);
	make_file(file, "abort", text, NULL);
}

static void remove_folder(struct file *file)
{
	int fd = openat(file->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(dir));)
		if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2)
			unlinkat(file->dir, entry->d_name, 0);
	closedir(dir);
	unlinkat(file->base, file->name, AT_REMOVEDIR);
}

static void file_close(void *state, int orderly)
{
	struct file *file = state;
	char name[32];
	snprintf(name, sizeof name, "bye.%d", file->rank);
	if (!orderly)
		file_abort(file, 0, file->why[0] ? file->why : "it has ended in error");
	else if (make_mark(file, name, NULL) == 0 && file->rank == 0
		&& wait_for_all(file, "bye.", NULL, FAREWELL_SECONDS, NULL) == 0)
		remove_folder(file);
	file_free(file);
}

const struct rdzv_provider rdzv_file = {
	.name = "file",
	.open = file_open,
	.put = file_put,
	.fence = file_fence,
	.get = file_get,
	.abort = file_abort,
	.close = file_close,
};
