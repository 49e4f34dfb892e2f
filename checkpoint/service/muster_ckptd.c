/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckptd: the checkpoint service for one job on one node, and the commands with which the
 * job's epilog and the administrator query it. */
#include "config.h"

#include <argp.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <syslog.h>
#include <unistd.h>

#include "checkpoint/service/ckptd_control.h"
#include "checkpoint/service/ckptd_server.h"
#include "common/descriptors.h"
#include "common/io.h"
#include "common/log.h"
#include "common/number.h"

#define PART_SECONDS 600.0
#define ALIVE_SECONDS 60.0
#define FINISH_SECONDS 300.0
#define HIGHEST_DESCRIPTOR 65536

struct options {
	const char *socket, *finish, *settle, *status; /* one of these, or `client` */
	int client;                                    /* -1: not given */
	const char *job, *alive;
	double alive_every, part_timeout, timeout;
	bool bound, syslog, detach, allow_root;
};

enum {
	KEY_SOCKET = 256,
	KEY_CLIENT,
	KEY_BOUND,
	KEY_JOB,
	KEY_SYSLOG,
	KEY_DETACH,
	KEY_ALIVE,
	KEY_ALIVE_EVERY,
	KEY_PART_TIMEOUT,
	KEY_ALLOW_ROOT,
	KEY_FINISH,
	KEY_SETTLE,
	KEY_TIMEOUT,
	KEY_STATUS
};

static const struct argp_option option_table[] = {
	{ NULL, 0, NULL, 0, "What to do, one of:", 1 },
	{ "socket", KEY_SOCKET, "PATH", 0,
		"serve the clients that connect to PATH, in a folder of mode 0700", 0 },
	{ "client-fd", KEY_CLIENT, "N", 0,
		"serve the one client at the other end of descriptor N, and end after it", 0 },
	{ "finish", KEY_FINISH, "PATH", 0,
		"have the service at PATH finish and end; print what was lost", 0 },
	{ "settle", KEY_SETTLE, "PATH", 0,
		"wait until the service at PATH has no client and has written what it was handed", 0 },
	{ "status", KEY_STATUS, "PATH", 0, "print what the service at PATH holds", 0 },
	{ NULL, 0, NULL, 0, "With --socket:", 2 },
	{ "bound", KEY_BOUND, NULL, 0,
		"the socket is there already: it is the standard input, and its folder root's", 0 },
	{ "job", KEY_JOB, "ID", 0, "the job's name in the log and for --status", 0 },
	{ "detach", KEY_DETACH, NULL, 0, "listen, then go on in the background, with the log in syslog",
		0 },
	{ "alive", KEY_ALIVE, "COMMAND", 0,
		"ask this program, with its arguments after spaces, while there is nothing to do: status "
		"1 means that the job is gone, and ends the service",
		0 },
	{ "alive-every", KEY_ALIVE_EVERY, "SECONDS", 0, "how often to ask (default 60)", 0 },
	{ "allow-root", KEY_ALLOW_ROOT, NULL, 0, "run as root all the same: root's clients only", 0 },
	{ NULL, 0, NULL, 0, "With --socket and --client-fd:", 3 },
	{ "syslog", KEY_SYSLOG, NULL, 0, "log to syslog in place of standard error", 0 },
	{ "part-timeout", KEY_PART_TIMEOUT, "SECONDS", 0,
		"how long to wait for the other writers' parts of a save (default 600)", 0 },
	{ NULL, 0, NULL, 0, "With --finish and --settle:", 4 },
	{ "timeout", KEY_TIMEOUT, "SECONDS", 0, "how long it may take (default 300)", 0 },
	{ 0 },
};

static double number(struct argp_state *state, const char *name, const char *text, double most)
{
	double value = 0;
	if (!number_real(text, 0, most, &value))
		argp_error(state, "--%s %s: not a number from 0 to %g", name, text, most);
	return value;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case KEY_SOCKET: options->socket = arg; return 0;
	case KEY_CLIENT:
		options->client = (int)number(state, "client-fd", arg, HIGHEST_DESCRIPTOR);
		return 0;
	case KEY_FINISH: options->finish = arg; return 0;
	case KEY_SETTLE: options->settle = arg; return 0;
	case KEY_STATUS: options->status = arg; return 0;
	case KEY_BOUND: options->bound = true; return 0;
	case KEY_JOB: options->job = arg; return 0;
	case KEY_SYSLOG: options->syslog = true; return 0;
	case KEY_DETACH: options->detach = true; return 0;
	case KEY_ALIVE: options->alive = arg; return 0;
	case KEY_ALIVE_EVERY: options->alive_every = number(state, "alive-every", arg, 86400); return 0;
	case KEY_ALLOW_ROOT: options->allow_root = true; return 0;
	case KEY_PART_TIMEOUT:
		options->part_timeout = number(state, "part-timeout", arg, 86400);
		return 0;
	case KEY_TIMEOUT: options->timeout = number(state, "timeout", arg, 86400); return 0;
	case ARGP_KEY_ARG: argp_error(state, "%s: too many arguments", arg); return 0;
	case ARGP_KEY_END:
		if (!!options->socket + !!options->finish + !!options->settle + !!options->status
				+ (options->client >= 0)
			!= 1)
			argp_error(state, "give one of --socket, --client-fd, --finish, --settle and --status");
		if ((options->bound || options->detach || options->alive || options->job[0])
			&& !options->socket)
			argp_error(state, "--bound, --job, --detach and --alive go with --socket");
		if (options->bound && options->detach)
			argp_error(state, "--bound and --detach don't go together");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = option_table,
	.parser = parse_option,
	.doc = "The checkpoint service: writes the snapshots that trainers hand over, and outlives "
		   "them.\vExit status: 0 done (--finish: and nothing was lost); 1 a fault; 2 usage; 69 "
		   "something was lost, or no service answers.",
};

static int fail(const struct err *err)
{
	fprintf(stderr, "muster-ckptd: %s\n", err->text);
	return err->status;
}

/* ---- questions ---- */

static int finish(const struct options *options)
{
	struct ckptd_message finished;
	struct err err;
	int rc = ckptd_control_finish(options->finish, options->timeout, &finished, &err);
	if (rc < 0)
		return fail(&err);
	if (rc == 0) {
		fprintf(stderr, "muster-ckptd: there is nothing to finish: %s\n", err.text);
		return EXIT_OK;
	}
	size_t lost = finished.finished.count;
	for (size_t i = 0; i < lost; i++)
		printf("lost: %s\n", finished.finished.lines[i]);
	ckptd_message_release(&finished);
	if (io_flush_output(&err) < 0)
		fail(&err);
	return lost > 0 ? EXIT_LOST : EXIT_OK;
}

static int settle(const struct options *options)
{
	struct err err;
	return ckptd_control_settle(options->settle, options->timeout, &err) < 0 ? fail(&err) : EXIT_OK;
}

static int status(const struct options *options)
{
	struct ckptd_message state;
	struct err err;
	if (ckptd_control_status(options->status, &state, &err) < 0)
		return fail(&err);
	printf("pid %lld%s%s\n", (long long)state.state.pid, state.state.job[0] ? ", job " : "",
		state.state.job);
	for (size_t i = 0; i < state.state.count; i++)
		printf("%s\n", state.state.lines[i]);
	ckptd_message_release(&state);
	return io_flush_output(&err) < 0 ? fail(&err) : EXIT_OK;
}

/* ---- the service ---- */

static void write_syslog(void *arg, enum log_level level, const char *line)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	syslog(priorities[level], "%s", line);
}

/* Slurm sends some of these to all processes of a step, resource limits raise others, and timers
 * survive an exec. */
static void ignore_signals(void)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE,
		SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU };
	const struct itimerval none = { 0 };
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		signal(signals[i], SIG_IGN);
	setitimer(ITIMER_REAL, &none, NULL);
}

/* Closes all descriptors but the standard streams and `keep`. */
static void close_descriptors(int keep)
{
#ifdef SYS_close_range
	unsigned above = keep < 3 ? 3 : (unsigned)keep + 1;
	if ((keep <= 3 || syscall(SYS_close_range, 3u, (unsigned)keep - 1, 0) == 0)
		&& syscall(SYS_close_range, above, ~0u, 0) == 0)
		return;
#endif
	for (int fd = 3; fd < HIGHEST_DESCRIPTOR; fd++)
		if (fd != keep)
			close(fd);
}

static int refuse_root(const struct options *options, struct err *err)
{
	uid_t real, effective, saved;
	if (getresuid(&real, &effective, &saved) < 0)
		return err_set(err, "service: couldn't learn the user: %m");
	if (!options->socket || options->allow_root || (real && effective && saved))
		return 0;
	return err_fail(err, EXIT_USAGE,
		"service: it is the job's user's, not root's: start it as that user, or give --allow-root");
}

/* Checks that the descriptor is a socket: a stale number may belong to another file, which would be
 * closed when the first read from it fails. */
static int check_client(const struct options *options, struct err *err)
{
	int type;
	socklen_t size = sizeof type;
	if (options->client < 0 || getsockopt(options->client, SOL_SOCKET, SO_TYPE, &type, &size) == 0)
		return 0;
	return err_fail(err, EXIT_USAGE, "service: --client-fd %d is no connection: %m",
		options->client);
}

static int serve(const struct options *options, struct ckptd_socket *listening, struct err *err)
{
	const struct ckptd_server_plan plan = { .listening = options->socket ? listening : NULL,
		.client = options->client,
		.job = options->job,
		.patience = options->part_timeout,
		.alive = options->alive,
		.alive_every = options->alive_every };
	if (options->socket)
		log_info("service: listening on %s", options->socket);
	int rc = ckptd_server_run(&plan, err);
	if (options->socket)
		ckptd_socket_close(listening);
	return rc;
}

/* A core dump would hold the user's model, at its full size, and no other process of the user may
 * trace this one. */
static void set_up_process(const struct options *options)
{
	char host[256] = "";
	prctl(PR_SET_DUMPABLE, 0);
	gethostname(host, sizeof host - 1);
	log_set_tag("ckptd on %s", host);
	if (options->syslog || options->detach) {
		openlog("muster-ckptd", LOG_PID, LOG_DAEMON);
		log_set_tag("%s%s", options->job[0] ? "job " : "", options->job);
		log_set_writer(write_syslog, NULL);
	}
}

/* Moves the socket from standard input to another descriptor. */
static int take_bound(struct ckptd_socket *listening, const char *path, struct err *err)
{
	int bound = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3),
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (bound < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0)
		return err_set(err, "service: couldn't take the socket at the standard input: %m");
	close(null);
	return ckptd_socket_take(listening, path, bound, err);
}

/* Runs in the serving process. `ready` is a pipe that it closes when its start succeeded. */
static int run(const struct options *options, int ready, struct err *err)
{
	struct ckptd_socket listening;
	if (options->bound && take_bound(&listening, options->socket, err) < 0)
		return -1;
	if (options->socket && !options->bound
		&& ckptd_socket_listen(&listening, options->socket, err) < 0)
		return -1;
	if (ready >= 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		for (int fd = 0; null >= 0 && fd < 3; fd++)
			dup2(null, fd);
		close(null);
		close(ready);
	}
	/* The working directory may be a folder of the job's, which must stay free to be unmounted. */
	if (chdir("/") < 0)
		log_warn("service: couldn't change to /: %m");
	return serve(options, &listening, err);
}

/* The calling process returns when the service listens, or with its fault. */
static int detach(const struct options *options, struct err *err)
{
	int ends[2];
	if (pipe(ends) < 0)
		return err_set(err, "service: couldn't make a pipe: %m");
	pid_t pid = fork();
	if (pid < 0)
		return err_set(err, "service: couldn't fork: %m");
	if (pid == 0) {
		close(ends[0]);
		setsid();
		int rc = run(options, ends[1], err);
		if (rc < 0) {
			log_error("%s", err->text);
			io_write_full(ends[1], err, sizeof *err);
		}
		_exit(rc < 0 ? (int)err->status : EXIT_OK);
	}
	close(ends[1]);
	bool failed = io_read_full(ends[0], err, sizeof *err) == sizeof *err;
	close(ends[0]);
	return failed ? -1 : 0;
}

static int serve_as_told(const struct options *options)
{
	struct err err;
	close_descriptors(options->client);
	ignore_signals();
	if (refuse_root(options, &err) < 0 || check_client(options, &err) < 0)
		return fail(&err);
	set_up_process(options);
	int rc = options->detach ? detach(options, &err) : run(options, -1, &err);
	return rc < 0 ? fail(&err) : EXIT_OK;
}

int main(int argc, char **argv)
{
	struct options options = { .client = -1,
		.job = "",
		.alive_every = ALIVE_SECONDS,
		.part_timeout = PART_SECONDS,
		.timeout = FINISH_SECONDS };
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (options.finish)
		return finish(&options);
	if (options.status)
		return status(&options);
	if (options.settle)
		return settle(&options);
	return serve_as_told(&options);
}
