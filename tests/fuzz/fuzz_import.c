/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the models from elsewhere: what is opened has all its tensors, and what is
 * refused has its one line. The input: a byte for the kind (a file of llm.c, a directory with one
 * shard, one with an index), three 16-bit sizes (of config.json, of the index, of what the file has
 * after the rest of the input), config.json, the index, and the file: of llm.c as it is, of a
 * shard its header. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/convert/model_source.h"
#include "common/io.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

enum kind { LLMC, ONE_SHARD, INDEXED, KINDS };

/* The bytes, after their length if `measured`, and `more` zeros. */
static void write_file(const char *path, const void *bytes, size_t size, bool measured, size_t more)
{
	static const char zeros[65536];
	uint64_t length = size;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || (measured && io_write_full(fd, &length, sizeof length) < 0)
		|| io_write_full(fd, bytes, size) < 0 || io_write_full(fd, zeros, more) < 0
		|| close(fd) < 0)
		abort();
}

static void read_all(struct model_source *source)
{
	struct gpt2_tensor *tensors;
	size_t count;
	struct err err;
	if (gpt2_tensors(&source->config, &tensors, &count, &err) < 0)
		abort();
	for (size_t i = 0; i < count; i++) {
		float *out = malloc((size_t)tensors[i].elements * sizeof *out);
		if (source->read(source, &tensors[i], out, &err) < 0)
			abort();
		free(out);
	}
	free(tensors);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	static const char *const paths[KINDS] = { "model.bin", "one", "indexed" };
	struct fuzz_input input = { bytes, size };
	const unsigned char *kind_byte, *config, *index;
	enum kind kind = fuzz_take(&input, &kind_byte, 1) ? kind_byte[0] % KINDS : LLMC;
	size_t config_size = fuzz_take_size(&input), index_size = fuzz_take_size(&input),
		   more = fuzz_take_size(&input) % 32768;
	config_size = fuzz_take(&input, &config, config_size);
	index_size = fuzz_take(&input, &index, index_size);
	mkdir("one", 0755);
	mkdir("indexed", 0755);
	if (kind == LLMC) {
		write_file("model.bin", input.at, input.left, false, more);
	} else if (kind == ONE_SHARD) {
		write_file("one/config.json", config, config_size, false, 0);
		write_file("one/model.safetensors", input.at, input.left, true, more);
	} else {
		write_file("indexed/config.json", config, config_size, false, 0);
		write_file("indexed/model.safetensors.index.json", index, index_size, false, 0);
		write_file("indexed/a", input.at, input.left, true, more);
	}
	struct err err = { .text = "" };
	struct model_source *source = model_source_open(paths[kind], &err);
	if (source) {
		read_all(source);
		source->close(source);
	} else if (err.status != EXIT_DATA || !err.text[0] || strchr(err.text, '\n')) {
		abort();
	}
	return 0;
}
