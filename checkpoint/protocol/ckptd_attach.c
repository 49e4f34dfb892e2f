/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/protocol/ckptd_attach.h"

#include <stdbool.h>

int ckptd_attach_check(const struct ckptd_attach *attach, struct err *err)
{
	bool listens = attach->parts > 1 && attach->part == 0;
	if (attach->part >= attach->parts)
		return err_fail(err, EXIT_DATA, "\"part\" is none of the parts");
	if (listens != !!attach->host || listens != !!attach->secret
		|| (attach->part > 0) != !!attach->first)
		return err_fail(err, EXIT_DATA,
			"\"host\" and \"secret\" are part 0's of several, and \"first\" is the others'");
	return 0;
}

void ckptd_attach_describe(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory)
{
	attach->attempt = snapshot->attempt;
	attach->world_size = snapshot->world_size;
	attach->seed = snapshot->seed;
	attach->part = snapshot->part;
	attach->parts = snapshot->parts > 0 ? snapshot->parts : 1;
	attach->shard_size = (int64_t)snapshot->shard_size;
	attach->buffers = memory->buffers;
	attach->buffer_bytes = (int64_t)memory->bytes;
}
