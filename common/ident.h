/* SPDX-License-Identifier: Apache-2.0 */
/* This process's identity in the job: rank, world size and where it runs. A value that travels. */
#ifndef MUSTER_IDENT_H
#define MUSTER_IDENT_H

#include <stdint.h>

#include "common/err.h"

struct ident {
	int rank, world_size;             /* 0 ≤ rank < world_size */
	int local_rank, local_world_size; /* on this node */
	int node_rank, node_count;
	uint32_t job, step; /* Slurm's ids; 0 outside Slurm */
	int attempt;        /* SLURM_RESTART_COUNT, 0 for the first run */
	int restart;        /* how often muster-run has begun the step anew in this attempt */
	char cluster[64];   /* SLURM_CLUSTER_NAME, "" outside Slurm */
	char node[256];     /* SLURMD_NODENAME or the host name */
	const char *source; /* which source decided: "pmix", "pmi2", "slurm", "torchrun" or "single" */
};

/* Maps the name of an environment variable to its value or NULL: getenv in real use, a table in
 * tests. */
typedef const char *ident_env(const char *name, void *arg);

/* What the PMIx server says about this process; filled in by launch/pmix_client.c. */
struct ident_pmix {
	int rank, world_size;
	int local_rank, local_world_size; /* -1: not stated */
	int node_rank, node_count;        /* -1: not stated */
	char nspace[256];
};

/* Decides the identity. The sources, in order: PMIx (NULL: none), cross-checked with SLURM_*; the
 * SLURM_* of a step, cross-checked with PMI_* if the step was started with PMI2; the torchrun
 * variables (RANK, WORLD_SIZE, LOCAL_RANK, …), which come first if torchrun itself is the launcher
 * (TORCHELASTIC_RUN_ID); a world of one. When two sources contradict each other, the error names
 * both values and their sources; status EXIT_USAGE. A pure function of its arguments: `node` is ""
 * if SLURMD_NODENAME is unset. */
int ident_decide(struct ident *ident, const struct ident_pmix *pmix, ident_env *env, void *arg,
	struct err *err);

/* Tasks on node number `node` of a step, from Slurm's run-length code, such as "8(x2),4"; -1 if
 * that is malformed or has fewer nodes. */
int ident_tasks_on_node(const char *coded, int node);

/* ident_decide() over the real environment and the PMIx server that this process was started under
 * (if any). Defined in launch/ident_discover.c, since only launch/ may use PMIx. */
int ident_discover(struct ident *ident, struct err *err);

/* From muster-run to the ranks and to slurmstepd, by names that srun passes on even with
 * --export=NONE: how often the step was begun anew, and how often it still may be. */
#define IDENT_RESTART "SLURM_MUSTER_RESTART"
#define IDENT_RESTARTS_LEFT "SLURM_MUSTER_RESTARTS_LEFT"
/* The nodes that no step of the job gets any more, with commas between. */
#define IDENT_LEFT_OUT "SLURM_MUSTER_LEFT_OUT"

/* Step IDs from this one up are not steps of srun but salloc's shell, a batch script and the like
 * (slurm.h). */
#define IDENT_SPECIAL_STEPS 0xfffffff0u

#endif
