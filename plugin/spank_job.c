/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmd's job prolog (as root, on each node, before the job's first step): removes what a
 * killed slurmstepd left, and starts the job's checkpoint service. In the epilog, after the last
 * step: has the service finish. Until the epilog returns, the job is COMPLETING: no other job gets
 * the node, and the job's own next attempt does not start. Then a requeue that could not be asked
 * for before is asked for.
 *
 * What a slurmstepd leaves when it is killed or its node loses power: its PMIx server's socket
 * SPOOL/stepd.slurm.pmix.JOB.STEP, and the folders SPOOL/pmix.JOB.STEP and
 * TMPFS/spmix_appdir_UID_JOB.STEP. A requeued job has the same IDs again. If the socket still
 * exists, Slurm 22.05 fails with "Address already in use" (and srun even exits with 0); if a folder
 * does, with "Cannot create directory: File exists". The step does not start. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/number.h"
#include "common/run_as_user.h"
#include "plugin/job_folder.h"
#include "plugin/job_service.h"
#include "plugin/left_stepd.h"
#include "plugin/spank_args.h"
#include "plugin/spank_contexts.h"
#include "plugin/spank_slurmd.h"
#include "plugin/wish.h"
#include "slurm/slurm_compat.h"

#define ENDING_SECONDS 600 /* beyond drain=, for a job to end on all its nodes */
#define START_SECONDS 4.0
#define LEFT_SECONDS 1.0
#define SOCKET_PREFIX "stepd.slurm." /* before the name of the server's folder */

/* The value of %n or %h on this node. "*" if it is unknown, since only dead sockets are removed.
 * "*" is not always used, since nodes may share a file system, and another node's socket that does
 * not listen yet looks dead. */
static const char *place_name(char letter, char host[65])
{
	const char *node = getenv("SLURMD_NODENAME");
	if (letter == 'n')
		return node ? node : "*";
	if (gethostname(host, 65) < 0)
		return "*";
	host[strcspn(host, ".")] = '\0';
	return host;
}

/* A path of slurm.conf on this node, as a pattern. */
static bool path_here(const char *from, char *pattern, size_t size)
{
	char host[65];
	size_t used = 0;
	if (!from || from[0] != '/')
		return false;
	for (; *from && used < size; from++) {
		bool place = from[0] == '%' && (from[1] == 'n' || from[1] == 'h');
		int length = place ? snprintf(pattern + used, size - used, "%s", place_name(from[1], host))
						   : snprintf(pattern + used, size - used, "%c", *from);
		used += (size_t)length;
		from += place;
	}
	return used < size;
}

/* Whether a name in a folder is a socket on which no process listens. */
static bool is_dead_socket(int folder, const char *name)
{
	struct stat st;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	if ((size_t)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder,
			name)
		>= sizeof address.sun_path)
		return false;
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0
		&& errno == ECONNREFUSED;
}

/* Opens Slurm's own folder. NULL if a user can put something into it, or made it to match the
 * pattern. */
static DIR *open_spool(const char *path)
{
	const slurm_conf_t *conf = slurm_compat_conf();
	struct stat st;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return NULL;
	if (st.st_uid != geteuid() && st.st_uid != conf->slurm_user_id
		&& st.st_uid != conf->slurmd_user_id)
		return NULL;
	DIR *folder = fdopendir(fd);
	if (folder)
		fd = -1;
	return folder;
}

/* Removes what a server keeps for its clients in TmpFS. */
static int remove_clients(const struct job_service *plan, const char *step)
{
	const slurm_conf_t *conf = slurm_compat_conf();
	char path[400], name[80];
	if (!path_here(conf->tmp_fs, path, sizeof path))
		return 0;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(name, sizeof name, "spmix_appdir_%u_%s", (unsigned)plan->uid, step);
	return fd < 0 ? 0 : job_folder_remove_users(fd, name);
}

/* A dead server's folders are removed before its socket, since it is found by the socket. */
static void remove_left(const struct job_service *plan, DIR *folder, const char *spool,
	const char *name)
{
	if (remove_clients(plan, name + strlen(SOCKET_PREFIX "pmix.")) == 0
		&& job_folder_remove_users(dirfd(folder), name + strlen(SOCKET_PREFIX)) == 0
		&& unlinkat(dirfd(folder), name, 0) == 0)
		slurm_info("muster: removed %s/%s, left by an earlier attempt of this job", spool, name);
	else
		slurm_error("muster: couldn't remove %s/%s, left by an earlier attempt of this job: %m",
			spool, name);
}

static void remove_dead_in(const struct job_service *plan, const char *spool)
{
	char start[60];
	struct dirent *entry;
	DIR *folder = open_spool(spool);
	if (!folder)
		return;
	size_t length = (size_t)snprintf(start, sizeof start, SOCKET_PREFIX "pmix.%u.", plan->job);
	while ((entry = readdir(folder)))
		if (strncmp(entry->d_name, start, length) == 0
			&& is_dead_socket(dirfd(folder), entry->d_name))
			remove_left(plan, folder, spool, entry->d_name);
	closedir(folder);
}

static void remove_dead_servers(const struct job_service *plan)
{
	const slurm_conf_t *conf = slurm_compat_conf();
	char spool[400];
	glob_t found = { 0 };
	if (!conf || !path_here(conf->slurmd_spooldir, spool, sizeof spool)
		|| glob(spool, GLOB_NOSORT, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		remove_dead_in(plan, found.gl_pathv[i]);
	globfree(&found);
}

/* ---- the checkpoint service ---- */

/* -1: Slurm does not tell. */
static int attempt_of_job(void)
{
	const char *count = getenv("SLURM_JOB_RESTART_COUNT");
	int64_t attempt;
	return count && number_whole(count, 0, INT_MAX, &attempt) ? (int)attempt : -1;
}

static int read_plan(spank_t spank, int argc, char **argv, struct spank_args *args,
	struct job_service *plan)
{
	struct err err;
	if (spank_args_parse(argc, argv, args, &err) < 0)
		slurm_error("muster: %s", err.text);
	/* The programs are needed even if they are turned off: a running service is still ended, and
	 * still asks about its job. */
	*plan = (struct job_service) { .program = args->ckptd ? args->ckptd : SPANK_ARGS_CKPTD,
		.run = args->run,
		.drain = args->drain,
		.requeue = args->requeue ? args->requeue : SPANK_ARGS_REQUEUE,
		.conf = getenv("SLURM_CONF"),
		.attempt = attempt_of_job() };
	return spank_get_item(spank, S_JOB_ID, &plan->job) == ESPANK_SUCCESS
			&& spank_get_item(spank, S_JOB_UID, &plan->uid) == ESPANK_SUCCESS
			&& spank_get_item(spank, S_JOB_GID, &plan->gid) == ESPANK_SUCCESS
		? 0
		: -1;
}

static void say(void *arg, const char *line)
{
	slurm_error("muster: job %u: %s", *(const uint32_t *)arg, line);
}

static void finish_service(struct job_service *plan)
{
	struct err err;
	int rc = job_service_finish(plan, say, &plan->job, &err);
	if (rc < 0)
		slurm_error("muster: job %u: %s", plan->job, err.text);
	else if (rc > 0)
		slurm_info("muster: job %u: its checkpoint service has ended", plan->job);
}

static void start_service(struct job_service *plan)
{
	struct err err;
	struct process service;
	if (job_service_start(plan, &service, say, &plan->job, &err) < 0)
		slurm_error("muster: job %u: its checkpoint service was not started, so each step starts "
					"its own: %s",
			plan->job, err.text);
	else
		slurm_info("muster: job %u: its checkpoint service is process %d of user %u", plan->job,
			(int)service.pid, (unsigned)plan->uid);
}

int spank_job_prolog(spank_t spank, int argc, char **argv)
{
	struct spank_args args;
	struct job_service plan;
	struct hooks hooks;
	if (read_plan(spank, argc, argv, &args, &plan) < 0)
		return 0;
	spank_slurmd_hooks(plan.run, &hooks);
	plan.drain = hooks_drain(hooks.prolog, HOOKS_PROLOG_SECONDS, plan.drain);
	remove_dead_servers(&plan);
	enum spank_choice choice = spank_args_job(spank);
	bool wanted = args.ckptd && (choice == CHOICE_NONE ? args.default_on : choice == CHOICE_ON);
	if (wanted && hooks_allow_service(&hooks))
		start_service(&plan);
	else
		finish_service(
			&plan); /* of an earlier job with this ID, if the controller's count restarted */
	return 0;
}

/* ---- what could not be asked for ---- */

/* A job that ran out of time can be put back once it has ended on all nodes, and so can one whose
 * batch script's slurmstepd died before it asked. The process that asks outlives this epilog. */
static void ask_at_last(const struct job_service *plan, const char *requeue, struct wish *wish)
{
	char conf[4200], deadline[40];
	char *argv[WISH_ARGUMENTS + 6] = { (char *)requeue, "--quiet", "--asked", deadline };
	char *env[] = { "PATH=/usr/bin:/bin", plan->conf ? conf : NULL, NULL };
	struct run_user user = { .uid = plan->uid, .gid = plan->gid };
	AUTO_FREE gid_t *groups = NULL;
	struct err err;
	pid_t pid;
	int n = 4;
	snprintf(conf, sizeof conf, "SLURM_CONF=%s", plan->conf ? plan->conf : "");
	snprintf(deadline, sizeof deadline, "--deadline=%d", plan->drain + ENDING_SECONDS);
	for (char **argument = wish->argv; *argument; argument++)
		argv[n++] = *argument;
	if (run_user_groups(plan->uid, plan->gid, &groups, &user.group_count, &err) < 0)
		slurm_error("muster: job %u: %s", plan->job, err.text);
	user.groups = groups;
	if (start_as_user(&user, argv, env, -1, START_SECONDS, &pid, &err) < 0)
		slurm_error("muster: job %u: its requeue couldn't be asked for: %s", plan->job, err.text);
	else
		slurm_info("muster: job %u: process %d of user %u asks for its requeue when it has ended",
			plan->job, (int)pid, (unsigned)plan->uid);
}

static int end_job(spank_t spank, int argc, char **argv)
{
	struct spank_args args;
	struct job_service plan;
	struct wish wish;
	struct hooks hooks;
	if (read_plan(spank, argc, argv, &args, &plan) < 0)
		return 0;
	spank_slurmd_hooks(plan.run, &hooks);
	plan.drain = hooks_drain(hooks.epilog, HOOKS_EPILOG_SECONDS, plan.drain);
	bool asks = args.requeue && wish_is_batch_host(plan.run, plan.job)
		&& wish_read(plan.run, plan.job, WISH_IN_VAIN, &wish);
	finish_service(&plan);
	if (asks)
		ask_at_last(&plan, args.requeue, &wish);
	return 0;
}

/* Where slurmstepd runs the epilog (below) the job's other steps may still be ending. */
int spank_job_epilog(spank_t spank, int argc, char **argv)
{
	uint32_t job = 0;
	int left = spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS
		? left_stepd_end(job, LEFT_SECONDS)
		: 0;
	if (left > 0)
		slurm_info("muster: job %u: ended %d of its slurmstepds, which slurmd takes for ended",
			(unsigned)job, left);
	return end_job(spank, argc, argv);
}

/* ---- PrologFlags=RunInJob ---- */

/* With that flag slurmstepd runs the prolog and the epilog, without the plugins that have one
 * (24.05 to 26.05). Each node of the job then has an extern step. It begins before all other steps,
 * and when it ends they have ended, or had KillWait to end. */
static bool stands_in(spank_t spank, int argc, char **argv)
{
	struct spank_args args;
	struct hooks hooks;
	uint32_t step = 0;
	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step != SLURM_EXTERN_CONT)
		return false;
	spank_args_parse(argc, argv, &args, NULL);
	spank_slurmd_hooks(args.run, &hooks);
	return hooks.in_job;
}

int spank_job_extern_init(spank_t spank, int argc, char **argv)
{
	return stands_in(spank, argc, argv) ? spank_job_prolog(spank, argc, argv) : 0;
}

/* Calls a function of slurmstepd that is not a public symbol, if it exists. */
static void call_slurmstepd(const char *name)
{
	void (*call)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, name);
	if (call)
		call();
}

/* At this moment another thread ends X11 forwarding, for which it makes the process the user. It
 * can't while the lock is held. */
int spank_job_extern_exit(spank_t spank, int argc, char **argv)
{
	call_slurmstepd("auth_setuid_lock");
	if (stands_in(spank, argc, argv))
		end_job(spank, argc, argv);
	call_slurmstepd("auth_setuid_unlock");
	return 0;
}
