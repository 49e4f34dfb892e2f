/* SPDX-License-Identifier: Apache-2.0 */
/* A sum over ranks, for tests of the communicator: what each rank brings, how it is queued, and
 * what must come out. */
#ifndef MUSTER_TESTS_SUMMING_H
#define MUSTER_TESTS_SUMMING_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/comm/comm.h"

/* Each rank has a number for every element of every rank's segment; its own segment it sums,
 * others' sums come where their numbers were. */
struct summing {
	int world, me;
	size_t size;        /* elements of a segment */
	uint64_t *numbers;  /* [world · size] */
	uint64_t *received; /* [world · size] by rank; the own place is empty */
	size_t made;        /* elements so far */
};

/* Rank `from`'s number for an element of a segment. */
uint64_t number_of(int from, int segment, size_t at);

/* `numbers` and `received` are malloc'ed, and the caller's. */
struct summing make_summing(struct comm *comm, size_t size);
comm_ticket queue_sums(struct comm *comm, struct summing *s, const char *label,
	comm_prepare *prepare, comm_add *add);
/* The comm_add of such a sum: its runs must come in order. */
int add_run(void *arg, size_t first, size_t bytes, struct err *err);
int verify_sums(const struct summing *s, struct err *err);

#endif
