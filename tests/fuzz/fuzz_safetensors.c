/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the safetensors header: what it accepts fills the file without a hole and
 * encodes again, and what it refuses has its one line. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format/safetensors.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check(struct safetensors *file, size_t size)
{
	uint64_t at = 0;
	for (size_t i = 0; i < file->count; i++) {
		const struct safetensors_tensor *tensor = &file->tensors[i];
		uint64_t elements;
		if (safetensors_elements(tensor->shape, tensor->dims, &elements) < 0 || tensor->begin != at
			|| (tensor->end - tensor->begin) * 8
				!= elements * safetensors_dtype_bits(tensor->dtype))
			abort();
		at = tensor->end;
	}
	if (file->data_size != at || file->data_start + at != size)
		abort();
}

static void check_again(struct safetensors *file)
{
	char *prefix;
	size_t prefix_size;
	uint64_t data_size;
	struct err err;
	if (safetensors_encode(file->tensors, file->count, file->notes, file->note_count, &prefix,
			&prefix_size, &data_size, &err)
			< 0
		|| data_size != file->data_size)
		abort();
	struct safetensors *again =
		safetensors_parse(prefix, prefix_size, prefix_size + data_size, &err);
	if (!again || again->count != file->count || again->note_count != file->note_count)
		abort();
	safetensors_destroy(again);
	free(prefix);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct err err = { .text = "" };
	struct safetensors *file = safetensors_parse(bytes, size, size, &err);
	if (file) {
		check(file, size);
		check_again(file);
	} else if (err.status != EXIT_DATA || !err.text[0] || strchr(err.text, '\n')) {
		abort();
	}
	safetensors_destroy(file);
	return 0;
}
