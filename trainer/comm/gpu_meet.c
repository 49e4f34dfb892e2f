/* SPDX-License-Identifier: Apache-2.0 */
/* One status exchange, whose data is the rank's device; then the comparison. */
#include "trainer/comm/gpu_meet.h"

#include <string.h>

#include "trainer/comm/status_exchange.h"

#define KEY "device"
#define GET_SECONDS 5.0 /* enough for what was put before the fence */

static const struct gpu_word *gpu_of(const struct rank_status *words, int rank)
{
	return (const void *)words[rank].data;
}

static int judge_words(const struct rank_status *words, int world_size, struct err *err)
{
	for (int rank = 0; rank < world_size; rank++) {
		if (!words[rank].data)
			return err_fail(err, EXIT_USAGE,
				"device: this rank's node has a CUDA driver, and rank %d said nothing of a GPU, as "
				"where there is no driver: choose nodes that are alike, or compute on the CPU by "
				"--device cpu",
				rank);
		if (!words[rank].status && words[rank].size != sizeof(struct gpu_word))
			return err_set(err,
				"device: rank %d told %zu bytes instead of %zu: start all ranks with the same "
				"program",
				rank, words[rank].size, sizeof(struct gpu_word));
	}
	return 0;
}

static int judge_kinds(const struct rank_status *words, int world_size, struct err *err)
{
	for (int rank = 1; rank < world_size; rank++) {
		if (gpu_of(words, rank)->on_gpu == gpu_of(words, 0)->on_gpu)
			continue;
		int with = gpu_of(words, rank)->on_gpu ? rank : 0, without = rank - with;
		return err_fail(err, EXIT_USAGE,
			"device: rank %d on %s has a GPU (%s), and rank %d on %s sees none: give each its own "
			"by --gpus-per-task=1, or compute on the CPU by --device cpu",
			with, words[with].node, gpu_of(words, with)->name, without, words[without].node);
	}
	return 0;
}

static int judge_twins(const struct rank_status *words, int world_size, struct err *err)
{
	char uuid[GPU_UUID_TEXT];
	for (int rank = 1; rank < world_size && gpu_of(words, 0)->on_gpu; rank++)
		for (int other = 0; other < rank; other++)
			if (memcmp(gpu_of(words, rank)->uuid, gpu_of(words, other)->uuid, GPU_UUID_BYTES) == 0)
				return err_fail(err, EXIT_USAGE,
					"device: ranks %d and %d on %s have the same GPU, %s (%s): start as many tasks "
					"a node as it has GPUs, each with its own by --gpus-per-task=1, or let them "
					"share one, slowly, by --share-gpu",
					other, rank, words[rank].node, gpu_uuid_text(gpu_of(words, rank)->uuid, uuid),
					gpu_of(words, rank)->name);
	return 0;
}

int gpu_judge(const struct rank_status *words, int world_size, bool share, struct err *err)
{
	if (judge_words(words, world_size, err) < 0)
		return -1;
	int rc = status_share(words, world_size, false, err);
	if (rc == 0
		&& (judge_kinds(words, world_size, err) < 0
			|| (!share && judge_twins(words, world_size, err) < 0)))
		rc = ERR_SHARED;
	return rc;
}

int gpu_meet(struct rdzv *rdzv, const struct ident *ident, const struct gpu *gpu, int rc,
	bool share, struct err *err)
{
	struct err failure;
	struct gpu_word mine = { .on_gpu = rc == 0 };
	const struct rank_status_own own = { .failure = rc < 0 ? &failure : NULL,
		.data = &mine,
		.size = sizeof mine,
		.patience = GET_SECONDS };
	if (rc < 0)
		failure = *err;
	if (mine.on_gpu) {
		memcpy(mine.uuid, gpu->uuid, sizeof mine.uuid);
		memcpy(mine.name, gpu->name, sizeof mine.name);
	}
	struct rank_status *words = rank_status_exchange(rdzv, ident, KEY, &own, 0, err);
	if (!words)
		return -1;
	rc = gpu_judge(words, ident->world_size, share, err);
	rank_statuses_free(words, ident->world_size);
	return rc;
}
