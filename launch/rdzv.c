/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the provider of a rendezvous, and checks arguments for it. */
#include "launch/rdzv.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alone.h"
#include "common/log.h"
#include "config.h"
#include "launch/rdzv_provider.h"

#define KEY_MAX 64
#define VALUE_MAX (64 * 1024)
#define ONE_NAME 320 /* of a missing rank */
/* Slurm's PMIx kills the step as soon as one rank has left after a loss. */
#define LAST_WORDS_SECONDS 2

struct rdzv {
	const struct rdzv_provider *provider;
	struct ident ident;
	double timeout;
	void *state;
};

static const struct rdzv_provider *const providers[] = {
#ifdef HAVE_PMIX
	&rdzv_pmix,
#endif
	&rdzv_pmi2,
	&rdzv_file,
	&rdzv_single,
};
#define PROVIDER_COUNT ((int)(sizeof providers / sizeof providers[0]))

static const struct rdzv_provider *find(const char *name)
{
	for (int i = 0; i < PROVIDER_COUNT; i++)
		if (strcmp(providers[i]->name, name) == 0)
			return providers[i];
	return NULL;
}

/* The launcher hosts these and also tells the ranks' identities; ident->source has the same
 * name. */
static bool is_hosted(const char *name)
{
	return strcmp(name, "pmix") == 0 || strcmp(name, "pmi2") == 0;
}

static const char *why_none(const struct ident *ident, const char *wanted)
{
	if (wanted && strcmp(wanted, "pmi2") == 0)
		return "this process was not started under PMI2";
	if (!find("pmix"))
		return "this build of Muster has no PMIx";
	if (strcmp(ident->source, "slurm") == 0)
		return ALONE_NO_PMIX;
	return wanted ? "this process was not started under PMIx" : "nothing says where they meet";
}

static int no_meeting_place(const struct ident *ident, const char *wanted, struct err *err)
{
	const char *remedy = "start the ranks with srun --mpi=pmix or mpirun, or set MUSTER_RDZV_DIR "
						 "to a folder that all nodes share";
	if (!find("pmix"))
		remedy = "start the ranks with srun --mpi=pmi2, build it with --with-pmix, or set "
				 "MUSTER_RDZV_DIR to a folder that all nodes share";
	else if (strcmp(ident->source, "slurm") == 0)
		remedy = ALONE_WITH_PMIX "; srun --mpi=list shows what this Slurm has";
	return err_fail(err, EXIT_USAGE, "rendezvous: couldn't look for the other ranks of %d: %s: %s",
		ident->world_size, why_none(ident, wanted), remedy);
}

/* A provider that was asked for by name must fit, too. */
static const struct rdzv_provider *choose_named(const struct ident *ident, const char *name,
	struct err *err)
{
	const struct rdzv_provider *provider = find(name);
	if (is_hosted(name) && (!provider || strcmp(ident->source, name) != 0)) {
		no_meeting_place(ident, name, err);
		return NULL;
	}
	if (!provider) {
		err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't use the provider %s: it is one of pmix, pmi2, file, single",
			name);
		return NULL;
	}
	if (provider == &rdzv_single && ident->world_size > 1) {
		err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't use the provider single for %d ranks: leave it out",
			ident->world_size);
		return NULL;
	}
	return provider;
}

static const char *set(const char *name)
{
	const char *value = getenv(name);
	return value && value[0] ? value : NULL;
}

static const struct rdzv_provider *choose(const struct ident *ident, const char *name,
	struct err *err)
{
	if (!name)
		name = set("MUSTER_RDZV");
	if (name)
		return choose_named(ident, name, err);
	if (is_hosted(ident->source) && find(ident->source))
		return find(ident->source);
	if (set("MUSTER_RDZV_DIR"))
		return &rdzv_file;
	if (ident->world_size == 1)
		return &rdzv_single;
	no_meeting_place(ident, NULL, err);
	return NULL;
}

struct rdzv *rdzv_open(const struct ident *ident, const char *provider, double timeout,
	struct err *err)
{
	if (!(timeout > 0) || isinf(timeout)) {
		err_fail(err, EXIT_USAGE, "rendezvous: couldn't use a timeout of %g s: it must be above 0",
			timeout);
		return NULL;
	}
	const struct rdzv_provider *chosen = choose(ident, provider, err);
	if (!chosen)
		return NULL;
	struct rdzv *rdzv = calloc(1, sizeof *rdzv);
	if (!rdzv) {
		err_set(err, "rendezvous: no memory");
		return NULL;
	}
	*rdzv = (struct rdzv) { .provider = chosen, .ident = *ident, .timeout = timeout };
	rdzv->state = chosen->open(&rdzv->ident, timeout, err);
	if (!rdzv->state) {
		free(rdzv);
		return NULL;
	}
	return rdzv;
}

static int check_key(const char *key, struct err *err)
{
	size_t length = strlen(key);
	if (length > 0 && length <= KEY_MAX
		&& strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
			== length)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"rendezvous: couldn't use the key '%.80s': 1 to %d characters of A-Z a-z 0-9 . _ -", key,
		KEY_MAX);
}

static int put(struct rdzv *rdzv, enum rdzv_life life, const char *key, const void *value,
	size_t size, struct err *err)
{
	if (check_key(key, err) < 0)
		return -1;
	if (size > VALUE_MAX)
		return err_fail(err, EXIT_USAGE, "rendezvous: couldn't put %zu bytes under %s: at most %d",
			size, key, VALUE_MAX);
	return rdzv->provider->put(rdzv->state, life, key, value, size, err);
}

int rdzv_put(struct rdzv *rdzv, const char *key, const void *value, size_t size, struct err *err)
{
	return put(rdzv, RDZV_KEPT, key, value, size, err);
}

int rdzv_put_passing(struct rdzv *rdzv, const char *key, const void *value, size_t size,
	struct err *err)
{
	return put(rdzv, RDZV_PASSING, key, value, size, err);
}

static double or_default(const struct rdzv *rdzv, double timeout)
{
	return timeout > 0 ? timeout : rdzv->timeout;
}

int rdzv_fence(struct rdzv *rdzv, double timeout, struct err *err)
{
	return rdzv->provider->fence(rdzv->state, or_default(rdzv, timeout), err);
}

static int get(struct rdzv *rdzv, enum rdzv_life life, int rank, const char *key, void **value,
	size_t *size, double timeout, struct err *err)
{
	if (check_key(key, err) < 0)
		return -1;
	if (rank < 0 || rank >= rdzv->ident.world_size)
		return err_fail(err, EXIT_USAGE, "rendezvous: couldn't get %s of rank %d: the world has %d",
			key, rank, rdzv->ident.world_size);
	return rdzv->provider->get(rdzv->state, life, rank, key, value, size, or_default(rdzv, timeout),
		err);
}

int rdzv_get(struct rdzv *rdzv, int rank, const char *key, void **value, size_t *size,
	double timeout, struct err *err)
{
	return get(rdzv, RDZV_KEPT, rank, key, value, size, timeout, err);
}

int rdzv_get_passing(struct rdzv *rdzv, int rank, const char *key, void **value, size_t *size,
	double timeout, struct err *err)
{
	return get(rdzv, RDZV_PASSING, rank, key, value, size, timeout, err);
}

double rdzv_timeout(const struct rdzv *rdzv)
{
	return rdzv->timeout;
}

const char *rdzv_provider(const struct rdzv *rdzv)
{
	return rdzv->provider->name;
}

void rdzv_abort(struct rdzv *rdzv, int status, const char *why)
{
	rdzv->provider->abort(rdzv->state, status, why);
}

void rdzv_close(struct rdzv *rdzv, int orderly)
{
	if (!rdzv)
		return;
	rdzv->provider->close(rdzv->state, orderly);
	free(rdzv);
}

int rdzv_leave(struct rdzv *rdzv, const struct err *err)
{
	log_error("%s", err->text);
	if (err->status == EXIT_LOST)
		sleep(LAST_WORDS_SECONDS);
	rdzv_close(rdzv, err->status != EXIT_LOST);
	return err->status;
}

int rdzv_missing(const bool *came, int world_size, double timeout, rdzv_node *node_of,
	const void *arg, struct err *err)
{
	char text[600] = "", more[40] = "", node[RDZV_NODE_SIZE];
	int used = 0, count = 0, left_out = 0;
	for (int rank = 0; rank < world_size; rank++) {
		if (came[rank])
			continue;
		count++;
		if (used + ONE_NAME > (int)sizeof text) {
			left_out++;
			continue;
		}
		node_of(arg, rank, node);
		used += snprintf(text + used, sizeof text - (size_t)used, "%srank %d%s%s%s",
			used ? ", " : "", rank, node[0] ? " (on " : "", node, node[0] ? ")" : "");
	}
	if (left_out)
		snprintf(more, sizeof more, " and %d more", left_out);
	if (count == 0)
		return err_fail(err, EXIT_LOST,
			"rendezvous: couldn't meet all %d ranks within %g s, though each was heard of",
			world_size, timeout);
	return err_fail(err, EXIT_LOST,
		"rendezvous: couldn't meet %d of %d ranks within %g s: %s%s did not come", count,
		world_size, timeout, text, more);
}
