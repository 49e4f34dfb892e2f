/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/run/world_plan.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/io.h"
#include "common/log.h"
#include "common/number.h"
#include "trainer/data/dataset.h"
#include "trainer/ddp/ddp_dry_run.h"
#include "trainer/ddp/ddp_plan.h"
#include "common/opt.h"
#include "order/tree.h"

#define GBIT 125e6           /* bytes a second */
#define OUTSIDE 100.0        /* Gbit/s of a node to others where --plan says nothing */
#define INSIDE (1600 * GBIT) /* of a rank within its node */
#define LATENCY 10e-6        /* seconds a message */
#define WORTH 1.05           /* times as many bytes are worth an advice */

/* "64x8" or "64x8@25". */
static int read_world(const char *text, struct ddp_dry_run *world, double *outside, struct err *err)
{
	char nodes[12], ranks[12], rate[24] = "";
	int64_t node_count, rank_count;
	int end = 0;

	*outside = OUTSIDE;
	sscanf(text, "%11[0-9]x%11[0-9]%n@%23[0-9.]%n", nodes, ranks, &end, rate, &end);
	if (end == 0 || text[end] || !number_whole(nodes, 1, TREE_SLOTS_MAX, &node_count)
		|| !number_whole(ranks, 1, TREE_SLOTS_MAX, &rank_count)
		|| (*rate && !number_real(rate, 1e-3, 1e6, outside)))
		return err_fail(err, EXIT_USAGE,
			"--plan %s names no world: give the nodes and the ranks of each, such as 64x8, or "
			"64x8@25 where a node sends 25 Gbit/s",
			text);
	if (node_count * rank_count > TREE_SLOTS_MAX)
		return err_fail(err, EXIT_USAGE, "--plan %s: a world has at most %d ranks: give fewer",
			text, TREE_SLOTS_MAX);
	world->nodes = (int)node_count;
	world->ranks = (int)rank_count;
	return 0;
}

/* Columns of the table that the model reads; 0 for tokens. */
static int features_of(const struct settings *settings, int *features, struct err *err)
{
	*features = 0;
	if (settings->model == MODEL_GPT2)
		return 0;
	struct dataset *data = dataset_open_table(settings->data, settings->labels, err);
	if (!data)
		return -1;
	*features = dataset_features(data);
	dataset_close(data);
	return 0;
}

static void print_memory(const struct settings *settings, struct model *model,
	const struct ddp_dry_run *world, const struct ddp_dry_cost *cost, FILE *out)
{
	const double elements = (double)model_tensors(model)->elements * sizeof(float);
	const bool halves = settings->precision == PRECISION_BF16;
	const double copy = halves ? elements / 2 : 0,
				 moments = 2 * elements / (settings->zero ? world->nodes * world->ranks : 1),
				 activations = (double)model_activations(model, (int)settings->microbatch,
					 settings->device != DEVICE_CPU, halves ? 2 : 4),
				 sum = elements + copy + moments + (double)cost->memory + activations;

	fprintf(out,
		"  a rank holds    %.1f MB: weights %.1f, moments %.1f, gradients with those of others "
		"%.1f, activations %.1f (%s)\n",
		sum * 1e-6, (elements + copy) * 1e-6, moments * 1e-6, (double)cost->memory * 1e-6,
		activations * 1e-6, halves ? "bf16" : "fp32");
}

/* Bytes that a hierarchical all-reduce sends from a node to others. */
static double hierarchical(const struct ddp_dry_run *world)
{
	return 2 * (1 - 1.0 / world->nodes) * (double)world->table->elements * sizeof(float);
}

static void print_sent(const struct ddp_dry_run *world, const struct ddp_dry_cost *cost, FILE *out)
{
	fprintf(out,
		"  a rank sends    %llu messages and %.1f MB on its node, %llu messages to others\n"
		"  a node sends    %.1f MB to others; a hierarchical all-reduce would send %.1f\n"
		"  a rank adds     in %llu calls, each a launch on a GPU\n",
		(unsigned long long)cost->inside.messages, (double)cost->inside.bytes * 1e-6,
		(unsigned long long)cost->outside.messages, (double)cost->node_bytes * 1e-6,
		hierarchical(world) * 1e-6, (unsigned long long)cost->launches);
}

static void print(const struct settings *settings, struct model *model,
	const struct ddp_dry_run *world, const struct ddp_dry_cost *cost, double outside, FILE *out)
{
	const struct ddp_links links = { outside * GBIT, INSIDE, LATENCY };

	fprintf(out,
		"A step on %d nodes with %d ranks each, the most of any rank or node\n"
		"  it is made of   %lld slots of %lld x %lld samples; the sums travel in %d buckets of at "
		"most %lld MB\n",
		world->nodes, world->ranks, (long long)settings->slots,
		(long long)settings->slot_microbatches, (long long)settings->microbatch, cost->buckets,
		(long long)settings->bucket_mb);
	print_memory(settings, model, world, cost, out);
	print_sent(world, cost, out);
	fprintf(out,
		"  communication   %.4f s by a model: %g Gbit/s from a node to others, %g from a rank "
		"within it, %g us a message\n",
		ddp_dry_seconds(cost, &links), outside, INSIDE / GBIT, LATENCY * 1e6);
}

/* Where nodes have several pieces of the tree to send, tells the number of slots at which each has
 * one. */
static int advise(const struct settings *settings, const struct ddp_dry_run *world,
	const struct ddp_dry_cost *cost, FILE *out, struct err *err)
{
	struct ddp_dry_run other = *world;
	struct ddp_dry_cost less;
	int slots = world->nodes;

	while (slots < world->nodes * world->ranks)
		slots *= 2;
	other.config.slots = slots;
	if (world->config.native || (double)cost->node_bytes <= WORTH * hierarchical(world)
		|| slots > TREE_SLOTS_MAX)
		return 0;
	if (ddp_dry_run(&other, &less, err) < 0)
		return -1;
	if ((double)cost->node_bytes <= WORTH * (double)less.node_bytes)
		return 0;
	fprintf(out, "  less to send    %.1f MB of a node with --slots %d, nodes x a power of two",
		(double)less.node_bytes * 1e-6, slots);
	if (settings->microbatches % slots)
		fprintf(out, ", where --global-batch is a multiple of %lld",
			(long long)slots * (long long)settings->microbatch);
	fprintf(out, "\n");
	return 0;
}

static int plan(struct settings *settings, struct model *model, struct ddp_dry_run *world,
	double outside, FILE *out, struct err *err)
{
	struct ddp_dry_cost cost;

	if (settings->bucket_mb == OPT_AUTO)
		settings->bucket_mb = ddp_bucket_mb(model_tensors(model), world->nodes * world->ranks);
	world->table = model_tensors(model);
	world->config = settings_ddp(settings);
	if (ddp_dry_run(world, &cost, err) < 0)
		return -1;
	if (!out)
		return 0;
	print(settings, model, world, &cost, outside, out);
	return advise(settings, world, &cost, out, err) < 0 ? -1 : io_flush_output(err);
}

int world_plan_print(struct settings *settings, FILE *out, struct err *err)
{
	struct ddp_dry_run world = { 0 };
	double outside;
	int features;

	if (read_world(settings->plan, &world, &outside, err) < 0)
		return -1;
	settings_fit_slots(settings, 0, world.nodes * world.ranks);
	if (settings_check_world(settings, world.nodes * world.ranks, err) < 0
		|| features_of(settings, &features, err) < 0)
		return -1;
	const struct model_config config = settings_model(settings, features);
	struct model *model = model_create(&config, err);
	if (!model)
		return -1;
	log_set_level(LOG_LEVEL_WARN);
	int rc = plan(settings, model, &world, outside, out, err);
	model_destroy(model);
	return rc;
}
