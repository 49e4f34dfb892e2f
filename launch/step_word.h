/* SPDX-License-Identifier: Apache-2.0 */
/* A word of each rank after each step, and what all ranks' words of a step come to
 * (doc/step-word.md): nobody waits for the others' words of this step, only of the one before, so
 * no two ranks are more than a step apart. A tree of TCP connections; one thread a rank moves the
 * words. */
#ifndef MUSTER_STEP_WORD_H
#define MUSTER_STEP_WORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/err.h"

#define STEP_WORD_DATA_MOST ((uint64_t)16 << 20) /* bytes that a rank gives to a gathering */
#define STEP_WORD_FANOUT 32                      /* ranks that a rank has below it */

/* The rank above; -1: none, this is rank 0. */
static inline int step_word_parent(int rank)
{
	return rank > 0 ? (rank - 1) / STEP_WORD_FANOUT : -1;
}

struct step_word;

/* What the words of one step come to. */
struct step_word_sum {
	uint64_t flags; /* all ranks' together */
	int rank;       /* the lowest one that has set any; -1: none has */
};

/* How a wait ended. */
enum step_word_end {
	STEP_WORD_HEARD, /* all ranks have said theirs */
	STEP_WORD_LATE,  /* at the deadline; *rank is one that has not, or -1: not known */
	STEP_WORD_LOST   /* *rank has left */
};

/* Listens on this node's address, given in digits. NULL on error. */
struct step_word *step_word_open(int rank, int world_size, const char *address, struct err *err);

/* The line by which ranks below find this rank; borrowed. */
const char *step_word_place(const struct step_word *word);

/* Starts the thread, which connects to the rank above (rank 0: `place` is NULL) and waits for those
 * below. Once. */
int step_word_begin(struct step_word *word, const char *place, struct err *err);

/* Waits until this rank is connected with the rank above, which from then on hears of its end.
 * False at the deadline. */
bool step_word_connected(struct step_word *word, struct deadline deadline);

/* Says this rank's word of the next step, the first being 0. Only after a wait for the step before
 * the last one was heard. Never waits. */
void step_word_say(struct step_word *word, uint64_t flags);

/* Waits until all ranks have said their word of `step`, one of the last two that this rank said. */
enum step_word_end step_word_wait(struct step_word *word, uint64_t step, struct deadline deadline,
	struct step_word_sum *sum, int *rank);

/* What a rank gave; the caller's, freed by free(). */
struct step_word_data {
	struct step_word_data *next; /* for the owner of lists */
	uint64_t size;
	int rank;
	unsigned char bytes[];
};

/* Gives `size` bytes of this rank, at most STEP_WORD_DATA_MOST, to the gathering after those that
 * this rank took part in before. -1 when out of memory. */
int step_word_give(struct step_word *word, const void *bytes, uint64_t size, struct err *err);

/* Waits until rank 0 has what all ranks gave. On rank 0 *all becomes an array of it by rank, to be
 * freed with its elements; elsewhere NULL. */
enum step_word_end step_word_gathered(struct step_word *word, struct deadline deadline,
	struct step_word_data ***all, int *rank);

/* Ends the connections, which the others take for a loss unless they have heard all words that they
 * wait for. Never waits for another rank. NULL is allowed. */
void step_word_close(struct step_word *word);

#endif
