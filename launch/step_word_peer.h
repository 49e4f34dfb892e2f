/* SPDX-License-Identifier: Apache-2.0 */
/* A connection between two ranks that say their words: what is on its way in and out. */
#ifndef MUSTER_STEP_WORD_PEER_H
#define MUSTER_STEP_WORD_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/rank_links.h"
#include "launch/step_word_data.h"
#include "launch/step_word_frame.h"

#define STEP_WORD_FRAMES 8 /* more are never under way: a word, and news of it */

/* A value, with the rank above or with one below. */
struct step_word_peer {
	int rank, fd; /* -1: no connection yet */
	bool came;    /* there was one */
	bool ready;   /* poll has found something; the thread's alone */
	unsigned char in[STEP_WORD_FRAME], out[STEP_WORD_FRAMES * STEP_WORD_FRAME + RANK_LINKS_HELLO];
	size_t have, to_send;
	struct step_word_queue queue; /* above: what is gathered, beside `out` */
	struct step_word_data *data;  /* below: is being received, `have` bytes of it are there */
	bool said;                    /* below: its word of step `heard` is in the sum */
	int waits;                    /* below: whose word it waits for; -1: not known to wait */
};

/* Adds a frame to what is sent. A peer that takes nothing in has no use for more news, and gets no
 * word before it has said its own. */
void step_word_peer_post(struct step_word_peer *peer, const struct step_word_frame *frame);

bool step_word_peer_has_to_send(const struct step_word_peer *peer);

/* Sends what the socket takes. False: the connection has ended. */
bool step_word_peer_send(struct step_word_peer *peer);

/* After the frame DATA: the bytes come next. False when out of memory. */
bool step_word_peer_expect(struct step_word_peer *peer, const struct step_word_frame *frame);

/* 1: *frame has come, or *data, which is the caller's then and otherwise NULL; 0: nothing more is
 * there; -1: the connection has ended, or what came is malformed. */
int step_word_peer_receive(struct step_word_peer *peer, int world_size,
	struct step_word_frame *frame, struct step_word_data **data);

void step_word_peer_close(struct step_word_peer *peer);

#endif
