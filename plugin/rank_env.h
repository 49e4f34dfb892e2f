/* SPDX-License-Identifier: Apache-2.0 */
/* The variables by which PyTorch, Lightning, Accelerate, DeepSpeed and JAX learn who they are, made
 * from those that Slurm gives a task. The table of them is muster-environment(7). */
#ifndef MUSTER_RANK_ENV_H
#define MUSTER_RANK_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"

/* Receives one variable of the task; a value of NULL unsets it. Returns 0 or -1. */
typedef int rank_env_set(const char *name, const char *value, void *arg);

/* What the task's environment doesn't say. */
struct rank_env_place {
	int attempt;
	const char
		*master; /* the host of rank 0, as the other nodes reach it; NULL if that is not known */
	const char *unknown; /* why it is not: the error where the user hasn't set MASTER_ADDR either */
};

/* Reads the task's environment through `env` and hands each variable to `set`. Ranks overwrite what
 * is there; where to meet, the number of threads and the like don't, unless it was set by this
 * function, in a step that this one was started from: MUSTER_DEFAULTS tells. `arg` goes to both
 * functions. */
int rank_env_make(const struct rank_env_place *place, ident_env *env, rank_env_set *set, void *arg,
	struct err *err);

/* A port for rank 0 to listen on: the same for all tasks of a step's attempt, and below the range
 * (32768–60999) from which Linux takes the local ports of connections. The second is for JAX, whose
 * service may run beside PyTorch's. */
int rank_env_port(uint32_t job, uint32_t step, int attempt);
int rank_env_second_port(int port);

/* Whether a list like CUDA_VISIBLE_DEVICES names exactly one device. Its entries may be numbers or
 * UUIDs. */
bool rank_env_one_device(const char *devices);

#endif
