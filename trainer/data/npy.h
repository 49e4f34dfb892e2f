/* SPDX-License-Identifier: Apache-2.0 */
/* The header of NumPy's .npy files, versions 1.0 and 2.0
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). */
#ifndef MUSTER_NPY_H
#define MUSTER_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NPY_DIMS 8

enum npy_type { NPY_FLOAT32, NPY_UINT8, NPY_INT32, NPY_INT64 };

struct npy {
	enum npy_type type;
	int dims; /* 0 for a scalar */
	uint64_t shape[NPY_DIMS];
	size_t offset; /* of the first element, in bytes; not aligned in old files */
};

/* Parses the header at the start of a whole file of `size` bytes. Accepts only little-endian
 * elements in C order that fill the rest of the file exactly. `name` is for messages; status
 * EXIT_DATA. */
int npy_parse(const unsigned char *bytes, size_t size, const char *name, struct npy *npy,
	struct err *err);

/* "float32" and so on; and the bytes of an element. */
const char *npy_type_name(enum npy_type type);
size_t npy_type_size(enum npy_type type);

#endif
