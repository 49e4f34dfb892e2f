/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the .npy parser: what it accepts lies within the file, and what it refuses
 * has its one line. */
#include <stdlib.h>
#include <string.h>

#include "trainer/data/npy.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct npy npy;
	struct err err = { .text = "" };
	if (npy_parse(bytes, size, "the-file", &npy, &err) < 0) {
		if (err.status != EXIT_DATA || !strstr(err.text, "the-file") || strchr(err.text, '\n'))
			abort();
		return 0;
	}
	uint64_t elements = 1;
	if (npy.dims < 0 || npy.dims > NPY_DIMS || npy.offset > size)
		abort();
	for (int i = 0; i < npy.dims; i++)
		elements *= npy.shape[i];
	if (elements * npy_type_size(npy.type) != size - npy.offset)
		abort();
	return 0;
}
