/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of what ranks send each other at a fence: any bytes as a message, and as the
 * body of one whose tags are right. */
#include <stdlib.h>
#include <string.h>

#include "launch/bootstrap_message.h"
#include "tests/fuzz/fuzz_input.h"

#define WORLD_MAX 64

static const struct bootstrap_secret secret = { 0x0123456789abcdef, "sixteen bytes or" };

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

/* A value lies within what it was looked for in. */
static void check_list(const unsigned char *list, size_t size)
{
	size_t found = 0;
	const unsigned char *value = put_list_find(list, size, "a", &found);
	if (value && (value < list || found > size || value > list + size - found))
		abort();
	struct put_entry entry;
	bool kept = false;
	size_t at = 0;
	while (put_list_next(list, size, &at, &entry))
		kept |= entry.length == 0 || entry.key[0] != PUT_LIST_PASSING;
	if (at > size || put_list_is_passing(list, size) != (!kept && at == size))
		abort();
}

static void check_bodies(const unsigned char *bodies, size_t size, int world_size)
{
	if (!bootstrap_bodies_are_whole(bodies, size, world_size))
		return;
	size_t all = 0;
	for (int rank = 0; rank < world_size; rank++) {
		size_t one;
		const unsigned char *body = bootstrap_bodies_of(bodies, rank, &one);
		if (body < bodies || one > size || body > bodies + size - one)
			abort();
		check_list(body, one);
		all += one;
	}
	if (bootstrap_bodies_size(all, (size_t)world_size) != size)
		abort();
}

/* A proof that is believed is the one that rank 0 gives to this challenge. */
static void check_greeting(const unsigned char *bytes, uint64_t challenge)
{
	unsigned char again[BOOTSTRAP_GREETING_SIZE];
	uint64_t number;
	if (bootstrap_challenge_read(bytes, secret.session, &number)) {
		bootstrap_challenge_write(again, secret.session, number);
		if (memcmp(again, bytes, sizeof again) != 0)
			abort();
	}
	if (bootstrap_proof_read(bytes, &secret, challenge, &number)) {
		bootstrap_proof_write(again, &secret, challenge, number);
		if (memcmp(again, bytes, sizeof again) != 0)
			abort();
	}
	bootstrap_proof_write(again, &secret, challenge, challenge + 1);
	if (!bootstrap_proof_read(again, &secret, challenge, &number) || number != challenge + 1
		|| bootstrap_proof_read(again, &secret, challenge + 1, &number))
		abort();
}

/* What is sealed is taken as it was; with one bit changed it is not. */
static void check_message(const unsigned char *body, size_t size, int rank, uint32_t fence,
	size_t flip)
{
	struct bootstrap_message message = bootstrap_message_make(size);
	struct bootstrap_head head;
	if (!message.bytes)
		return;
	if (size)
		memcpy(bootstrap_message_body(&message), body, size);
	bootstrap_message_seal(&message, &secret, rank, fence);
	if (!bootstrap_message_head(message.bytes, &secret, WORLD_MAX, size, &head) || head.rank != rank
		|| head.fence != fence || head.size != size
		|| !bootstrap_message_is_sealed(message.bytes, &secret, size))
		abort();
	flip %= 8 * bootstrap_message_length(size);
	message.bytes[flip / 8] ^= (unsigned char)(1 << flip % 8);
	if (bootstrap_message_head(message.bytes, &secret, WORLD_MAX, size, &head)
		&& bootstrap_message_is_sealed(message.bytes, &secret, size))
		abort();
	free(message.bytes);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct fuzz_input input = { bytes, size };
	struct bootstrap_head head;
	if (size >= BOOTSTRAP_HEAD_SIZE
		&& bootstrap_message_head(bytes, &secret, WORLD_MAX, size, &head) && head.size > size)
		abort();
	if (size >= BOOTSTRAP_GREETING_SIZE)
		check_greeting(bytes, (uint64_t)size);
	int rank = (int)(fuzz_take_size(&input) % WORLD_MAX);
	uint32_t fence = (uint32_t)fuzz_take_size(&input);
	check_message(input.at, input.left, rank, fence, fuzz_take_size(&input));
	check_list(input.at, input.left);
	check_bodies(input.at, input.left, rank + 1);
	return 0;
}
