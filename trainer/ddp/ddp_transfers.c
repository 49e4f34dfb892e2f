/* SPDX-License-Identifier: Apache-2.0 */
/* Who sends what to whom in each exchange of a reduction. In all of them each part of the world
 * begins with the part after it, so that no rank is sent to by all at once. */
#include "trainer/ddp/ddp_private.h"

static void add_transfer(struct ddp *ddp, int *count, int peer, float *at, size_t elements,
	int receive)
{
	ddp->transfers[(*count)++] =
		(struct comm_transfer) { ddp->nodes.rank[peer], at, elements * sizeof *at, receive };
}

/* Adds transfers of an arena's elements [first, first + elements), or of those that are no other
 * rows than parameters. */
static void add_run(struct ddp *ddp, int *count, int peer, float *arena, size_t first,
	size_t elements, bool parameters, int receive)
{
	size_t end = first + elements;

	for (int i = 0; parameters && i < ddp->table->count; i++) {
		const struct tensor *row = &ddp->table->rows[i];

		if (row->role == TENSOR_PARAMETER || row->offset + row->count <= first
			|| row->offset >= end)
			continue;
		if (row->offset > first)
			add_transfer(ddp, count, peer, arena + first, row->offset - first, receive);
		first = row->offset + row->count;
	}
	if (first < end)
		add_transfer(ddp, count, peer, arena + first, end - first, receive);
}

/* Whether a part's piece is one of those that travel with `ended`. */
static bool is_due(const struct ddp_stage *stage, int part, int number, int ended)
{
	return ddp_is_early(stage, part, number) ? stage->after[number] == ended : ended == LAST_PIECES;
}

/* Adds this part's pieces of elements [first, first + elements) to those that `peer` gets. */
static void send_pieces(struct ddp *ddp, const struct ddp_stage *stage,
	const struct ddp_bucket *bucket, int ended, int *count, int peer, size_t first, size_t elements)
{
	for (int number = stage->piece_start[stage->self]; number < stage->piece_start[stage->self + 1];
		 number++)
		if (is_due(stage, stage->self, number, ended))
			add_transfer(ddp, count, peer,
				ddp_piece_at(ddp, stage, bucket, stage->self, number, first), elements, 0);
}

static void receive_pieces(struct ddp *ddp, const struct ddp_stage *stage,
	const struct ddp_bucket *bucket, int ended, int *count, int part, int peer, size_t first,
	size_t elements)
{
	for (int number = stage->piece_start[part]; number < stage->piece_start[part + 1]; number++)
		if (is_due(stage, part, number, ended))
			add_transfer(ddp, count, peer, ddp_piece_at(ddp, stage, bucket, part, number, first),
				elements, 1);
}

/* Returns the next rank after `rank` (-1: before the first) on a node whose segment this rank
 * carries; -1: there is none. */
static int next_owner(const struct ddp *ddp, int node, int rank)
{
	const struct ddp_nodes *nodes = &ddp->nodes;
	int first, end;

	ddp_nodes_carried(nodes, ddp->plan.rank, &first, &end);
	for (rank = rank < 0 ? nodes->begin[node] : rank + 1; rank < nodes->begin[node + 1]; rank++)
		if (nodes->position[rank] >= first && nodes->position[rank] < end)
			return rank;
	return -1;
}

/* The part to which this one sends in a turn, and the one from which it receives. */
static int to_in(const struct ddp_stage *stage, int turn)
{
	return (stage->self + turn) % stage->parts;
}

static int from_in(const struct ddp_stage *stage, int turn)
{
	return (stage->self - turn + stage->parts) % stage->parts;
}

int ddp_add_pieces_on_node(struct ddp *ddp, const struct ddp_bucket *bucket, int ended)
{
	const struct ddp_stage *stage = &ddp->on_node;
	int begin = ddp->nodes.begin[ddp->between.self], count = 0;
	size_t own_count, peer_count, own = ddp_carried(ddp, bucket, ddp->plan.rank, &own_count);

	for (int turn = 1; turn < stage->parts; turn++) {
		int to = to_in(stage, turn), from = from_in(stage, turn);
		size_t theirs = ddp_carried(ddp, bucket, begin + to, &peer_count);

		send_pieces(ddp, stage, bucket, ended, &count, begin + to, theirs, peer_count);
		receive_pieces(ddp, stage, bucket, ended, &count, from, begin + from, own, own_count);
	}
	return count;
}

int ddp_add_pieces_between(struct ddp *ddp, const struct ddp_bucket *bucket, int ended)
{
	const struct ddp_stage *stage = &ddp->between;
	int column = ddp_nodes_column(&ddp->nodes, ddp->plan.rank), count = 0;
	size_t own_count, peer_count, own = ddp_owned(ddp, bucket, ddp->plan.rank, &own_count);

	for (int turn = 1; turn < stage->parts; turn++) {
		int to = to_in(stage, turn), from = from_in(stage, turn);

		for (int rank = -1; (rank = next_owner(ddp, to, rank)) >= 0;) {
			size_t theirs = ddp_owned(ddp, bucket, rank, &peer_count);

			send_pieces(ddp, stage, bucket, ended, &count, rank, theirs, peer_count);
		}
		receive_pieces(ddp, stage, bucket, ended, &count, from,
			ddp_nodes_carrier(&ddp->nodes, from, column), own, own_count);
	}
	return count;
}

int ddp_add_owned(struct ddp *ddp, const struct ddp_bucket *bucket, float *arena, bool parameters,
	int begin)
{
	const struct ddp_stage *stage = &ddp->between;
	int column = ddp_nodes_column(&ddp->nodes, ddp->plan.rank), count = begin;
	size_t own_count, peer_count, own = ddp_owned(ddp, bucket, ddp->plan.rank, &own_count);

	for (int turn = 1; turn < stage->parts; turn++) {
		int to = to_in(stage, turn), from = from_in(stage, turn);

		add_run(ddp, &count, ddp_nodes_carrier(&ddp->nodes, to, column), arena, own, own_count,
			parameters, 0);
		for (int rank = -1; (rank = next_owner(ddp, from, rank)) >= 0;) {
			size_t theirs = ddp_owned(ddp, bucket, rank, &peer_count);

			add_run(ddp, &count, rank, arena, theirs, peer_count, parameters, 1);
		}
	}
	return count;
}

int ddp_add_carried(struct ddp *ddp, const struct ddp_bucket *bucket, float *arena, bool parameters)
{
	const struct ddp_stage *stage = &ddp->on_node;
	int begin = ddp->nodes.begin[ddp->between.self], count = 0;
	size_t own_count, peer_count, own = ddp_carried(ddp, bucket, ddp->plan.rank, &own_count);

	for (int turn = 1; turn < stage->parts; turn++) {
		int to = begin + to_in(stage, turn), from = begin + from_in(stage, turn);
		size_t theirs = ddp_carried(ddp, bucket, from, &peer_count);

		add_run(ddp, &count, to, arena, own, own_count, parameters, 0);
		add_run(ddp, &count, from, arena, theirs, peer_count, parameters, 1);
	}
	return count;
}
