/* SPDX-License-Identifier: Apache-2.0 */
/* Who this process is in the job: rank, world size and where it runs. A value that travels. */
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
	char cluster[64];   /* SLURM_CLUSTER_NAME, "" outside Slurm */
	char node[256];     /* SLURMD_NODENAME or the host name */
	const char *source; /* "pmix", "pmi2", "slurm", "torchrun" or "single": who said so */
};

/* The name of an environment variable to its value, or NULL; getenv in real use, a table in tests.
 */
typedef const char *ident_env(const char *name, void *arg);

/* What the PMIx server said of this process; filled in by launch/pmix_client.c. */
struct ident_pmix {
	int rank, world_size;
	int local_rank, local_world_size; /* -1: not said */
	int node_rank, node_count;        /* -1: not said */
	char nspace[256];
};

/* Decides the identity: PMIx (NULL if none) cross-checked with SLURM_*; else SLURM_* of a step,
 * cross-checked with PMI_* where it was started with PMI2; else the torchrun variables (RANK,
 * WORLD_SIZE, LOCAL_RANK, …), which come first where torchrun itself is the launcher
 * (TORCHELASTIC_RUN_ID); else a world of one. A contradiction between two sources is an error that
 * names both values and where they come from; status EXIT_USAGE. A pure function of its arguments;
 * `node` is "" where SLURMD_NODENAME is unset. */
int ident_decide(struct ident *ident, const struct ident_pmix *pmix, ident_env *env, void *arg,
	struct err *err);

/* Tasks on node number `node` of a step, from Slurm's run-length code, "8(x2),4" for instance; -1
 * if that is malformed or has fewer nodes. */
int ident_tasks_on_node(const char *coded, int node);

/* ident_decide() over the real environment, asking the PMIx server this process was started under
 * (if any). Defined in launch/ident_discover.c, since only launch/ may speak PMIx. */
int ident_discover(struct ident *ident, struct err *err);

/* Steps from this number on are none that srun has made: salloc's shell, a batch script (slurm.h).
 */
#define IDENT_SPECIAL_STEPS 0xfffffff0u

#endif
