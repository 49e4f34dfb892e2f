/* SPDX-License-Identifier: Apache-2.0 */
/* Times how long a step waits for communication, for hiding.sh: a small GPT-2 computes its slots'
 * gradients while they are reduced, alternately with and without what is meant to hide the
 * transfers. Each rank is one process; the ranks meet in a folder.
 *     hide_step SLOTS LAYERS WIDTH CONTEXT VOCABULARY ROUNDS
 * Rank 0 prints a line for each contestant: its name, the slots of a step, the median seconds of a
 * step, the median seconds that this rank waited for communication, and the bytes that the rank
 * that sends most should send in a step. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/ident.h"
#include "common/log.h"
#include "launch/rdzv.h"
#include "trainer/ddp/ddp.h"
#include "trainer/model/model.h"
#include "trainer/state/optimizer.h"

#define ROUNDS_MAX 1000

struct contestant {
	const char *name;
	bool late, split; /* struct ddp_config's `late`, struct model_config's `split_embedding` */
	int slots;        /* in a step; -1: the argument SLOTS; 0: one per rank */
	struct ops *ops;
	struct model *model;
	struct ddp *ddp;
	double seconds[ROUNDS_MAX], exposed[ROUNDS_MAX];
};

struct bench {
	struct comm *comm;
	struct batch batch; /* one sample */
	uint64_t step;
};

static struct contestant contestants[] = {
	{ .name = "late-pieces", .late = true, .slots = -1 },
	{ .name = "early-pieces", .slots = -1 },
	{ .name = "one-embedding" },
	{ .name = "split-embedding", .split = true },
};
#define COUNT (sizeof contestants / sizeof contestants[0])

static void die(const struct err *err)
{
	fprintf(stderr, "hide_step: %s\n", err->text);
	_Exit(1);
}

static void *get(struct ops *ops, size_t bytes)
{
	void *p = ops->device->alloc(ops->device, bytes);

	if (!p)
		die(&(struct err) { .text = "out of memory" });
	return p;
}

static void open_batch(struct bench *b, const struct model_config *config)
{
	size_t bytes = (size_t)config->context * sizeof(int32_t);
	uint32_t random = 1;

	b->batch = (struct batch) { .samples = 1,
		.positions = config->context,
		.tokens = malloc(bytes),
		.targets = malloc(bytes) };
	if (!b->batch.tokens || !b->batch.targets)
		die(&(struct err) { .text = "out of memory" });
	for (int i = 0; i < config->context; i++) {
		random = random * 1664525u + 1013904223u;
		b->batch.tokens[i] = b->batch.targets[i] =
			(int32_t)((random >> 8) % (uint32_t)config->vocabulary);
	}
}

static void open_contestant(struct bench *b, struct contestant *c, struct model_config config,
	int slots)
{
	struct err err;

	config.split_embedding = c->split;
	c->slots = c->slots < 0 ? slots : comm_size(b->comm);
	c->ops = ops_cpu_create(false, &err);
	c->model = c->ops ? model_create(&config, &err) : NULL;
	if (!c->model || model_prepare(c->model, c->ops, 1, &err) < 0)
		die(&err);
	const struct tensor_table *table = model_tensors(c->model);
	float *weights = get(c->ops, table->elements * sizeof *weights);
	tensor_table_init(table, 1, weights);
	model_bind(c->model, weights, weights);
	const struct ddp_config reduction = { .slots = c->slots,
		.bucket_bytes = 4 << 20,
		.late = c->late };
	c->ddp = ddp_create(b->comm, c->ops, table, &reduction, &err);
	if (!c->ddp)
		die(&err);
}

static void barrier(struct bench *b)
{
	struct err err;
	char all[1024];

	if (comm_wait(b->comm, comm_allgather(b->comm, "barrier", "x", all, 1), &err) < 0)
		die(&err);
}

/* Times one step; the weights are not updated. */
static void train(struct bench *b, struct contestant *c, int round)
{
	static const struct optimizer_config schedule = { .learning_rate = 1e-3,
		.steps = 1000,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.epsilon = 1e-8,
		.clip = 1 };
	struct ddp_control control = { .step = ++b->step };
	struct ddp_result result;
	struct err err;

	barrier(b);
	double begun = clock_now();
	optimizer_begin(&schedule, 1, (int64_t)c->slots * b->batch.positions, c->ops->params);
	ddp_begin(c->ddp, b->step);
	for (int i = 0; i < ddp_slot_count(c->ddp); i++) {
		int slot = ddp_first_slot(c->ddp) + i;
		int64_t valid;

		model_train(c->model, &b->batch, ddp_slot_grads(c->ddp, slot), 0,
			ddp_slot_loss(c->ddp, slot), &valid, ddp_ready, c->ddp);
		ddp_slot_end(c->ddp, valid);
	}
	if (ddp_finish(c->ddp, &control, &result, &err) < 0)
		die(&err);
	c->seconds[round] = clock_now() - begun;
	c->exposed[round] = result.exposed;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof *values, ascending);
	return values[count / 2];
}

int main(int argc, char **argv)
{
	static struct bench b;
	static struct ident ident;
	struct err err;

	if (argc != 7 || atoi(argv[6]) < 1 || atoi(argv[6]) > ROUNDS_MAX) {
		fprintf(stderr, "usage: hide_step SLOTS LAYERS WIDTH CONTEXT VOCABULARY ROUNDS\n");
		return 2;
	}
	const struct model_config config = { .kind = MODEL_GPT2,
		.layers = atoi(argv[2]),
		.width = atoi(argv[3]),
		.heads = 4,
		.context = atoi(argv[4]),
		.vocabulary = atoi(argv[5]) };
	int rounds = atoi(argv[6]);
	log_set_level(LOG_LEVEL_ERROR);
	struct rdzv *rdzv = ident_discover(&ident, &err) < 0 ? NULL : rdzv_open(&ident, NULL, 30, &err);
	b.comm = rdzv ? comm_open(&ident, rdzv, NULL, 60, &err) : NULL;
	if (!b.comm)
		die(&err);
	open_batch(&b, &config);
	for (size_t i = 0; i < COUNT; i++) {
		open_contestant(&b, &contestants[i], config, atoi(argv[1]));
		train(&b, &contestants[i], 0); /* warm-up; overwritten by round 0 */
	}
	for (int round = 0; round < rounds; round++)
		for (size_t i = 0; i < COUNT; i++)
			train(&b, &contestants[(i + (size_t)round) % COUNT], round);
	for (size_t i = 0; i < COUNT && comm_rank(b.comm) == 0; i++) {
		struct contestant *c = &contestants[i];

		printf("%s %d %.6f %.6f %zu\n", c->name, c->slots, median(c->seconds, rounds),
			median(c->exposed, rounds), ddp_cost(c->ddp).sent);
	}
	fflush(stdout);
	barrier(&b);
	_Exit(0);
}
