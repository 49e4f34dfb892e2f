/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between launch/rdzv.c and its providers, which have one file each. */
#ifndef MUSTER_RDZV_PROVIDER_H
#define MUSTER_RDZV_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/ident.h"

enum rdzv_life {
	RDZV_KEPT,
	RDZV_PASSING, /* read before the fence after the next; a provider may keep it for longer */
};

/* Keys, sizes and timeouts are checked before a provider sees them. `state` is what open
 * returned. */
struct rdzv_provider {
	const char *name;
	/* Meets all other ranks once, or leaves that to the first fence. NULL on error. */
	void *(*open)(const struct ident *ident, double timeout, struct err *err);
	int (*put)(void *state, enum rdzv_life life, const char *key, const void *value, size_t size,
		struct err *err);
	int (*fence)(void *state, double timeout, struct err *err);
	int (*get)(void *state, enum rdzv_life life, int rank, const char *key, void **value,
		size_t *size, double timeout, struct err *err);
	void (*abort)(void *state, int status, const char *why);
	void (*close)(void *state, int orderly);
};

extern const struct rdzv_provider rdzv_single, rdzv_file, rdzv_pmi2, rdzv_pmix;

#define RDZV_NODE_SIZE 256

/* Writes the name of a rank's node, "" if it is unknown. */
typedef void rdzv_node(const void *arg, int rank, char node[RDZV_NODE_SIZE]);

/* The error of a fence to which not all ranks came, with their names: "rank 3 (on n2), rank 5 and 7
 * more". Its status is EXIT_LOST. Returns -1. */
int rdzv_missing(const bool *came, int world_size, double timeout, rdzv_node *node_of,
	const void *arg, struct err *err);

/* The smaller one of two numbers of seconds. */
static inline double shorter(double a, double b)
{
	return a < b ? a : b;
}

/* Asks the PMIx server under which this process was started. Returns 1 with `pmix` filled in, 0 if
 * there is no such server, -1 on error. The connection stays open for rdzv_open() and is closed in
 * order when the process exits. */
int rdzv_pmix_ident(struct ident_pmix *pmix, struct err *err);

#endif
