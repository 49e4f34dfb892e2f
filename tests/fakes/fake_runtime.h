/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA runtime on the host, as far as the GPU's ops and the communicator call it: linked
 * instead of the real one, beside kernels that run on the host. Streams finish what they are given
 * at once, unless they are told to be late (fake_stream.h). */
#ifndef MUSTER_TESTS_FAKE_RUNTIME_H
#define MUSTER_TESTS_FAKE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/fakes/fake_stream.h"

/* What it is to do, and what it has seen. */
struct fake_runtime {
	int devices;     /* that there are; 0: one */
	size_t most;     /* bytes of memory that it has; 0: any */
	size_t taken;    /* of these, what is another's once cudaMemGetInfo has been called */
	int copies_fail; /* cudaError_t of every copy; 0: none */
	long fail_at; /* the number of the kernel or copy that fails with `failure` when a stream comes
				   * to it; 0: none. What comes after it does not run, and a wait, a launch or a
				   * copy returns the error. */
	int failure;  /* cudaError_t */
	long works;   /* kernels and copies that streams have come to */
	size_t used, peak;    /* bytes that are allocated, */
	size_t pinned;        /* and of these, what is the host's */
	int streams;          /* alive */
	int events;           /* alive */
	int allocations;      /* so far */
	int waits;            /* of the host for a stream */
	int awaits;           /* of a stream for an event */
	bool deaf;            /* planted fault: streams don't wait for events */
	int graphs;           /* alive */
	int replays;          /* of graphs */
	double now;           /* milliseconds of its clock, which goes on as a test says */
	int copies_fail_late; /* cudaError_t that copies come to when it is their turn, and all calls
							 from then on; 0: none */
	int waits_fail;       /* cudaError_t of a stream's wait for an event; 0: none */
	double copy_time;     /* milliseconds of its clock that each copy takes */
	int unready;          /* for this many questions more, no event is ready */
	int registers_fail;   /* cudaError_t of memory that is to be pinned; 0: none */
	int registers_left;   /* with it: this many pieces are pinned before it fails */
	size_t registered;    /* bytes that are pinned */
};

extern struct fake_runtime fake_runtime;

/* All is as at the start, once all memory and streams are given back. */
void fake_runtime_reset(void);

#endif
