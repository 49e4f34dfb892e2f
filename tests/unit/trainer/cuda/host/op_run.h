/* SPDX-License-Identifier: Apache-2.0 */
/* A case of the operations (op_cases.h) with its operands in the memory of some ops, the CPU's or
 * the GPU's. What fails here fails the test. */
#ifndef MUSTER_TESTS_OP_RUN_H
#define MUSTER_TESTS_OP_RUN_H

#include "tests/unit/trainer/cuda/host/op_cases.h"

struct op_run {
	const struct op_case *op;
	struct ops *ops;
	struct op_sizes sizes;
	float *at[OP_OPERANDS];      /* operands, as ops take them */
	float *initial[OP_OPERANDS]; /* of those that are read and written; else NULL */
};

/* Operands with the values of `seed`, rounded to what elements of `element` bytes hold. What the
 * case derives is that of `model`, or where this is NULL made by these ops. Ended by op_run_end. */
void op_run_begin(struct op_run *run, struct ops *ops, const struct op_case *op,
	const struct op_sizes *sizes, uint32_t seed, size_t element, const struct op_run *model);
void op_run_end(struct op_run *run);

/* Poisons what is written (bytes of 0xff), restores what is read and written, and calls the
 * operation; waits for nothing. */
void op_run_once(struct op_run *run);

int op_run_operands(const struct op_run *run);
/* Whether the operation writes operand i. */
bool op_run_writes(const struct op_run *run, int i);
size_t op_run_bytes(const struct op_run *run, int i);

/* Operand i as floats, with the rows after it, malloc'ed; *count is how many are its own, *room
 * how many there are. */
float *op_run_read(const struct op_run *run, int i, size_t *count, size_t *room);

/* The largest of ||out - reference|| / ||reference|| over what the operation writes, and whose it
 * is; HUGE_VAL where an element is no number, or one after the operand is not zero. */
double op_run_distance(const struct op_run *run, const struct op_run *reference,
	const char **worst);

/* Makes ops ready for these sizes, with the numbers of some step. */
void op_run_prepare(struct ops *ops, const struct op_sizes *sizes);

#endif
