/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank sends in a step of a world that need not exist, for worlds.sh: the rank runs as in
 * a training, without a network and without computing.
 *     worlds KIND SLOTS NODES RANKS RANK [MEGABYTES]
 * KIND: canonical, flat (ranks of one node add nothing there) or zero (--zero 1); RANKS of a node.
 * The gradients are GPT-2 124M's, or those of reduce_step. Prints, for that rank, messages and
 * bytes to ranks of its node, then to others; the additions that a GPU would launch; and the bytes
 * of its arenas and buffers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/layers.h"
#include "common/log.h"
#include "tests/fakes/no_network.h"
#include "trainer/ddp/ddp.h"
#include "trainer/ddp/ddp_plan.h"

static const struct model_config gpt2 = { .kind = MODEL_GPT2,
	.layers = 12,
	.width = 768,
	.heads = 12,
	.context = 1024,
	.vocabulary = 50257 };

static uint64_t launches;

static void add(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	(void)ops, (void)out, (void)a, (void)b;
	launches += count > 0;
}

static void tree_reduce(struct ops *ops, float *out, float *const *pieces, const int *additions,
	int count, size_t elements)
{
	(void)ops, (void)out, (void)pieces, (void)additions, (void)count;
	launches += elements > 0;
}

static void square_sums(struct ops *ops, double *sums, const float *x, size_t count)
{
	(void)ops, (void)sums, (void)x, (void)count;
}

static void die(const struct err *err)
{
	fprintf(stderr, "worlds: %s\n", err->text);
	exit(1);
}

static void step(struct comm *comm, struct ddp *ddp, int layers, float *weights)
{
	const struct ddp_control control = { .step = 1 };
	struct ddp_result result;
	struct err err;
	double exposed;

	ddp_begin(ddp, 1);
	for (int slot = 0; slot < ddp_slot_count(ddp); slot++) {
		for (int layer = 0; layer < layers; layer++)
			ddp_ready(ddp, layer);
		ddp_slot_end(ddp, 1);
	}
	if (ddp_finish(ddp, &control, &result, &err) < 0)
		die(&err);
	ddp_allgather_weights(ddp, weights);
	if (ddp_whole(ddp, &exposed, &err) < 0 || comm_check(comm, &err) < 0)
		die(&err);
}

int main(int argc, char **argv)
{
	struct tensor_table rows = { 0 };
	struct err err;

	if (argc != 6 && argc != 7) {
		fprintf(stderr, "usage: worlds canonical|flat|zero SLOTS NODES RANKS RANK [MEGABYTES]\n");
		return 2;
	}
	int nodes = atoi(argv[3]), ranks = atoi(argv[4]), world = nodes * ranks;
	const struct ident ident = { .rank = atoi(argv[5]), .world_size = world, .node = "here" };
	int *numbers = calloc((size_t)world + 1, sizeof *numbers);
	log_set_level(LOG_LEVEL_ERROR);
	for (int rank = 0; numbers && rank < world; rank++)
		numbers[rank] = strcmp(argv[1], "flat") == 0 ? rank : rank / ranks;
	struct model *model = model_create(&gpt2, &err);
	const struct tensor_table *table = argc == 7 ? &rows : model_tensors(model);
	if (!model || (argc == 7 && layers_add(&rows, (size_t)atoi(argv[6]), &err) < 0))
		die(&err);
	const struct ddp_config config = { .slots = atoi(argv[2]),
		.bucket_bytes = (size_t)ddp_bucket_mb(table, world) << 20,
		.zero = strcmp(argv[1], "zero") == 0,
		.nodes = numbers };
	struct ops *ops = ops_cpu_create(true, &err);
	struct comm *comm = comm_open_over(&no_network, &ident, NULL, 60, &err);
	if (!numbers || !ops || !comm)
		die(&err);
	ops->add = add;
	ops->tree_reduce = tree_reduce;
	ops->square_sums = square_sums;
	float *weights = malloc(table->elements * sizeof *weights);
	struct ddp *ddp = ddp_create(comm, ops, table, &config, &err);
	if (!weights || !ddp)
		die(&err);
	/* Count ranks of one node as near in every kind, flat too. */
	for (int rank = 0; rank < world; rank++)
		numbers[rank] = rank / ranks;
	sent_count = (struct sent_count) { .node_of = numbers };
	launches = 0;
	step(comm, ddp, argc == 7 ? LAYERS : gpt2.layers + 2, weights);
	const struct sent *inside = &sent_count.inside, *outside = &sent_count.outside;
	printf("%llu %llu %llu %llu %llu %zu\n", (unsigned long long)inside->messages,
		(unsigned long long)inside->bytes, (unsigned long long)outside->messages,
		(unsigned long long)outside->bytes, (unsigned long long)launches, ddp_memory(ddp));
	fflush(stdout);
	_Exit(0); /* the step that did not happen needs no leave */
}
