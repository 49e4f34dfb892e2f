/* SPDX-License-Identifier: Apache-2.0 */
/* Moves frames and pieces of data through one socket without waiting for it. */
#include "launch/step_word_peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- out ---- */

void step_word_peer_post(struct step_word_peer *peer, const struct step_word_frame *frame)
{
	if (peer->fd < 0 || peer->to_send + STEP_WORD_FRAME > sizeof peer->out)
		return;
	step_word_frame_write(peer->out + peer->to_send, frame);
	peer->to_send += STEP_WORD_FRAME;
}

bool step_word_peer_has_to_send(const struct step_word_peer *peer)
{
	return peer->to_send > 0 || peer->queue.first;
}

static bool send_frames(struct step_word_peer *peer)
{
	while (peer->to_send > 0) {
		ssize_t sent = send(peer->fd, peer->out, peer->to_send, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0)
			return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
		memmove(peer->out, peer->out + sent, peer->to_send - (size_t)sent);
		peer->to_send -= (size_t)sent;
	}
	return true;
}

/* Frames go first, but not into a piece of data. */
bool step_word_peer_send(struct step_word_peer *peer)
{
	struct step_word_queue *queue = &peer->queue;
	if (step_word_queue_is_under_way(queue) && step_word_queue_send(queue, peer->fd) < 0)
		return false;
	if (step_word_queue_is_under_way(queue))
		return true;
	return send_frames(peer) && (peer->to_send > 0 || step_word_queue_send(queue, peer->fd) >= 0);
}

/* ---- in ---- */

bool step_word_peer_expect(struct step_word_peer *peer, const struct step_word_frame *frame)
{
	peer->data = step_word_data_make(frame->rank, frame->flags);
	return peer->data;
}

/* Reads towards `size` bytes at `to`. 1: all are there. */
static int fill(struct step_word_peer *peer, unsigned char *to, size_t size)
{
	while (peer->have < size) {
		ssize_t got = recv(peer->fd, to + peer->have, size - peer->have, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN))
			return 0;
		if (got <= 0)
			return -1;
		peer->have += (size_t)got;
	}
	peer->have = 0;
	return 1;
}

int step_word_peer_receive(struct step_word_peer *peer, int world_size,
	struct step_word_frame *frame, struct step_word_data **data)
{
	*data = NULL;
	if (peer->data) {
		int got = fill(peer, peer->data->bytes, (size_t)peer->data->size);
		if (got > 0) {
			*data = peer->data;
			peer->data = NULL;
		}
		return got;
	}
	int got = fill(peer, peer->in, STEP_WORD_FRAME);
	return got > 0 && !step_word_frame_read(peer->in, world_size, frame) ? -1 : got;
}

/* Unread bytes would make the kernel drop what is still on its way to the peer. */
void step_word_peer_close(struct step_word_peer *peer)
{
	char rest[1024];
	if (peer->fd >= 0) {
		while (recv(peer->fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
			;
		close(peer->fd);
	}
	step_word_queue_clear(&peer->queue);
	free(peer->data);
}
