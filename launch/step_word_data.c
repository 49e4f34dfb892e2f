/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of data are sent with their frames, and wait at rank 0 until those of all ranks are there.
 */
#include "config.h"
#include "launch/step_word_data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "launch/step_word_frame.h"

struct step_word_data *step_word_data_make(int rank, uint64_t size)
{
	struct step_word_data *data = malloc(sizeof *data + size);
	if (data)
		*data = (struct step_word_data) { .rank = rank, .size = size };
	return data;
}

/* ---- on their way up ---- */

void step_word_queue_add(struct step_word_queue *queue, struct step_word_data *data)
{
	struct step_word_data **at = &queue->first;
	while (*at)
		at = &(*at)->next;
	*at = data;
}

static void drop_first(struct step_word_queue *queue)
{
	struct step_word_data *first = queue->first;
	queue->first = first->next;
	queue->sent = 0;
	free(first);
}

void step_word_queue_clear(struct step_word_queue *queue)
{
	while (queue->first)
		drop_first(queue);
}

/* Sends some of the first piece, with its frame before it. */
static ssize_t send_first(const struct step_word_queue *queue, int fd)
{
	struct step_word_data *data = queue->first;
	unsigned char frame[STEP_WORD_FRAME];
	const size_t of_frame = queue->sent < sizeof frame ? queue->sent : sizeof frame,
				 of_bytes = queue->sent - of_frame;
	step_word_frame_write(frame,
		&(struct step_word_frame) { STEP_WORD_DATA, 0, data->size, data->rank });
	struct iovec pieces[] = { { frame + of_frame, sizeof frame - of_frame },
		{ data->bytes + of_bytes, (size_t)data->size - of_bytes } };
	const struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int step_word_queue_send(struct step_word_queue *queue, int fd)
{
	while (queue->first) {
		ssize_t sent = send_first(queue, fd);
		if (sent < 0)
			return errno == EAGAIN || errno == EINTR || errno == ENOTCONN ? 0 : -1;
		queue->sent += (size_t)sent;
		if (queue->sent == STEP_WORD_FRAME + queue->first->size)
			drop_first(queue);
	}
	return 1;
}

/* ---- on rank 0 ---- */

bool step_word_inbox_add(struct step_word_inbox *inbox, int world_size, struct step_word_data *data)
{
	if (!inbox->pieces)
		inbox->pieces = calloc((size_t)world_size, sizeof(struct step_word_data *));
	if (!inbox->pieces || inbox->pieces[data->rank]) {
		free(data);
		return false;
	}
	inbox->pieces[data->rank] = data;
	inbox->count++;
	return true;
}

int step_word_inbox_missing(const struct step_word_inbox *inbox, int world_size)
{
	int rank = 0;
	while (inbox->pieces && rank < world_size && inbox->pieces[rank])
		rank++;
	return rank < world_size ? rank : -1;
}

void step_word_inbox_clear(struct step_word_inbox *inbox, int world_size)
{
	for (int rank = 0; rank < world_size && inbox->pieces; rank++)
		free(inbox->pieces[rank]);
	free(inbox->pieces);
	*inbox = (struct step_word_inbox) { 0 };
}
