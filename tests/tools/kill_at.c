/* SPDX-License-Identifier: Apache-2.0 */
/* Kills a program, with all its threads and children, before the N-th system call that changes a
 * file system. kill_at N PROGRAM ARGUMENT…             status 137 when that many came, else the
 * program's own kill_at N=EIO PROGRAM ARGUMENT…         has that call fail instead, with any errno
 * by its name, counting every close after the first of the others too, and no exit; the program's
 * own status. Prints the call's number ("call 74 fails") on standard error when that many came
 *   kill_at N-M=EROFS PROGRAM ARGUMENT…     the same with the N-th to the M-th call; without M:
 * with all from the N-th on kill_at 0[=EIO] PROGRAM ARGUMENT…       prints how many calls count
 * ("133 calls") on standard error Status 77 where processes can't be traced. A filter (seccomp) has
 * only those calls stop, so that all else runs at full speed. Calls between the marks of
 * power_store.h don't count. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tools/power_store.h"

#define TASKS 4096
#define ERRORS_MAX 200
#define MARKS 1000000 /* descriptors from here on are none */
#define LOW_WORD(index) (uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (index))

enum kind { CHANGE = 1, MARK, CLOSE /* which may be a mark */ };

/* Calls that change a file system whatever their arguments; openat and close are looked at. */
static const int changes[] = {
	SYS_write,
	SYS_pwrite64,
	SYS_writev,
	SYS_pwritev,
	SYS_pwritev2,
	SYS_fallocate,
	SYS_ftruncate,
	SYS_truncate,
	SYS_fsync,
	SYS_fdatasync,
	SYS_syncfs,
	SYS_sync_file_range,
	SYS_copy_file_range,
	SYS_sendfile,
	SYS_splice,
	SYS_mkdirat,
	SYS_unlinkat,
	SYS_linkat,
	SYS_symlinkat,
	SYS_renameat2,
	SYS_utimensat,
	SYS_io_uring_enter,
	SYS_msync,
	SYS_exit_group,
#ifdef SYS_renameat
	SYS_renameat,
#endif
#ifdef SYS_rename
	SYS_rename,
	SYS_mkdir,
	SYS_rmdir,
	SYS_unlink,
	SYS_link,
	SYS_symlink,
	SYS_creat,
#endif
};

#define CHANGES (sizeof changes / sizeof changes[0])

/* Which calls are meant, and what becomes of them: 0 is the end of all. */
struct order {
	long first, last;
	int error;
};

/* A process or thread that is traced. */
struct task {
	pid_t id;
	bool paused; /* does what doesn't count */
};

static struct task tasks[TASKS];
static size_t task_count;

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "kill_at: couldn't %s: %m\n", what);
	exit(77);
}

/* ---- the program ---- */

/* Jumps over the next instruction unless the loaded word is `value`. */
#define UNLESS(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 0, 1)
#define STOP(kind) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | (kind))
#define GO_ON BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset))

static void filter(bool closes)
{
	struct sock_filter code[2 * CHANGES + 24];
	unsigned short n = 0;
	code[n++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < CHANGES; i++) {
		code[n++] = (struct sock_filter)UNLESS(changes[i]);
		code[n++] = (struct sock_filter)STOP(CHANGE);
	}
	if (closes) {
		code[n++] = (struct sock_filter)UNLESS(SYS_close);
		code[n++] = (struct sock_filter)STOP(CLOSE);
	}
	const struct sock_filter rest[] = {
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4),
		LOAD(LOW_WORD(2)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1),
		STOP(CHANGE),
		GO_ON,
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 0, 4),
		LOAD(LOW_WORD(0)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, MARKS, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x80000000u, 1, 0),
		STOP(MARK),
		GO_ON,
	};
	memcpy(code + n, rest, sizeof rest);
	struct sock_fprog program = { (unsigned short)(n + sizeof rest / sizeof rest[0]), code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
		|| prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		give_up("set the filter");
}

static pid_t start(char **argv, bool closes)
{
	int gate[2];
	char byte = 0;
	if (pipe(gate) < 0)
		give_up("make a pipe");
	pid_t child = fork();
	if (child < 0)
		give_up("fork");
	if (child > 0) {
		const int follow = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK
			| PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
		if (ptrace(PTRACE_SEIZE, child, NULL, follow) < 0)
			give_up("trace");
		if (write(gate[1], &byte, 1) != 1)
			give_up("write to a pipe");
		close(gate[0]);
		close(gate[1]);
		return child;
	}
	if (read(gate[0], &byte, 1) != 1)
		_exit(77);
	close(gate[0]);
	close(gate[1]);
	filter(closes);
	execvp(argv[0], argv);
	give_up("run the program");
}

/* ---- the tracer ---- */

static struct task *find_task(pid_t id)
{
	for (size_t i = 0; i < task_count; i++)
		if (tasks[i].id == id)
			return &tasks[i];
	if (task_count == TASKS)
		give_up("remember that many tasks");
	tasks[task_count] = (struct task) { .id = id };
	return &tasks[task_count++];
}

/* Whether the descriptor is one of a file system: what wakes another thread changes nothing. */
static bool is_file(pid_t id, uint64_t fd)
{
	char path[64], target[2];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)id, (int)fd);
	return readlink(path, target, sizeof target) > 0 && target[0] == '/';
}

/* Whether the task is about to do what counts. What a program closes while it is loaded does not;
 * an exit can't fail. */
static bool counts(struct task *task, bool may_exit)
{
	static bool loaded;
	struct __ptrace_syscall_info info;
	unsigned long kind;
	if (ptrace(PTRACE_GETEVENTMSG, task->id, NULL, &kind) < 0
		|| ptrace(PTRACE_GET_SYSCALL_INFO, task->id, sizeof info, &info) < 0)
		return false; /* it has been killed */
	uint64_t fd = info.seccomp.args[0];
	if (kind != CHANGE && fd == POWER_MARK_PAUSE)
		task->paused = true;
	if (kind != CHANGE && fd == POWER_MARK_RESUME)
		task->paused = false;
	if (task->paused || (kind != CHANGE && fd >= MARKS))
		return false;
	if ((info.seccomp.nr == SYS_write || info.seccomp.nr == SYS_close) && !is_file(task->id, fd))
		return false;
	loaded |= kind == CHANGE;
	return loaded && (may_exit || info.seccomp.nr != SYS_exit_group);
}

/* Has the call that the task is about to do fail without being done. */
static void fail_call(pid_t id, int error)
{
#ifdef __x86_64__
	struct user_regs_struct registers;
	if (ptrace(PTRACE_GETREGS, id, NULL, &registers) < 0)
		give_up("read registers");
	fprintf(stderr, "call %lld fails\n", (long long)registers.orig_rax);
	registers.orig_rax = ~0ull;
	registers.rax = (unsigned long long)-(long long)error;
	if (ptrace(PTRACE_SETREGS, id, NULL, &registers) == 0)
		return;
#endif
	(void)id, (void)error;
	give_up("change registers on this machine");
}

static void go_on(pid_t id, int status)
{
	int event = status >> 16, sent = WSTOPSIG(status);
	ptrace(PTRACE_CONT, id, NULL, event ? 0L : (long)sent);
}

/* Until nobody is left. */
static void kill_all(void)
{
	int status;
	pid_t id;
	for (size_t i = 0; i < task_count; i++)
		kill(tasks[i].id, SIGKILL);
	while ((id = waitpid(-1, &status, __WALL)) > 0)
		if (WIFSTOPPED(status)) {
			kill(id, SIGKILL);
			ptrace(PTRACE_CONT, id, NULL, 0L);
		}
}

/* Drops a task that has ended, so that its number may be used again. */
static void forget(pid_t id)
{
	struct task *task = find_task(id);
	*task = tasks[--task_count];
}

/* 0: there is none of that name. */
static int error_of(const char *name)
{
	int error = ERRORS_MAX;
	while (error > 0 && (!strerrorname_np(error) || strcmp(strerrorname_np(error), name) != 0))
		error--;
	return error;
}

static bool parse(const char *text, struct order *order)
{
	char *end;
	order->first = order->last = strtol(text, &end, 10);
	bool number = end > text;
	if (*end == '-') {
		const char *last = end + 1;
		order->last = strtol(last, &end, 10);
		if (end == last)
			order->last = LONG_MAX;
	}
	order->error = *end == '=' ? error_of(end + 1) : 0;
	return number && order->first >= 0 && (order->error || !*end);
}

/* Lets all run until they have ended or, without an error to give, the first call is due. The
 * status of `child`. */
static int trace(pid_t child, const struct order *order)
{
	int status, result = 77;
	long n = 0;
	pid_t id;
	while ((id = waitpid(-1, &status, __WALL)) > 0) {
		if (!WIFSTOPPED(status)) {
			if (id == child)
				result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			forget(id);
			continue;
		}
		struct task *task = find_task(id);
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8) && counts(task, !order->error)
			&& ++n >= order->first && n <= order->last) { /* never where both are 0 */
			if (!order->error) {
				kill_all();
				return 137;
			}
			fail_call(id, order->error);
		}
		go_on(id, status);
	}
	if (order->first == 0)
		fprintf(stderr, "%ld calls\n", n);
	return result;
}

int main(int argc, char **argv)
{
	struct order order;
	if (argc < 3 || !parse(argv[1], &order)) {
		fprintf(stderr, "usage: kill_at N[-[M]][=ERROR] PROGRAM ARGUMENT…\n");
		return 2;
	}
	return trace(start(argv + 2, order.error != 0), &order);
}
