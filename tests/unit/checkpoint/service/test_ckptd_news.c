/* SPDX-License-Identifier: Apache-2.0 */
/* ckptd_news: what is put in comes out in its order, once. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/service/ckptd_news.h"

static void put(struct ckptd_news_queue *queue, int64_t step)
{
	struct ckptd_news *news = ckptd_news_make(NEWS_PART, 1, &(struct save_result) { .step = step });
	news->text = strdup("part");
	ckptd_news_put(queue, news);
}

static void takes(struct ckptd_news_queue *queue, int64_t step)
{
	struct ckptd_news *news = ckptd_news_take(queue);
	assert_non_null(news);
	assert_int_equal(news->type, NEWS_PART);
	assert_int_equal(news->result.step, step);
	assert_int_equal(news->buffer, 1);
	ckptd_news_free(news);
}

static void news_come_in_their_order(void **state)
{
	struct ckptd_news_queue queue = { 0 };
	assert_null(ckptd_news_take(&queue));
	put(&queue, 1);
	put(&queue, 2);
	takes(&queue, 1);
	put(&queue, 3);
	takes(&queue, 2);
	takes(&queue, 3);
	assert_null(ckptd_news_take(&queue));
	/* It goes on after it was empty. */
	put(&queue, 4);
	takes(&queue, 4);
	put(&queue, 5);
	put(&queue, 6);
	ckptd_news_clear(&queue);
	assert_null(ckptd_news_take(&queue));
	ckptd_news_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(news_come_in_their_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
