/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a folder as an NFS client shows that of its server, until it is unmounted.
 *   nfs_like FOLDER MOUNTPOINT FAULTS [nolocks | clock=SECONDS | user=ID]
 * A file that is unlinked while it is open here keeps lying in its folder as .nfs…; one that
 * somebody else has removed is stale; attributes and names are looked up again after a minute, when
 * a file is opened or locked, and in folders that were changed here; folders are listed by
 * position; there is no fallocate and no flock, and with "nolocks" no fcntl lock either. With
 * "clock" the client sets the times of files, as those of Lustre, GPFS and BeeGFS do, by its own
 * clock, which is that many seconds ahead. With "user", which only root can say, it works as that
 * user and group, and all users see it. Two of it over one folder are two nodes. FAULTS is a
 * file of lines "CALL ERROR", such as "write EDQUOT" or "all stall", that hold while they stand
 * there; a call that stalls, and all later ones, go on when the line is gone. "done" after a line
 * has the call fail though the server has done it: its answer is lost. */
#define FUSE_USE_VERSION 312
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <grp.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/tools/nfs_node.h"

#define SILLY ".nfs"

static struct node *root;
static const char *faults_path;
static bool has_locks = true, has_clock;
static double clock_ahead;
static uid_t user; /* 0: the user who started it */

/* By the client's own clock. */
static struct timespec client_time(void)
{
	double now = clock_wall() + clock_ahead;
	return (struct timespec) { (time_t)now, (long)((now - floor(now)) * 1e9) };
}

/* ---- faults ---- */

static int error_of(const char *name)
{
	for (int i = 1; i < 200; i++)
		if (strerrorname_np(i) && strcmp(strerrorname_np(i), name) == 0)
			return i;
	fprintf(stderr, "nfs_like: there is no error %s\n", name);
	exit(2);
}

/* The error that `call` is to have now, or 0. */
static int ordered(const char *call, bool done)
{
	char line[100], what[32], error[32], when[8];
	int found = 0;
	FILE *file = fopen(faults_path, "re");
	while (file && !found && fgets(line, sizeof line, file)) {
		int words = sscanf(line, "%31s %31s %7s", what, error, when);
		if (words == (done ? 3 : 2) && (strcmp(what, call) == 0 || strcmp(what, "all") == 0))
			found = strcmp(error, "stall") == 0 ? -1 : error_of(error);
	}
	if (file)
		fclose(file);
	return found;
}

/* Whether the call fails by order; then it is answered. */
static bool fails(fuse_req_t req, const char *call)
{
	int error;
	for (bool told = false; (error = ordered(call, false)) < 0; told = true) {
		if (!told)
			fprintf(stderr, "nfs_like: %s stalls\n", call);
		deadline_sleep(deadline_in(1), 0.01);
	}
	if (error)
		fuse_reply_err(req, error);
	return error;
}

/* Whether the answer to what was done is lost by order; then that is the answer. */
static bool is_lost(fuse_req_t req, const char *call)
{
	int error = ordered(call, true);
	if (error > 0)
		fuse_reply_err(req, error);
	return error > 0;
}

static void reply(fuse_req_t req, const char *call, int result)
{
	if (result < 0 || !is_lost(req, call))
		fuse_reply_err(req, result < 0 ? errno : 0);
}

static struct node *node_in(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? root : (struct node *)(uintptr_t)ino;
}

/* ---- names ---- */

static struct fuse_entry_param entry_of(struct node *node)
{
	if (node)
		node->refs++;
	return (struct fuse_entry_param) { .ino = (uintptr_t)node,
		.attr = node ? node->seen : (struct stat) { 0 } };
}

static void reply_entry(fuse_req_t req, struct node *node)
{
	if (!node) {
		fuse_reply_err(req, errno);
		return;
	}
	struct fuse_entry_param entry = entry_of(node);
	fuse_reply_entry(req, &entry);
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!fails(req, "lookup"))
		reply_entry(req, node_find(node_in(parent), name));
}

static void on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	node_put(node_in(ino), count);
	fuse_reply_none(req);
}

static void on_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *folder = node_in(parent);
	if (fails(req, "mkdir"))
		return;
	int result = node_refresh(folder) < 0 ? -1 : mkdirat(folder->fd, name, mode);
	node_changed(folder);
	if (result < 0 || !is_lost(req, "mkdir"))
		reply_entry(req, result < 0 ? NULL : node_find(folder, name));
}

static void on_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
	struct node *folder = node_in(parent);
	if (fails(req, "create"))
		return;
	int result = node_refresh(folder) < 0 ? -1 : mknodat(folder->fd, name, mode, device);
	node_changed(folder);
	reply_entry(req, result < 0 ? NULL : node_find(folder, name));
}

static void on_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct node *folder = node_in(parent);
	if (fails(req, "create"))
		return;
	int result = node_refresh(folder) < 0 ? -1 : symlinkat(target, folder->fd, name);
	node_changed(folder);
	reply_entry(req, result < 0 ? NULL : node_find(folder, name));
}

static void on_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(node_in(ino)->fd, "", target, sizeof target - 1);
	if (n < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	target[n] = '\0';
	fuse_reply_readlink(req, target);
}

/* Takes a file that is open here out of the way. 1: it was, 0: there is none, -1 on error. */
static int rename_silly(struct node *folder, const char *name)
{
	static unsigned count;
	struct node *node = node_at(folder, name);
	if (!node || node->opened == 0) {
		if (node && node->refs == 0) {
			node->refs = 1;
			node_put(node, 1);
		}
		return 0;
	}
	if (node->silly_in) {
		errno = EBUSY;
		return -1;
	}
	snprintf(node->silly, sizeof node->silly, SILLY "%016llx%08x",
		(unsigned long long)node->seen.st_ino, ++count);
	if (renameat(folder->fd, name, folder->fd, node->silly) < 0)
		return -1;
	node->silly_in = folder;
	folder->refs++;
	return 1;
}

static void on_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *folder = node_in(parent);
	if (fails(req, "unlink"))
		return;
	int result = node_refresh(folder) < 0 ? -1 : rename_silly(folder, name);
	if (result == 0)
		result = unlinkat(folder->fd, name, 0);
	node_changed(folder);
	reply(req, "unlink", result);
}

static void on_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *folder = node_in(parent);
	if (fails(req, "rmdir"))
		return;
	int result = node_refresh(folder) < 0 ? -1 : unlinkat(folder->fd, name, AT_REMOVEDIR);
	node_changed(folder);
	reply(req, "rmdir", result);
}

static void on_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned flags)
{
	struct node *from = node_in(parent), *to = node_in(new_parent);
	if (fails(req, "rename"))
		return;
	errno = EINVAL; /* NFS has none of the flags */
	int result =
		flags || node_refresh(from) < 0 || node_refresh(to) < 0 || rename_silly(to, new_name) < 0
		? -1
		: renameat(from->fd, name, to->fd, new_name);
	node_changed(from);
	node_changed(to);
	reply(req, "rename", result);
}

/* ---- attributes ---- */

static void reply_attr(fuse_req_t req, struct node *node, int result)
{
	if (result < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_attr(req, &node->seen, 0);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	(void)file;
	if (!fails(req, "getattr"))
		reply_attr(req, node_in(ino), node_look(node_in(ino)));
}

/* The file was written to just now. */
static void stamp(struct node *node)
{
	if (has_clock)
		node_stamp(node, client_time());
}

static struct timespec time_of(int set, int now, int given, struct timespec time)
{
	if (has_clock && (set & now))
		return client_time();
	return (struct timespec) { time.tv_sec,
		set & now         ? UTIME_NOW
			: set & given ? time.tv_nsec
						  : UTIME_OMIT };
}

static void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
	struct fuse_file_info *file)
{
	struct node *node = node_in(ino);
	const struct timespec times[2] = { time_of(set, FUSE_SET_ATTR_ATIME_NOW, FUSE_SET_ATTR_ATIME,
										   st->st_atim),
		time_of(set, FUSE_SET_ATTR_MTIME_NOW, FUSE_SET_ATTR_MTIME, st->st_mtim) };
	if (fails(req, "setattr"))
		return;
	int result = node_refresh(node);
	if (result == 0 && (set & FUSE_SET_ATTR_MODE))
		result = chmod(node_path(node), st->st_mode);
	if (result == 0 && (set & FUSE_SET_ATTR_SIZE))
		result =
			file ? ftruncate((int)file->fh, st->st_size) : truncate(node_path(node), st->st_size);
	if (result == 0)
		result = utimensat(AT_FDCWD, node_path(node), times, 0);
	if (result == 0)
		result = node_refresh(node);
	reply_attr(req, node, result);
}

static void on_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	if (fails(req, "statfs"))
		return;
	if (fstatvfs(node_in(ino)->fd, &st) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_statfs(req, &st);
}

/* ---- files ---- */

static void opened(struct node *node, struct fuse_file_info *file, int fd)
{
	file->fh = (uint64_t)fd;
	node->opened++;
	node->refs++;
}

static int flags_of(const struct fuse_file_info *file)
{
	return (file->flags & ~(O_DIRECT | O_NOFOLLOW)) | O_CLOEXEC;
}

static void on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *file)
{
	struct node *folder = node_in(parent);
	if (fails(req, "create"))
		return;
	int fd =
		node_refresh(folder) < 0 ? -1 : openat(folder->fd, name, flags_of(file) | O_CREAT, mode);
	node_changed(folder);
	struct node *node = fd < 0 ? NULL : node_find(folder, name);
	if (!node) {
		fuse_reply_err(req, errno);
		return;
	}
	if (is_lost(req, "create")) {
		close(fd);
		return;
	}
	opened(node, file, fd);
	stamp(node);
	struct fuse_entry_param entry = entry_of(node);
	fuse_reply_create(req, &entry, file);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	struct node *node = node_in(ino);
	if (fails(req, "open"))
		return;
	int fd = node_refresh(node) < 0 ? -1 : open(node_path(node), flags_of(file));
	if (fd < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	opened(node, file, fd);
	fuse_reply_open(req, file);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	struct node *node = node_in(ino), *in = node->silly_in;
	close((int)file->fh);
	if (--node->opened == 0 && in) {
		unlinkat(in->fd, node->silly, 0);
		node_changed(in);
		node_put(in, 1);
		node->silly_in = NULL;
	}
	node_put(node, 1);
	fuse_reply_err(req, 0);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
	struct fuse_file_info *file)
{
	struct stat st;
	(void)ino;
	if (fails(req, "read"))
		return;
	char *bytes = malloc(size);
	ssize_t n = pread((int)file->fh, bytes, size, offset);
	if (fstat((int)file->fh, &st) < 0 || st.st_nlink == 0)
		fuse_reply_err(req, ESTALE);
	else if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, bytes, (size_t)n);
	free(bytes);
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset,
	struct fuse_file_info *file)
{
	struct node *node = node_in(ino);
	if (fails(req, "write"))
		return;
	ssize_t n = node_refresh(node) < 0 ? -1 : pwrite((int)file->fh, bytes, size, offset);
	stamp(node);
	if (n < 0 || node_refresh(node) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_write(req, (size_t)n);
}

static void on_fsync(fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *file)
{
	(void)data;
	if (!fails(req, "fsync"))
		reply(req, "fsync", node_refresh(node_in(ino)) < 0 ? -1 : fsync((int)file->fh));
}

static void on_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	(void)ino, (void)file;
	if (!fails(req, "flush"))
		fuse_reply_err(req, 0);
}

/* ---- locks ---- */

static void on_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file,
	struct flock *lock)
{
	(void)ino;
	lock->l_pid = 0;
	if (!has_locks)
		fuse_reply_err(req, ENOLCK);
	else if (fcntl((int)file->fh, F_OFD_GETLK, lock) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_lock(req, lock);
}

static void on_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file,
	struct flock *lock, int sleep)
{
	(void)sleep;
	lock->l_pid = 0;
	if (!has_locks)
		fuse_reply_err(req, ENOLCK);
	else if (!fails(req, "lock"))
		reply(req, "lock",
			fcntl((int)file->fh, F_OFD_SETLK, lock) < 0 ? -1 : node_refresh(node_in(ino)));
}

static void on_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file, int op)
{
	(void)ino, (void)file, (void)op;
	fuse_reply_err(req, ENOLCK);
}

/* ---- folders ---- */

static void on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	if (fails(req, "opendir"))
		return;
	if (node_look(node_in(ino)) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_open(req, file);
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
	struct fuse_file_info *file)
{
	struct node *folder = node_in(ino);
	char bytes[1024]; /* small, so that it takes many calls */
	size_t used = 0;
	(void)file;
	if (fails(req, "readdir"))
		return;
	size = size < sizeof bytes ? size : sizeof bytes;
	if (node_look(folder) < 0 || (folder->listed < 0 && node_list(folder) < 0)) {
		fuse_reply_err(req, errno);
		return;
	}
	for (off_t i = offset; i < folder->listed; i++) {
		const struct stat st = { .st_ino = (ino_t)i + 1 };
		size_t n = fuse_add_direntry(req, bytes + used, size - used, folder->list[i], &st, i + 1);
		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, bytes, used);
}

static void on_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *file)
{
	(void)data, (void)file;
	if (!fails(req, "fsyncdir"))
		reply(req, "fsyncdir", node_refresh(node_in(ino)));
}

static const struct fuse_lowlevel_ops calls = {
	.lookup = on_lookup,
	.forget = on_forget,
	.getattr = on_getattr,
	.setattr = on_setattr,
	.mkdir = on_mkdir,
	.mknod = on_mknod,
	.symlink = on_symlink,
	.readlink = on_readlink,
	.unlink = on_unlink,
	.rmdir = on_rmdir,
	.rename = on_rename,
	.create = on_create,
	.open = on_open,
	.read = on_read,
	.write = on_write,
	.flush = on_flush,
	.release = on_release,
	.fsync = on_fsync,
	.opendir = on_opendir,
	.readdir = on_readdir,
	.fsyncdir = on_fsyncdir,
	.statfs = on_statfs,
	.getlk = on_getlk,
	.setlk = on_setlk,
	.flock = on_flock,
};

/* Only root opens /dev/fuse everywhere. */
static int become_user(void)
{
	return user && (setgroups(0, NULL) < 0 || setgid(user) < 0 || setuid(user) < 0) ? -1 : 0;
}

static int serve(char *program, const char *mountpoint)
{
	char *argv[] = { program, "-oallow_other", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(user ? 2 : 1, argv);
	struct fuse_session *session = fuse_session_new(&args, &calls, sizeof calls, NULL);
	/* One call after the other, so that a close has come here before what the same process does
	 * next. */
	int result = session && fuse_set_signal_handlers(session) == 0
			&& fuse_session_mount(session, mountpoint) == 0 && become_user() == 0
		? fuse_session_loop(session)
		: -1;
	if (session) {
		fuse_session_unmount(session);
		fuse_session_destroy(session);
	}
	return result < 0 ? 77 : 0;
}

int main(int argc, char **argv)
{
	struct rlimit files;
	has_locks = argc < 5 || strcmp(argv[4], "nolocks") != 0;
	has_clock = argc == 5 && sscanf(argv[4], "clock=%lf", &clock_ahead) == 1;
	if (argc < 4 || argc > 5
		|| (argc == 5 && has_locks && !has_clock && sscanf(argv[4], "user=%u", &user) != 1)) {
		fprintf(stderr,
			"usage: nfs_like FOLDER MOUNTPOINT FAULTS [nolocks | clock=SECONDS | user=ID]\n");
		return 2;
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	umask(0);
	faults_path = argv[3];
	root = node_of(open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (!root) {
		fprintf(stderr, "nfs_like: couldn't open %s: %m\n", argv[1]);
		return 2;
	}
	root->refs = 1;
	return serve(argv[0], argv[2]);
}
