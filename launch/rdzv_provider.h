/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between launch/rdzv.c and its providers, which have one file each. */
#ifndef MUSTER_RDZV_PROVIDER_H
#define MUSTER_RDZV_PROVIDER_H

#include <stddef.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/ident.h"

/* Keys, sizes and timeouts are checked before a provider sees them. `state` is what open
 * returned. */
struct rdzv_provider {
	const char *name;
	/* Meets all other ranks once, or leaves that to the first fence. NULL on error. */
	void *(*open)(const struct ident *ident, double timeout, struct err *err);
	int (*put)(void *state, const char *key, const void *value, size_t size, struct err *err);
	int (*fence)(void *state, double timeout, struct err *err);
	int (*get)(void *state, int rank, const char *key, void **value, size_t *size, double timeout,
		struct err *err);
	void (*abort)(void *state, int status, const char *why);
	void (*close)(void *state, int orderly);
};

extern const struct rdzv_provider rdzv_single, rdzv_file, rdzv_pmi2, rdzv_pmix;

/* Ranks that did not come, as text: "rank 3 (on n2), rank 5 and 7 more". Start with zeros. */
struct rank_list {
	char text[600];
	int count, left_out;
};

/* `node` may be NULL or "" if unknown. */
void rank_list_add(struct rank_list *list, int rank, const char *node);

/* The error of a fence in which `missing` did not come; status EXIT_LOST. Returns -1. */
int rank_list_error(const struct rank_list *missing, int world_size, double timeout,
	struct err *err);

/* Asks the PMIx server under which this process was started. Returns 1 with `pmix` filled in, 0 if
 * there is no such server, -1 on error. The connection stays open for rdzv_open() and is closed in
 * order when the process exits. */
int rdzv_pmix_ident(struct ident_pmix *pmix, struct err *err);

#endif
