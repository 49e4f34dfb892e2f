/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a step, and its one small all-gather: loss, norm, flags and cross-checks. Every rank
 * folds them in the same order, so that the numbers have the same bits on every rank and at every
 * world size. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "trainer/ddp/ddp_private.h"

#define NAMED 4 /* ranks that a list names; the rest are only counted */

/* A rank's message: struct ddp_control, then slots_max numbers of valid targets, slots_max losses,
 * and blocks_max block sums. */
static struct ddp_control *control_of(const struct ddp *ddp, char *message)
{
	return (struct ddp_control *)(void *)message;
}

static int64_t *valid_of(const struct ddp *ddp, char *message)
{
	return (int64_t *)(void *)(message + sizeof(struct ddp_control));
}

static double *losses_of(const struct ddp *ddp, char *message)
{
	return (double *)(void *)(valid_of(ddp, message) + ddp->slots_max);
}

static double *blocks_of(const struct ddp *ddp, char *message)
{
	return losses_of(ddp, message) + ddp->slots_max;
}

static size_t figures_bytes(const struct ddp *ddp)
{
	return (ddp->slots_max + ddp->blocks_max) * sizeof *ddp->figures;
}

static char *message_of(const struct ddp *ddp, int rank)
{
	return ddp->messages + (size_t)rank * ddp->message_bytes;
}

static char *message_at(const struct ddp *ddp, int place)
{
	return message_of(ddp, ddp->nodes.rank[place]);
}

/* Number of the norm's blocks that begin before an element. */
static size_t blocks_before(const struct ddp *ddp, size_t element)
{
	int i = ddp->table->count;

	while (i > 0 && ddp->table->rows[i - 1].offset >= element)
		i--;
	if (i == 0)
		return 0;
	size_t blocks = (element - ddp->table->rows[i - 1].offset + NORM_BLOCK - 1) / NORM_BLOCK;
	size_t first = ddp->block_start[i - 1], count = ddp->block_start[i] - first;
	return first + (blocks < count ? blocks : count);
}

/* The rank that has a segment sums its blocks. With native all ranks have the same gradients by
 * then, so the blocks are simply shared out. */
static void assign_blocks(struct ddp *ddp)
{
	size_t world = (size_t)ddp->plan.world, all = ddp->block_start[ddp->table->count], count;

	for (int rank = 0; rank < ddp->plan.world && !ddp->cuts; rank++)
		ddp->runs[ddp->run_count++] = (struct ddp_blocks) { rank, all * (size_t)rank / world,
			all * ((size_t)rank + 1) / world };
	for (int i = ddp->heads; i < ddp->bucket_count && ddp->cuts; i++)
		for (int position = 0; position < ddp->plan.world; position++) {
			size_t first = ddp_segment(&ddp->buckets[i], ddp->plan.world, position, &count);

			ddp->runs[ddp->run_count++] = (struct ddp_blocks) { ddp->nodes.owner[position],
				blocks_before(ddp, first), blocks_before(ddp, first + count) };
		}
}

/* Number of blocks of the rank that has most. */
static size_t most_blocks(const struct ddp *ddp)
{
	size_t most = 0;

	for (int rank = 0; rank < ddp->plan.world; rank++) {
		size_t blocks = 0;

		for (size_t i = 0; i < ddp->run_count; i++)
			blocks += ddp->runs[i].rank == rank ? ddp->runs[i].end - ddp->runs[i].begin : 0;
		most = blocks > most ? blocks : most;
	}
	return most;
}

/* Gives each bucket's job this rank's blocks in it, which are summed together with its segment. */
static void place_blocks(struct ddp *ddp)
{
	double *sums = ddp->figures + ddp->slots_max;

	for (size_t i = 0; i < ddp->run_count && ddp->segmented; i++) {
		struct ddp_job *job = &ddp->jobs[(size_t)ddp->heads + i / (size_t)ddp->plan.world];

		if (ddp->runs[i].rank != ddp->plan.rank)
			continue;
		job->blocks = &ddp->runs[i];
		job->sums = sums;
		sums += job->blocks->end - job->blocks->begin;
	}
}

int ddp_control_prepare(struct ddp *ddp, struct err *err)
{
	const struct tensor_table *table = ddp->table;
	int most;

	ddp->block_start = calloc((size_t)table->count + 1, sizeof *ddp->block_start);
	ddp->runs = calloc((size_t)ddp->plan.world * (size_t)(ddp->cuts ? ddp->bucket_count : 1),
		sizeof *ddp->runs);
	ddp->cursors = calloc((size_t)ddp->plan.world, sizeof *ddp->cursors);
	ddp->hashes = calloc((size_t)ddp->plan.world, sizeof *ddp->hashes);
	if (!ddp->block_start || !ddp->runs || !ddp->cursors || !ddp->hashes)
		return err_set(err, "ddp: couldn't prepare the control message: out of memory");
	for (int i = 0; i < table->count; i++)
		ddp->block_start[i + 1] =
			ddp->block_start[i] + (table->rows[i].count + NORM_BLOCK - 1) / NORM_BLOCK;
	tree_rank_slots(ddp->plan.slots, ddp->plan.world, 0, &most);
	ddp->slots_max = (size_t)most;
	assign_blocks(ddp);
	ddp->blocks_max = most_blocks(ddp);
	ddp->message_bytes =
		sizeof(struct ddp_control) + ddp->slots_max * sizeof *ddp->valid + figures_bytes(ddp);
	ddp->messages = calloc((size_t)ddp->plan.world, ddp->message_bytes);
	if (!ddp->messages)
		return err_set(err, "ddp: couldn't prepare the control message: out of memory");
	ddp->own_message = message_of(ddp, comm_rank(ddp->comm));
	ddp->valid = valid_of(ddp, ddp->own_message);
	ddp->figures = device_has_memory(ddp->device)
		? ddp->device->alloc(ddp->device, figures_bytes(ddp))
		: losses_of(ddp, ddp->own_message);
	if (!ddp->figures)
		return err_set(err, "ddp: couldn't prepare the control message: out of memory");
	place_blocks(ddp);
	return 0;
}

/* Folds faults, stop signals and rank 0's save flag. */
static void fold_flags(struct ddp *ddp, struct ddp_result *result)
{
	result->fault_rank = -1;
	result->save = control_of(ddp, message_of(ddp, 0))->save;
	for (int rank = 0; rank < ddp->plan.world; rank++) {
		const struct ddp_control *control = control_of(ddp, message_of(ddp, rank));

		if (control->fault && !result->fault) {
			result->fault = control->fault;
			result->fault_rank = rank;
		}
		result->stop = control->stop > result->stop ? control->stop : result->stop;
	}
}

static void fold_waits(struct ddp *ddp, struct ddp_result *result)
{
	for (int rank = 0; rank < ddp->plan.world; rank++) {
		const struct ddp_waited waited = { control_of(ddp, message_of(ddp, rank))->waited, rank };

		if (rank == 0 || waited.seconds > result->waited_most.seconds)
			result->waited_most = waited;
		if (rank == 0 || waited.seconds < result->waited_least.seconds)
			result->waited_least = waited;
	}
}

static uint64_t weights_of(const struct ddp *ddp, int rank)
{
	return control_of(ddp, message_of(ddp, rank))->weights_hash;
}

/* Number of ranks that have this hash. */
static int with_weights(const struct ddp *ddp, uint64_t hash)
{
	int count = 0;

	for (int rank = 0; rank < ddp->plan.world; rank++)
		count += weights_of(ddp, rank) == hash;
	return count;
}

/* The hash that most ranks have; of several such, the lowest rank's. */
static uint64_t common_weights(const struct ddp *ddp, int *most)
{
	uint64_t best = weights_of(ddp, 0);

	*most = with_weights(ddp, best);
	for (int rank = 1; rank < ddp->plan.world && *most < ddp->plan.world - rank; rank++) {
		int same = with_weights(ddp, weights_of(ddp, rank));

		if (same > *most) {
			*most = same;
			best = weights_of(ddp, rank);
		}
	}
	return best;
}

/* A list of ranks for messages. */
struct names {
	char *out; /* [DDP_NAMES] */
	int count;
};

__attribute__((format(printf, 2, 3))) static void add_text(struct names *names, const char *format,
	...)
{
	size_t used = strlen(names->out);
	va_list args;

	va_start(args, format);
	vsnprintf(names->out + used, DDP_NAMES - used, format, args);
	va_end(args);
}

/* Cuts node names, so that a remark after the list has room. */
static void add_name(struct names *names, const struct ddp *ddp, int rank)
{
	if (names->count++ < NAMED)
		add_text(names, "%s%.64s", names->count > 1 ? ", " : "", comm_peer(ddp->comm, rank));
}

static void end_names(struct names *names)
{
	if (names->count > NAMED)
		add_text(names, " and %d more", names->count - NAMED);
}

static void fold_weights(struct ddp *ddp, struct ddp_result *result)
{
	struct names names = { result->drifted, 0 };
	int most, world = ddp->plan.world;
	uint64_t hash = common_weights(ddp, &most);

	for (int rank = 0; rank < world && most < world; rank++) {
		if (weights_of(ddp, rank) == hash)
			continue;
		result->drift_here |= rank == comm_rank(ddp->comm);
		add_name(&names, ddp, rank);
	}
	end_names(&names);
	if (2 * most <= world)
		add_text(&names, " (or the others: no more than half of the ranks agree)");
}

static uint64_t samples_of(const struct ddp *ddp, int rank)
{
	return control_of(ddp, message_of(ddp, rank))->sample_hash;
}

static int compare_hashes(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Whether two ranks told the same hash other than 0. Sorts them, since this runs in every step of
 * any number of ranks. */
static bool have_twins(struct ddp *ddp)
{
	int world = ddp->plan.world;

	for (int rank = 0; rank < world; rank++)
		ddp->hashes[rank] = samples_of(ddp, rank);
	qsort(ddp->hashes, (size_t)world, sizeof *ddp->hashes, compare_hashes);
	for (int i = 1; i < world; i++)
		if (ddp->hashes[i] && ddp->hashes[i] == ddp->hashes[i - 1])
			return true;
	return false;
}

static bool has_twin(const struct ddp *ddp, int rank)
{
	for (int other = 0; other < ddp->plan.world; other++)
		if (other != rank && samples_of(ddp, rank)
			&& samples_of(ddp, other) == samples_of(ddp, rank))
			return true;
	return false;
}

/* Finds ranks that read the same samples: each sample must be read once in a step, by one rank. */
static void fold_samples(struct ddp *ddp, struct ddp_result *result)
{
	struct names names = { result->same_samples, 0 };

	for (int rank = 0; rank < ddp->plan.world; rank++)
		result->sample_hash += samples_of(ddp, rank);
	if (!have_twins(ddp))
		return;
	for (int rank = 0; rank < ddp->plan.world; rank++)
		if (has_twin(ddp, rank))
			add_name(&names, ddp, rank);
	end_names(&names);
	if (names.count == ddp->plan.world)
		add_text(&names, " (all ranks)");
}

/* Adds the sums in block order. The first block that is not finite belongs to the first tensor with
 * a value that is not finite. */
static void fold_blocks(struct ddp *ddp, struct ddp_result *result)
{
	double squares = 0;
	int tensor = 0;

	memset(ddp->cursors, 0, (size_t)ddp->plan.world * sizeof *ddp->cursors);
	for (size_t i = 0; i < ddp->run_count; i++) {
		const struct ddp_blocks *run = &ddp->runs[i];
		const double *blocks = blocks_of(ddp, message_at(ddp, run->rank));

		for (size_t block = run->begin; block < run->end; block++) {
			double sum = blocks[ddp->cursors[run->rank]++];

			while (ddp->block_start[tensor + 1] <= block)
				tensor++;
			if (!isfinite(sum) && result->nonfinite < 0)
				result->nonfinite = tensor;
			squares += sum;
		}
	}
	result->norm = sqrt(squares);
}

/* Each place has consecutive slots, in their order, so this adds them in slot order. */
static void fold_losses(struct ddp *ddp, struct ddp_result *result)
{
	double loss = 0;

	for (int place = 0; place < ddp->plan.world; place++) {
		const int64_t *valid = valid_of(ddp, message_at(ddp, place));
		const double *losses = losses_of(ddp, message_at(ddp, place));
		int slot_count;

		tree_rank_slots(ddp->plan.slots, ddp->plan.world, place, &slot_count);
		for (int i = 0; i < slot_count; i++) {
			loss += losses[i];
			result->valid += valid[i];
		}
	}
	result->loss = result->valid ? loss / (double)result->valid : 0;
}

static int cross_check(struct ddp *ddp, struct err *err)
{
	const struct ddp_control *first = control_of(ddp, message_of(ddp, 0));

	for (int rank = 1; rank < ddp->plan.world; rank++) {
		const struct ddp_control *control = control_of(ddp, message_of(ddp, rank));

		if (control->step != first->step)
			return err_set(err,
				"ddp: couldn't finish step %" PRIu64 ": rank 0 is at step %" PRIu64
				" and rank %d at step %" PRIu64,
				ddp->step, first->step, rank, control->step);
	}
	return 0;
}

/* With segments the message goes as a reduction, so that it travels beside the last bucket's sums;
 * but not from many ranks, each of which would send as many messages. */
static comm_ticket queue_control(struct ddp *ddp, const char *label)
{
	const int world = ddp->plan.world, rank = comm_rank(ddp->comm);
	int count = 0;

	if (!ddp->segmented || world > COMM_DIRECT)
		return comm_allgather(ddp->comm, label, ddp->own_message, ddp->messages,
			ddp->message_bytes);
	for (int step = 1; step < world; step++) {
		int to = (rank + step) % world, from = (rank - step + world) % world;

		ddp->transfers[count++] =
			(struct comm_transfer) { to, ddp->own_message, ddp->message_bytes, 0 };
		ddp->transfers[count++] =
			(struct comm_transfer) { from, message_of(ddp, from), ddp->message_bytes, 1 };
	}
	return comm_reduce(ddp->comm, label,
		&(struct comm_reduction) { .pieces = ddp->transfers, .piece_count = count });
}

/* Waits for the operation that was queued last. */
static int await_last(struct ddp *ddp, struct ddp_result *result, struct err *err)
{
	double begun = clock_now();
	int rc = comm_wait(ddp->comm, ddp->last, err);

	result->exposed += clock_now() - begun;
	return rc;
}

/* Where no rank sums by segments: waits for the reduction, and then adds a split embedding, and the
 * squares, as a whole. */
static int sum_whole(struct ddp *ddp, struct ddp_result *result, struct err *err)
{
	if (ddp->segmented)
		return 0;
	int rc = await_last(ddp, result, err);
	ddp->settled = true;
	if (rc < 0)
		return -1;
	ddp_join_split(ddp, 0, ddp->table->elements);
	ddp_sum_all_blocks(ddp);
	return 0;
}

/* Copies all that the host needs of the device's step at once. This is where a step waits for the
 * device. */
static int fetch_figures(struct ddp *ddp, struct ddp_result *result, struct err *err)
{
	if (!device_has_memory(ddp->device))
		return 0;
	if (ddp->segmented && await_last(ddp, result, err) < 0)
		return -1;
	ddp->device->copy_out(ddp->device, losses_of(ddp, ddp->own_message), ddp->figures,
		figures_bytes(ddp));
	return device_check(ddp->device, err);
}

int ddp_finish(struct ddp *ddp, const struct ddp_control *mine, struct ddp_result *result,
	struct err *err)
{
	char label[64];

	*result = (struct ddp_result) { .fault_rank = -1, .nonfinite = -1 };
	if (ddp->ended != ddp->plan.count && !mine->fault)
		return err_set(err, "ddp: couldn't finish the step: %d of this rank's %d slots have ended",
			ddp->ended, ddp->plan.count);
	/* A faulty rank takes part all the same, or the others would wait for it. */
	ddp_launch_rest(ddp);
	result->exposed = ddp->waited;
	*control_of(ddp, ddp->own_message) = *mine;
	if (sum_whole(ddp, result, err) < 0 || fetch_figures(ddp, result, err) < 0)
		return -1;
	comm_place(ddp->comm, ddp->step, -1);
	snprintf(label, sizeof label, "control of step %" PRIu64, ddp->step);
	ddp->last = queue_control(ddp, label);
	int rc = await_last(ddp, result, err);
	ddp->settled = true;
	if (rc < 0)
		return -1;
	ddp->whole = ddp->last_allgather; /* the weights came before it, even where a faulty rank never
										 waited for them */
	fold_flags(ddp, result);
	if (result->fault)
		return 0;
	fold_losses(ddp, result);
	fold_blocks(ddp, result);
	fold_weights(ddp, result);
	fold_samples(ddp, result);
	fold_waits(ddp, result);
	return cross_check(ddp, err);
}
