/* SPDX-License-Identifier: Apache-2.0 */
/* How a site's Slurm runs a node's job prologs and epilogs, and how much time that leaves to the
 * checkpoint service, which the prolog starts and the epilog ends. */
#ifndef MUSTER_HOOKS_H
#define MUSTER_HOOKS_H

#include <stdbool.h>
#include <stddef.h>

struct hooks {
	bool in_job;        /* PrologFlags=RunInJob: in the container of the job's extern step */
	bool serial;        /* PrologFlags=Serial: one at a time */
	int prolog, epilog; /* seconds after which Slurm kills the hook and drains the node; 0: never */
};

/* The longest time a hook takes, in seconds, apart from the drain. The prolog ends a service that
 * an earlier attempt left and starts its own; the epilog ends the service and starts the last
 * request for a requeue. */
#define HOOKS_PROLOG_SECONDS 24
#define HOOKS_EPILOG_SECONDS 20

#define HOOKS_DRAIN_DEFAULT 300 /* seconds; drain= of plugstack.conf */

/* A number of seconds in slurm.conf: 0 if it is 0 or Slurm's value for "not set". */
int hooks_timeout(long seconds);

/* Whether the prolog may start a service: the service would not end with the job's steps, the hook
 * would not hold up other jobs, and both hooks have at least a second for it. */
bool hooks_allow_service(const struct hooks *hooks);

/* How many seconds a hook with this timeout, which needs `other` seconds for the rest, may give a
 * service to end: `drain` or less; -1: none, it can only be killed. */
int hooks_drain(int timeout, int other, int drain);

/* As a line of text, and back. For any other text: false, and Slurm's defaults. */
char *hooks_print(const struct hooks *hooks, char *out, size_t size);
bool hooks_parse(struct hooks *hooks, const char *text);

#endif
