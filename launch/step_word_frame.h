/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks send each other about their words (doc/step-word.md), as bytes. */
#ifndef MUSTER_STEP_WORD_FRAME_H
#define MUSTER_STEP_WORD_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#define STEP_WORD_FRAME 28 /* bytes */

enum step_word_kind {
	STEP_WORD_SUM = 1, /* up: of the sender and those below it; down: of all ranks */
	STEP_WORD_WAITS,   /* the word of `rank` is waited for */
	STEP_WORD_LEFT,    /* `rank` has left */
	STEP_WORD_DATA,    /* up: `flags` bytes of `rank` follow */
	STEP_WORD_GOT      /* down: rank 0 has those of all ranks */
};

struct step_word_frame {
	enum step_word_kind kind;
	uint64_t step, flags;
	int rank; /* -1, only in a sum: none has set a flag */
};

void step_word_frame_write(unsigned char bytes[STEP_WORD_FRAME],
	const struct step_word_frame *frame);

/* False if it is malformed. */
bool step_word_frame_read(const unsigned char bytes[STEP_WORD_FRAME], int world_size,
	struct step_word_frame *frame);

#endif
