/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm says of nodes and of the job, by scontrol, which each release has; and whether a node
 * answers: Slurm itself finds a dead one only after SlurmdTimeout. */
#ifndef MUSTER_REACH_H
#define MUSTER_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/err.h"
#include "restart/nodes.h"

/* The site's settings. */
struct reach_site {
	int slurmd_port;        /* of nodes that have none of their own */
	uint16_t srun_ports[2]; /* where srun may listen; zeros: anywhere */
};

/* What "scontrol --oneliner show node" says of a node. */
struct reach_node {
	char name[256], address[256];
	int port;  /* 0: the site's */
	bool down; /* or it fails, or does not respond */
};

/* Pure functions. False if the line is none of a node; if the text is not scontrol's of a job. */
bool reach_parse_node(const char *line, struct reach_node *node);
bool reach_parse_job(const char *text, int attempt, bool *goes_on);
void reach_parse_site(const char *text, struct reach_site *site);

void reach_read_site(struct reach_site *site);

/* Sets `unreachable` on the nodes of `list` that Slurm calls down, or whose slurmd takes no
 * connection within some seconds. Asks until the deadline if the controller is away. */
int reach_nodes(struct nodes *nodes, const char *list, const struct reach_site *site,
	struct deadline deadline, struct err *err);

/* Whether the job runs in that attempt, and Slurm is not taking its nodes away. True where Slurm
 * can't be asked. */
bool reach_job_goes_on(uint32_t job, int attempt);

#endif
