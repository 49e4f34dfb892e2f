/* SPDX-License-Identifier: Apache-2.0 */
/* Token files as a data set: sample i is the tokens from i·positions on, and one more token as the
 * last target. */
#include "common/bytes.h"
#include "trainer/data/dataset.h"
#include "trainer/data/dataset_private.h"
#include "trainer/data/file_list.h"
#include "trainer/data/token_file.h"

static int open_shard(struct dataset *dataset, struct dataset_shard *shard, const char *path,
	struct err *err)
{
	struct token_file file;
	uint64_t positions = (uint64_t)dataset->positions;
	if (mapping_open(&shard->files[0], path, err) < 0)
		return -1;
	if (token_file_parse(shard->files[0].bytes, shard->files[0].size, path, &file, err) < 0)
		return -1;
	if (file.tokens < positions + 1)
		return err_fail(err, EXIT_DATA,
			"data: couldn't use %s: its %llu tokens are too few for one sample of %d and the token "
			"after it: give a longer file, or a smaller --context",
			path, (unsigned long long)file.tokens, dataset->positions);
	shard->headers[0] = file.offset;
	shard->width = file.width;
	shard->samples = (file.tokens - 1) / positions;
	dataset->tokens += file.tokens;
	return 0;
}

static int open_files(struct dataset *dataset, const struct file_list *files, struct err *err)
{
	for (size_t i = 0; i < files->count; i++)
		if (open_shard(dataset, &dataset->shards[i], files->paths[i], err) < 0)
			return -1;
	return dataset_complete(dataset, err);
}

struct dataset *dataset_open_tokens(const char *data, int positions, struct err *err)
{
	struct file_list files;
	if (positions < 1) {
		err_set(err, "data: a sample of %d tokens is none", positions);
		return NULL;
	}
	if (file_list_make(&files, data, err) < 0)
		return NULL;
	struct dataset *dataset = dataset_create(data, files.count, 1, err);
	if (dataset)
		dataset->positions = positions;
	if (dataset && open_files(dataset, &files, err) < 0) {
		dataset_close(dataset);
		dataset = NULL;
	}
	file_list_clear(&files);
	return dataset;
}

static int refuse_token(const struct dataset_shard *shard, uint64_t sample, int place,
	uint32_t token, int vocabulary, struct err *err)
{
	return err_fail(err, EXIT_DATA,
		"data: token %u of sample %llu (place %d) in %s is out of the vocabulary of %d: give the "
		"data "
		"whose tokens the model has, or a model with a larger --vocabulary",
		token, (unsigned long long)sample, place, shard->files[0].path, vocabulary);
}

static uint32_t token_at(const unsigned char *tokens, int width, size_t i)
{
	return width == 4 ? bytes_le32(tokens + 4 * i) : bytes_le16(tokens + 2 * i);
}

int dataset_read_tokens(const struct dataset *dataset, const struct dataset_shard *shard,
	uint64_t sample, int vocabulary, struct batch *batch, int row, struct err *err)
{
	const int positions = dataset->positions, width = shard->width;
	const unsigned char *at =
		shard->files[0].bytes + shard->headers[0] + (uint64_t)width * sample * (uint64_t)positions;
	int32_t *tokens = batch->tokens + (size_t)row * (size_t)positions;
	int32_t *targets = batch->targets + (size_t)row * (size_t)positions;
	uint32_t token = token_at(at, width, 0);
	for (int i = 0; i < positions; i++) {
		if (token >= (uint32_t)vocabulary)
			return refuse_token(shard, sample, i, token, vocabulary, err);
		tokens[i] = (int32_t)token;
		token = token_at(at, width, (size_t)i + 1);
		targets[i] = (int32_t)token;
	}
	return token >= (uint32_t)vocabulary
		? refuse_token(shard, sample, positions, token, vocabulary, err)
		: 0;
}
