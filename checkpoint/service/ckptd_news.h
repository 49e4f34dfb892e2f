/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker has to tell whoever owns it, one piece behind the other. No lock of its own. */
#ifndef MUSTER_CKPTD_NEWS_H
#define MUSTER_CKPTD_NEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum ckptd_news_type {
	NEWS_PROGRESS,
	NEWS_PART,    /* a part from 1 on is durable: `text` is its file's, for part 0 */
	NEWS_WRITTEN, /* nobody needs the buffer any more; part 0 of several, or a part whose save is
					 committed already */
	NEWS_DURABLE,
	NEWS_FAILED,
	NEWS_DECIDED, /* several parts: the save of `step` is over; `taken`: it is committed */
};

struct ckptd_news {
	struct ckptd_news *next;
	enum ckptd_news_type type;
	int64_t step;
	int buffer; /* that is free now; -1: none */
	uint64_t bytes, total;
	double seconds;
	bool taken;
	struct err err; /* of FAILED */
	char *text;     /* of PART */
	size_t size;
};

/* A value; zeroed means empty. */
struct ckptd_news_queue {
	struct ckptd_news *first, *last;
};

/* What became of a save is never dropped: where there is no memory for it, this waits for some. The
 * caller's. */
struct ckptd_news *ckptd_news_make(enum ckptd_news_type type, int64_t step, int buffer);

/* Frees it with its text. NULL is allowed. */
void ckptd_news_free(struct ckptd_news *news);

/* Takes the news over, behind what is there. */
void ckptd_news_put(struct ckptd_news_queue *queue, struct ckptd_news *news);

/* The first one, which is the caller's then; NULL: there is none. */
struct ckptd_news *ckptd_news_take(struct ckptd_news_queue *queue);
void ckptd_news_clear(struct ckptd_news_queue *queue);

#endif
