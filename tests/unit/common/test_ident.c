/* SPDX-License-Identifier: Apache-2.0 */
/* Identity: each source alone, their agreement, and every contradiction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/ident.h"

#define VARS 24

struct row {
	const char *what;
	const struct ident_pmix *pmix;
	const char *env[VARS]; /* "NAME=value" */
	struct ident want;     /* when `error` is NULL */
	const char *error;     /* what the message must contain, two parts separated by a tab */
};

static const char *table_env(const char *name, void *arg)
{
	const char *const *vars = arg;
	size_t length = strlen(name);
	for (int i = 0; i < VARS && vars[i]; i++)
		if (strncmp(vars[i], name, length) == 0 && vars[i][length] == '=')
			return vars[i] + length + 1;
	return NULL;
}

#define STEP(rank, size, local, node, nodes, coded) \
	"SLURM_STEP_ID=2", "SLURM_JOB_ID=77", "SLURM_PROCID=" #rank, "SLURM_STEP_NUM_TASKS=" #size, \
		"SLURM_LOCALID=" #local, "SLURM_NODEID=" #node, "SLURM_STEP_NUM_NODES=" #nodes, \
		"SLURM_STEP_TASKS_PER_NODE=" coded, "SLURMD_NODENAME=n1", "SLURM_NTASKS=64"

#define PMI2(rank, size, job) "PMI_FD=9", "PMI_RANK=" #rank, "PMI_SIZE=" #size, "PMI_JOBID=" job

static const struct ident_pmix slurm_pmix = { 3, 8, 1, 2, 1, 4, "slurm.pmix.77.2" };
static const struct ident_pmix sparse_pmix = { 3, 8, -1, -1, -1, -1, "slurm.pmix.77.2" };
static const struct ident_pmix mpirun_pmix = { 3, 8, 3, 8, 0, 1, "prterun-host-1234@1" };

static const struct row rows[] = {
	{ "nothing", NULL, { NULL }, { 0, 1, 0, 1, 0, 1, .source = "single" }, NULL },
	{ "a batch script is a world of one", NULL,
		{ "SLURM_JOB_ID=77", "SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_RESTART_COUNT=3",
			"SLURM_CLUSTER_NAME=c" },
		{ 0, 1, 0, 1, 0, 1, .job = 77, .attempt = 3, .cluster = "c", .source = "single" }, NULL },
	{ "a batch script of Slurm 26.05 is one too", NULL,
		{ "SLURM_JOB_ID=77", "SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_STEP_ID=-5",
			"SLURM_STEPID=-5" },
		{ 0, 1, 0, 1, 0, 1, .job = 77, .source = "single" }, NULL },
	{ "PMIx and Slurm agree", &slurm_pmix, { STEP(3, 8, 1, 1, 4, "2(x4)") },
		{ 3, 8, 1, 2, 1, 4, .job = 77, .step = 2, .node = "n1", .source = "pmix" }, NULL },
	{ "a step that muster-run has begun anew", &slurm_pmix,
		{ STEP(3, 8, 1, 1, 4, "2(x4)"), "SLURM_RESTART_COUNT=3", "SLURM_MUSTER_RESTART=2" },
		{ 3, 8, 1, 2, 1, 4, .job = 77, .step = 2, .attempt = 3, .restart = 2, .node = "n1",
			.source = "pmix" },
		NULL },
	{ "a restart that is no number", &slurm_pmix,
		{ STEP(3, 8, 1, 1, 4, "2(x4)"), "SLURM_MUSTER_RESTART=two" }, { 0 },
		"SLURM_MUSTER_RESTART=two\tnot a number" },
	{ "Slurm fills in what PMIx leaves out", &sparse_pmix, { STEP(3, 8, 1, 1, 4, "2(x4)") },
		{ 3, 8, 1, 2, 1, 4, .job = 77, .step = 2, .node = "n1", .source = "pmix" }, NULL },
	{ "the plugin's RANK agrees, its LOCAL_RANK is a device", &slurm_pmix,
		{ STEP(3, 8, 1, 1, 4, "2(x4)"), "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=0",
			"LOCAL_WORLD_SIZE=2" },
		{ 3, 8, 1, 2, 1, 4, .job = 77, .step = 2, .node = "n1", .source = "pmix" }, NULL },
	{ "mpirun inside a step: Slurm speaks of its daemons", &mpirun_pmix,
		{ STEP(0, 1, 0, 0, 1, "1"), "RANK=0", "WORLD_SIZE=1" },
		{ 3, 8, 3, 8, 0, 1, .job = 77, .step = 2, .node = "n1", .source = "pmix" }, NULL },
	{ "a step without PMIx", NULL, { STEP(5, 12, 1, 1, 3, "4(x3)") },
		{ 5, 12, 1, 4, 1, 3, .job = 77, .step = 2, .node = "n1", .source = "slurm" }, NULL },
	{ "a step with PMI2", NULL, { STEP(5, 12, 1, 1, 3, "4(x3)"), PMI2(5, 12, "77.2") },
		{ 5, 12, 1, 4, 1, 3, .job = 77, .step = 2, .node = "n1", .source = "pmi2" }, NULL },
	{ "a heterogeneous step with PMI2", NULL,
		{ STEP(5, 12, 1, 1, 3, "4(x3)"), PMI2(5, 12, "76.2"), "SLURM_HET_SIZE=2" },
		{ 5, 12, 1, 4, 1, 3, .job = 77, .step = 2, .node = "n1", .source = "pmi2" }, NULL },
	{ "PMI2 of an outer step is not ours", NULL,
		{ STEP(5, 12, 1, 1, 3, "4(x3)"), PMI2(0, 1, "77.1") },
		{ 5, 12, 1, 4, 1, 3, .job = 77, .step = 2, .node = "n1", .source = "slurm" }, NULL },
	{ "nor that of another job", NULL, { STEP(5, 12, 1, 1, 3, "4(x3)"), PMI2(0, 1, "76.2") },
		{ 5, 12, 1, 4, 1, 3, .job = 77, .step = 2, .node = "n1", .source = "slurm" }, NULL },
	{ "nor one that is not Slurm's", NULL, { STEP(5, 12, 1, 1, 3, "4(x3)"), PMI2(0, 1, "77.2x") },
		{ 5, 12, 1, 4, 1, 3, .job = 77, .step = 2, .node = "n1", .source = "slurm" }, NULL },
	{ "PMI2 outside a step is not ours", NULL, { PMI2(3, 4, "77.2") },
		{ 0, 1, 0, 1, 0, 1, .source = "single" }, NULL },
	{ "uneven nodes", NULL, { STEP(17, 20, 1, 2, 3, "8(x2),4") },
		{ 17, 20, 1, 4, 2, 3, .job = 77, .step = 2, .node = "n1", .source = "slurm" }, NULL },
	{ "components in another order than their names", NULL,
		{ STEP(0, 4, 0, 0, 3, "2,1(x2)"), "SLURM_STEP_NODELIST=n[0-2]" },
		{ 0, 4, 0, 1, 0, 3, .job = 77, .step = 2, .node = "n1", .source = "slurm" }, NULL },
	{ "a node list without this node", NULL,
		{ STEP(0, 4, 0, 0, 3, "2,1(x2)"), "SLURM_STEP_NODELIST=m[0-2]" },
		{ 0, 4, 0, 2, 0, 3, .job = 77, .step = 2, .node = "n1", .source = "slurm" }, NULL },
	{ "torchrun", NULL,
		{ "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1",
			"GROUP_WORLD_SIZE=2" },
		{ 5, 8, 1, 4, 1, 2, .source = "torchrun" }, NULL },
	{ "torchrun under srun: the worker's identity", &slurm_pmix,
		{ STEP(3, 8, 1, 1, 4, "2(x4)"), "RANK=9", "WORLD_SIZE=16", "LOCAL_RANK=1",
			"LOCAL_WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=x" },
		{ 9, 16, 1, 4, 2, 4, .job = 77, .step = 2, .node = "n1", .source = "torchrun" }, NULL },
	{ "RANK and WORLD_SIZE alone", NULL, { "RANK=1", "WORLD_SIZE=2" },
		{ 1, 2, 0, 1, 1, 2, .source = "torchrun" }, NULL },
	{ "the plugin's attempt", NULL, { "MUSTER_ATTEMPT=2" },
		{ 0, 1, 0, 1, 0, 1, .attempt = 2, .source = "single" }, NULL },

	{ "PMIx against Slurm: rank", &slurm_pmix, { STEP(4, 8, 1, 1, 4, "2(x4)") }, { 0 },
		"PMIx says 3\tSLURM_PROCID says 4" },
	{ "PMIx against Slurm: size", &slurm_pmix, { STEP(3, 6, 1, 1, 4, "2(x4)") }, { 0 },
		"PMIx says 8\tSLURM_STEP_NUM_TASKS says 6" },
	{ "PMIx against Slurm: local rank", &slurm_pmix, { STEP(3, 8, 0, 1, 4, "2(x4)") }, { 0 },
		"PMIx says 1\tSLURM_LOCALID says 0" },
	{ "PMIx against Slurm: tasks here", &slurm_pmix, { STEP(3, 8, 1, 1, 4, "2,3,2,1") }, { 0 },
		"PMIx says 2\tSLURM_STEP_TASKS_PER_NODE says 3" },
	{ "PMI2 against Slurm: rank", NULL, { STEP(4, 8, 1, 1, 4, "2(x4)"), PMI2(3, 8, "77.2") }, { 0 },
		"PMI2 says 3\tSLURM_PROCID says 4" },
	{ "PMI2 against Slurm: size", NULL, { STEP(3, 8, 1, 1, 4, "2(x4)"), PMI2(3, 6, "77.2") }, { 0 },
		"PMI2 says 6\tSLURM_STEP_NUM_TASKS says 8" },
	{ "PMI2 with a rank that is none", NULL, { STEP(3, 8, 1, 1, 4, "2(x4)"), PMI2(x, 8, "77.2") },
		{ 0 }, "PMI_RANK=x\tnot a number" },
	{ "PMIx against RANK", &slurm_pmix, { STEP(3, 8, 1, 1, 4, "2(x4)"), "RANK=1", "WORLD_SIZE=8" },
		{ 0 }, "PMIx says 3\tRANK says 1" },
	{ "one task, eight workers of a script", NULL,
		{ STEP(0, 1, 0, 0, 1, "1"), "RANK=7", "WORLD_SIZE=8" }, { 0 },
		"step says 1\tWORLD_SIZE says 8" },
	{ "RANK without WORLD_SIZE", NULL, { "RANK=1" }, { 0 }, "RANK alone\tWORLD_SIZE" },
	{ "LOCAL_RANK without LOCAL_WORLD_SIZE", NULL, { "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1" },
		{ 0 }, "LOCAL_RANK alone\tLOCAL_WORLD_SIZE" },
	{ "not a number", NULL, { "RANK=two", "WORLD_SIZE=4" }, { 0 }, "RANK=two\tnot a number" },
	{ "a sign", NULL, { "RANK=-1", "WORLD_SIZE=4" }, { 0 }, "RANK=-1\tnot a number" },
	{ "too large", NULL, { "RANK=0", "WORLD_SIZE=4294967296" }, { 0 },
		"WORLD_SIZE=4294967296\tnot a number" },
	{ "rank beyond the world", NULL, { "RANK=4", "WORLD_SIZE=4" }, { 0 }, "rank 4\tworld size 4" },
	{ "an empty world", NULL, { "RANK=0", "WORLD_SIZE=0" }, { 0 }, "rank 0\tworld size 0" },
	{ "a node that isn't listed", NULL, { STEP(17, 20, 1, 3, 4, "8(x2),4") }, { 0 },
		"node 3\tSLURM_STEP_TASKS_PER_NODE=8(x2),4" },
};

static void assert_same(const struct ident *got, const struct ident *want)
{
	assert_int_equal(got->rank, want->rank);
	assert_int_equal(got->world_size, want->world_size);
	assert_int_equal(got->local_rank, want->local_rank);
	assert_int_equal(got->local_world_size, want->local_world_size);
	assert_int_equal(got->node_rank, want->node_rank);
	assert_int_equal(got->node_count, want->node_count);
	assert_int_equal(got->job, want->job);
	assert_int_equal(got->step, want->step);
	assert_int_equal(got->attempt, want->attempt);
	assert_int_equal(got->restart, want->restart);
	assert_string_equal(got->cluster, want->cluster);
	assert_string_equal(got->node, want->node);
	assert_string_equal(got->source, want->source);
}

static void every_row_decides_as_told(void **state)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ident ident;
		struct err err = { 0 };
		int rc = ident_decide(&ident, rows[i].pmix, table_env, (void *)rows[i].env, &err);
		print_message("# %s: %s\n", rows[i].what, rc < 0 ? err.text : ident.source);
		if (!rows[i].error) {
			assert_int_equal(rc, 0);
			assert_same(&ident, &rows[i].want);
			continue;
		}
		assert_int_equal(rc, -1);
		assert_int_equal(err.status, EXIT_USAGE);
		const char *second = strchr(rows[i].error, '\t') + 1;
		char first[100];
		snprintf(first, sizeof first, "%.*s", (int)(second - 1 - rows[i].error), rows[i].error);
		assert_non_null(strstr(err.text, first));
		assert_non_null(strstr(err.text, second));
	}
}

static void run_length_code(void **state)
{
	static const struct {
		const char *coded;
		int node, want;
	} cases[] = {
		{ "4", 0, 4 },
		{ "4", 1, -1 },
		{ "2(x3)", 2, 2 },
		{ "2(x3)", 3, -1 },
		{ "8(x2),4", 1, 8 },
		{ "8(x2),4", 2, 4 },
		{ "1,2(x2),3", 3, 3 },
		{ "", 0, -1 },
		{ "a", 0, -1 },
		{ "2(x", 0, -1 },
		{ "2(x0)", 0, -1 },
		{ "2(x2", 0, -1 },
		{ "2(x2)4", 2, -1 },
		{ "2,", 1, -1 },
		{ "2147483647(x2147483647),5", 2147483647, 5 },
		{ "99999999999999999999", 0, -1 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(ident_tasks_on_node(cases[i].coded, cases[i].node), cases[i].want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_decides_as_told),
		cmocka_unit_test(run_length_code),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
