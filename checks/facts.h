/* SPDX-License-Identifier: Apache-2.0 */
/* What one task sees of its node and of its place in the job: the input of the checks in
 * checks/check.h. A value that travels. */
#ifndef MUSTER_FACTS_H
#define MUSTER_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ident.h"

#define FACTS_CPU_BYTES 128 /* a set of CPUs: bit N % 8 of byte N / 8 is CPU N */

/* Unknown numbers are -1, unknown texts "". */
struct facts {
	/* its place */
	int rank, world_size, local_rank, local_world_size, node_rank, node_count;
	char node[256];
	bool in_step;    /* started by srun */
	char alone[300]; /* why: it runs outside the steps of a larger job */
	bool can_meet;   /* under PMIx or PMI2, or with a folder to meet in */
	int job_nodes;   /* nodes of the whole job */
	int job_tasks;   /* tasks that the job was submitted with; 0: a smaller step is intended */
	bool service;    /* the job has a checkpoint service on this node */

	/* GPUs */
	int gpus;             /* the step's, on this node */
	bool gpus_asked;      /* asked for by --gpus…, which Slurm passes on, unlike --gres */
	bool gpus_hidden;     /* a list of devices is set and names none */
	bool gpus_all_used;   /* however many tasks; set only by the preflight, to skip gpu-idle */
	bool gpus_may_share;  /* shards, MPS, or NCCL is told that ranks share a GPU */
	char visible[1024];   /* CUDA_VISIBLE_DEVICES, else ROCR_VISIBLE_DEVICES: numbers or UUIDs */
	char device_told[64]; /* LOCAL_RANK, by which PyTorch scripts choose their GPU */
	char jax_devices[64]; /* JAX_LOCAL_DEVICE_IDS */
	int64_t devices_present, devices_open; /* bit N: /dev/nvidiaN exists; this task may open it */

	/* CPUs and memory */
	int cpus_per_task; /* as asked for */
	int cpus_on_node;  /* the step's, on this node */
	int cpus_online;
	uint8_t cpus[FACTS_CPU_BYTES]; /* CPUs that the task may run on; all zero: unknown */
	int64_t locked_memory;         /* limit in bytes; INT64_MAX: none */
	bool rdma;                     /* the node has an InfiniBand or RoCE adapter */

	/* versions */
	char driver[64], cuda[64], nccl[64], muster[160];

	/* the address and port at which rank 0 is to be reached */
	char master[300];       /* MASTER_ADDR, else the step's first node */
	int port;               /* MASTER_PORT */
	char port_error[160];   /* rank 0's: why it can't listen there */
	char master_error[300]; /* why rank 0 can't be reached; on each node's first task */

	/* network interfaces; lists of words, "eth0=10.0.0.1" if with an address */
	char nccl_wanted[128], gloo_wanted[128]; /* NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME */
	char interfaces[256];                    /* all that are up and have an address */
	char nccl_ways[400], gloo_ways[400];     /* the ones that NCCL and PyTorch's Gloo choose */
	char interface[32];                      /* the one with the address of the node's name */
	char nccl_error[300],
		gloo_error[300]; /* why another node can't be reached; set on each node's first task */

	/* the shared directory */
	char dir_error[300]; /* why it can't be used */
	bool dir_full;       /* out of space; dir_error says which kind */
	bool dir_differs;    /* rank 0's file there is missing here */
	int64_t dir_free;    /* free bytes */

	/* CLOCK_REALTIME before and after all tasks met; 0 if they did not */
	double met_before, met_after;
};

/* Fills in what the task's environment tells; the rest becomes unknown. */
void facts_from_env(struct facts *facts, const struct ident *ident, ident_env *env, void *arg);

/* The GPU that a task will use, by its number (or UUID) on the node; "" if unknown or none: the
 * only GPU that it sees, else the one at its place in the list. If the device cgroup hides GPUs,
 * CUDA numbers only the visible ones. */
const char *facts_gpu(const struct facts *facts, char *out, size_t size);

int facts_cpu_count(const struct facts *facts);

/* Whether NCCL takes an interface of that name if NCCL_SOCKET_IFNAME is `words`: prefixes of names
 * ("eth"), or whole names after "="; all other interfaces after "^"; a name may have a port after a
 * colon. */
bool facts_takes_interface(const char *words, const char *name);

/* A set of CPUs as "0-3,8"; cut to `size`. Returns `out`. */
char *facts_cpu_list(const uint8_t *cpus, char *out, size_t size);

#endif
