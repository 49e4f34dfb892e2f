/* SPDX-License-Identifier: Apache-2.0 */
/* Decides this process's identity from what its launchers say, and refuses to guess when they
 * disagree. */
#include "common/ident.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hostlist.h"

#define UNSAID (-1)

/* Reads numbers from the environment; the first malformed one becomes the error. */
struct reader {
	ident_env *env;
	void *arg;
	struct err *err;
	bool failed;
};

/* One source's claim about this process; UNSAID where it says nothing. */
struct claim {
	long rank, world_size, local_rank, local_world_size, node_rank, node_count;
};

static const struct claim NOTHING_SAID = { UNSAID, UNSAID, UNSAID, UNSAID, UNSAID, UNSAID };

static const char *text_of(struct reader *reader, const char *name)
{
	const char *text = reader->env(name, reader->arg);
	return text && text[0] ? text : NULL;
}

/* Parses digits; -1 if there are none or the value is above `max`. *end is the first character
 * after them. */
static long digits(const char *text, long max, const char **end)
{
	long value = 0;
	if (*text < '0' || *text > '9')
		return -1;
	for (; *text >= '0' && *text <= '9'; text++) {
		value = value * 10 + (*text - '0');
		if (value > max)
			return -1;
	}
	*end = text;
	return value;
}

static long number_of(struct reader *reader, const char *name, long max)
{
	const char *text = text_of(reader, name), *end;
	if (!text || reader->failed)
		return UNSAID;
	long value = digits(text, max, &end);
	if (value < 0 || *end) {
		err_fail(reader->err, EXIT_USAGE,
			"identity: couldn't read %s=%s: not a number from 0 to %ld", name, text, max);
		reader->failed = true;
		return UNSAID;
	}
	return value;
}

static long count_of(struct reader *reader, const char *name)
{
	return number_of(reader, name, INT_MAX);
}

int ident_tasks_on_node(const char *coded, int node)
{
	long first = 0;
	while (*coded) {
		const char *end;
		long tasks = digits(coded, INT_MAX, &end), nodes = 1;
		if (tasks < 0)
			return -1;
		if (strncmp(end, "(x", 2) == 0) {
			nodes = digits(end + 2, INT_MAX, &end);
			if (nodes < 1 || *end != ')')
				return -1;
			end++;
		}
		if (node < first + nodes)
			return (int)tasks;
		first += nodes;
		if (*end != ',')
			return -1;
		coded = end + 1;
	}
	return -1;
}

/* The index of this node in SLURM_STEP_TASKS_PER_NODE. Slurm sorts that list by node name, like the
 * node list, but numbers the nodes of a heterogeneous step component by component (22.05 and
 * 25.11). */
static int place_of_node(struct reader *reader, const struct claim *claim)
{
	const char *nodes = text_of(reader, "SLURM_STEP_NODELIST"),
			   *name = text_of(reader, "SLURMD_NODENAME");
	long place = nodes && name ? hostlist_find(nodes, name) : -1;
	return (int)(place < 0 ? claim->node_rank : place);
}

/* Slurm's claim about a task of a step; false outside a step (a batch script has no
 * SLURM_STEP_NUM_TASKS). */
static bool read_slurm_step(struct reader *reader, struct claim *claim)
{
	*claim = NOTHING_SAID;
	if (!text_of(reader, "SLURM_STEP_ID") || !text_of(reader, "SLURM_PROCID")
		|| !text_of(reader, "SLURM_STEP_NUM_TASKS"))
		return false;
	claim->rank = count_of(reader, "SLURM_PROCID");
	claim->world_size = count_of(reader, "SLURM_STEP_NUM_TASKS");
	claim->local_rank = count_of(reader, "SLURM_LOCALID");
	claim->node_rank = count_of(reader, "SLURM_NODEID");
	claim->node_count = count_of(reader, "SLURM_STEP_NUM_NODES");
	const char *coded = text_of(reader, "SLURM_STEP_TASKS_PER_NODE");
	if (!coded || claim->node_rank == UNSAID || reader->failed)
		return true;
	claim->local_world_size = ident_tasks_on_node(coded, place_of_node(reader, claim));
	if (claim->local_world_size < 0) {
		err_fail(reader->err, EXIT_USAGE,
			"identity: couldn't find node %ld in SLURM_STEP_TASKS_PER_NODE=%s", claim->node_rank,
			coded);
		reader->failed = true;
	}
	return true;
}

/* Slurm's mpi/pmi2 names a step JOB.STEP. In a heterogeneous job, JOB is the leader's ID and
 * SLURM_JOB_ID the component's. A step without PMI2, started from inside one with PMI2, inherits
 * PMI_* variables that belong to the outer step. */
static bool pmi2_is_ours(struct reader *reader)
{
	char job[32], step[32];
	int end = 0;
	const char *name = text_of(reader, "PMI_JOBID"), *own_job = text_of(reader, "SLURM_JOB_ID");
	if (!name || !own_job || sscanf(name, "%31[0-9].%31[0-9]%n", job, step, &end) != 2 || name[end])
		return false;
	return strcmp(step, text_of(reader, "SLURM_STEP_ID")) == 0
		&& (text_of(reader, "SLURM_HET_SIZE") || strcmp(job, own_job) == 0);
}

/* PMI2's claim about a task of a step; false outside such a step. */
static bool read_pmi2(struct reader *reader, bool in_step, struct claim *claim)
{
	*claim = NOTHING_SAID;
	if (!in_step || !text_of(reader, "PMI_FD") || !pmi2_is_ours(reader))
		return false;
	claim->rank = count_of(reader, "PMI_RANK");
	claim->world_size = count_of(reader, "PMI_SIZE");
	return true;
}

/* The claim of torchrun's variables, which many other launchers set too; false unless both RANK and
 * WORLD_SIZE are set. */
static bool read_torchrun(struct reader *reader, struct claim *claim)
{
	*claim = NOTHING_SAID;
	claim->rank = count_of(reader, "RANK");
	claim->world_size = count_of(reader, "WORLD_SIZE");
	claim->local_rank = count_of(reader, "LOCAL_RANK");
	claim->local_world_size = count_of(reader, "LOCAL_WORLD_SIZE");
	claim->node_rank = count_of(reader, text_of(reader, "GROUP_RANK") ? "GROUP_RANK" : "NODE_RANK");
	claim->node_count = count_of(reader, "GROUP_WORLD_SIZE");
	return claim->rank != UNSAID && claim->world_size != UNSAID;
}

static int contradiction(struct err *err, const char *noun, const char *name_a, long a,
	const char *name_b, long b, const char *remedy)
{
	return err_fail(err, EXIT_USAGE,
		"identity: couldn't determine the %s: %s says %ld, %s says %ld: %s", noun, name_a, a,
		name_b, b, remedy);
}

struct compared {
	const char *noun, *name;
	long a, b;
};

/* Fails at the first pair that both sides state and that differs. */
static int compare(const struct compared *rows, int count, const char *name_a, const char *remedy,
	struct err *err)
{
	for (int i = 0; i < count; i++)
		if (rows[i].a != UNSAID && rows[i].b != UNSAID && rows[i].a != rows[i].b)
			return contradiction(err, rows[i].noun, name_a, rows[i].a, rows[i].name, rows[i].b,
				remedy);
	return 0;
}

static int compare_slurm(const struct claim *pmix, const struct claim *slurm, struct err *err)
{
	const struct compared rows[] = {
		{ "world size", "SLURM_STEP_NUM_TASKS", pmix->world_size, slurm->world_size },
		{ "rank", "SLURM_PROCID", pmix->rank, slurm->rank },
		{ "local rank", "SLURM_LOCALID", pmix->local_rank, slurm->local_rank },
		{ "local world size", "SLURM_STEP_TASKS_PER_NODE", pmix->local_world_size,
			slurm->local_world_size },
		{ "node rank", "SLURM_NODEID", pmix->node_rank, slurm->node_rank },
		{ "number of nodes", "SLURM_STEP_NUM_NODES", pmix->node_count, slurm->node_count },
	};
	return compare(rows, sizeof rows / sizeof rows[0], "PMIx",
		"start the program with srun itself, without changing SLURM_* or PMIX_* on the way", err);
}

static int compare_pmi2(const struct claim *pmi2, const struct claim *slurm, struct err *err)
{
	const struct compared rows[] = {
		{ "world size", "SLURM_STEP_NUM_TASKS", pmi2->world_size, slurm->world_size },
		{ "rank", "SLURM_PROCID", pmi2->rank, slurm->rank },
	};
	return compare(rows, sizeof rows / sizeof rows[0], "PMI2",
		"start the program with srun itself, without changing SLURM_* or PMI_* on the way", err);
}

/* A stale RANK or WORLD_SIZE from another launcher or an outer shell would silently change which
 * rank reads which data. */
static int compare_torchrun(const struct claim *claim, const char *source,
	const struct claim *torchrun, struct err *err)
{
	const struct compared rows[] = {
		{ "world size", "WORLD_SIZE", claim->world_size, torchrun->world_size },
		{ "rank", "RANK", claim->rank, torchrun->rank },
	};
	return compare(rows, sizeof rows / sizeof rows[0], source,
		"unset RANK and WORLD_SIZE, or start one task a rank", err);
}

/* Slurm's PMIx namespace is slurm.pmix.JOB.STEP. Under any other launcher (mpirun, prterun) SLURM_*
 * describe the launcher's daemons. */
static bool pmix_is_slurms(const struct ident_pmix *pmix)
{
	return strncmp(pmix->nspace, "slurm.pmix.", 11) == 0;
}

static void prefer(long *value, long other)
{
	if (*value == UNSAID)
		*value = other;
}

static void complete(struct claim *claim, const struct claim *other)
{
	prefer(&claim->local_rank, other->local_rank);
	prefer(&claim->local_world_size, other->local_world_size);
	prefer(&claim->node_rank, other->node_rank);
	prefer(&claim->node_count, other->node_count);
}

/* Fills in what no source stated: ranks fill the nodes in order, `local_world_size` on each. */
static void assume_rest(struct claim *claim)
{
	prefer(&claim->local_world_size, claim->node_count == 1 ? claim->world_size : 1);
	if (claim->local_world_size < 1)
		return;
	prefer(&claim->local_rank, claim->rank % claim->local_world_size);
	prefer(&claim->node_rank, claim->rank / claim->local_world_size);
	prefer(&claim->node_count,
		(claim->world_size + claim->local_world_size - 1) / claim->local_world_size);
}

static int check_range(const struct claim *claim, const char *source, struct err *err)
{
	const struct {
		const char *index_noun, *count_noun;
		long index, count;
	} rows[] = {
		{ "rank", "world size", claim->rank, claim->world_size },
		{ "local rank", "local world size", claim->local_rank, claim->local_world_size },
		{ "node rank", "number of nodes", claim->node_rank, claim->node_count },
	};
	for (int i = 0; i < 3; i++)
		if (rows[i].index < 0 || rows[i].index >= rows[i].count)
			return err_fail(err, EXIT_USAGE,
				"identity: couldn't use the %s %ld with the %s %ld (from %s)", rows[i].index_noun,
				rows[i].index, rows[i].count_noun, rows[i].count, source);
	if (claim->local_world_size > claim->world_size)
		return err_fail(err, EXIT_USAGE,
			"identity: couldn't use a local world size of %ld in a world of %ld (from %s)",
			claim->local_world_size, claim->world_size, source);
	return 0;
}

static int decide_pmix(struct claim *claim, const struct ident_pmix *pmix,
	const struct claim *slurm, bool in_step, const struct claim *torchrun, bool have_torchrun,
	struct err *err)
{
	*claim = (struct claim) { pmix->rank, pmix->world_size, pmix->local_rank,
		pmix->local_world_size, pmix->node_rank, pmix->node_count };
	if (!pmix_is_slurms(pmix))
		return 0;
	if (in_step && compare_slurm(claim, slurm, err) < 0)
		return -1;
	if (have_torchrun && compare_torchrun(claim, "PMIx", torchrun, err) < 0)
		return -1;
	if (in_step)
		complete(claim, slurm);
	return 0;
}

/* Half a pair would have to be guessed. */
static int refuse_halves(const struct claim *torchrun, struct err *err)
{
	const struct {
		const char *index_name, *count_name;
		long index, count;
	} rows[] = {
		{ "RANK", "WORLD_SIZE", torchrun->rank, torchrun->world_size },
		{ "LOCAL_RANK", "LOCAL_WORLD_SIZE", torchrun->local_rank, torchrun->local_world_size },
	};
	for (int i = 0; i < 2; i++)
		if ((rows[i].index == UNSAID) != (rows[i].count == UNSAID))
			return err_fail(err, EXIT_USAGE,
				"identity: couldn't use %s alone: set both %s and %s, or none",
				rows[i].index == UNSAID ? rows[i].count_name : rows[i].index_name,
				rows[i].index_name, rows[i].count_name);
	return 0;
}

static int decide_claim(struct claim *claim, const char **source, const struct ident_pmix *pmix,
	struct reader *reader)
{
	struct claim slurm, pmi2, torchrun;
	bool in_step = read_slurm_step(reader, &slurm);
	bool have_pmi2 = read_pmi2(reader, in_step, &pmi2);
	bool have_torchrun = read_torchrun(reader, &torchrun);
	if (reader->failed)
		return -1;
	/* torchrun's agent is itself a task of srun: PMIx and Slurm then describe the agent, not the
	 * worker. */
	bool torchrun_launched = have_torchrun && text_of(reader, "TORCHELASTIC_RUN_ID");
	if (pmix && !torchrun_launched) {
		*source = "pmix";
		return decide_pmix(claim, pmix, &slurm, in_step, &torchrun, have_torchrun, reader->err);
	}
	if (in_step && !torchrun_launched) {
		*source = have_pmi2 ? "pmi2" : "slurm";
		*claim = slurm;
		if (have_pmi2 && compare_pmi2(&pmi2, &slurm, reader->err) < 0)
			return -1;
		return have_torchrun ? compare_torchrun(claim, "Slurm's step", &torchrun, reader->err) : 0;
	}
	*source = have_torchrun ? "torchrun" : "single";
	*claim = have_torchrun ? torchrun : (struct claim) { 0, 1, 0, 1, 0, 1 };
	return refuse_halves(&torchrun, reader->err);
}

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

static int read_job(struct ident *ident, struct reader *reader)
{
	long job = number_of(reader, "SLURM_JOB_ID", UINT32_MAX);
	/* Outside srun's steps, a batch script has SLURM_STEP_ID=-5 (Slurm 26.05). */
	long step = text_of(reader, "SLURM_STEP_NUM_TASKS")
		? number_of(reader, "SLURM_STEP_ID", UINT32_MAX)
		: UNSAID;
	long attempt = count_of(reader,
		text_of(reader, "SLURM_RESTART_COUNT") ? "SLURM_RESTART_COUNT" : "MUSTER_ATTEMPT");
	long restart = count_of(reader, IDENT_RESTART);
	if (reader->failed)
		return -1;
	ident->job = job == UNSAID ? 0 : (uint32_t)job;
	ident->step = step == UNSAID ? 0 : (uint32_t)step;
	ident->attempt = attempt == UNSAID ? 0 : (int)attempt;
	ident->restart = restart == UNSAID ? 0 : (int)restart;
	copy_text(ident->cluster, sizeof ident->cluster, text_of(reader, "SLURM_CLUSTER_NAME"));
	copy_text(ident->node, sizeof ident->node, text_of(reader, "SLURMD_NODENAME"));
	return 0;
}

int ident_decide(struct ident *ident, const struct ident_pmix *pmix, ident_env *env, void *arg,
	struct err *err)
{
	struct reader reader = { .env = env, .arg = arg, .err = err };
	struct claim claim;
	const char *source = NULL;
	*ident = (struct ident) { 0 };
	if (decide_claim(&claim, &source, pmix, &reader) < 0)
		return -1;
	assume_rest(&claim);
	if (check_range(&claim, source, err) < 0 || read_job(ident, &reader) < 0)
		return -1;
	ident->rank = (int)claim.rank;
	ident->world_size = (int)claim.world_size;
	ident->local_rank = (int)claim.local_rank;
	ident->local_world_size = (int)claim.local_world_size;
	ident->node_rank = (int)claim.node_rank;
	ident->node_count = (int)claim.node_count;
	ident->source = source;
	return 0;
}
