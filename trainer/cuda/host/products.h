/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix products of a training on the GPU and the algorithm that was chosen for each: the library has many for every shape, and
 * each adds in an order of its own. So they are chosen once, by rank 0 before the first step, and stay those of the run. The text form
 * travels to the other ranks and stands in every checkpoint (doc/products-format.md). */
#ifndef MUSTER_PRODUCTS_H
#define MUSTER_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "trainer/ops/ops.h"

enum product_type { PRODUCT_FP32, PRODUCT_BF16 };
enum product_mode { PRODUCT_MODE_FP32, PRODUCT_MODE_TF32, PRODUCT_MODE_BF16 }; /* --precision */

/* What is made of the sums before they are written. */
enum product_epilogue {
	PRODUCT_PLAIN,
	PRODUCT_BIAS,      /* + bias[N] */
	PRODUCT_BIAS_GELU, /* keeps the sums with the bias, then GELU in its tanh form */
	PRODUCT_BIAS_RELU,
	PRODUCT_GELU_GRAD, /* times GELU'(what was kept) */
	PRODUCT_BIAS_GRAD, /* writes the sums of W over `depth`, too */
};

/* D[rows, columns] = or += X · W over `depth`, all row-major. X is [rows, depth], or [depth, rows] with x_transposed; W is
 * [depth, columns], or [columns, depth] with w_transposed. X and W have the type `in`, D, bias and what is kept `out`. */
struct product {
	int rows, columns, depth;
	bool x_transposed, w_transposed;
	enum product_type in, out;
	enum product_epilogue epilogue;
	bool adds;
};

#define PRODUCT_WORDS 8 /* of what the library calls an algorithm */
#define PRODUCTS_MAX 1024
#define PRODUCTS_WORKSPACE ((size_t)32 << 20)

struct product_choice {
	struct product product;
	bool none;                          /* no algorithm of the library: ours does the epilogue */
	uint64_t algorithm[PRODUCT_WORDS];  /* as the library gave it; zeros for none */
	uint64_t workspace;                 /* bytes that it uses, at most PRODUCTS_WORKSPACE */
};

/* The choices of a run. */
struct products {
	uint64_t library;                   /* version of cuBLASLt: 130001 */
	enum product_mode mode;
	char card[128];                     /* for which they were made, such as "NVIDIA H200" */
	struct product_choice *rows;        /* each product once */
	size_t count;
};

/* The products that a model of these shapes has: gpt2 where there are heads, else mlp. Returns how many, at most `most`. */
size_t products_of(const struct ops_shapes *shapes, enum product_mode mode, struct product *out, size_t most);

bool product_equal(const struct product *a, const struct product *b);
/* NULL: not chosen. Valid until the next products_add. */
const struct product_choice *products_find(const struct products *products, const struct product *product);
/* -1 when out of memory, or when there are PRODUCTS_MAX. */
int products_add(struct products *products, const struct product_choice *choice, struct err *err);
void products_clear(struct products *products);

/* "8192 x 2304 over 768, nn, bf16 to bf16, bias", for messages; returns `out`. */
char *product_text(const struct product *product, char *out, size_t size);

/* One line, malloc'ed; NULL when out of memory. */
char *products_encode(const struct products *products);
/* *products is zeroed or what is read, for products_clear. EXIT_DATA with the place where the text is malformed. */
int products_decode(const char *text, struct products *products, struct err *err);
/* Whether what was chosen at an earlier attempt can be used again: 0, or -1 with the line that says what is different. */
int products_fit(const struct products *products, uint64_t library, enum product_mode mode, const char *card, struct err *err);

#endif
