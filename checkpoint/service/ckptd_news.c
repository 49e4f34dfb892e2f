/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a worker's news. */
#include "checkpoint/service/ckptd_news.h"

#include <stdlib.h>

#include "common/clock.h"

struct ckptd_news *ckptd_news_make(enum ckptd_news_type type, int buffer,
	const struct save_result *result)
{
	struct ckptd_news *news;
	while (!(news = calloc(1, sizeof *news)))
		deadline_sleep(deadline_in(1), 0.1);
	*news = (struct ckptd_news) { .type = type, .buffer = buffer, .result = *result };
	return news;
}

void ckptd_news_free(struct ckptd_news *news)
{
	if (news)
		free(news->text);
	free(news);
}

void ckptd_news_put(struct ckptd_news_queue *queue, struct ckptd_news *news)
{
	news->next = NULL;
	if (queue->last)
		queue->last->next = news;
	else
		queue->first = news;
	queue->last = news;
}

struct ckptd_news *ckptd_news_take(struct ckptd_news_queue *queue)
{
	struct ckptd_news *news = queue->first;
	if (news)
		queue->first = news->next;
	if (!queue->first)
		queue->last = NULL;
	return news;
}

void ckptd_news_clear(struct ckptd_news_queue *queue)
{
	struct ckptd_news *news;
	while ((news = ckptd_news_take(queue)))
		ckptd_news_free(news);
}
