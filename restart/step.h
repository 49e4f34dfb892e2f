/* SPDX-License-Identifier: Apache-2.0 */
/* One srun: started, watched and ended. With the plugin each node tells of its first rank that has
 * failed, and holds a connection that breaks with the node. So a step ends though a node is silent:
 * srun would wait for it until Slurm calls it down. */
#ifndef MUSTER_STEP_H
#define MUSTER_STEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plugin/end_channel.h"
#include "restart/nodes.h"

struct step {
	struct end_channel channel;
	struct end_visitors visitors;
	struct nodes *nodes;
	double silence;   /* seconds after which a node that answers nothing is gone */
	pid_t srun;       /* 0: it has ended */
	int signals;      /* a signalfd with SIGCHLD and what a job's script is sent */
	uint32_t job, id; /* id is known once `began` */
	bool began;
	bool told;    /* a signal came, which srun got */
	bool killed;  /* ended by us, since a node is silent */
	bool leaving; /* a rank has asked to come back (75) */
	bool final;   /* a rank has failed so that it would fail again */
	int status;   /* srun's, as a shell has it: 128 + N for signal N */
	struct first_end first;
};

/* Starts srun. `port_range` is Slurm's for srun, or NULL. */
int step_start(struct step *step, char *const *argv, const uint16_t *port_range, struct err *err);

/* Waits until it has ended. Ends it when a node is gone, and when one has told nothing `silence`
 * seconds after the first failure; nodes that are gone are `lost` then, the others `heard`. */
int step_wait(struct step *step, struct err *err);

enum step_verdict {
	STEP_OVER,  /* its status is the job's */
	STEP_AGAIN, /* it may be begun again */
};

/* A pure function. */
enum step_verdict step_judge(const struct step *step);

/* Why it has ended, in words. */
const char *step_describe(const struct step *step, char *out, size_t size);

#endif
