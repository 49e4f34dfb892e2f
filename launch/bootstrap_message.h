/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of doc/bootstrap.md as bytes: a challenge and its proof, and then a head with a tag,
 * a body, and a tag of all. */
#ifndef MUSTER_BOOTSTRAP_MESSAGE_H
#define MUSTER_BOOTSTRAP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOOTSTRAP_GREETING_SIZE 20 /* of a challenge, and of a proof */
#define BOOTSTRAP_HEAD_SIZE 32
#define BOOTSTRAP_TAG_SIZE 8

/* What tells a message's origin. */
struct bootstrap_secret {
	uint64_t session; /* of rank 0's messages the run_number(); of any other's what rank 0 has drawn
						 for its connection */
	unsigned char key[16]; /* which this run's ranks know, and nobody else does */
};

struct bootstrap_head {
	int rank; /* of the sender, at least 0 */
	uint32_t fence;
	size_t size; /* of the body */
};

/* A message; `bytes` is malloc'ed and its owner's, NULL for none. */
struct bootstrap_message {
	unsigned char *bytes;
	size_t size; /* of the body */
};

/* What a rank sends first, with a random number of its own; and what comes as one, false: it is
 * none of this run's. */
void bootstrap_challenge_write(unsigned char out[BOOTSTRAP_GREETING_SIZE], uint64_t run,
	uint64_t challenge);
bool bootstrap_challenge_read(const unsigned char bytes[BOOTSTRAP_GREETING_SIZE], uint64_t run,
	uint64_t *challenge);

/* Rank 0's answer, which shows that it knows the key, with the connection's session, a random
 * number of its own. `secret` has the run_number(). */
void bootstrap_proof_write(unsigned char out[BOOTSTRAP_GREETING_SIZE],
	const struct bootstrap_secret *secret, uint64_t challenge, uint64_t session);
bool bootstrap_proof_read(const unsigned char bytes[BOOTSTRAP_GREETING_SIZE],
	const struct bootstrap_secret *secret, uint64_t challenge, uint64_t *session);

/* Room for a message with a body of so many bytes; without `bytes` when there is no memory. */
struct bootstrap_message bootstrap_message_make(size_t size);
unsigned char *bootstrap_message_body(const struct bootstrap_message *message);
/* Of head, body and tag. */
size_t bootstrap_message_length(size_t size);
/* Writes head and tags around the body. */
void bootstrap_message_seal(const struct bootstrap_message *message,
	const struct bootstrap_secret *secret, int rank, uint32_t fence);

/* Reads a head that came from elsewhere, of a message with a body of at most `most` bytes. False:
 * it is not of this origin. */
bool bootstrap_message_head(const unsigned char bytes[BOOTSTRAP_HEAD_SIZE],
	const struct bootstrap_secret *secret, int world_size, size_t most,
	struct bootstrap_head *head);
/* Whether the tag behind the body is that of a whole message. */
bool bootstrap_message_is_sealed(const unsigned char *bytes, const struct bootstrap_secret *secret,
	size_t size);

/* Rank 0's body: each rank's length and bytes, in rank order. How long that is, of `size` bytes in
 * all. */
size_t bootstrap_bodies_size(size_t size, size_t world_size);
/* Writes one rank's; returns where the next one's begins. */
unsigned char *bootstrap_bodies_put(unsigned char *at, const void *bytes, size_t size);
/* Whether a body that came from elsewhere is exactly that. */
bool bootstrap_bodies_are_whole(const unsigned char *bodies, size_t size, int world_size);
/* A rank's bytes in such a one. */
const unsigned char *bootstrap_bodies_of(const unsigned char *bodies, int rank, size_t *size);

#endif
