/* SPDX-License-Identifier: Apache-2.0 */
/* Collects chunks until there are some for each thread, and encodes them at once. */
#include "config.h"

#include "text/text_encoder.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define CHUNK ((size_t)1 << 20) /* bytes, about */
#define CHUNKS_A_THREAD 4

/* Offsets at which documents end. */
struct ends {
	size_t *at;
	size_t count, room;
};

struct chunk {
	char *text;
	size_t size;
	uint64_t offset;  /* of its beginning in its document */
	struct ends ends; /* of documents in it */
	struct token_list list;
	int rc;
	struct err err;
};

struct text_encoder {
	const struct tokenizer *tokenizer;
	int32_t separator; /* -1: none */
	text_encoder_sink *sink;
	void *arg;
	char *pending; /* text that is in no chunk yet */
	size_t size, room;
	struct ends ends; /* of documents in it */
	size_t searched;  /* bytes of it in which there is no place to cut */
	uint64_t offset;  /* of `pending` in the document */
	struct chunk *chunks;
	int count, most;
	struct tokenizer_work **works; /* of each thread */
	int threads;
};

static int thread_count(void)
{
#ifdef _OPENMP
	return omp_get_max_threads();
#else
	return 1;
#endif
}

static int thread_number(void)
{
#ifdef _OPENMP
	return omp_get_thread_num();
#else
	return 0;
#endif
}

struct text_encoder *text_encoder_create(const struct tokenizer *tokenizer, int32_t separator,
	text_encoder_sink *sink, void *arg)
{
	struct text_encoder *encoder = calloc(1, sizeof *encoder);
	if (!encoder)
		return NULL;
	*encoder = (struct text_encoder) { .tokenizer = tokenizer,
		.separator = separator,
		.sink = sink,
		.arg = arg };
	encoder->threads = thread_count();
	encoder->most = encoder->threads * CHUNKS_A_THREAD;
	encoder->chunks = calloc((size_t)encoder->most, sizeof *encoder->chunks);
	encoder->works = calloc((size_t)encoder->threads, sizeof *encoder->works);
	bool made = encoder->chunks && encoder->works;
	for (int i = 0; made && i < encoder->threads; i++)
		made = (encoder->works[i] = tokenizer_work_create(tokenizer)) != NULL;
	if (made)
		return encoder;
	text_encoder_destroy(encoder);
	return NULL;
}

void text_encoder_destroy(struct text_encoder *encoder)
{
	if (!encoder)
		return;
	for (int i = 0; encoder->chunks && i < encoder->most; i++) {
		free(encoder->chunks[i].text);
		free(encoder->chunks[i].ends.at);
		free(encoder->chunks[i].list.ids);
	}
	for (int i = 0; encoder->works && i < encoder->threads; i++)
		tokenizer_work_destroy(encoder->works[i]);
	free(encoder->chunks);
	free(encoder->works);
	free(encoder->pending);
	free(encoder->ends.at);
	free(encoder);
}

/* Encodes the text from one offset to another, and adds the separator where a document ends. */
static int encode_part(const struct text_encoder *encoder, struct chunk *chunk, size_t from,
	size_t to, bool ends)
{
	struct tokenizer_work *work = encoder->works[thread_number()];
	if (to > from
		&& tokenizer_encode(encoder->tokenizer, work, chunk->text + from, to - from,
			   from == 0 ? chunk->offset : 0, &chunk->list, &chunk->err)
			< 0)
		return -1;
	if (!ends || encoder->separator < 0)
		return 0;
	return token_list_append(&chunk->list, &encoder->separator, 1, &chunk->err);
}

static void encode(const struct text_encoder *encoder, struct chunk *chunk)
{
	size_t from = 0;
	chunk->list.count = 0;
	chunk->rc = 0;
	for (size_t i = 0; i < chunk->ends.count && chunk->rc == 0; i++) {
		chunk->rc = encode_part(encoder, chunk, from, chunk->ends.at[i], true);
		from = chunk->ends.at[i];
	}
	if (chunk->rc == 0)
		chunk->rc = encode_part(encoder, chunk, from, chunk->size, false);
	free(chunk->text);
	chunk->text = NULL;
}

/* Encodes all chunks, and hands their tokens on in order. */
static int run(struct text_encoder *encoder, struct err *err)
{
	const int count = encoder->count;
#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < count; i++)
		encode(encoder, &encoder->chunks[i]);
	encoder->count = 0;
	for (int i = 0; i < count; i++) {
		struct chunk *chunk = &encoder->chunks[i];
		if (chunk->rc < 0) {
			*err = chunk->err;
			return -1;
		}
		if (chunk->list.count > 0
			&& encoder->sink(encoder->arg, chunk->list.ids, chunk->list.count, err) < 0)
			return -1;
	}
	return 0;
}

static int add_end(struct ends *ends, size_t at, struct err *err)
{
	if (ends->count == ends->room) {
		const size_t room = 2 * ends->room + 64;
		size_t *grown = realloc(ends->at, room * sizeof *grown);
		if (!grown)
			return err_set(err, "text: out of memory");
		ends->at = grown;
		ends->room = room;
	}
	ends->at[ends->count++] = at;
	return 0;
}

/* Hands the ends within the first `size` bytes on to the chunk. */
static int move_ends(struct ends *from, struct chunk *chunk, struct err *err)
{
	size_t moved = 0;
	chunk->ends.count = 0;
	for (; moved < from->count && from->at[moved] <= chunk->size; moved++)
		if (add_end(&chunk->ends, from->at[moved], err) < 0)
			return -1;
	for (size_t i = moved; i < from->count; i++)
		from->at[i - moved] = from->at[i] - chunk->size;
	from->count -= moved;
	return 0;
}

/* Makes a chunk of the first `size` bytes that are pending. */
static int cut(struct text_encoder *encoder, size_t size, struct err *err)
{
	struct chunk *chunk = &encoder->chunks[encoder->count];
	chunk->text = malloc(size + 1);
	if (!chunk->text)
		return err_set(err, "text: out of memory");
	memcpy(chunk->text, encoder->pending, size);
	chunk->size = size;
	chunk->offset = encoder->offset;
	if (move_ends(&encoder->ends, chunk, err) < 0)
		return -1;
	const size_t count = chunk->ends.count;
	encoder->offset = count ? size - chunk->ends.at[count - 1] : encoder->offset + size;
	encoder->size -= size;
	encoder->searched = 0;
	memmove(encoder->pending, encoder->pending + size, encoder->size);
	return ++encoder->count == encoder->most ? run(encoder, err) : 0;
}

/* Where to cut what is pending, once it is enough; 0: nowhere yet. */
static size_t place_to_cut(struct text_encoder *encoder)
{
	if (encoder->size < CHUNK)
		return 0;
	if (encoder->ends.count > 0)
		return encoder->ends.at[encoder->ends.count - 1];
	/* A place is found by the two characters before it. */
	const size_t from = encoder->searched > 2 ? encoder->searched - 2 : 0;
	const size_t at =
		tokenizer_cut(encoder->tokenizer, encoder->pending + from, encoder->size - from);
	encoder->searched = encoder->size;
	return at ? from + at : 0;
}

int text_encoder_add(struct text_encoder *encoder, const char *text, size_t size, struct err *err)
{
	if (encoder->size + size > encoder->room) {
		const size_t room = 2 * (encoder->size + size) + CHUNK;
		char *grown = realloc(encoder->pending, room);
		if (!grown)
			return err_set(err, "text: out of memory");
		encoder->pending = grown;
		encoder->room = room;
	}
	memcpy(encoder->pending + encoder->size, text, size);
	encoder->size += size;
	const size_t at = place_to_cut(encoder);
	return at ? cut(encoder, at, err) : 0;
}

int text_encoder_end_document(struct text_encoder *encoder, struct err *err)
{
	return add_end(&encoder->ends, encoder->size, err);
}

int text_encoder_flush(struct text_encoder *encoder, struct err *err)
{
	if ((encoder->size > 0 || encoder->ends.count > 0) && cut(encoder, encoder->size, err) < 0)
		return -1;
	return run(encoder, err);
}
