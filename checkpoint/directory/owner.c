/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of a checkpoint directory. owner.json is only ever replaced whole, under a lock that
 * the kernel (on NFS: the server) releases when its holder dies. So two claims never mix, and no
 * stale lock has to be broken. The heartbeat is the file's modification time, set through an open
 * file: a late heartbeat touches a file that is no longer owner.json, so it can't give its writer
 * the directory back. */
#include "config.h"
#include "checkpoint/directory/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/log.h"
#include "common/process.h"

#define LOCK_NAME ".owner.lock"
#define OWNER_VERSION 1
#define SIZE_LIMIT 65536
#define POLL_SECONDS 0.05
#define LOOK_SECONDS 1.0 /* between reads of a heartbeat */
/* Where the file system has no locks, a claim waits this long: longer than two starts at the same
 * moment can be apart. */
#define SETTLE_SECONDS 2.0
#define RELEASE_SECONDS 10.0

/* ---- owner.json ---- */

static char *encode(const struct owner *owner)
{
	json_t *object = json_pack("{s:i, s:s, s:I, s:i, s:s, s:s, s:I, s:s, s:f, s:b}", "version",
		OWNER_VERSION, "cluster", owner->cluster, "job", (json_int_t)owner->job, "attempt",
		owner->attempt, "token", owner->token, "host", owner->host, "pid", (json_int_t)owner->pid,
		"process", owner->process, "time", owner->time, "ended", (int)owner->ended);
	if (owner->restart)
		object = record_set(object, "restart", json_integer(owner->restart));
	if (owner->brief)
		object = record_set(object, "brief", json_true());
	char *text = record_dump(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	json_decref(object);
	return text;
}

static bool decode(const json_t *object, struct owner *owner)
{
	const json_t *job = json_object_get(object, "job"),
				 *attempt = json_object_get(object, "attempt"),
				 *restart = json_object_get(object, "restart");
	struct hash128 ignored;
	memset(owner, 0, sizeof *owner);
	if (!record_in_range(job, 0, UINT32_MAX) || !record_in_range(attempt, 0, INT_MAX)
		|| (restart && !record_in_range(restart, 0, INT_MAX))
		|| !record_text(owner->cluster, sizeof owner->cluster, json_object_get(object, "cluster"))
		|| !record_text(owner->token, sizeof owner->token, json_object_get(object, "token"))
		|| !record_text(owner->host, sizeof owner->host, json_object_get(object, "host"))
		|| !record_text(owner->process, sizeof owner->process, json_object_get(object, "process"))
		|| hash_parse(owner->token, &ignored) < 0)
		return false;
	owner->job = (uint32_t)json_integer_value(job);
	owner->attempt = (int)json_integer_value(attempt);
	owner->restart = (int)json_integer_value(restart);
	owner->pid = json_integer_value(json_object_get(object, "pid"));
	owner->time = json_number_value(json_object_get(object, "time"));
	owner->ended = json_is_true(json_object_get(object, "ended"));
	owner->brief = json_is_true(json_object_get(object, "brief"));
	return true;
}

/* Opens and reads owner.json. Returns 1 with *fd open, 0 when there is no such file, -1 on
 * error. */
static int open_owner(const struct ckpt_dir *dir, struct owner *owner, int *fd, struct err *err)
{
	char text[SIZE_LIMIT];
	ssize_t n;
	/* On NFS, a file that was replaced between its open and its read can be stale. Then the new one
	 * exists: try again. */
	for (int attempt = 0;; attempt++) {
		*fd = openat(dir->fd, OWNER_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		n = *fd < 0 ? -1 : io_read_full(*fd, text, sizeof text);
		if (n >= 0 || errno != ESTALE || attempt == 3)
			break;
		if (*fd >= 0)
			close(*fd);
	}
	if (n < 0 && *fd < 0 && errno == ENOENT)
		return 0;
	if (n < 0) {
		err_fail(err, io_status(errno), "owner: couldn't read %s/" OWNER_NAME ": %m", dir->path);
	} else {
		struct err why;
		json_t *object = record_parse(text, (size_t)n, JSON_REJECT_DUPLICATES, OWNER_NAME, &why);
		bool good = object && decode(object, owner);
		json_decref(object);
		if (good)
			return 1;
		if (!object && why.status != EXIT_DATA)
			err_fail(err, why.status, "owner: %s", why.text);
		else
			err_fail(err, EXIT_DATA,
				"owner: couldn't parse %s/" OWNER_NAME
				"; if no run uses this directory, remove that file",
				dir->path);
	}
	if (*fd >= 0)
		close(*fd);
	return -1;
}

int owner_read(const struct ckpt_dir *dir, struct owner *owner, struct err *err)
{
	int fd;
	int found = open_owner(dir, owner, &fd, err);
	if (found == 1)
		close(fd);
	return found;
}

static int replace(const struct ckpt_dir *dir, const struct owner *owner, struct err *err)
{
	AUTO_FREE char *text = encode(owner);
	if (!text)
		return err_set(err, "owner: couldn't encode the record: no memory, or a name is not UTF-8");
	if (io_replace_durably(dir->fd, OWNER_NAME, text, strlen(text), err) < 0)
		return err_prefix(err, "owner: %s", dir->path);
	return 0;
}

/* ---- the owner's process ---- */

static void read_line(const char *path, char *out, size_t size)
{
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	if (!file || !fgets(out, (int)size, file))
		out[0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

/* Start time of a process in clock ticks since boot; 0 if not known. */
static unsigned long long start_time(int64_t pid)
{
	struct process process;
	return process_find((pid_t)pid, &process) ? process.start : 0;
}

/* The scope in which a pid is unique: this boot of this kernel, this pid namespace. */
static void pid_space(char *out, size_t size)
{
	char boot[64];
	struct stat ns = { 0 };
	read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
	if (stat("/proc/self/ns/pid", &ns) < 0)
		boot[0] = '\0';
	snprintf(out, size, "%s/%llu/", boot, (unsigned long long)ns.st_ino);
}

static void describe_self(struct owner *self)
{
	char space[96];
	self->pid = getpid();
	self->time = clock_wall();
	self->ended = false;
	if (gethostname(self->host, sizeof self->host - 1) < 0)
		strcpy(self->host, "unknown");
	pid_space(space, sizeof space);
	snprintf(self->process, sizeof self->process, "%s%llu", space, start_time(self->pid));
}

/* Whether the owner's process is alive, if its pid can be looked up from here. */
static enum owner_life process_life(const struct owner *other)
{
	char space[96];
	pid_space(space, sizeof space);
	size_t length = strlen(space);
	if (space[0] == '/' || strncmp(other->process, space, length) != 0 || other->pid <= 0)
		return OWNER_UNKNOWN;
	if (kill((pid_t)other->pid, 0) < 0 && errno == ESRCH)
		return OWNER_ENDED;
	unsigned long long then = strtoull(other->process + length, NULL, 10),
					   now = start_time(other->pid);
	return then && now && then != now ? OWNER_ENDED : OWNER_RUNS;
}

/* ---- the lock ---- */

/* Opens the lock file and locks it. Returns 1 when locked, 0 when this file system has no locks, -1
 * on error. */
static int lock(const struct ckpt_dir *dir, double timeout, int *fd, struct err *err)
{
	struct deadline deadline = deadline_in(timeout);
	*fd = openat(dir->fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (*fd < 0)
		return err_fail(err, io_status(errno), "owner: couldn't open %s/" LOCK_NAME ": %m",
			dir->path);
	for (;;) {
		struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		if (fcntl(*fd, F_OFD_SETLK, &whole) == 0)
			return 1;
		if (io_has_no_locks(errno)) {
			log_warn("owner: %s has no file locks (%m); two jobs that start there at the same "
					 "moment are told apart by waiting %g s",
				dir->path, SETTLE_SECONDS);
			return 0;
		}
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			break;
		if (!deadline_sleep(deadline, POLL_SECONDS)) {
			errno = ETIMEDOUT;
			break;
		}
	}
	err_fail(err, EXIT_LOST, "owner: couldn't lock %s/" LOCK_NAME ": %m", dir->path);
	close(*fd);
	*fd = -1;
	return -1;
}

/* Removes temporary files that killed processes left while they replaced owner.json. Call it only
 * under the lock: then no other process is replacing the file. */
static void remove_leftovers(const struct ckpt_dir *dir)
{
	DIR *stream = io_open_list(dir->fd);
	struct dirent *entry;
	while (stream && (entry = readdir(stream)))
		if (strncmp(entry->d_name, "." OWNER_NAME ".", sizeof "." OWNER_NAME "." - 1) == 0)
			unlinkat(dir->fd, entry->d_name, 0);
	if (stream)
		closedir(stream);
}

/* ---- the decision ---- */

/* What a claim has seen of an owner's heartbeat, and since when by its own clock. */
struct watch {
	char token[MANIFEST_TOKEN_SIZE];
	struct timespec beat;
	double since;
	bool goes_on; /* not yet watched for long enough */
};

struct claim {
	owner_check *check;
	void *arg;
	struct deadline deadline;
	struct owner other; /* the present owner; `brief` is set only if there is one */
	struct watch watch;
};

static void begin_watch(struct watch *watch, const struct ckpt_dir *dir, const struct owner *other,
	struct timespec beat, double age)
{
	*watch = (struct watch) { .beat = beat, .since = clock_now() };
	strcpy(watch->token, other->token);
	log_warn("owner: %s: the last sign of life of its owner on host %s is %.0f s %s by the clocks "
			 "of the file system, which may be wrong: watching for the next one, for %g s",
		dir->path, other->host, fabs(age), age < 0 ? "ahead" : "old", OWNER_WATCH);
}

/* Gets the last heartbeat and its age in seconds, by the clock that sets the times of the lock
 * file; by our own clock where that file can't be touched. */
static int look_at_beat(const struct ckpt_dir *dir, int lock_fd, struct timespec *beat, double *age)
{
	struct stat now, seen;
	if (fstatat(dir->fd, OWNER_NAME, &seen, 0) < 0)
		return -1;
	bool touched = lock_fd >= 0 && futimens(lock_fd, NULL) == 0 && fstat(lock_fd, &now) == 0;
	*beat = seen.st_mtim;
	*age = (touched ? (double)now.st_mtime : clock_wall()) - (double)seen.st_mtime;
	return 0;
}

/* Where the clients of a file system set the times of its files (Lustre, GPFS, BeeGFS), the two
 * times come from the clocks of two nodes. So an age that is too old, or in the future, is no proof
 * that the owner is gone: the heartbeat must also stand still while it is watched. */
static enum owner_life heartbeat_life(const struct ckpt_dir *dir, struct claim *claim, int lock_fd)
{
	struct watch *watch = &claim->watch;
	struct timespec beat;
	double age;
	if (look_at_beat(dir, lock_fd, &beat, &age) < 0)
		return OWNER_RUNS;
	bool watched = strcmp(watch->token, claim->other.token) == 0;
	if (!watched && fabs(age) <= OWNER_HEARTBEAT)
		return OWNER_RUNS;
	if (!watched)
		begin_watch(watch, dir, &claim->other, beat, age);
	if (watch->beat.tv_sec != beat.tv_sec || watch->beat.tv_nsec != beat.tv_nsec)
		return OWNER_RUNS;
	watch->goes_on = clock_now() - watch->since < OWNER_WATCH;
	return watch->goes_on ? OWNER_RUNS : OWNER_ENDED;
}

static bool same_job(const struct owner *a, const struct owner *b)
{
	return a->job != 0 && a->job == b->job && strcmp(a->cluster, b->cluster) == 0;
}

static enum owner_life life_of(const struct ckpt_dir *dir, const struct owner *self,
	struct claim *claim, int lock_fd)
{
	const struct owner *other = &claim->other;
	/* Slurm can't tell two processes of one attempt apart. */
	bool known = claim->check && other->job != 0 && !same_job(other, self);
	enum owner_life life = known ? claim->check(claim->arg, other) : OWNER_UNKNOWN;
	if (life == OWNER_UNKNOWN)
		life = process_life(other);
	if (life == OWNER_UNKNOWN)
		life = heartbeat_life(dir, claim, lock_fd);
	return life;
}

static void describe(const struct owner *owner, char *out, size_t size)
{
	char since[32];
	clock_iso8601(owner->time, since, sizeof since);
	if (owner->job)
		snprintf(out, size, "job %" PRIu32 " (attempt %d%s%s, host %s, pid %" PRId64 ", since %s)",
			owner->job, owner->attempt, owner->cluster[0] ? ", cluster " : "", owner->cluster,
			owner->host, owner->pid, since);
	else
		snprintf(out, size, "process %" PRId64 " on host %s (since %s)", owner->pid, owner->host,
			since);
}

/* Of one job: above 0 if `a` is the later. */
static int order_of(const struct owner *a, const struct owner *b)
{
	return a->attempt != b->attempt ? a->attempt - b->attempt : a->restart - b->restart;
}

/* Returns 0 when `self` may take over, else -1 with the reason. */
static int decide(const struct ckpt_dir *dir, const struct owner *self, struct claim *claim,
	int lock_fd, struct err *err)
{
	const struct owner *other = &claim->other;
	char who[512];
	describe(other, who, sizeof who);
	int order = same_job(other, self) ? order_of(self, other) : 0;
	if (order > 0)
		return 0;
	if (order < 0)
		return err_fail(err, EXIT_FAULT, "owner: a later attempt owns %s: %s", dir->path, who);
	if (other->ended || life_of(dir, self, claim, lock_fd) == OWNER_ENDED)
		return 0;
	if (other->brief)
		return err_fail(err, EXIT_LOST,
			"owner: couldn't take %s over: the tool %s uses it and does not end", dir->path, who);
	return err_fail(err, EXIT_USAGE,
		"owner: %s is in use by %s; wait until it has ended, cancel it, or give another directory",
		dir->path, who);
}

/* The lock can't be taken. Where the user may not, as in another user's directory, naming the owner
 * helps more than naming the lock file. */
static int name_other(const struct ckpt_dir *dir, struct err *err)
{
	struct owner other;
	struct err ignored;
	char who[512];
	if (err->status == EXIT_LOST || faccessat(dir->fd, LOCK_NAME, R_OK | W_OK, AT_EACCESS) == 0
		|| owner_read(dir, &other, &ignored) != 1)
		return -1;
	describe(&other, who, sizeof who);
	return err_fail(err, EXIT_USAGE,
		"owner: %s %s %s, and you may not take its lock; give another directory", dir->path,
		other.ended ? "was used by" : "is in use by", who);
}

static int make_token(char token[MANIFEST_TOKEN_SIZE], struct err *err)
{
	struct hash128 random;
	if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return err_set(err, "owner: couldn't get random bytes: %m");
	hash_hex(random, token);
	return 0;
}

static int try_claim(const struct ckpt_dir *dir, struct owner *self, struct claim *claim,
	struct err *err)
{
	AUTO_CLOSE int lock_fd = -1;
	claim->other.brief = claim->watch.goes_on = false;
	int locked = lock(dir, deadline_left(claim->deadline), &lock_fd, err);
	if (locked < 0)
		return name_other(dir, err);
	if (locked)
		remove_leftovers(dir);
	int found = owner_read(dir, &claim->other, err);
	if (found < 0 || (found && decide(dir, self, claim, lock_fd, err) < 0))
		return -1;
	describe_self(self);
	if (make_token(self->token, err) < 0 || replace(dir, self, err) < 0)
		return -1;
	if (!locked)
		deadline_sleep(deadline_in(2 * SETTLE_SECONDS), SETTLE_SECONDS);
	/* What the file contains decides, not our memory of having written it. */
	return owner_verify(dir, self->token, err);
}

int owner_claim(const struct ckpt_dir *dir, struct owner *self, owner_check *check, void *arg,
	double timeout, struct err *err)
{
	struct err own;
	struct claim claim = { .check = check, .arg = arg, .deadline = deadline_in(timeout) };
	err = err ? err : &own;
	/* The lock is released between tries, since an owner needs it to leave. */
	for (;;) {
		int result = try_claim(dir, self, &claim, err);
		if (claim.watch.goes_on) {
			deadline_sleep(deadline_in(2 * LOOK_SECONDS), LOOK_SECONDS);
			claim.deadline = deadline_in(timeout);
		} else if (result == 0 || !claim.other.brief || err->status != EXIT_LOST
			|| !deadline_sleep(claim.deadline, POLL_SECONDS)) {
			return result;
		}
	}
}

/* ---- for processes that don't own the directory ---- */

bool owner_beats(const struct ckpt_dir *dir)
{
	struct owner owner;
	struct timespec beat;
	double age;
	AUTO_CLOSE int lock_fd = openat(dir->fd, LOCK_NAME, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return owner_read(dir, &owner, NULL) == 1 && !owner.ended
		&& look_at_beat(dir, lock_fd, &beat, &age) == 0 && age < OWNER_HEARTBEAT;
}

/* ---- for the owner ---- */

static int not_ours(const struct ckpt_dir *dir, int found, const struct owner *other,
	struct err *err)
{
	char who[512];
	if (!found)
		return err_fail(err, EXIT_FAULT, "owner: %s/" OWNER_NAME " was removed; this attempt stops",
			dir->path);
	describe(other, who, sizeof who);
	return err_fail(err, EXIT_FAULT, "owner: another attempt owns %s: %s; this one stops",
		dir->path, who);
}

int owner_verify(const struct ckpt_dir *dir, const char *token, struct err *err)
{
	struct owner owner;
	int found = owner_read(dir, &owner, err);
	if (found < 0)
		return -1;
	return found && strcmp(owner.token, token) == 0 ? 0 : not_ours(dir, found, &owner, err);
}

int owner_heartbeat(const struct ckpt_dir *dir, const char *token, struct err *err)
{
	struct owner owner;
	int fd;
	int found = open_owner(dir, &owner, &fd, err);
	if (found < 0)
		return -1;
	int result = 0;
	if (!found || strcmp(owner.token, token) != 0)
		result = not_ours(dir, found, &owner, err);
	else if (futimens(fd, NULL) < 0)
		result = err_fail(err, EXIT_LOST, "owner: couldn't touch %s/" OWNER_NAME ": %m", dir->path);
	if (found)
		close(fd);
	return result;
}

int owner_release(const struct ckpt_dir *dir, const char *token, struct err *err)
{
	struct owner owner;
	AUTO_CLOSE int lock_fd = -1;
	if (lock(dir, RELEASE_SECONDS, &lock_fd, err) < 0)
		return -1;
	int found = owner_read(dir, &owner, err);
	if (found < 0)
		return -1;
	if (!found || strcmp(owner.token, token) != 0)
		return not_ours(dir, found, &owner, err);
	owner.ended = true;
	return replace(dir, &owner, err);
}
