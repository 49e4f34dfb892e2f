/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at all processes of the node. One is a left slurmstepd of the job by its title, executable
 * and mount namespace: several slurmds may share a machine. A process that it has forked has its
 * title, too. */
#include "plugin/left_stepd.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"
#include "common/number.h"
#include "common/process.h"

/* Reads the beginning of a file of /proc; "" if it can't be read. */
static bool read_start(const char *path, char *text, size_t size)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : io_read_full(fd, text, size - 1);
	text[length > 0 ? length : 0] = '\0';
	return length >= 0;
}

/* Whether the process has the same executable, or mount namespace, as this one. */
static bool shares(pid_t pid, const char *what)
{
	char path[60], own[60];
	struct stat there, here;
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
	snprintf(own, sizeof own, "/proc/self/%s", what);
	return stat(path, &there) == 0 && stat(own, &here) == 0 && there.st_dev == here.st_dev
		&& there.st_ino == here.st_ino;
}

/* A slurmstepd calls itself "slurmstepd: [JOB.STEP]". `step`: how that of the step begins. */
static bool is_stepd(pid_t pid, uint32_t job, const char *step)
{
	char path[60], title[80], wanted[60];
	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	snprintf(wanted, sizeof wanted, "slurmstepd: [%u.%s", (unsigned)job, step);
	return pid != getpid() && read_start(path, title, sizeof title)
		&& strncmp(title, wanted, strlen(wanted)) == 0 && shares(pid, "exe")
		&& shares(pid, "ns/mnt");
}

static bool is_of_job(pid_t pid, uint32_t job)
{
	return is_stepd(pid, job, "");
}

/* True also where the kernel does not tell. */
static bool has_child(pid_t pid)
{
	char pattern[60], pids[20];
	glob_t found = { 0 };
	snprintf(pattern, sizeof pattern, "/proc/%d/task/*/children", (int)pid);
	bool child = glob(pattern, GLOB_NOSORT, NULL, &found) != 0;
	for (size_t i = 0; !child && i < found.gl_pathc; i++)
		child = !read_start(found.gl_pathv[i], pids, sizeof pids) || pids[0];
	globfree(&found);
	return child;
}

/* The next process of the open folder /proc; false after the last, or if `all` is NULL. */
static bool next_process(DIR *all, struct process *process)
{
	int64_t pid;
	for (struct dirent *entry; all && (entry = readdir(all));)
		if (number_whole(entry->d_name, 1, INT_MAX, &pid) && process_find((pid_t)pid, process))
			return true;
	return false;
}

int left_stepd_end(uint32_t job, double seconds)
{
	int ended = 0;
	struct process process;
	DIR *all = opendir("/proc");
	while (next_process(all, &process))
		if (is_of_job(process.pid, job) && !is_of_job(process_parent(process.pid), job)
			&& !process_wait(&process, seconds) && !has_child(process.pid)) {
			process_kill(&process);
			ended++;
		}
	if (all)
		closedir(all);
	return ended;
}

/* ---- the script ---- */

/* Whether the process comes from the script of the attempt that `step` is of. */
static bool is_of_script(pid_t pid, uint32_t job, const struct process *step)
{
	struct process batch;
	if (is_of_job(pid, job))
		return false;
	do
		pid = process_parent(pid);
	while (pid > 1 && !is_stepd(pid, job, "batch]"));
	return pid > 1 && process_find(pid, &batch) && batch.start <= step->start;
}

static bool is_srun(pid_t pid)
{
	char path[60], name[20];
	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	return read_start(path, name, sizeof name) && strcmp(name, "srun\n") == 0;
}

/* Sends a signal to each process of the script, or to its sruns alone. Returns how many they are.
 */
static int signal_script(uint32_t job, const struct process *step, bool only_sruns, int signal)
{
	int count = 0;
	struct process process;
	DIR *all = opendir("/proc");
	while (next_process(all, &process))
		if (is_of_script(process.pid, job, step) && (!only_sruns || is_srun(process.pid))) {
			process_signal(&process, signal);
			count++;
		}
	if (all)
		closedir(all);
	return count;
}

int left_script_stop(uint32_t job, pid_t step)
{
	struct process process;
	if (!process_find(step, &process))
		return 0;
	const int count = signal_script(job, &process, false, SIGSTOP);
	signal_script(job, &process, true, SIGKILL);
	return count;
}
