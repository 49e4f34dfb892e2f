/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation of struct ops with operands that say what they are, for tests that run all of
 * them: on what values, which of them it writes, and how large they are. */
#ifndef MUSTER_TESTS_OP_CASES_H
#define MUSTER_TESTS_OP_CASES_H

#include "trainer/ops/ops.h"

enum operand_kind {
	OPERAND_ELEMENTS, /* in the compute type */
	OPERAND_FLOATS,   /* fp32 always */
	OPERAND_TOKENS,   /* int32 below V */
	OPERAND_TARGETS,  /* the same, one in eight -1 */
	OPERAND_DOUBLES,  /* fp64 */
	OPERAND_CHUNKS,   /* struct adamw_chunk: all P elements, the second half of the chunks of a
						 parameter that decays */
};

enum operand_role {
	OPERAND_IN,
	OPERAND_OUT,
	OPERAND_BOTH,    /* read and written: it begins anew before each run */
	OPERAND_DERIVED, /* an input that the case makes of the others */
};

/* A shape is one letter a dimension: B T C H V as in ops.h, M = B·T, Q = 3·C, F = hidden, K N =
 * those of the case, R = rows of a chunk of the head, P = parameters of a model, S = their blocks
 * of the norm, X = their chunks, W = rows of a padded vocabulary, and the number 2. */
struct operand {
	const char *name;
	enum operand_role role;
	enum operand_kind kind;
	const char *shape;
	float scale, middle; /* values are in middle ± scale */
	const char *room;    /* NULL, or the shape with rows of zeros after it */
};

struct op_sizes {
	int B, T, C, H, V, F;
	size_t P;
	int K, N; /* of the case */
};

#define OP_OPERANDS 12

typedef void op_call(struct ops *ops, float *const *p, const struct op_sizes *s);

struct op_case {
	const char *name;
	size_t function;   /* its place in struct ops */
	op_call *run;      /* p[i] is operand i */
	char depth, width; /* K and N of a matrix product, as letters; whether tf32 rounds it */
	op_call *derive;
	struct operand operands[OP_OPERANDS]; /* as many as have a name */
};

extern const struct op_case op_cases[];
extern const size_t op_case_count;

size_t op_elements(const char *shape, const struct op_sizes *sizes);
/* The sizes with K and N of the case. */
struct op_sizes op_sizes_of(const struct op_case *op, const struct op_sizes *sizes);
/* Whether these ops have it: what is optional is NULL. */
bool op_is_there(const struct op_case *op, const struct ops *ops);

#endif
