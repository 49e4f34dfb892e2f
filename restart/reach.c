/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of scontrol are NAME=VALUE with spaces between; those that are read here have no space in
 * their values, and come before the ones that users write. */
#include "config.h"

#include "restart/reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/auto.h"

#define SLURMD_PORT 6818
#define ANSWER_SECONDS 3.0
#define PAUSE_SECONDS 1.0

/* ---- scontrol's words ---- */

/* The value of a field; false if it is missing or too long. */
static bool field(const char *text, const char *name, char *out, size_t size)
{
	size_t length = strlen(name);
	for (const char *at = text; (at = strstr(at, name)); at += length) {
		if (at[length] != '=' || (at > text && !strchr(" \n", at[-1])))
			continue;
		size_t value = strcspn(at + length + 1, " \n");
		if (value >= size)
			return false;
		memcpy(out, at + length + 1, value);
		out[value] = '\0';
		return true;
	}
	return false;
}

bool reach_parse_node(const char *line, struct reach_node *node)
{
	char state[200], port[20] = "";
	if (!field(line, "NodeName", node->name, sizeof node->name)
		|| !field(line, "State", state, sizeof state))
		return false;
	if (!field(line, "NodeAddr", node->address, sizeof node->address))
		strcpy(node->address, node->name);
	field(line, "Port", port, sizeof port);
	node->port = atoi(port);
	node->down = strncmp(state, "DOWN", 4) == 0 || strchr(state, '*') || strstr(state, "FAIL")
		|| strstr(state, "NOT_RESPONDING") || strstr(state, "POWERED_DOWN")
		|| strstr(state, "POWERING_DOWN");
	return true;
}

bool reach_parse_job(const char *text, int attempt, bool *goes_on)
{
	char state[60], restarts[20], preempted[60] = "None";
	if (!field(text, "JobState", state, sizeof state)
		|| !field(text, "Restarts", restarts, sizeof restarts))
		return false;
	field(text, "PreemptTime", preempted, sizeof preempted);
	*goes_on = strcmp(state, "RUNNING") == 0 && atoi(restarts) == attempt
		&& strcmp(preempted, "None") == 0;
	return true;
}

void reach_parse_site(const char *text, struct reach_site *site)
{
	const char *slurmd = strstr(text, "\nSlurmdPort "), *srun = strstr(text, "\nSrunPortRange ");
	unsigned first, last;
	*site = (struct reach_site) { .slurmd_port = SLURMD_PORT };
	if (slurmd && sscanf(slurmd, " SlurmdPort = %u", &first) == 1 && first > 0 && first <= 65535)
		site->slurmd_port = (int)first;
	if (srun && sscanf(srun, " SrunPortRange = %u-%u", &first, &last) == 2 && first > 0
		&& first <= last && last <= 65535) {
		site->srun_ports[0] = (uint16_t)first;
		site->srun_ports[1] = (uint16_t)last;
	}
}

/* All that a command prints; malloc'ed, NULL on error. *status is as from waitpid(). */
static char *read_command(const char *command, int *status)
{
	FILE *child = popen(command, "re");
	char *text = NULL;
	size_t size = 0;
	if (!child)
		return NULL;
	ssize_t length = getdelim(&text, &size, '\0', child);
	*status = pclose(child);
	if (length < 0) {
		free(text);
		text = strdup("");
	}
	return text;
}

void reach_read_site(struct reach_site *site)
{
	int status;
	AUTO_FREE char *text = read_command("exec scontrol show config 2>/dev/null", &status);
	reach_parse_site(text ? text : "", site);
}

bool reach_job_goes_on(uint32_t job, int attempt)
{
	char command[100];
	int status;
	bool goes_on = true;
	snprintf(command, sizeof command, "exec timeout 10 scontrol --oneliner show job %u 2>/dev/null",
		job);
	AUTO_FREE char *text = read_command(command, &status);
	return !text || status != 0 || !reach_parse_job(text, attempt, &goes_on) || goes_on;
}

/* ---- connections ---- */

/* Begins to connect; -1 if that fails at once. */
static int begin(const struct reach_node *node, int port)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *to = NULL;
	char service[12];
	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(node->address, service, &hints, &to) != 0)
		return -1;
	int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(to);
	return fd;
}

static void finish(struct node *node)
{
	int error = 0;
	socklen_t size = sizeof error;
	node->unreachable = getsockopt(node->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error;
	close(node->fd);
	node->fd = -1;
}

/* Waits for the connections that are under way. */
static void wait_for_all(struct nodes *nodes, struct pollfd *polled, struct deadline deadline)
{
	for (bool waiting = true; waiting && !deadline_passed(deadline);) {
		waiting = false;
		for (int i = 0; i < nodes->count; i++) {
			polled[i] = (struct pollfd) { nodes->all[i].fd, POLLOUT, 0 };
			waiting |= nodes->all[i].fd >= 0;
		}
		if (!waiting
			|| poll(polled, (nfds_t)nodes->count, (int)(deadline_left(deadline) * 1e3) + 1) <= 0)
			continue;
		for (int i = 0; i < nodes->count; i++)
			if (polled[i].revents)
				finish(&nodes->all[i]);
	}
	for (int i = 0; i < nodes->count; i++)
		if (nodes->all[i].fd >= 0) {
			close(nodes->all[i].fd);
			nodes->all[i].fd = -1;
		}
}

/* Each node is unreachable until its connection stands. */
static int connect_to_all(struct nodes *nodes, char *text, const struct reach_site *site,
	struct err *err)
{
	struct reach_node told;
	char *rest = NULL;
	AUTO_FREE struct pollfd *polled = calloc((size_t)nodes->count, sizeof *polled);
	if (!polled)
		return err_set(err, "out of memory");
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		struct node *node = reach_parse_node(line, &told) ? nodes_find(nodes, told.name) : NULL;
		if (!node)
			continue;
		node->unreachable = true;
		if (!told.down)
			node->fd = begin(&told, told.port ? told.port : site->slurmd_port);
	}
	wait_for_all(nodes, polled, deadline_in(ANSWER_SECONDS));
	return 0;
}

int reach_nodes(struct nodes *nodes, const char *list, const struct reach_site *site,
	struct deadline deadline, struct err *err)
{
	AUTO_FREE char *command = NULL;
	if (asprintf(&command, "exec timeout 20 scontrol --oneliner show node '%s' 2>/dev/null", list)
		< 0)
		return err_set(err, "out of memory");
	for (;;) {
		int status = -1;
		AUTO_FREE char *text = read_command(command, &status);
		if (text && status == 0)
			return connect_to_all(nodes, text, site, err);
		if (!deadline_sleep(deadline, PAUSE_SECONDS))
			return err_fail(err, EXIT_LOST,
				"couldn't ask Slurm about %.200s: see whether slurmctld runs (scontrol ping)",
				list);
	}
}
