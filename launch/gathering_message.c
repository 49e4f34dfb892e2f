/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/gathering_message.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/siphash.h"

#define MAGIC "MGA1"
#define RUN_AT 4
#define RANK_AT 12
#define FENCE_AT 16
#define SIZE_AT 20
#define TAG_AT (GATHERING_HEAD_SIZE - GATHERING_TAG_SIZE)
#define LENGTH 4 /* bytes of a body's length among others */

struct gathering_message gathering_message_make(size_t size)
{
	return (struct gathering_message){ malloc(gathering_message_length(size)), size };
}

unsigned char *gathering_message_body(const struct gathering_message *message)
{
	return message->bytes ? message->bytes + GATHERING_HEAD_SIZE : NULL;
}

size_t gathering_message_length(size_t size)
{
	return GATHERING_HEAD_SIZE + size + GATHERING_TAG_SIZE;
}

void gathering_message_seal(const struct gathering_message *message, const struct gathering_secret *secret, int rank,
	uint32_t fence)
{
	unsigned char *bytes = message->bytes;
	size_t end = GATHERING_HEAD_SIZE + message->size;
	memcpy(bytes, MAGIC, RUN_AT);
	bytes_put_le64(bytes + RUN_AT, secret->run);
	bytes_put_le32(bytes + RANK_AT, (uint32_t)rank);
	bytes_put_le32(bytes + FENCE_AT, fence);
	bytes_put_le32(bytes + SIZE_AT, (uint32_t)message->size);
	bytes_put_le64(bytes + TAG_AT, siphash(secret->key, bytes, TAG_AT));
	bytes_put_le64(bytes + end, siphash(secret->key, bytes, end));
}

bool gathering_message_head(const unsigned char bytes[GATHERING_HEAD_SIZE], const struct gathering_secret *secret,
	int world_size, size_t most, struct gathering_head *head)
{
	uint32_t rank = bytes_le32(bytes + RANK_AT);
	if (memcmp(bytes, MAGIC, RUN_AT) != 0 || bytes_le64(bytes + RUN_AT) != secret->run || rank >= (uint32_t)world_size ||
		bytes_le32(bytes + SIZE_AT) > most || bytes_le64(bytes + TAG_AT) != siphash(secret->key, bytes, TAG_AT))
		return false;
	*head = (struct gathering_head){ (int)rank, bytes_le32(bytes + FENCE_AT), bytes_le32(bytes + SIZE_AT) };
	return true;
}

bool gathering_message_is_sealed(const unsigned char *bytes, const struct gathering_secret *secret, size_t size)
{
	size_t end = GATHERING_HEAD_SIZE + size;
	return bytes_le64(bytes + end) == siphash(secret->key, bytes, end);
}

size_t gathering_bodies_size(size_t size, size_t world_size)
{
	return world_size * LENGTH + size;
}

unsigned char *gathering_bodies_put(unsigned char *at, const void *bytes, size_t size)
{
	bytes_put_le32(at, (uint32_t)size);
	if (size)
		memcpy(at + LENGTH, bytes, size);
	return at + LENGTH + size;
}

bool gathering_bodies_are_whole(const unsigned char *bodies, size_t size, int world_size)
{
	size_t at = 0;
	for (int rank = 0; rank < world_size; rank++) {
		if (size - at < LENGTH || size - at - LENGTH < bytes_le32(bodies + at))
			return false;
		at += LENGTH + bytes_le32(bodies + at);
	}
	return at == size;
}

const unsigned char *gathering_bodies_of(const unsigned char *bodies, int rank, size_t *size)
{
	for (; rank > 0; rank--)
		bodies += LENGTH + bytes_le32(bodies);
	*size = bytes_le32(bodies);
	return bodies + LENGTH;
}
