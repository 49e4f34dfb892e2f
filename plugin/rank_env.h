/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that a PyTorch script finds under torchrun, made from those that Slurm gives a task. */
#ifndef MUSTER_RANK_ENV_H
#define MUSTER_RANK_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"

/* Receives one variable of the task. Returns 0 or -1. */
typedef int rank_env_set(const char *name, const char *value, void *arg);

/* Reads the task's environment through `env` and hands each variable to set: RANK, WORLD_SIZE, LOCAL_RANK,
 * LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (unless the user set them),
 * OMP_NUM_THREADS (where the user gave --cpus-per-task and did not set it), MUSTER, MUSTER_ATTEMPT, MUSTER_LOCAL_RANK and
 * MUSTER_MASTER. `arg` goes to both functions. */
int rank_env_make(int attempt, ident_env *env, rank_env_set *set, void *arg, struct err *err);

/* The first host of a Slurm host list, "n1" of "n[1-4,7],m2" for instance; -1 if it is malformed or does not fit. */
int rank_env_first_host(const char *list, char *out, size_t size);

/* A port for rank 0 to listen on: the same for all tasks of a step's attempt, and below the range (32768–60999) from
 * which Linux takes the local ports of connections. */
int rank_env_port(uint32_t job, uint32_t step, int attempt);

/* Whether a list like CUDA_VISIBLE_DEVICES names exactly one device. Its entries may be numbers or UUIDs. */
bool rank_env_one_device(const char *devices);

#endif
