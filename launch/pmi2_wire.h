/* SPDX-License-Identifier: Apache-2.0 */
/* The client side of PMI 2.0's wire protocol: requests and answers on the socket that the launcher
 * gave this process (PMI_FD). libpmi2 implements it too, but waits for ever; here every call has a
 * deadline.
 *
 * The protocol is https://wiki.mpich.org/mpich/index.php/PMI_v2_Wire_Protocol, as Slurm's
 * src/plugins/mpi/pmi2 serves it. After one line in the style of PMI 1, each message is its length
 * in six characters, padded with blanks on the right, and then as many characters of
 * "cmd=NAME;KEY=VALUE;…". A value can't contain ';'. Requests are answered in order, except a
 * fence: its answer comes when all ranks have asked for it, even between answers to later
 * requests. */
#ifndef MUSTER_PMI2_WIRE_H
#define MUSTER_PMI2_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/clock.h"
#include "common/err.h"

struct pmi2_wire {
	int fd;
	bool lost; /* closed, or an answer was late or malformed: nothing more is sent or read */
	enum { PMI2_NO_FENCE, PMI2_FENCE_ASKED, PMI2_FENCE_OVER } fence;
	int fence_rc;
	char head[7];          /* of the message that is arriving or has arrived */
	char *body;            /* ends with a NUL */
	size_t length, filled; /* of the body; how much of head and body has arrived */
};

/* Errors have status EXIT_LOST unless stated otherwise. Errors of the connection itself set
 * `lost`. */

/* Says hello. `fd` stays the caller's. Status EXIT_USAGE if the server has already served a program
 * of this task. The caller ends it with pmi2_wire_clear, even after an error. */
int pmi2_wire_open(struct pmi2_wire *wire, int fd, struct deadline deadline, struct err *err);

/* Sends a request that has no answer, or whose answer is read separately. `request` begins with
 * "cmd=". */
int pmi2_wire_send(struct pmi2_wire *wire, struct deadline deadline, struct err *err,
	const char *request, ...) __attribute__((format(printf, 4, 5)));

/* Sends a request "cmd=NAME;…" and waits for its answer, which must be the command NAME-response
 * with rc=0. The answer's fields can be read until the next call. If the server refuses, the
 * connection stays usable. */
int pmi2_wire_ask(struct pmi2_wire *wire, struct deadline deadline, struct err *err,
	const char *request, ...) __attribute__((format(printf, 4, 5)));

/* Asks for a fence, unless one is in progress, and waits for it. Returns 1 when it is over, 0 when
 * the deadline passes first (the caller may wait again, and ask for other things meanwhile), -1 on
 * error. */
int pmi2_wire_fence(struct pmi2_wire *wire, struct deadline deadline, struct err *err);

/* The value of a field of the last answer, not terminated; NULL if there is none. */
const char *pmi2_wire_field(const struct pmi2_wire *wire, const char *name, size_t *size);

/* The same as a number; -1 if it is not a number from 0 to `most`. */
long pmi2_wire_number(const struct pmi2_wire *wire, const char *name, long most);

/* The same as malloc'ed text; NULL if there is none, or the answer says found=FALSE. */
char *pmi2_wire_text(const struct pmi2_wire *wire, const char *name);

void pmi2_wire_clear(struct pmi2_wire *wire);

/* The node, from 0, on which a rank runs according to PMI_process_mapping: "(vector,(FIRST
 * NODE,NODES,RANKS ON EACH),…)". -1 if the mapping is malformed up to there or has no such rank. */
long pmi2_map_node(const char *map, long rank);

#endif
