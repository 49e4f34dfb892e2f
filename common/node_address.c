/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster may have no name service: Slurm has each node's address from slurm.conf (NodeAddr), or,
 * for a cloud node, from the controller. scontrol asks for it in a process of its own, since
 * libslurm may end the process that calls it. */
#include "config.h"

#include "common/node_address.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/run_as_user.h"

#define ASK_SECONDS 5.0
#define ASK_AGAIN 5.0          /* seconds after a failed query */
#define ANSWER_BYTES (4 << 20) /* about 1 KB a node */

/* scontrol's output, one line a node; NULL: none yet. */
static struct {
	pthread_mutex_t lock;
	char *text;
	double again; /* clock_now() */
} answer = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* With the lock held. */
static void ask(char *nodes)
{
	char *const argv[] = { (char *)"/usr/bin/env", (char *)"scontrol", (char *)"-o", (char *)"show",
		(char *)"node", nodes, NULL };
	const struct run_user self = { getuid(), getgid(), NULL, 0 };
	char *text = malloc(ANSWER_BYTES), *fitting;
	if (text && run_as_user(&self, argv, environ, ASK_SECONDS, text, ANSWER_BYTES, NULL) == 0
		&& strncmp(text, "NodeName=", 9) == 0) {
		fitting = realloc(text, strlen(text) + 1);
		answer.text = fitting ? fitting : text;
		return;
	}
	free(text);
	answer.again = clock_now() + ASK_AGAIN;
}

/* The value of the word NAME=VALUE in a line; it ends at a space. */
static bool word_of(const char *line, const char *name, char *out, size_t size)
{
	size_t length = strlen(name);
	for (const char *at = line; *at && *at != '\n'; at += strcspn(at, " \n"), at += *at == ' ')
		if (strncmp(at, name, length) == 0 && at[length] == '=')
			return snprintf(out, size, "%.*s", (int)strcspn(at + length + 1, " \n"),
					   at + length + 1)
				< (int)size;
	return false;
}

/* With the lock held. */
static bool find(const char *node, char *out, size_t size)
{
	for (const char *line = answer.text; line && *line;
		 line += strcspn(line, "\n"), line += *line == '\n')
		if (word_of(line, "NodeName", out, size) && strcmp(out, node) == 0
			&& word_of(line, "NodeAddr", out, size))
			return true;
	return false;
}

/* Slurm's address of the node, which may be a name. */
static bool slurm_address(const char *node, char *out, size_t size)
{
	char *nodes = getenv("SLURM_STEP_NODELIST");
	if (!nodes)
		nodes = getenv("SLURM_JOB_NODELIST");
	if (!nodes)
		return false;
	pthread_mutex_lock(&answer.lock);
	if (!answer.text && clock_now() >= answer.again)
		ask(nodes);
	bool found = find(node, out, size);
	pthread_mutex_unlock(&answer.lock);
	return found;
}

int node_address(const char *node, const char *port, const struct addrinfo *hints,
	struct addrinfo **found)
{
	char address[NI_MAXHOST];
	int rc = getaddrinfo(node, port, hints, found);
	return rc == 0 || !slurm_address(node, address, sizeof address)
		? rc
		: getaddrinfo(address, port, hints, found);
}
