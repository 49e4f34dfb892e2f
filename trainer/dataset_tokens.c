/* SPDX-License-Identifier: Apache-2.0 */
/* Token files as a data set: sample i is the tokens from i·positions on, and one more as the last target. */
#include "common/bytes.h"
#include "trainer/dataset.h"
#include "trainer/dataset_private.h"
#include "trainer/token_file.h"

static int open_file(struct dataset *dataset, const char *path, int positions, struct err *err)
{
	struct token_file file;
	if (positions < 1)
		return err_set(err, "data: a sample of %d tokens is none", positions);
	if (mapping_open(&dataset->files[0], path, err) < 0)
		return -1;
	if (token_file_parse(dataset->files[0].bytes, dataset->files[0].size, path, &file, err) < 0)
		return -1;
	if (file.tokens < (uint64_t)positions + 1)
		return err_fail(err, EXIT_DATA, "data: couldn't use %s: its %llu tokens are too few for one sample of %d and the "
			"token after it", path, (unsigned long long)file.tokens, positions);
	dataset->file_count = 1;
	dataset->headers[0] = file.offset;
	dataset->tokens = file.tokens;
	dataset->positions = positions;
	dataset->samples = (file.tokens - 1) / (uint64_t)positions;
	return dataset_identify(dataset, err);
}

struct dataset *dataset_open_tokens(const char *path, int positions, struct err *err)
{
	struct dataset *dataset = dataset_create(err);
	if (dataset && open_file(dataset, path, positions, err) < 0) {
		dataset_close(dataset);
		return NULL;
	}
	return dataset;
}

static int refuse_token(const struct dataset *dataset, uint64_t sample, int place, int token, int vocabulary,
	struct err *err)
{
	return err_fail(err, EXIT_DATA, "data: token %d of sample %llu (place %d) in %s is out of the vocabulary of %d; choose "
		"a larger vocabulary or the file that belongs to this one", token, (unsigned long long)sample, place,
		dataset->files[0].path, vocabulary);
}

int dataset_read_tokens(const struct dataset *dataset, uint64_t sample, int vocabulary, struct batch *batch, int row,
	struct err *err)
{
	int positions = dataset->positions;
	const unsigned char *at = dataset->files[0].bytes + dataset->headers[0] + 2 * sample * (uint64_t)positions;
	int32_t *tokens = batch->tokens + (size_t)row * (size_t)positions;
	int32_t *targets = batch->targets + (size_t)row * (size_t)positions;
	int32_t token = bytes_le16(at);
	for (int i = 0; i < positions; i++) {
		if (token >= vocabulary)
			return refuse_token(dataset, sample, i, token, vocabulary, err);
		tokens[i] = token;
		token = bytes_le16(at + 2 * ((size_t)i + 1));
		targets[i] = token;
	}
	return token >= vocabulary ? refuse_token(dataset, sample, positions, token, vocabulary, err) : 0;
}
