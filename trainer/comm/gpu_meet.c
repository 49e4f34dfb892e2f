/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank puts its word, all meet at one fence, and each gets the words of all. */
#include "trainer/comm/gpu_meet.h"

#include <stdlib.h>
#include <string.h>

#include <stdio.h>

#include "common/auto.h"
#include "trainer/comm/status_exchange.h"

#define KEY "device"
#define GET_SECONDS 5.0 /* enough for what was put before the fence */

static int judge_failures(const struct gpu_word *words, int world_size, struct err *err)
{
	for (int rank = 0; rank < world_size; rank++)
		if (words[rank].status)
			return err_fail(err, (enum exit_status)words[rank].status, "rank %d on %s: %s", rank,
				words[rank].node, words[rank].text);
	return 0;
}

static int judge_kinds(const struct gpu_word *words, int world_size, struct err *err)
{
	for (int rank = 1; rank < world_size; rank++) {
		if (!words[rank].on_gpu == !words[0].on_gpu)
			continue;
		int with = words[rank].on_gpu ? rank : 0, without = rank - with;
		return err_fail(err, EXIT_USAGE,
			"device: rank %d on %s has a GPU (%s), and rank %d on %s sees none: give each its own "
			"by --gpus-per-task=1, or compute on the CPU by --device cpu",
			with, words[with].node, words[with].name, without, words[without].node);
	}
	return 0;
}

static int judge_twins(const struct gpu_word *words, int world_size, struct err *err)
{
	char uuid[GPU_UUID_TEXT];
	for (int rank = 1; rank < world_size && words[0].on_gpu; rank++)
		for (int other = 0; other < rank; other++)
			if (memcmp(words[rank].uuid, words[other].uuid, GPU_UUID_BYTES) == 0)
				return err_fail(err, EXIT_USAGE,
					"device: ranks %d and %d on %s have the same GPU, %s (%s): start as many tasks "
					"a node as it has GPUs, each with its own by --gpus-per-task=1, or let them "
					"share one, slowly, by --share-gpu",
					other, rank, words[rank].node, gpu_uuid_text(words[rank].uuid, uuid),
					words[rank].name);
	return 0;
}

int gpu_judge(const struct gpu_word *words, int world_size, bool share, struct err *err)
{
	if (judge_failures(words, world_size, err) < 0 || judge_kinds(words, world_size, err) < 0)
		return -1;
	return share ? 0 : judge_twins(words, world_size, err);
}

static void say(struct gpu_word *word, const struct ident *ident, const struct gpu *gpu, int rc,
	const struct err *err)
{
	*word = (struct gpu_word) { .status = rc < 0 ? (int32_t)err->status : 0, .on_gpu = rc == 0 };
	snprintf(word->node, sizeof word->node, "%.63s", ident->node);
	if (rc < 0)
		memcpy(word->text, err->text, sizeof word->text);
	if (rc == 0) {
		memcpy(word->uuid, gpu->uuid, sizeof word->uuid);
		memcpy(word->name, gpu->name, sizeof word->name);
	}
}

static int hear(struct rdzv *rdzv, int rank, struct gpu_word *word, struct err *err)
{
	AUTO_FREE void *value = NULL;
	size_t size;
	if (rdzv_get(rdzv, rank, KEY, &value, &size, GET_SECONDS, err) < 0)
		return err_fail(err, EXIT_USAGE,
			"device: this rank's node has a CUDA driver, and rank %d said nothing of a GPU, as "
			"where there is no driver: choose nodes that are alike, or compute on the CPU by "
			"--device cpu",
			rank);
	if (size != sizeof *word)
		return err_set(err,
			"device: rank %d told %zu bytes instead of %zu: start all ranks with the same program",
			rank, size, sizeof *word);
	memcpy(word, value, sizeof *word);
	word->node[sizeof word->node - 1] = word->name[sizeof word->name - 1] =
		word->text[sizeof word->text - 1] = '\0';
	return 0;
}

int gpu_meet(struct rdzv *rdzv, const struct ident *ident, const struct gpu *gpu, int rc,
	bool share, struct err *err)
{
	struct gpu_word mine;
	AUTO_FREE struct gpu_word *words = calloc((size_t)ident->world_size, sizeof *words);
	if (!words)
		return err_set(err, "device: out of memory");
	say(&mine, ident, gpu, rc, err);
	if (rdzv_put(rdzv, KEY, &mine, sizeof mine, err) < 0 || rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	for (int rank = 0; rank < ident->world_size; rank++)
		if (hear(rdzv, rank, &words[rank], err) < 0)
			return -1;
	return gpu_judge(words, ident->world_size, share, err) < 0 ? ERR_SHARED : 0;
}
