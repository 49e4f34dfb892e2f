/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of doc/bootstrap.md as bytes: a challenge and its proof; then messages of a head
 * with a tag, a body, and a tag of everything. */
#ifndef MUSTER_BOOTSTRAP_MESSAGE_H
#define MUSTER_BOOTSTRAP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOOTSTRAP_GREETING_SIZE 20 /* of a challenge, and of a proof */
#define BOOTSTRAP_HEAD_SIZE 32
#define BOOTSTRAP_TAG_SIZE 8

/* What authenticates the sender of a message. */
struct bootstrap_secret {
	uint64_t session;      /* rank 0's: run_number(); others': drawn by rank 0 for the connection */
	unsigned char key[16]; /* known only to this run's ranks */
};

struct bootstrap_head {
	int rank; /* of the sender, at least 0 */
	uint32_t fence;
	size_t size; /* of the body */
};

/* A message. `bytes` is malloc'ed and belongs to its owner; NULL: none. */
struct bootstrap_message {
	unsigned char *bytes;
	size_t size; /* of the body */
};

/* The first bytes that a rank sends, with its own random number; and their reader, false if they
 * are not from this run. */
void bootstrap_challenge_write(unsigned char out[BOOTSTRAP_GREETING_SIZE], uint64_t run,
	uint64_t challenge);
bool bootstrap_challenge_read(const unsigned char bytes[BOOTSTRAP_GREETING_SIZE], uint64_t run,
	uint64_t *challenge);

/* Rank 0's answer. It proves that rank 0 knows the key, and names the connection's session, rank
 * 0's own random number. `secret` has the run_number(). */
void bootstrap_proof_write(unsigned char out[BOOTSTRAP_GREETING_SIZE],
	const struct bootstrap_secret *secret, uint64_t challenge, uint64_t session);
bool bootstrap_proof_read(const unsigned char bytes[BOOTSTRAP_GREETING_SIZE],
	const struct bootstrap_secret *secret, uint64_t challenge, uint64_t *session);

/* Allocates a message with a body of `size` bytes; `bytes` is NULL when out of memory. */
struct bootstrap_message bootstrap_message_make(size_t size);
unsigned char *bootstrap_message_body(const struct bootstrap_message *message);
/* Bytes of head, body and tag together. */
size_t bootstrap_message_length(size_t size);
/* Writes head and tags around the body. */
void bootstrap_message_seal(const struct bootstrap_message *message,
	const struct bootstrap_secret *secret, int rank, uint32_t fence);

/* Reads a received head of a message with a body of at most `most` bytes. False if it is malformed
 * or not from this sender. */
bool bootstrap_message_head(const unsigned char bytes[BOOTSTRAP_HEAD_SIZE],
	const struct bootstrap_secret *secret, int world_size, size_t most,
	struct bootstrap_head *head);
/* Whether the tag after the body matches a whole received message. */
bool bootstrap_message_is_sealed(const unsigned char *bytes, const struct bootstrap_secret *secret,
	size_t size);

/* Rank 0's body: each rank's length and bytes, in rank order. Returns its length for `size` bytes
 * in total. */
size_t bootstrap_bodies_size(size_t size, size_t world_size);
/* Writes one rank's part; returns where the next one begins. */
unsigned char *bootstrap_bodies_put(unsigned char *at, const void *bytes, size_t size);
/* Whether a received body is exactly of this form. */
bool bootstrap_bodies_are_whole(const unsigned char *bodies, size_t size, int world_size);
/* A rank's bytes in such a body. */
const unsigned char *bootstrap_bodies_of(const unsigned char *bodies, int rank, size_t *size);

#define PUT_LIST_KEY_SIZE 256

/* The values that a rank has put, as the body of its message. Start with zeros; the owner frees
 * `bytes`. */
struct put_list {
	unsigned char *bytes;
	size_t size;
};

/* Adds a value; `key` has at most 255 characters. -1: out of memory. */
int put_list_add(struct put_list *list, const char *key, const void *value, size_t size);

/* The key of a value that is read only until the next fence but one begins with this. */
#define PUT_LIST_PASSING '~'
/* Whether a received list, which may be malformed, has no other values. */
bool put_list_is_passing(const unsigned char *bytes, size_t size);

/* The next value of a received list, which may be malformed; all pointers are inside `bytes`. */
struct put_entry {
	const char *key; /* `length` characters */
	size_t length;
	const void *value;
	size_t size;
};
/* *at is 0 at first. False: it was the last, or the rest is malformed; then *at is not `size`. */
bool put_list_next(const unsigned char *bytes, size_t size, size_t *at, struct put_entry *entry);

/* Finds a key in a received list, which may be malformed. Returns its value, inside `bytes`, or
 * NULL. */
const void *put_list_find(const unsigned char *bytes, size_t left, const char *key, size_t *size);

#endif
