/* SPDX-License-Identifier: Apache-2.0 */
/* What one task sees of its node and of its place in the job: all that the checks of checks/check.h
 * judge by. A value that travels. */
#ifndef MUSTER_FACTS_H
#define MUSTER_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ident.h"

#define FACTS_CPU_BYTES 128 /* of a set of CPUs: bit N % 8 of byte N / 8 is CPU N */

/* Numbers are -1, and texts "", where nothing is known. */
struct facts {
	/* its place */
	int rank, world_size, local_rank, local_world_size, node_rank, node_count;
	char node[256];
	bool in_step;    /* a task that srun started */
	char alone[300]; /* a process beside the steps of a larger job: what is so */
	bool can_meet;   /* under PMIx or PMI2, or told of a folder to meet in */
	int job_nodes;   /* nodes of the whole job */
	int job_tasks; /* tasks that the job was submitted with; 0: the step is a part of it on purpose
					*/
	bool service;  /* the job has a checkpoint service on this node */

	/* GPUs */
	int gpus;             /* that the step has on this node */
	bool gpus_asked;      /* the job, or the step, asked for some by an option that Slurm hands on
							 (--gpus…, not --gres) */
	bool gpus_hidden;     /* a list of devices is set, and it names none */
	bool gpus_all_used;   /* whatever the number of tasks; the preflight's alone, which judges what
							 was not asked about */
	bool gpus_may_share;  /* shards, MPS, or NCCL was told that ranks share one */
	char visible[1024];   /* CUDA_VISIBLE_DEVICES, else ROCR_VISIBLE_DEVICES: numbers or UUIDs */
	char device_told[64]; /* LOCAL_RANK, by which PyTorch scripts choose theirs */
	char jax_devices[64]; /* JAX_LOCAL_DEVICE_IDS */
	int64_t devices_present, devices_open; /* bit N: /dev/nvidiaN is there; this task may open it */

	/* CPUs and memory */
	int cpus_per_task; /* as asked for */
	int cpus_on_node;  /* the step's, on this node */
	int cpus_online;
	uint8_t cpus[FACTS_CPU_BYTES]; /* those it may run on; all zero: not known */
	int64_t locked_memory;         /* limit in bytes; INT64_MAX: none */
	bool rdma;                     /* the node has an InfiniBand or RoCE adapter */

	/* versions */
	char driver[64], cuda[64], nccl[64], muster[160];

	/* the address and port where rank 0 is to be met */
	char master[300];       /* MASTER_ADDR, else the step's first node */
	int port;               /* MASTER_PORT */
	char port_error[160];   /* rank 0's: why it can't listen there */
	char master_error[300]; /* why rank 0 can't be reached from here; on the first task of each node
							 */

	/* the network interfaces; lists of words, "eth0=10.0.0.1" where they have an address */
	char nccl_wanted[128], gloo_wanted[128]; /* NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME */
	char interfaces[256];                    /* names of all that are up and have an address */
	char nccl_ways[400], gloo_ways[400];     /* what NCCL and PyTorch's Gloo take */
	char interface[32];                      /* the one that has the address of the node's name */
	char nccl_error[300],
		gloo_error[300]; /* why another node can't be reached so; on the first task of each node */

	/* the shared directory */
	char dir_error[300]; /* why it can't be used */
	bool dir_full;       /* it is full: dir_error says of what */
	bool dir_differs;    /* what rank 0 made there is not there */
	int64_t dir_free;    /* bytes that may still be written */

	/* CLOCK_REALTIME before and after all tasks met; 0 where they did not */
	double met_before, met_after;
};

/* Fills in what the task's environment tells, and sets the rest to nothing known. */
void facts_from_env(struct facts *facts, const struct ident *ident, ident_env *env, void *arg);

/* The GPU that a task is to use, by its number (or UUID) on the node, "" when that is not known or
 * it has none: the only one that it sees, else the one at its place in the list. Where the device
 * cgroup hides GPUs, CUDA counts only those left. */
const char *facts_gpu(const struct facts *facts, char *out, size_t size);

int facts_cpu_count(const struct facts *facts);

/* Whether NCCL takes an interface of that name where NCCL_SOCKET_IFNAME is `words`: names that may
 * end early ("eth"), or whole ones behind "="; all others behind "^"; a port may stand behind a
 * colon. */
bool facts_takes_interface(const char *words, const char *name);

/* A set of CPUs as "0-3,8"; cut to `size`. Returns `out`. */
char *facts_cpu_list(const uint8_t *cpus, char *out, size_t size);

#endif
