/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the reader after the hashes: a checkpoint whose headers come from outside
 * while every hash is right. It is refused with one line, or every element of every tensor and of
 * its optimizer state can be read. The input: four 16-bit sizes (of the model's header, its data,
 * another file's header, its data) and the two headers. The other file is the optimizer's, or the
 * state's where the input goes on. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/load/ckpt.h"
#include "common/hash.h"
#include "common/io.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

#define FOLDER "step-00000001"

static void write_file(const char *name, const void *bytes, size_t size)
{
	char path[200];
	snprintf(path, sizeof path, FOLDER "/%s", name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || io_write_full(fd, bytes, size) < 0 || close(fd) < 0)
		abort();
}

/* A shard with this header and so much data, as a file and in the manifest. */
static void add_shard(struct manifest *manifest, const char *name, enum manifest_role role,
	const unsigned char *header, size_t header_size, size_t data_size)
{
	size_t size = 8 + header_size + data_size;
	unsigned char *bytes = malloc(size);
	uint64_t length = header_size;
	struct manifest_file *file = manifest_add_file(manifest, name, role, size);
	memcpy(bytes, &length, 8);
	memcpy(bytes + 8, header, header_size);
	for (size_t i = 0; i < data_size; i++)
		bytes[8 + header_size + i] = (unsigned char)(i * 7);
	file->hash = file->chunks[0] = hash_bytes(bytes, size);
	write_file(name, bytes, size);
	free(bytes);
}

static void write_manifest(const struct manifest *manifest)
{
	char *text;
	size_t size;
	struct err err;
	if (manifest_encode(manifest, &text, &size, &err) < 0)
		abort();
	write_file(MANIFEST_NAME, text, size);
	free(text);
}

static void read_all(struct ckpt *ckpt)
{
	struct err err;
	if (ckpt_verify(ckpt, &err) < 0)
		abort();
	for (size_t i = 0; i < ckpt_tensor_total(ckpt); i++) {
		const struct safetensors_tensor *tensor = ckpt_tensor_at(ckpt, i);
		uint64_t elements;
		if (ckpt_tensor_find(ckpt, tensor->name) != tensor
			|| safetensors_elements(tensor->shape, tensor->dims, &elements) < 0)
			abort();
		char *out = malloc((size_t)elements * sizeof(float) + 8 * (size_t)elements + 1);
		if (safetensors_dtype_bits(tensor->dtype) % 8 == 0
			&& ckpt_read_tensor(ckpt, tensor->name, 0, elements, out, &err) < 0)
			abort();
		/* A tensor has its whole state, or none of it. */
		int none = elements > 0
			&& ckpt_read_state(ckpt, SNAPSHOT_MASTER, tensor->name, 0, 1, (float *)out, &err) < 0;
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			if (!none
				&& ckpt_read_state(ckpt, (enum snapshot_state)s, tensor->name, 0, elements,
					   (float *)out, &err)
					< 0)
				abort();
		free(out);
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct fuzz_input input = { bytes, size };
	const unsigned char *header[2];
	size_t header_size[2], data_size[2];
	struct ckpt_dir dir = { open(".", O_RDONLY | O_DIRECTORY), "." };
	struct manifest *manifest = manifest_create();
	mkdir(FOLDER, 0755);
	for (int i = 0; i < 2; i++) {
		header_size[i] = fuzz_take_size(&input);
		data_size[i] = fuzz_take_size(&input) % 512;
	}
	for (int i = 0; i < 2; i++)
		header_size[i] = fuzz_take(&input, &header[i], header_size[i]);
	manifest->step = manifest->world_size = 1;
	memset(manifest->token, 'a', sizeof manifest->token - 1);
	manifest->config = json_pack("{s:{}, s:{}, s:{}}", "identity", "schedule", "operation");
	manifest->numerics = json_object();
	add_shard(manifest, "model", MANIFEST_MODEL, header[0], header_size[0], data_size[0]);
	if (header_size[1] > 0)
		add_shard(manifest, "other", input.left > 0 ? MANIFEST_STATE : MANIFEST_OPTIMIZER,
			header[1], header_size[1], data_size[1]);
	write_manifest(manifest);
	struct ckpt *ckpt;
	struct err err = { .text = "" };
	int result = ckpt_open(&dir, 1, 0, &ckpt, &err);
	if (result == 0) {
		read_all(ckpt);
		ckpt_close(ckpt);
	} else if (result != CKPT_DAMAGED || err.status != EXIT_DATA || !err.text[0]
		|| strchr(err.text, '\n')) {
		abort();
	}
	manifest_destroy(manifest);
	close(dir.fd);
	return 0;
}
