/* SPDX-License-Identifier: Apache-2.0 */
/* A token file, or several of at most so many tokens each (shards), written as one stream. All get
 * their names at the end. */
#ifndef MUSTER_TOKEN_SHARDS_H
#define MUSTER_TOKEN_SHARDS_H

#include "trainer/data/token_writer.h"

struct token_shards;

/* `most`: tokens of a shard; 0: all tokens go into one file, `path`. The shards of train.bin are
 * train_000001.bin, train_000002.bin and so on. The rest is as for token_writer_create. */
struct token_shards *token_shards_create(const char *path, uint64_t most, int32_t vocabulary,
	bool replace, struct err *err);

int token_shards_add(struct token_shards *shards, const unsigned char *bytes, size_t count,
	struct err *err);
int token_shards_add_ids(struct token_shards *shards, const int32_t *ids, size_t count,
	struct err *err);

/* The tokens so far, and the most that there may be. */
uint64_t token_shards_tokens(const struct token_shards *shards);
uint64_t token_shards_most(const struct token_shards *shards);
/* The files that hold them: how many, and a pattern that names them all. */
size_t token_shards_count(const struct token_shards *shards);
const char *token_shards_pattern(const struct token_shards *shards);

/* Moves the last `count` tokens to the end of `to`. */
int token_shards_move_tail(struct token_shards *shards, struct token_writer *to, uint64_t count,
	struct err *err);

/* Whether one of the files would be that of `writer`. */
bool token_shards_have(const struct token_shards *shards, const struct token_writer *writer);

/* Commits all files, the first one last: where it is, all are. Refuses (EXIT_USAGE) where the file
 * of one shard more exists, since a pattern that names the shards would take it for one of them. */
int token_shards_commit(struct token_shards *shards, struct err *err);

/* `shards` may be NULL. */
void token_shards_destroy(struct token_shards *shards);

#endif
