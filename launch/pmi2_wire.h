/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the wire protocol of PMI 2.0: requests and answers on the socket that the
 * launcher has given to this process (PMI_FD). libpmi2 speaks it too, but waits for ever; here each
 * call has a deadline.
 *
 * The protocol is https://wiki.mpich.org/mpich/index.php/PMI_v2_Wire_Protocol, as Slurm's
 * src/plugins/mpi/pmi2 serves it: after one line in the style of PMI 1, each message is its length
 * in six characters, padded with blanks behind, and then that many of "cmd=NAME;KEY=VALUE;…". A ';'
 * can't be part of a value. A request is answered in order, but for a fence: its answer comes when
 * all ranks have asked for it, also between those to later requests. */
#ifndef MUSTER_PMI2_WIRE_H
#define MUSTER_PMI2_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/clock.h"
#include "common/err.h"

struct pmi2_wire {
	int fd;
	bool lost; /* closed, or an answer is overdue or was none: nothing more is sent or read */
	enum { PMI2_NO_FENCE, PMI2_FENCE_ASKED, PMI2_FENCE_OVER } fence;
	int fence_rc;
	char head[7];          /* of the message that is arriving, or has arrived */
	char *body;            /* ends with a NUL */
	size_t length, filled; /* of the body; what is there of head and body */
};

/* All errors have the status EXIT_LOST but where another is said, and those of the connection
 * itself set `lost`. */

/* Says hello. `fd` stays the caller's. Where the server has already served a program of this task:
 * status EXIT_USAGE. The caller ends it with pmi2_wire_clear, also after an error. */
int pmi2_wire_open(struct pmi2_wire *wire, int fd, struct deadline deadline, struct err *err);

/* Sends a request that has no answer, or one that is read by other means. `request` begins with
 * "cmd=". */
int pmi2_wire_send(struct pmi2_wire *wire, struct deadline deadline, struct err *err,
	const char *request, ...) __attribute__((format(printf, 4, 5)));

/* Sends a request and waits for its answer, which has to be the command NAME-response for
 * "cmd=NAME;…" and say rc=0. The answer's fields can be read until the next call. A server that
 * refuses leaves the connection as it was. */
int pmi2_wire_ask(struct pmi2_wire *wire, struct deadline deadline, struct err *err,
	const char *request, ...) __attribute__((format(printf, 4, 5)));

/* Asks for a fence, unless one is under way, and waits for it. Returns 1 when it is over, 0 when
 * the deadline passes first (it may be waited for again, and others be asked meanwhile), -1 on
 * error. */
int pmi2_wire_fence(struct pmi2_wire *wire, struct deadline deadline, struct err *err);

/* The value of a field of the last answer, not terminated; NULL when there is none. */
const char *pmi2_wire_field(const struct pmi2_wire *wire, const char *name, size_t *size);

/* The same as a number; -1 when it is none from 0 to `most`. */
long pmi2_wire_number(const struct pmi2_wire *wire, const char *name, long most);

/* The same as a malloc'ed text; NULL when there is none, or the answer says found=FALSE. */
char *pmi2_wire_text(const struct pmi2_wire *wire, const char *name);

void pmi2_wire_clear(struct pmi2_wire *wire);

/* The node, counted from 0, on which a rank runs by PMI_process_mapping: "(vector,(FIRST
 * NODE,NODES,RANKS ON EACH),…)". -1 when the mapping is malformed up to there, or has no such rank.
 */
long pmi2_map_node(const char *map, long rank);

#endif
