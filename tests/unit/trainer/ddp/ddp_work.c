/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/trainer/ddp/ddp_work.h"

float ddp_work_gradient(uint64_t step, int slot, size_t at)
{
	uint64_t v = (at + 1) * 0x9e3779b97f4a7c15u + (uint64_t)slot * 0xff51afd7ed558ccdu
		+ step * 0xc4ceb9fe1a85ec53u;

	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdu;
	v ^= v >> 29;
	float scale = (float)(1 << (v & 7)) / 16; /* 2^-4 to 2^3, exact */
	return (float)((int32_t)(v >> 32)) / 2147483648.0f * scale;
}

double ddp_work_slot_loss(uint64_t step, int slot)
{
	return 100.0 + ddp_work_gradient(step, slot, 12345) / 3.0;
}

void ddp_work_fill_layer(const struct tensor_table *table, float *arena, uint64_t step, int slot,
	int layer)
{
	size_t head = table->split_count ? table->rows[table->count - 1].count
									 : 0; /* padding stays zero here, too */

	for (size_t j = table->elements; layer == 0 && j < table->elements + head; j++)
		arena[j] = ddp_work_gradient(step, slot, j);
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];

		for (size_t j = row->offset; row->layer == layer && j < row->offset + row->count; j++)
			arena[j] = ddp_work_gradient(step, slot, j);
	}
}

/* Node (level, index) of the tree, word for word, over whole arenas. */
static float *direct(const struct ddp_work *job, uint64_t step, int level, int index)
{
	size_t elements = tensor_table_gradients(&job->table);

	if (level == 0) {
		float *leaf = calloc(elements, sizeof *leaf);
		for (int layer = 0; layer < LAYERS; layer++)
			ddp_work_fill_layer(&job->table, leaf, step, index, layer);
		return leaf;
	}
	float *left = direct(job, step, level - 1, 2 * index);
	if ((2 * index + 1) << (level - 1) < job->slots) {
		float *right = direct(job, step, level - 1, 2 * index + 1);
		for (size_t i = 0; i < elements; i++)
			left[i] = left[i] + right[i];
		free(right);
	}
	return left;
}

/* Blocks of the logical elements of each tensor, added in order. */
static double direct_norm(const struct ddp_work *job, const float *grads)
{
	double squares = 0;

	for (int i = 0; i < job->table.count; i++) {
		const struct tensor *row = &job->table.rows[i];
		for (size_t at = 0; at < row->count; at += NORM_BLOCK) {
			double block;
			job->ops->square_sums(job->ops, &block, grads + row->offset + at,
				row->count - at < NORM_BLOCK ? row->count - at : NORM_BLOCK);
			squares += block;
		}
	}
	return sqrt(squares);
}

void ddp_work_make_split(struct ddp_work *job, int slots, size_t bucket_bytes, int native,
	bool split)
{
	struct err err;
	int level = 0;

	memset(job, 0, sizeof *job);
	make_table(&job->table);
	if (split)
		split_last(&job->table);
	job->ops = ops_cpu_create(true, &err);
	assert_non_null(job->ops);
	job->slots = slots;
	job->bucket_bytes = bucket_bytes;
	job->native = native;
	while (1 << level < slots)
		level++;
	for (uint64_t step = 0; step < STEPS; step++) {
		job->grads[step] = direct(job, step, level, 0);
		for (size_t i = 0; i < job->table.split_count; i++)
			job->grads[step][job->table.split_offset + i] +=
				job->grads[step][job->table.elements + i];
		job->norm[step] = direct_norm(job, job->grads[step]);
	}
	job->magnitude = calloc(job->table.elements, sizeof(float));
	for (int slot = 0; slot < slots; slot++) {
		for (size_t i = 0; i < job->table.elements; i++)
			job->magnitude[i] += fabsf(ddp_work_gradient(0, slot, i));
		job->valid += VALID + slot;
	}
}

void ddp_work_make(struct ddp_work *job, int slots, size_t bucket_bytes, int native)
{
	ddp_work_make_split(job, slots, bucket_bytes, native, false);
}

void ddp_work_free(struct ddp_work *job)
{
	job->ops->destroy(job->ops);
	tensor_table_clear(&job->table);
	for (int step = 0; step < STEPS; step++)
		free(job->grads[step]);
	free(job->magnitude);
}

void ddp_work_train_slot(struct ddp *ddp, const struct ddp_work *job, uint64_t step, int slot)
{
	float *grads = ddp_slot_grads(ddp, slot);

	for (int layer = 0; layer < LAYERS; layer++) {
		ddp_work_fill_layer(&job->table, grads, step, slot, layer);
		ddp_ready(ddp, layer);
	}
	*ddp_slot_loss(ddp, slot) = ddp_work_slot_loss(step, slot);
	ddp_slot_end(ddp, VALID + slot);
}

int ddp_work_run_step(struct ddp *ddp, const struct ddp_work *job, uint64_t step,
	struct ddp_control control, struct ddp_result *result, struct err *err)
{
	int first = ddp_first_slot(ddp), count = ddp_slot_count(ddp);

	ddp_begin(ddp, step);
	for (int slot = first; slot < first + count; slot++)
		ddp_work_train_slot(ddp, job, step, slot);
	return ddp_finish(ddp, &control, result, err);
}

int ddp_work_node(const struct ddp_work *job, int world, int rank)
{
	int node = 0, end = 0;

	if (job->spread) /* dealt out from both ends */
		rank = rank % 2 ? world - 1 - rank / 2 : rank / 2;
	/* Shares of nodes - 1, ..., 1, 0 times `larger` ranks, and the rest evenly. */
	for (; node < job->nodes; node++) {
		int rest = world - job->larger * job->nodes * (job->nodes - 1) / 2;

		end += job->larger * (job->nodes - 1 - node) + rest / job->nodes
			+ (node < rest % job->nodes ? 1 : 0);
		if (rank < end)
			return node;
	}
	return 0;
}

struct ddp *ddp_work_create(struct comm *comm, const struct ddp_work *job, struct err *err)
{
	struct ddp_config config = { .slots = job->slots,
		.bucket_bytes = job->bucket_bytes,
		.native = job->native,
		.zero = job->zero,
		.node = ddp_work_node(job, comm_size(comm), comm_rank(comm)) };

	return ddp_create(comm, job->ops, &job->table, &config, err);
}

struct ddp_control ddp_work_control(struct comm *comm, uint64_t step)
{
	return (struct ddp_control) { .step = step,
		.sample_hash = 1000 + (uint64_t)comm_rank(comm),
		.waited = comm_rank(comm) ? 9 - comm_rank(comm) : 3.5 };
}
