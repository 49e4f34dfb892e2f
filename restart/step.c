/* SPDX-License-Identifier: Apache-2.0 */
/* srun is waited for by signal and its nodes by their messages, both in one poll(). */
#include "config.h"

#include "restart/step.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/spawn.h"
#include "plugin/task_end.h"

#define END_SECONDS 10.0 /* for the end of a step that was killed, where its nodes answer */
#define HEAR_SECONDS 3.0 /* for messages that have not come whole when srun ends */

int step_start(struct step *step, char *const *argv, const uint16_t *port_range, struct err *err)
{
	char value[END_CHANNEL_VALUE_SIZE];
	if (end_channel_open(&step->channel, port_range, value, err) < 0)
		return -1;
	setenv(END_CHANNEL_RUN, value, 1);
	int error = spawn_program(&step->srun, argv[0], NULL, argv, 0);
	if (error) {
		end_channel_close(&step->channel, &step->visitors);
		return err_set(err, "couldn't start %s: %s", argv[0], strerror(error));
	}
	return 0;
}

/* ---- what is heard ---- */

/* The kernel asks after half of the time, and some more times until it is over. */
static void watch_connection(int fd, double silence)
{
	int on = 1, idle = (int)fmax(1, silence / 2), interval = (int)fmax(1, silence / 10),
		probes = (int)fmax(1, (silence - idle) / interval);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static bool heard(void *arg, enum end_message kind, const struct task_report *report, int fd)
{
	struct step *step = arg;
	struct node *node = kind == END_RUNNING ? NULL : nodes_find(step->nodes, report->node);
	if (!node || !node->used)
		return false;
	if (kind == END_STEP) {
		step->began = true;
		step->id = report->step;
		if (node->fd >= 0)
			return false;
		node->fd = fd;
		watch_connection(fd, step->silence);
		return true;
	}
	node->heard = true;
	first_end_add(&step->first, report);
	step->leaving |=
		WIFEXITED(report->wait_status) && WEXITSTATUS(report->wait_status) == EXIT_REQUEUE;
	step->final |= task_end_judge(report->wait_status) == TASK_FINAL;
	return false;
}

/* The end of a connection is that of the node's part of the step; an error, that of the node, but
 * for a reset: who sends one answers, and the ranks may not have met it. */
static void look_at(struct node *node)
{
	char byte;
	ssize_t n = recv(node->fd, &byte, 1, MSG_DONTWAIT);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	node->lost = n < 0 && errno != ECONNRESET;
	node->heard |= n == 0;
	close(node->fd);
	node->fd = -1;
}

/* Whether srun has just ended. */
static bool take_signals(struct step *step)
{
	struct signalfd_siginfo info;
	int status;
	bool ended = false;
	while (read(step->signals, &info, sizeof info) == sizeof info) {
		if (info.ssi_signo != SIGCHLD) {
			step->told = true;
			if (step->srun)
				kill(step->srun, (int)info.ssi_signo);
		} else if (step->srun && waitpid(step->srun, &status, WNOHANG) == step->srun) {
			step->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
			step->srun = 0;
			ended = true;
		}
	}
	return ended;
}

static bool some_node_is_lost(const struct nodes *nodes)
{
	for (int i = 0; i < nodes->count; i++)
		if (nodes->all[i].lost)
			return true;
	return false;
}

/* slurmstepd itself may go on: it waits for those of other nodes, silent ones too. */
static bool some_node_is_awaited(const struct nodes *nodes)
{
	for (int i = 0; i < nodes->count; i++)
		if (nodes->all[i].used && !nodes->all[i].heard && !nodes->all[i].lost)
			return true;
	return false;
}

/* Waits for a signal or a message, until the deadline. Returns whether srun has ended. */
static bool listen_once(struct step *step, struct pollfd *polled, struct deadline deadline)
{
	struct nodes *nodes = step->nodes;
	const struct end_visitors *visitors = &step->visitors;
	struct pollfd *speaking = polled + 2 + nodes->count;
	double left = deadline_left(deadline);
	polled[0] = (struct pollfd) { step->signals, POLLIN, 0 };
	polled[1] = (struct pollfd) { step->channel.fd, POLLIN, 0 };
	for (int i = 0; i < nodes->count; i++)
		polled[i + 2] = (struct pollfd) { nodes->all[i].fd, POLLIN, 0 };
	for (int i = 0; i < visitors->count; i++) {
		speaking[i] = (struct pollfd) { visitors->all[i].fd, POLLIN, 0 };
		left = fmin(left, deadline_left(visitors->all[i].until));
	}
	poll(polled, (nfds_t)(2 + nodes->count + visitors->count),
		isinf(left) ? -1 : (int)fmin(left * 1e3 + 1, 1e6));
	for (int i = 0; i < nodes->count; i++)
		if (polled[i + 2].revents)
			look_at(&nodes->all[i]);
	bool ended = take_signals(step);
	end_channel_hear(&step->channel, &step->visitors, heard, step);
	return ended;
}

/* Until srun has ended (true), a node is lost, or one is silent after the first failure (false). */
static bool watch(struct step *step, struct pollfd *polled)
{
	struct deadline deadline = deadline_in(INFINITY);
	while (!listen_once(step, polled, deadline)) {
		if (deadline_passed(deadline) || some_node_is_lost(step->nodes))
			return false;
		if (step->first.found && isinf(deadline_left(deadline)))
			deadline = deadline_in(step->silence);
	}
	return true;
}

/* srun may end before the word of its ranks' end is here. Where one has failed, waits for what has
 * not come whole, and for the first word of a step whose nodes had one to say. */
static void hear_out(struct step *step, struct pollfd *polled)
{
	struct deadline deadline = deadline_in(HEAR_SECONDS);
	while (step->status != EXIT_OK && !deadline_passed(deadline)
		&& (step->visitors.count > 0
			|| (step->began && !step->first.found && some_node_is_awaited(step->nodes))))
		listen_once(step, polled, deadline);
}

/* ---- the end ---- */

/* On the nodes that answer; what a silent one goes on to do is no longer this run's. Returns
 * scancel, which waits for the silent one; 0: none. */
static pid_t kill_step(const struct step *step)
{
	char id[40];
	char *argv[] = { "scancel", "--quiet", "--signal=KILL", id, NULL };
	pid_t child = 0;
	snprintf(id, sizeof id, "%u.%u", step->job, step->id);
	return step->began && spawn_program(&child, "scancel", NULL, argv, 0) == 0 ? child : 0;
}

static void end_child(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void close_connections(struct step *step)
{
	end_channel_close(&step->channel, &step->visitors);
	for (int i = 0; i < step->nodes->count; i++) {
		struct node *node = &step->nodes->all[i];
		if (node->fd >= 0)
			close(node->fd);
		node->fd = -1;
	}
}

/* Ends the step on all nodes that answer. */
static void end_step(struct step *step, struct pollfd *polled)
{
	pid_t scancel = kill_step(step);
	struct deadline deadline = deadline_in(END_SECONDS);
	bool ended = false;
	step->killed = true;
	while (!ended && some_node_is_awaited(step->nodes) && !deadline_passed(deadline))
		ended = listen_once(step, polled, deadline);
	if (!ended)
		end_child(step->srun);
	step->srun = 0;
	if (scancel)
		end_child(scancel);
	step->status = 128 + SIGKILL;
	for (int i = 0; i < step->nodes->count; i++) {
		struct node *node = &step->nodes->all[i];
		node->lost |= node->used && !node->heard;
	}
}

int step_wait(struct step *step, struct err *err)
{
	struct pollfd *polled = calloc(2 + (size_t)step->nodes->count + END_VISITORS, sizeof *polled);
	if (!polled)
		return err_set(err, "out of memory");
	if (watch(step, polled))
		hear_out(step, polled);
	else
		end_step(step, polled);
	free(polled);
	close_connections(step);
	return 0;
}

enum step_verdict step_judge(const struct step *step)
{
	if (step->killed && !step->told && !step->final && !step->leaving)
		return STEP_AGAIN;
	if (step->status == EXIT_OK || step->status == EXIT_REQUEUE || step->told || step->leaving
		|| step->final)
		return STEP_OVER;
	/* Without word of a rank, srun's status is all there is: that of the rank, or its own. */
	return step->first.found || step->status == EXIT_LOST || step->status >= 128 ? STEP_AGAIN
																				 : STEP_OVER;
}

const char *step_describe(const struct step *step, char *out, size_t size)
{
	const struct task_report *first = &step->first.first;
	char end[100];
	if (step->killed && !step->first.found)
		snprintf(out, size, "a node is gone");
	else if (step->first.found)
		snprintf(out, size, "rank %d on %s %s", first->rank, first->node,
			task_end_describe(first->wait_status, end, sizeof end));
	else
		snprintf(out, size, "srun has ended with status %d", step->status);
	return out;
}
