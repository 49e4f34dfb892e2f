/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks give to rank 0 in a gathering: its pieces on their way up, and those that have come.
 */
#ifndef MUSTER_STEP_WORD_DATA_H
#define MUSTER_STEP_WORD_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/step_word.h"

/* NULL when out of memory. */
struct step_word_data *step_word_data_make(int rank, uint64_t size);

/* Pieces that are sent one after the other, each with its frame. All zeros: none. */
struct step_word_queue {
	struct step_word_data *first;
	size_t sent; /* of the first, with its frame */
};

/* Takes ownership of the piece. */
void step_word_queue_add(struct step_word_queue *queue, struct step_word_data *data);
void step_word_queue_clear(struct step_word_queue *queue);

/* Whether the first piece is sent in part: nothing else may be sent now. */
static inline bool step_word_queue_is_under_way(const struct step_word_queue *queue)
{
	return queue->sent > 0;
}

/* Sends what the socket takes. 1: all is sent; 0: the rest later; -1: the connection has ended. */
int step_word_queue_send(struct step_word_queue *queue, int fd);

/* On rank 0: what has come of one gathering. All zeros: nothing. */
struct step_word_inbox {
	struct step_word_data **pieces; /* by rank */
	int count;
};

/* Takes ownership of the piece. False: there is one of that rank already, or no memory. */
bool step_word_inbox_add(struct step_word_inbox *inbox, int world_size,
	struct step_word_data *data);

/* The lowest rank that nothing has come of; -1: none. */
int step_word_inbox_missing(const struct step_word_inbox *inbox, int world_size);
void step_word_inbox_clear(struct step_word_inbox *inbox, int world_size);

#endif
