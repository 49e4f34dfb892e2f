/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks tell whether they save, since which rank is the first of its node can't be calculated
 * by others. */
#include "config.h"
#include "lib/writers.h"

#include <stdlib.h>

#include "common/auto.h"
#include "lib/muster_private.h"

/* Rank 0 always saves: it owns the directory. */
static char is_writer(const struct ident *ident, enum muster_writers choice)
{
	return ident->rank == 0 || choice == MUSTER_WRITERS_ALL
		|| (choice == MUSTER_WRITERS_NODE && ident->local_rank == 0);
}

static void number(struct writers *writers, const char *saves)
{
	for (int rank = 0; rank < writers->ranks; rank++)
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): without memory nobody comes here */
		writers->part_of[rank] = saves[rank] ? writers->parts++ : -1;
	writers->part = writers->part_of[writers->rank];
}

int writers_meet(struct muster *muster, int status, enum muster_writers choice, double timeout,
	struct writers *writers)
{
	const struct ident *ident = &muster->ident;
	const char mine = is_writer(ident, choice);
	struct err err;
	AUTO_FREE char *saves = calloc((size_t)ident->world_size, 1);
	*writers = (struct writers) { .part_of = calloc((size_t)ident->world_size, sizeof(int)),
		.ranks = ident->world_size,
		.rank = ident->rank,
		.sharers = choice == MUSTER_WRITERS_ALL ? ident->local_world_size : 1 };
	if (status == MUSTER_OK && (!saves || !writers->part_of)) {
		err_set(&err, "checkpoint: out of memory");
		status = muster_failed(&err);
	}
	status = status ? muster_agree(muster, status, NULL, timeout)
					: muster_allgather(muster, &mine, saves, 1, timeout);
	if (status == MUSTER_OK)
		number(writers, saves);
	else
		writers_release(writers);
	return status;
}

void writers_release(struct writers *writers)
{
	free(writers->part_of);
	*writers = (struct writers) { 0 };
}

int writers_part(const struct writers *writers, int rank)
{
	if (!writers->part_of)
		return rank == writers->rank ? 0 : -1;
	return rank >= 0 && rank < writers->ranks ? writers->part_of[rank] : -1;
}
