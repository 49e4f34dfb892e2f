/* SPDX-License-Identifier: Apache-2.0 */
/* The variables from which PyTorch, Lightning, Accelerate, DeepSpeed and JAX learn a task's
 * identity, made from those that Slurm sets. muster-environment(7) has the table. */
#ifndef MUSTER_RANK_ENV_H
#define MUSTER_RANK_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"

/* Receives one variable of the task; a value of NULL unsets it. Returns 0 or -1. */
typedef int rank_env_set(const char *name, const char *value, void *arg);

/* What the task's environment does not tell. */
struct rank_env_place {
	int attempt;
	const char *master;  /* rank 0's host, as other nodes reach it; NULL: unknown */
	const char *unknown; /* why: the error if the user hasn't set MASTER_ADDR either */
};

/* Reads the task's environment through `env` and passes each variable to `set`. Rank variables
 * overwrite existing values. The meeting place, the number of threads and the like do not, unless
 * this function set the existing value in the step from which this one was started, as
 * MUSTER_DEFAULTS records. `arg` goes to both functions. */
int rank_env_make(const struct rank_env_place *place, ident_env *env, rank_env_set *set, void *arg,
	struct err *err);

/* A port for rank 0 to listen on: the same for all tasks of a step's attempt, and below Linux's
 * range of ephemeral ports (32768–60999). The second is for JAX, whose service may run beside
 * PyTorch's. */
int rank_env_port(uint32_t job, uint32_t step, int attempt);
int rank_env_second_port(int port);

/* Whether a list like CUDA_VISIBLE_DEVICES names exactly one device. Its entries may be numbers or
 * UUIDs. */
bool rank_env_one_device(const char *devices);

#endif
