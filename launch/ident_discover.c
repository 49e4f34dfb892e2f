/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of an identity on a real machine: the environment, this process's PMIx server, the
 * host name. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alone.h"
#include "common/ident.h"
#include "common/log.h"
#include "config.h"
#include "launch/rdzv_provider.h"

static const char *real_env(const char *name, void *arg)
{
	return getenv(name);
}

#ifdef HAVE_PMIX
static bool differ(const char *a, const char *b)
{
	return a && b && strcmp(a, b) != 0;
}

/* A step without PMIx, started from inside one with PMIx, inherits PMIX_* that belong to the outer
 * step. */
static bool pmix_is_inherited(void)
{
	char job[32], step[32];
	const char *nspace = getenv("PMIX_NAMESPACE");
	if (!nspace || sscanf(nspace, "slurm.pmix.%31[0-9].%31[0-9]", job, step) != 2)
		return false;
	/* In a heterogeneous job PMIx names the leader's ID, SLURM_JOB_ID the component's. */
	return differ(getenv("SLURM_STEP_ID"), step)
		|| (!getenv("SLURM_HET_SIZE") && differ(getenv("SLURM_JOB_ID"), job));
}

/* torchrun's workers inherit their agent's PMIx variables and would all claim its rank. */
static bool pmix_is_ours(void)
{
	return getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK") && !getenv("TORCHELASTIC_RUN_ID")
		&& !pmix_is_inherited();
}
#endif

static int ask_pmix(struct ident_pmix *pmix, struct err *err)
{
#ifdef HAVE_PMIX
	if (pmix_is_ours())
		return rdzv_pmix_ident(pmix, err);
#endif
	return 0;
}

int ident_discover(struct ident *ident, struct err *err)
{
	struct ident_pmix pmix;
	int have_pmix = ask_pmix(&pmix, err);
	if (have_pmix < 0)
		return -1;
	if (ident_decide(ident, have_pmix ? &pmix : NULL, real_env, NULL, err) < 0)
		return -1;
	if (!ident->node[0] && gethostname(ident->node, sizeof ident->node - 1) < 0)
		return err_set(err, "identity: couldn't read the host's name: %m");
	return 0;
}

void alone_warn(const struct ident *ident)
{
	char what[400];
	if (alone_in_job(ident, real_env, NULL, what, sizeof what))
		log_warn("%s: " ALONE_REMEDY, what);
}
