/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a frame. */
#include "launch/step_word_frame.h"

#include <string.h>

#include "common/bytes.h"
#include "launch/step_word.h"

#define MAGIC "MSW1"
#define KIND_AT 4
#define STEP_AT 8
#define FLAGS_AT 16
#define RANK_AT 24

void step_word_frame_write(unsigned char bytes[STEP_WORD_FRAME],
	const struct step_word_frame *frame)
{
	memcpy(bytes, MAGIC, KIND_AT);
	bytes_put_le32(bytes + KIND_AT, (uint32_t)frame->kind);
	bytes_put_le64(bytes + STEP_AT, frame->step);
	bytes_put_le64(bytes + FLAGS_AT, frame->flags);
	bytes_put_le32(bytes + RANK_AT, (uint32_t)frame->rank);
}

bool step_word_frame_read(const unsigned char bytes[STEP_WORD_FRAME], int world_size,
	struct step_word_frame *frame)
{
	uint32_t kind = bytes_le32(bytes + KIND_AT), rank = bytes_le32(bytes + RANK_AT);
	if (memcmp(bytes, MAGIC, KIND_AT) != 0 || kind < STEP_WORD_SUM || kind > STEP_WORD_GOT
		|| (kind == STEP_WORD_DATA && bytes_le64(bytes + FLAGS_AT) > STEP_WORD_DATA_MOST)
		|| (rank >= (uint32_t)world_size && (rank != UINT32_MAX || kind != STEP_WORD_SUM)))
		return false;
	*frame = (struct step_word_frame) { (enum step_word_kind)kind, bytes_le64(bytes + STEP_AT),
		bytes_le64(bytes + FLAGS_AT), rank == UINT32_MAX ? -1 : (int)rank };
	return true;
}
