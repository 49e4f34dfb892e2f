/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of doc/gathering.md as bytes: a challenge and its proof, and then a head with a tag, a body, and a tag of all. */
#ifndef MUSTER_GATHERING_MESSAGE_H
#define MUSTER_GATHERING_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATHERING_GREETING_SIZE 20 /* of a challenge, and of a proof */
#define GATHERING_HEAD_SIZE 32
#define GATHERING_TAG_SIZE 8

/* What tells a message's origin. */
struct gathering_secret {
	uint64_t session;      /* of rank 0's messages the run_number(); of any other's what rank 0 has drawn for its connection */
	unsigned char key[16]; /* which this run's ranks know, and nobody else does */
};

struct gathering_head {
	int rank;       /* of the sender, at least 0 */
	uint32_t fence;
	size_t size;    /* of the body */
};

/* A message; `bytes` is malloc'ed and its owner's, NULL for none. */
struct gathering_message {
	unsigned char *bytes;
	size_t size; /* of the body */
};

/* What a rank sends first, with a random number of its own; and what comes as one, false: it is none of this run's. */
void gathering_challenge_write(unsigned char out[GATHERING_GREETING_SIZE], uint64_t run, uint64_t challenge);
bool gathering_challenge_read(const unsigned char bytes[GATHERING_GREETING_SIZE], uint64_t run, uint64_t *challenge);

/* Rank 0's answer, which shows that it knows the key, with the connection's session, a random number of its own. `secret` has
 * the run_number(). */
void gathering_proof_write(unsigned char out[GATHERING_GREETING_SIZE], const struct gathering_secret *secret, uint64_t challenge,
	uint64_t session);
bool gathering_proof_read(const unsigned char bytes[GATHERING_GREETING_SIZE], const struct gathering_secret *secret,
	uint64_t challenge, uint64_t *session);

/* Room for a message with a body of so many bytes; without `bytes` when there is no memory. */
struct gathering_message gathering_message_make(size_t size);
unsigned char *gathering_message_body(const struct gathering_message *message);
/* Of head, body and tag. */
size_t gathering_message_length(size_t size);
/* Writes head and tags around the body. */
void gathering_message_seal(const struct gathering_message *message, const struct gathering_secret *secret, int rank,
	uint32_t fence);

/* Reads a head that came from elsewhere, of a message with a body of at most `most` bytes. False: it is not of this
 * origin. */
bool gathering_message_head(const unsigned char bytes[GATHERING_HEAD_SIZE], const struct gathering_secret *secret,
	int world_size, size_t most, struct gathering_head *head);
/* Whether the tag behind the body is that of a whole message. */
bool gathering_message_is_sealed(const unsigned char *bytes, const struct gathering_secret *secret, size_t size);

/* Rank 0's body: each rank's length and bytes, in rank order. How long that is, of `size` bytes in all. */
size_t gathering_bodies_size(size_t size, size_t world_size);
/* Writes one rank's; returns where the next one's begins. */
unsigned char *gathering_bodies_put(unsigned char *at, const void *bytes, size_t size);
/* Whether a body that came from elsewhere is exactly that. */
bool gathering_bodies_are_whole(const unsigned char *bodies, size_t size, int world_size);
/* A rank's bytes in such a one. */
const unsigned char *gathering_bodies_of(const unsigned char *bodies, int rank, size_t *size);

#endif
