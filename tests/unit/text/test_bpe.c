/* SPDX-License-Identifier: Apache-2.0 */
/* bpe: held against the rule itself, which looks at all pairs for the first merge again and again.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/bpe.h"

#define MERGES 400
#define LONGEST 700

struct pair {
	int32_t left, right, id;
};

static struct pair merges[MERGES];
static int merge_count;

static void add_bytes(struct bpe *bpe)
{
	struct err err;
	for (int byte = 0; byte < 256; byte++) {
		const unsigned char one = (unsigned char)byte;
		assert_int_equal(bpe_add_token(bpe, byte, &one, 1, &err), 0);
	}
	assert_int_equal(bpe_check(bpe, &err), 0);
}

/* Merges of two random tokens out of few letters, so that most pairs of a text have one; their ids
 * are in another order. */
static struct bpe *random_bpe(void)
{
	struct bpe *bpe = bpe_create(false);
	int32_t letters[MERGES + 4] = { 'a', 'b', 'c', 'd' };
	int count = 4;
	struct err err;
	assert_non_null(bpe);
	add_bytes(bpe);
	for (merge_count = 0; merge_count < MERGES;) {
		const int32_t left = letters[rand() % count], right = letters[rand() % count];
		char bytes[64];
		size_t a, b;
		const char *first = bpe_bytes(bpe, left, &a), *second = bpe_bytes(bpe, right, &b);
		if (a + b > 12)
			continue;
		memcpy(bytes, first, a);
		memcpy(bytes + a, second, b);
		if (bpe_find(bpe, bytes, a + b) >= 0)
			continue;
		const int32_t id = 1000 - merge_count;
		assert_int_equal(bpe_add_token(bpe, id, bytes, a + b, &err), 0);
		assert_int_equal(bpe_add_merge(bpe, left, right, &err), 0);
		merges[merge_count++] = (struct pair) { left, right, id };
		letters[count++] = id;
	}
	assert_int_equal(bpe_count(bpe), 1001);
	return bpe;
}

static size_t by_the_rule(const unsigned char *text, size_t count, int32_t *ids)
{
	for (size_t i = 0; i < count; i++)
		ids[i] = text[i];
	for (;;) {
		int best = MERGES;
		size_t place = 0;
		for (size_t i = 0; i + 1 < count; i++)
			for (int m = 0; m < best; m++)
				if (merges[m].left == ids[i] && merges[m].right == ids[i + 1]) {
					best = m;
					place = i;
				}
		if (best == MERGES)
			return count;
		ids[place] = merges[best].id;
		memmove(ids + place + 1, ids + place + 2, (count - place - 2) * sizeof *ids);
		count--;
	}
}

/* Short pieces, of which many come twice; some around the length that gets a heap; and long ones.
 */
static size_t length_of(int round)
{
	const size_t most = round % 3 == 0 ? 5 : round % 3 == 1 ? 60 : round % 60 == 2 ? LONGEST : 120;
	return 1 + (size_t)rand() % most;
}

static void pieces_are_merged_by_the_rule(void **state)
{
	(void)state;
	srand(7);
	for (int vocabulary = 0; vocabulary < 3; vocabulary++) {
		struct bpe *bpe = random_bpe();
		struct bpe_work *work = bpe_work_create();
		for (int round = 0; round < 1500; round++) {
			unsigned char text[LONGEST];
			int32_t expected[LONGEST];
			const int32_t *ids;
			const size_t size = length_of(round);
			for (size_t i = 0; i < size; i++)
				text[i] = (unsigned char)(rand() % 30 ? 'a' + rand() % 4 : rand() % 256);
			const size_t count = bpe_encode(bpe, work, text, size, &ids);
			assert_int_equal(count, by_the_rule(text, size, expected));
			assert_memory_equal(ids, expected, count * sizeof *ids);
		}
		bpe_work_destroy(work);
		bpe_destroy(bpe);
	}
}

static void a_piece_that_is_a_token_may_be_taken_whole(void **state)
{
	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		struct bpe *bpe = bpe_create(whole);
		struct bpe_work *work = bpe_work_create();
		struct err err;
		const int32_t *ids;
		add_bytes(bpe);
		assert_int_equal(bpe_add_token(bpe, 300, "xyz", 3, &err), 0);
		assert_int_equal(bpe_encode(bpe, work, (const unsigned char *)"xyz", 3, &ids),
			whole ? 1 : 3);
		assert_int_equal(ids[0], whole ? 300 : 'x');
		bpe_work_destroy(work);
		bpe_destroy(bpe);
	}
}

static void what_contradicts_itself_is_refused(void **state)
{
	struct bpe *bpe = bpe_create(false);
	struct err err;
	size_t size;
	(void)state;
	assert_int_equal(bpe_find(bpe, "a", 1), -1);
	assert_int_equal(bpe_check(bpe, &err), -1);
	add_bytes(bpe);
	assert_int_equal(bpe_add_token(bpe, 256, "a", 1, &err), -1);
	assert_int_equal(bpe_add_token(bpe, 7, "new", 3, &err), -1);
	assert_int_equal(bpe_add_merge(bpe, 'a', 'b', &err), -1);
	assert_non_null(strstr(err.text, "makes a token that the vocabulary lacks"));
	assert_int_equal(bpe_add_token(bpe, 500, "ab", 2, &err), 0);
	assert_int_equal(bpe_add_merge(bpe, 'a', 'b', &err), 0);
	assert_int_equal(bpe_add_merge(bpe, 'a', 'b', &err), -1);
	assert_null(bpe_bytes(bpe, 400, &size));
	assert_null(bpe_bytes(bpe, -1, &size));
	assert_null(bpe_bytes(bpe, 501, &size));
	bpe_destroy(bpe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_merged_by_the_rule),
		cmocka_unit_test(a_piece_that_is_a_token_may_be_taken_whole),
		cmocka_unit_test(what_contradicts_itself_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
