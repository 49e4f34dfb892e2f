/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/trainer/comm/summing.h"

#include <stdlib.h>

#include "tests/unit/trainer/comm/world_fixture.h"

uint64_t number_of(int from, int segment, size_t at)
{
	return (uint64_t)(from + 1) * 1000003 + (uint64_t)segment * 101 + at;
}

int add_run(void *arg, size_t first, size_t bytes, struct err *err)
{
	struct summing *s = arg;

	WORLD_CHECK(
		first == s->made * sizeof *s->numbers && bytes > 0 && bytes % sizeof *s->numbers == 0);
	for (size_t end = s->made + bytes / sizeof *s->numbers; s->made < end; s->made++)
		for (int from = 0; from < s->world; from++)
			if (from != s->me)
				s->numbers[(size_t)s->me * s->size + s->made] +=
					s->received[(size_t)from * s->size + s->made];
	return 0;
}

comm_ticket queue_sums(struct comm *comm, struct summing *s, const char *label,
	comm_prepare *prepare, comm_add *add)
{
	struct comm_transfer pieces[2 * WORLD_MAX], sums[2 * WORLD_MAX];
	size_t bytes = s->size * sizeof *s->numbers;
	uint64_t *own = s->numbers + (size_t)s->me * s->size;
	int count = 0;

	for (int peer = 0; peer < s->world; peer++) {
		uint64_t *theirs = s->numbers + (size_t)peer * s->size;

		if (peer == s->me)
			continue;
		pieces[count] = (struct comm_transfer) { peer, theirs, bytes, 0 };
		sums[count++] = (struct comm_transfer) { peer, own, bytes, 0 };
		pieces[count] =
			(struct comm_transfer) { peer, s->received + (size_t)peer * s->size, bytes, 1 };
		sums[count++] = (struct comm_transfer) { peer, theirs, bytes, 1 };
	}
	return comm_reduce(comm, label,
		&(struct comm_reduction) { .pieces = pieces,
			.piece_count = count,
			.sums = sums,
			.sum_count = count,
			.prepare = prepare,
			.add = add,
			.arg = s });
}

struct summing make_summing(struct comm *comm, size_t size)
{
	struct summing s = { .world = comm_size(comm), .me = comm_rank(comm), .size = size };
	size_t all = (size_t)s.world * size;

	s.numbers = malloc(all * sizeof *s.numbers + 1);
	s.received = malloc(all * sizeof *s.received + 1);
	for (size_t i = 0; i < all; i++)
		s.numbers[i] = number_of(s.me, (int)(i / size), i % size);
	return s;
}

int verify_sums(const struct summing *s, struct err *err)
{
	WORLD_CHECK(s->made == (s->world > 1 ? s->size : 0));
	for (size_t at = 0; s->world > 1 && at < (size_t)s->world * s->size; at++) {
		uint64_t sum = 0;
		for (int from = 0; from < s->world; from++)
			sum += number_of(from, (int)(at / s->size), at % s->size);
		WORLD_CHECK(s->numbers[at] == sum);
	}
	return 0;
}
