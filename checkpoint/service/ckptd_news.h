/* SPDX-License-Identifier: Apache-2.0 */
/* News from a worker to its owner, in order. The queue has no lock of its own. */
#ifndef MUSTER_CKPTD_NEWS_H
#define MUSTER_CKPTD_NEWS_H

#include <stdint.h>

#include "checkpoint/format/snapshot.h"

enum ckptd_news_type {
	NEWS_PROGRESS,
	NEWS_PART,    /* a part other than 0 is durable: `text` is its file's, for part 0 */
	NEWS_ENDED,   /* a save has its result. WRITTEN: of part 0 of several, or of a part whose save
					 was committed before */
	NEWS_DECIDED, /* several parts: the save is over; DURABLE: it is committed */
};

struct ckptd_news {
	struct ckptd_news *next;
	enum ckptd_news_type type;
	int buffer;                /* the buffer that is free now; -1: none */
	struct save_result result; /* of PROGRESS: the bytes that are written */
	uint64_t total;            /* bytes, of PROGRESS */
	char *text;                /* of PART */
};

/* A value; zeroed means empty. */
struct ckptd_news_queue {
	struct ckptd_news *first, *last;
};

/* Makes a piece of news, owned by the caller. The outcome of a save must never be dropped: when
 * there is no memory, this waits for some. */
struct ckptd_news *ckptd_news_make(enum ckptd_news_type type, int buffer,
	const struct save_result *result);

/* Frees it with its text. NULL is allowed. */
void ckptd_news_free(struct ckptd_news *news);

/* Appends the news and takes ownership of it. */
void ckptd_news_put(struct ckptd_news_queue *queue, struct ckptd_news *news);

/* Removes and returns the first piece, which the caller then owns; NULL: there is none. */
struct ckptd_news *ckptd_news_take(struct ckptd_news_queue *queue);
void ckptd_news_clear(struct ckptd_news_queue *queue);

#endif
