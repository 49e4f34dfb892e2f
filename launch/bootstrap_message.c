/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of these messages; nothing here sends or receives. */
#include "launch/bootstrap_message.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/siphash.h"

#define CHALLENGE_MAGIC "MGC2"
#define PROOF_MAGIC "MGP2"
#define NUMBER_AT 4 /* in a proof; in a challenge it is the run */
#define LAST_AT 12  /* the challenge's number, or the proof's tag */

#define MAGIC "MGA2"
#define SESSION_AT 4
#define RANK_AT 12
#define FENCE_AT 16
#define SIZE_AT 20
#define TAG_AT (BOOTSTRAP_HEAD_SIZE - BOOTSTRAP_TAG_SIZE)
#define LENGTH 4  /* bytes of a rank's length field in rank 0's body */
#define LENGTHS 5 /* bytes of a key's length, and of a value's */

void bootstrap_challenge_write(unsigned char out[BOOTSTRAP_GREETING_SIZE], uint64_t run,
	uint64_t challenge)
{
	memcpy(out, CHALLENGE_MAGIC, NUMBER_AT);
	bytes_put_le64(out + NUMBER_AT, run);
	bytes_put_le64(out + LAST_AT, challenge);
}

bool bootstrap_challenge_read(const unsigned char bytes[BOOTSTRAP_GREETING_SIZE], uint64_t run,
	uint64_t *challenge)
{
	*challenge = bytes_le64(bytes + LAST_AT);
	return memcmp(bytes, CHALLENGE_MAGIC, NUMBER_AT) == 0 && bytes_le64(bytes + NUMBER_AT) == run;
}

void bootstrap_proof_write(unsigned char out[BOOTSTRAP_GREETING_SIZE],
	const struct bootstrap_secret *secret, uint64_t challenge, uint64_t session)
{
	unsigned char text[LAST_AT + 16];
	memcpy(text, PROOF_MAGIC, NUMBER_AT);
	bytes_put_le64(text + NUMBER_AT, session);
	bytes_put_le64(text + LAST_AT, secret->session);
	bytes_put_le64(text + LAST_AT + 8, challenge);
	memcpy(out, text, LAST_AT);
	bytes_put_le64(out + LAST_AT, siphash(secret->key, text, sizeof text));
}

bool bootstrap_proof_read(const unsigned char bytes[BOOTSTRAP_GREETING_SIZE],
	const struct bootstrap_secret *secret, uint64_t challenge, uint64_t *session)
{
	unsigned char wanted[BOOTSTRAP_GREETING_SIZE];
	*session = bytes_le64(bytes + NUMBER_AT);
	bootstrap_proof_write(wanted, secret, challenge, *session);
	return memcmp(bytes, wanted, sizeof wanted) == 0;
}

struct bootstrap_message bootstrap_message_make(size_t size)
{
	return (struct bootstrap_message) { malloc(bootstrap_message_length(size)), size };
}

unsigned char *bootstrap_message_body(const struct bootstrap_message *message)
{
	return message->bytes ? message->bytes + BOOTSTRAP_HEAD_SIZE : NULL;
}

size_t bootstrap_message_length(size_t size)
{
	return BOOTSTRAP_HEAD_SIZE + size + BOOTSTRAP_TAG_SIZE;
}

void bootstrap_message_seal(const struct bootstrap_message *message,
	const struct bootstrap_secret *secret, int rank, uint32_t fence)
{
	unsigned char *bytes = message->bytes;
	size_t end = BOOTSTRAP_HEAD_SIZE + message->size;
	memcpy(bytes, MAGIC, SESSION_AT);
	bytes_put_le64(bytes + SESSION_AT, secret->session);
	bytes_put_le32(bytes + RANK_AT, (uint32_t)rank);
	bytes_put_le32(bytes + FENCE_AT, fence);
	bytes_put_le32(bytes + SIZE_AT, (uint32_t)message->size);
	bytes_put_le64(bytes + TAG_AT, siphash(secret->key, bytes, TAG_AT));
	bytes_put_le64(bytes + end, siphash(secret->key, bytes, end));
}

bool bootstrap_message_head(const unsigned char bytes[BOOTSTRAP_HEAD_SIZE],
	const struct bootstrap_secret *secret, int world_size, size_t most, struct bootstrap_head *head)
{
	uint32_t rank = bytes_le32(bytes + RANK_AT);
	if (memcmp(bytes, MAGIC, SESSION_AT) != 0 || bytes_le64(bytes + SESSION_AT) != secret->session
		|| rank >= (uint32_t)world_size || bytes_le32(bytes + SIZE_AT) > most
		|| bytes_le64(bytes + TAG_AT) != siphash(secret->key, bytes, TAG_AT))
		return false;
	*head = (struct bootstrap_head) { (int)rank, bytes_le32(bytes + FENCE_AT),
		bytes_le32(bytes + SIZE_AT) };
	return true;
}

bool bootstrap_message_is_sealed(const unsigned char *bytes, const struct bootstrap_secret *secret,
	size_t size)
{
	size_t end = BOOTSTRAP_HEAD_SIZE + size;
	return bytes_le64(bytes + end) == siphash(secret->key, bytes, end);
}

size_t bootstrap_bodies_size(size_t size, size_t world_size)
{
	return world_size * LENGTH + size;
}

unsigned char *bootstrap_bodies_put(unsigned char *at, const void *bytes, size_t size)
{
	bytes_put_le32(at, (uint32_t)size);
	if (size)
		memcpy(at + LENGTH, bytes, size);
	return at + LENGTH + size;
}

bool bootstrap_bodies_are_whole(const unsigned char *bodies, size_t size, int world_size)
{
	size_t at = 0;
	for (int rank = 0; rank < world_size; rank++) {
		if (size - at < LENGTH || size - at - LENGTH < bytes_le32(bodies + at))
			return false;
		at += LENGTH + bytes_le32(bodies + at);
	}
	return at == size;
}

const unsigned char *bootstrap_bodies_of(const unsigned char *bodies, int rank, size_t *size)
{
	for (; rank > 0; rank--)
		bodies += LENGTH + bytes_le32(bodies);
	*size = bytes_le32(bodies);
	return bodies + LENGTH;
}

int put_list_add(struct put_list *list, const char *key, const void *value, size_t size)
{
	const size_t length = strlen(key);
	unsigned char *grown = realloc(list->bytes, list->size + LENGTHS + length + size);
	if (!grown)
		return -1;
	unsigned char *at = grown + list->size;
	at[0] = (unsigned char)length;
	memcpy(at + 1, key, length);
	bytes_put_le32(at + 1 + length, (uint32_t)size);
	if (size)
		memcpy(at + LENGTHS + length, value, size);
	*list = (struct put_list) { grown, list->size + LENGTHS + length + size };
	return 0;
}

bool put_list_next(const unsigned char *bytes, size_t size, size_t *at, struct put_entry *entry)
{
	const size_t left = size - *at;
	if (left < LENGTHS)
		return false;
	const unsigned char *head = bytes + *at;
	if (left - LENGTHS < head[0])
		return false;
	*entry = (struct put_entry) { (const char *)head + 1, head[0], head + LENGTHS + head[0],
		bytes_le32(head + 1 + head[0]) };
	if (left - LENGTHS - head[0] < entry->size)
		return false;
	*at += LENGTHS + entry->length + entry->size;
	return true;
}

bool put_list_is_passing(const unsigned char *bytes, size_t size)
{
	struct put_entry entry;
	size_t at = 0;
	while (put_list_next(bytes, size, &at, &entry))
		if (entry.length == 0 || entry.key[0] != PUT_LIST_PASSING)
			return false;
	return at == size;
}

const void *put_list_find(const unsigned char *bytes, size_t left, const char *key, size_t *size)
{
	struct put_entry entry;
	for (size_t at = 0; put_list_next(bytes, left, &at, &entry);) {
		*size = entry.size;
		if (entry.length == strlen(key) && memcmp(entry.key, key, entry.length) == 0)
			return entry.value;
	}
	return NULL;
}
