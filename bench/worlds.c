/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of a world sends that need not exist, for worlds.sh.
 *     worlds KIND SLOTS NODES RANKS [MEGABYTES]
 * KIND: canonical, flat (ranks of one node add nothing there) or zero (--zero 1); RANKS of a node.
 * The gradients are GPT-2 124M's, or those of reduce_step. Prints the most messages and bytes of a
 * rank to its node, and messages to others; the most bytes of a node to others; the most additions
 * that a GPU would launch; and the most bytes of a rank's arenas and buffers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/layers.h"
#include "common/log.h"
#include "trainer/ddp/ddp_dry_run.h"
#include "trainer/ddp/ddp_plan.h"

static const struct model_config gpt2 = { .kind = MODEL_GPT2,
	.layers = 12,
	.width = 768,
	.heads = 12,
	.context = 1024,
	.vocabulary = 50257 };

static void die(const struct err *err)
{
	fprintf(stderr, "worlds: %s\n", err->text);
	exit(1);
}

int main(int argc, char **argv)
{
	struct tensor_table rows = { 0 };
	struct ddp_dry_cost cost;
	struct err err;

	if (argc != 5 && argc != 6) {
		fprintf(stderr, "usage: worlds canonical|flat|zero SLOTS NODES RANKS [MEGABYTES]\n");
		return 2;
	}
	log_set_level(LOG_LEVEL_ERROR);
	struct model *model = model_create(&gpt2, &err);
	if (!model || (argc == 6 && layers_add(&rows, (size_t)atoi(argv[5]), &err) < 0))
		die(&err);
	struct ddp_dry_run world = { .table = argc == 6 ? &rows : model_tensors(model),
		.config = { .slots = atoi(argv[2]), .zero = strcmp(argv[1], "zero") == 0 },
		.nodes = atoi(argv[3]),
		.ranks = atoi(argv[4]),
		.flat = strcmp(argv[1], "flat") == 0 };
	world.config.bucket_bytes = (size_t)ddp_bucket_mb(world.table, world.nodes * world.ranks) << 20;
	if (ddp_dry_run(&world, &cost, &err) < 0)
		die(&err);
	printf("%llu %llu %llu %llu %llu %zu\n", (unsigned long long)cost.inside.messages,
		(unsigned long long)cost.inside.bytes, (unsigned long long)cost.outside.messages,
		(unsigned long long)cost.node_bytes, (unsigned long long)cost.launches, cost.memory);
	model_destroy(model);
	tensor_table_clear(&rows);
	return 0;
}
