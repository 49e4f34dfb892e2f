/* SPDX-License-Identifier: Apache-2.0 */
/* How a site has Slurm run the job prologs and epilogs of a node, and what that leaves to a
 * checkpoint service, which the one starts and the other ends. */
#ifndef MUSTER_HOOKS_H
#define MUSTER_HOOKS_H

#include <stdbool.h>
#include <stddef.h>

struct hooks {
	bool in_job;        /* PrologFlags=RunInJob: in the container of the job's extern step */
	bool serial;        /* PrologFlags=Serial: one at a time */
	int prolog, epilog; /* seconds after which Slurm kills one and drains the node; 0: never */
};

/* What a hook takes at most, beyond the drain: the prolog with the end of a service that an earlier
 * attempt has left, and a start of its own; the epilog with the end of the service, and the start
 * of the last request for a requeue. */
#define HOOKS_PROLOG_SECONDS 24
#define HOOKS_EPILOG_SECONDS 20

#define HOOKS_DRAIN_DEFAULT 300 /* drain= of plugstack.conf */

/* What slurm.conf's number of seconds means: 0 and Slurm's word for "not set" are 0. */
int hooks_timeout(long seconds);

/* Whether the prolog may start a service: neither ended with the job's steps, nor in the way of
 * other jobs, and with a second or more to be started in and to be ended in. */
bool hooks_allow_service(const struct hooks *hooks);

/* Seconds that a service may be given to end by a hook with this timeout, which takes `other`
 * seconds more: `drain`, or less; -1: none, it can only be killed. */
int hooks_drain(int timeout, int other, int drain);

/* As a line of text, and back; false, with what Slurm does by default, for anything else. */
char *hooks_print(const struct hooks *hooks, char *out, size_t size);
bool hooks_parse(struct hooks *hooks, const char *text);

#endif
