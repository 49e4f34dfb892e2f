/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the most probable tokens from a heap, one after the other, until the ones that may be drawn
 * are known: most often few of many thousands. */
#include "config.h"

#include "trainer/generate/token_choice.h"

#include <math.h>
#include <stdbool.h>

#include "order/philox.h"

/* A heap of tokens with the most probable one at the top. */
struct heap {
	const float *logits;
	int32_t *tokens;
	size_t count;
};

static bool before(const struct heap *heap, int32_t a, int32_t b)
{
	return heap->logits[a] > heap->logits[b] || (heap->logits[a] == heap->logits[b] && a < b);
}

static void sink(struct heap *heap, size_t at)
{
	for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
		child +=
			child + 1 < heap->count && before(heap, heap->tokens[child + 1], heap->tokens[child]);
		if (!before(heap, heap->tokens[child], heap->tokens[at]))
			return;
		const int32_t token = heap->tokens[at];
		heap->tokens[at] = heap->tokens[child];
		heap->tokens[child] = token;
	}
}

static void make_heap(struct heap *heap, size_t vocabulary)
{
	for (size_t token = 0; token < vocabulary; token++)
		if (!isnan(heap->logits[token]))
			heap->tokens[heap->count++] = (int32_t)token;
	for (size_t at = heap->count / 2; at-- > 0;)
		sink(heap, at);
}

/* Moves the top to the end of the heap's room, so that the tokens taken stand there in descending
 * order from the right. */
static int32_t take(struct heap *heap)
{
	const int32_t top = heap->tokens[0];
	heap->tokens[0] = heap->tokens[--heap->count];
	heap->tokens[heap->count] = top;
	sink(heap, 0);
	return top;
}

/* From 0 to below 1. */
static double uniform(uint64_t seed, uint32_t sequence, uint64_t position)
{
	const uint32_t counter[4] = { (uint32_t)position, (uint32_t)(position >> 32), sequence,
		PHILOX_TOKEN };
	const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
	uint32_t words[4];
	philox(counter, key, words);
	return (double)((uint64_t)words[1] << 21 ^ words[0] >> 11) / 9007199254740992.0;
}

/* The probability of a token, not divided by the sum of all. */
static double weight(const struct heap *heap, int32_t token, float most, double temperature)
{
	if (heap->logits[token] == most)
		return 1; /* also for infinite ones */
	return exp(((double)heap->logits[token] - (double)most) / temperature);
}

/* Draws one of `count` tokens, whose weights add up to `sum`. */
static int32_t draw(const struct heap *heap, const int32_t *tokens, size_t count, float most,
	double temperature, double part)
{
	for (size_t i = 0; i + 1 < count; i++) {
		part -= weight(heap, tokens[i], most, temperature);
		if (part < 0)
			return tokens[i];
	}
	return tokens[count - 1];
}

static double sum_of(const struct heap *heap, const int32_t *tokens, size_t count, float most,
	double temperature)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += weight(heap, tokens[i], most, temperature);
	return sum;
}

/* Takes the tokens that may be drawn from the heap; they are the last ones of its room, the most
 * probable one at the end. *sum is what their weights add up to. */
static size_t limit(const struct token_choice *choice, struct heap *heap, float most, double *sum)
{
	const size_t all = heap->count;
	const bool few = choice->top_k && choice->top_k < all;
	const size_t most_tokens = few ? choice->top_k : all;
	double total = few ? 0 : sum_of(heap, heap->tokens, all, most, choice->temperature);
	size_t taken = 0;
	/* With both limits top_p is a part of what top_k leaves. */
	for (; few && taken < most_tokens; taken++)
		total += weight(heap, take(heap), most, choice->temperature);
	*sum = 0;
	for (size_t count = 0; count < most_tokens;) {
		const int32_t token = count < taken ? heap->tokens[all - 1 - count] : take(heap);
		*sum += weight(heap, token, most, choice->temperature);
		count++;
		if (*sum >= choice->top_p * total)
			return count;
	}
	return most_tokens;
}

int32_t token_choose(const struct token_choice *choice, const float *logits, size_t vocabulary,
	uint32_t sequence, uint64_t position, int32_t *order)
{
	struct heap heap = { logits, order, 0 };
	make_heap(&heap, vocabulary);
	if (heap.count == 0 || choice->temperature <= 0)
		return heap.count ? order[0] : -1;
	const float most = logits[order[0]];
	const double part = uniform(choice->seed, sequence, position);
	const size_t all = heap.count;
	double sum;
	if (choice->top_p >= 1 && (!choice->top_k || choice->top_k >= all)) {
		sum = sum_of(&heap, order, all, most, choice->temperature);
		return draw(&heap, order, all, most, choice->temperature, part * sum);
	}
	const size_t count = limit(choice, &heap, most, &sum);
	return draw(&heap, order + all - count, count, most, choice->temperature, part * sum);
}
