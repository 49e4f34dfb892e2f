/* SPDX-License-Identifier: Apache-2.0 */
/* A list of token writers, of which the last one takes what comes. */
#include "config.h"

#include "trainer/data/token_shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"

struct token_shards {
	char *path, *pattern;
	uint64_t most; /* 0: one file */
	int32_t vocabulary;
	bool replace;
	struct token_writer **writers;
	size_t count;
};

/* The length of the path without the last name's extension. */
static int stem_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
	const char *name = slash ? slash + 1 : path;
	return (int)(dot && dot > name ? (size_t)(dot - path) : strlen(path));
}

/* The name of the file with that index; to be freed. */
static char *name_of(const struct token_shards *shards, size_t index)
{
	const int stem = stem_of(shards->path);
	char *name;
	if (shards->most == 0)
		return strdup(shards->path);
	return asprintf(&name, "%.*s_%06zu%s", stem, shards->path, index + 1, shards->path + stem) < 0
		? NULL
		: name;
}

static char *pattern_of(const char *path, bool several)
{
	const int stem = stem_of(path);
	char *pattern;
	if (!several)
		return strdup(path);
	return asprintf(&pattern, "%.*s_*%s", stem, path, path + stem) < 0 ? NULL : pattern;
}

static int open_next(struct token_shards *shards, struct err *err)
{
	AUTO_FREE char *name = name_of(shards, shards->count);
	struct token_writer **more =
		realloc(shards->writers, (shards->count + 1) * sizeof *shards->writers);
	shards->writers = more ? more : shards->writers;
	if (!name || !more)
		return err_set(err, "write: no memory to open %s", shards->path);
	more[shards->count] = token_writer_create(name, shards->vocabulary, shards->replace, err);
	if (!more[shards->count])
		return -1;
	shards->count++;
	return 0;
}

struct token_shards *token_shards_create(const char *path, uint64_t most, int32_t vocabulary,
	bool replace, struct err *err)
{
	struct token_shards *shards = calloc(1, sizeof *shards);
	if (!shards) {
		err_set(err, "write: no memory to open %s", path);
		return NULL;
	}
	*shards = (struct token_shards) { .path = strdup(path),
		.pattern = pattern_of(path, most > 0),
		.most = most,
		.vocabulary = vocabulary,
		.replace = replace };
	if (!shards->path || !shards->pattern)
		err_set(err, "write: no memory to open %s", path);
	else if (open_next(shards, err) == 0)
		return shards;
	token_shards_destroy(shards);
	return NULL;
}

/* Makes room for at least one token. Returns for how many, or 0 on error. */
static uint64_t make_room(struct token_shards *shards, struct err *err)
{
	if (shards->most == 0)
		return UINT64_MAX;
	const uint64_t full = token_writer_tokens(shards->writers[shards->count - 1]);
	if (full < shards->most)
		return shards->most - full;
	return open_next(shards, err) < 0 ? 0 : shards->most;
}

int token_shards_add(struct token_shards *shards, const unsigned char *bytes, size_t count,
	struct err *err)
{
	for (size_t done = 0, n; done < count; done += n) {
		const uint64_t room = make_room(shards, err);
		n = count - done < room ? count - done : (size_t)room;
		if (room == 0
			|| token_writer_add(shards->writers[shards->count - 1], bytes + done, n, err) < 0)
			return -1;
	}
	return 0;
}

int token_shards_add_ids(struct token_shards *shards, const int32_t *ids, size_t count,
	struct err *err)
{
	for (size_t done = 0, n; done < count; done += n) {
		const uint64_t room = make_room(shards, err);
		n = count - done < room ? count - done : (size_t)room;
		if (room == 0
			|| token_writer_add_ids(shards->writers[shards->count - 1], ids + done, n, err) < 0)
			return -1;
	}
	return 0;
}

uint64_t token_shards_tokens(const struct token_shards *shards)
{
	uint64_t tokens = 0;
	for (size_t i = 0; i < shards->count; i++)
		tokens += token_writer_tokens(shards->writers[i]);
	return tokens;
}

uint64_t token_shards_most(const struct token_shards *shards)
{
	return shards->most ? UINT64_MAX : token_writer_most(shards->writers[0]);
}

size_t token_shards_count(const struct token_shards *shards)
{
	return shards->count;
}

const char *token_shards_pattern(const struct token_shards *shards)
{
	return shards->pattern;
}

int token_shards_move_tail(struct token_shards *shards, struct token_writer *to, uint64_t count,
	struct err *err)
{
	uint64_t before = token_shards_tokens(shards) - count; /* tokens that stay, from here on */
	for (size_t i = 0; i < shards->count; i++) {
		const uint64_t tokens = token_writer_tokens(shards->writers[i]);
		const uint64_t stay = tokens < before ? tokens : before;
		before -= stay;
		if (stay < tokens && token_writer_move_tail(shards->writers[i], to, tokens - stay, err) < 0)
			return -1;
	}
	while (shards->count > 1 && token_writer_tokens(shards->writers[shards->count - 1]) == 0)
		token_writer_destroy(shards->writers[--shards->count]);
	return 0;
}

bool token_shards_have(const struct token_shards *shards, const struct token_writer *writer)
{
	for (size_t i = 0; i < shards->count; i++)
		if (token_writer_same(shards->writers[i], writer))
			return true;
	return false;
}

int token_shards_commit(struct token_shards *shards, struct err *err)
{
	AUTO_FREE char *next = name_of(shards, shards->count);
	if (!next)
		return err_set(err, "write: no memory to commit %s", shards->path);
	if (shards->most && access(next, F_OK) == 0)
		return err_fail(err, EXIT_USAGE,
			"write: %s exists and is no shard of this text, which has %zu: remove the shards of "
			"the earlier one",
			next, shards->count);
	for (size_t i = shards->count; i-- > 0;)
		if (token_writer_commit(shards->writers[i], err) < 0)
			return -1;
	return 0;
}

void token_shards_destroy(struct token_shards *shards)
{
	if (!shards)
		return;
	for (size_t i = 0; i < shards->count; i++)
		token_writer_destroy(shards->writers[i]);
	free(shards->writers);
	free(shards->pattern);
	free(shards->path);
	free(shards);
}
