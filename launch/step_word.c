/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank sends the sum of its own word and those of the ranks below it to the rank above. Rank 0
 * sends the sum of all down again. */
#include "config.h"
#include "launch/step_word.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/io.h"
#include "common/thread.h"
#include "launch/rank_links.h"
#include "launch/step_word_data.h"
#include "launch/step_word_peer.h"

#define NEWS_SECONDS 1.0      /* between two messages about who is missing */
#define LOOK_SECONDS 0.25     /* between two looks at whether there is news */
#define RECONNECT_SECONDS 0.1 /* between two tries to reach the rank above */
#define LEAVE_SECONDS 5.0     /* at most, for the last frames to leave this process */

struct step_word {
	int rank, world_size, wake;
	struct rank_links *links;
	struct step_word_peer above; /* rank -1 on rank 0 */
	struct step_word_peer *below;
	int below_count;
	double again, news; /* clock_now() of the next try to connect, and of the next news */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* for all from here on, and for the peers */
	pthread_cond_t changed;
	bool over;
	double leave;         /* clock_now() at which the thread ends in any case, once it is over */
	uint64_t said, heard; /* numbers of steps: this rank has said (at most two more), all have */
	uint64_t own[2];      /* the flags of the last two said, by parity */
	bool passed;          /* the sum of step `heard` is on its way up */
	double since;         /* clock_now() when this rank said its last word */
	struct step_word_sum sum,
		sums[2];                  /* of step `heard` so far; of the last two heard, by parity */
	int missing, lost;            /* a rank whose word is waited for; one that left; -1 */
	uint64_t given, gathered;     /* numbers of gatherings: this rank has given to, are complete */
	struct step_word_inbox inbox; /* on rank 0: of the next gathering */
	struct step_word_inbox last;  /* the last complete one, until it is fetched */
};

static void post_below(struct step_word *word, const struct step_word_frame *frame)
{
	for (int i = 0; i < word->below_count; i++)
		step_word_peer_post(&word->below[i], frame);
}

/* ---- the words; the lock is held ---- */

static void add(struct step_word_sum *sum, uint64_t flags, int rank)
{
	sum->flags |= flags;
	if (rank >= 0 && (sum->rank < 0 || rank < sum->rank))
		sum->rank = rank;
}

static void lose(struct step_word *word, int rank)
{
	if (word->lost >= 0)
		return;
	word->lost = rank;
	const struct step_word_frame left = { STEP_WORD_LEFT, word->heard, 0, rank };
	step_word_peer_post(&word->above, &left);
	post_below(word, &left);
	pthread_cond_broadcast(&word->changed);
}

static void pass(struct step_word *word);

/* This rank's own word of step `heard`, which it may have said already. */
static void add_own(struct step_word *word)
{
	const uint64_t flags = word->own[word->heard & 1];
	if (word->said > word->heard)
		add(&word->sum, flags, flags ? word->rank : -1);
}

/* All ranks have said their word of step `heard`. */
static void hear(struct step_word *word, const struct step_word_sum *sum)
{
	word->sums[word->heard & 1] = *sum;
	post_below(word,
		&(struct step_word_frame) { STEP_WORD_SUM, word->heard, sum->flags, sum->rank });
	word->heard++;
	word->passed = false;
	word->missing = -1;
	word->sum = (struct step_word_sum) { .rank = -1 };
	for (int i = 0; i < word->below_count; i++) {
		word->below[i].said = false;
		word->below[i].waits = -1;
	}
	add_own(word);
	pthread_cond_broadcast(&word->changed);
	pass(word);
}

/* Passes the sum on once this rank and all below it have said their word. */
static void pass(struct step_word *word)
{
	if (word->passed || word->said == word->heard)
		return;
	for (int i = 0; i < word->below_count; i++)
		if (!word->below[i].said)
			return;
	word->passed = true;
	if (word->rank == 0) {
		const struct step_word_sum sum = word->sum;
		hear(word, &sum);
	} else {
		step_word_peer_post(&word->above,
			&(struct step_word_frame) { STEP_WORD_SUM, word->heard, word->sum.flags,
				word->sum.rank });
	}
}

/* ---- gatherings; the lock is held ---- */

static void complete_gathering(struct step_word *word)
{
	word->gathered++;
	post_below(word, &(struct step_word_frame) { STEP_WORD_GOT, 0, 0, 0 });
	pthread_cond_broadcast(&word->changed);
}

/* Takes ownership of what a rank has given. */
static bool take_data(struct step_word *word, struct step_word_data *data)
{
	if (word->rank > 0) {
		step_word_queue_add(&word->above.queue, data);
		return true;
	}
	if (!step_word_inbox_add(&word->inbox, word->world_size, data))
		return false;
	if (word->inbox.count == word->world_size) {
		step_word_inbox_clear(&word->last, word->world_size);
		word->last = word->inbox;
		word->inbox = (struct step_word_inbox) { 0 };
		complete_gathering(word);
	}
	return true;
}

/* ---- news, and what comes in; the lock is held ---- */

/* A rank whose word is missing below; -1: none. */
static int missing_below(const struct step_word *word)
{
	for (int i = 0; i < word->below_count; i++)
		if (!word->below[i].said)
			return word->below[i].waits >= 0 ? word->below[i].waits : word->below[i].rank;
	return -1;
}

/* Tells above whose word is missing below, and below whose rank 0 waits for; or that nothing comes
 * from above, until it does. */
static void tell_news(struct step_word *word)
{
	const double now = clock_now();
	word->news = now + NEWS_SECONDS;
	if (word->said == word->heard || now < word->since + NEWS_SECONDS)
		return;
	const int missing = missing_below(word);
	if (word->rank == 0)
		word->missing = missing;
	else if (missing >= 0)
		step_word_peer_post(&word->above,
			&(struct step_word_frame) { STEP_WORD_WAITS, word->heard, 0, missing });
	const int named = word->missing >= 0 ? word->missing : word->passed ? word->above.rank : -1;
	if (named >= 0 && (word->rank == 0 || word->missing < 0))
		post_below(word, &(struct step_word_frame) { STEP_WORD_WAITS, word->heard, 0, named });
}

static bool take_from_above(struct step_word *word, const struct step_word_frame *frame)
{
	switch (frame->kind) {
	case STEP_WORD_SUM:
		if (!word->passed || frame->step != word->heard)
			return false;
		hear(word, &(struct step_word_sum) { frame->flags, frame->rank });
		return true;
	case STEP_WORD_WAITS:
		if (frame->step == word->heard)
			word->missing = frame->rank;
		post_below(word, frame);
		return true;
	case STEP_WORD_GOT:
		if (word->gathered == word->given)
			return false;
		complete_gathering(word);
		return true;
	case STEP_WORD_LEFT: lose(word, frame->rank); return true;
	default: return false;
	}
}

static bool take_from_below(struct step_word *word, struct step_word_peer *peer,
	const struct step_word_frame *frame)
{
	switch (frame->kind) {
	case STEP_WORD_SUM:
		if (peer->said || frame->step != word->heard)
			return false;
		peer->said = true;
		add(&word->sum, frame->flags, frame->rank);
		pass(word);
		return true;
	case STEP_WORD_WAITS:
		if (frame->step == word->heard)
			peer->waits = frame->rank;
		return true;
	case STEP_WORD_DATA: return step_word_peer_expect(peer, frame);
	case STEP_WORD_LEFT: lose(word, frame->rank); return true;
	default: return false;
	}
}

/* ---- connections; the lock is held ---- */

static void drop_peer(struct step_word *word, struct step_word_peer *peer)
{
	close(peer->fd);
	peer->fd = -1;
	lose(word, peer->rank);
}

/* False: the connection has ended. */
static bool receive(struct step_word *word, struct step_word_peer *peer)
{
	struct step_word_frame frame;
	struct step_word_data *data;
	int got;
	while ((got = step_word_peer_receive(peer, word->world_size, &frame, &data)) > 0)
		if (!(data                         ? take_data(word, data)
					: peer == &word->above ? take_from_above(word, &frame)
										   : take_from_below(word, peer, &frame)))
			return false;
	return got == 0;
}

/* A connection that never came about is tried again: the rank above may be out of descriptors for a
 * moment. */
static void end_peer(struct step_word *word, struct step_word_peer *peer)
{
	if (peer->came) {
		drop_peer(word, peer);
		return;
	}
	close(peer->fd);
	peer->fd = -1;
}

/* Receives what poll has found. A connection in the making is looked after in any case. */
static void serve(struct step_word *word, struct step_word_peer *peer)
{
	if (peer->fd >= 0 && (peer->ready || !peer->came) && !receive(word, peer))
		end_peer(word, peer);
	peer->ready = false;
}

/* Sends what has been posted. A connection has come about once its hello is on its way. */
static void flush(struct step_word *word, struct step_word_peer *peer)
{
	if (peer->fd < 0)
		return;
	if (!step_word_peer_send(peer)) {
		end_peer(word, peer);
	} else if (peer->to_send == 0 && !peer->came) {
		peer->came = true;
		pthread_cond_broadcast(&word->changed);
	}
}

static void connect_above(struct step_word *word)
{
	struct step_word_peer *peer = &word->above;
	if (peer->rank < 0 || peer->fd >= 0 || peer->came || clock_now() < word->again)
		return;
	word->again = clock_now() + RECONNECT_SECONDS;
	peer->fd = rank_links_connect(word->links, peer->rank, peer->out);
	peer->to_send = peer->fd >= 0 ? RANK_LINKS_HELLO : 0;
	if (peer->fd >= 0 && word->passed)
		step_word_peer_post(peer,
			&(struct step_word_frame) { STEP_WORD_SUM, word->heard, word->sum.flags,
				word->sum.rank });
}

static void accept_below(struct step_word *word)
{
	int rank, fd;
	while ((fd = rank_links_accept(word->links, &rank)) >= 0) {
		struct step_word_peer *peer =
			step_word_parent(rank) == word->rank ? &word->below[rank - word->below[0].rank] : NULL;
		if (!peer || peer->came) {
			close(fd);
			continue;
		}
		peer->fd = fd;
		peer->came = true;
		if (word->lost >= 0)
			step_word_peer_post(peer,
				&(struct step_word_frame) { STEP_WORD_LEFT, word->heard, 0, word->lost });
	}
}

/* ---- the thread ---- */

/* What the thread waits for. */
struct waits {
	struct pollfd fds[STEP_WORD_FANOUT + 3];
	struct step_word_peer *peers[STEP_WORD_FANOUT + 3]; /* NULL: of the thread itself */
	int used;
	double seconds;
};

static void add_peer(struct waits *waits, struct step_word_peer *peer)
{
	if (peer->fd < 0)
		return;
	waits->fds[waits->used] = (struct pollfd) { .fd = peer->fd,
		.events = (short)(POLLIN | (step_word_peer_has_to_send(peer) ? POLLOUT : 0)) };
	waits->peers[waits->used++] = peer;
}

static void await_work(struct step_word *word)
{
	struct waits waits = { .fds[0] = { .fd = word->wake, .events = POLLIN },
		.used = 2,
		.seconds = LOOK_SECONDS };
	uint64_t count;
	waits.fds[1] =
		(struct pollfd) { .fd = rank_links_poll(word->links, &waits.seconds), .events = POLLIN };
	pthread_mutex_lock(&word->lock);
	add_peer(&waits, &word->above);
	for (int i = 0; i < word->below_count; i++)
		add_peer(&waits, &word->below[i]);
	if (word->above.rank >= 0 && word->above.fd < 0 && !word->above.came)
		waits.seconds = fmin(waits.seconds, RECONNECT_SECONDS);
	pthread_mutex_unlock(&word->lock);
	poll(waits.fds, (nfds_t)waits.used, (int)(waits.seconds * 1000) + 1);
	for (int i = 2; i < waits.used; i++)
		waits.peers[i]->ready = waits.fds[i].revents != 0;
	if (waits.fds[0].revents)
		eventfd_read(word->wake, &count);
}

static bool owes(const struct step_word_peer *peer)
{
	return peer->fd >= 0 && peer->came && step_word_peer_has_to_send(peer);
}

/* Whether a rank still waits for frames or data from here: the sum of the last step, for one. */
static bool owes_any(const struct step_word *word)
{
	bool any = owes(&word->above);
	for (int i = 0; i < word->below_count; i++)
		any |= owes(&word->below[i]);
	return any;
}

/* False: over. */
static bool work(struct step_word *word)
{
	pthread_mutex_lock(&word->lock);
	connect_above(word);
	accept_below(word);
	serve(word, &word->above);
	for (int i = 0; i < word->below_count; i++)
		serve(word, &word->below[i]);
	if (clock_now() >= word->news)
		tell_news(word);
	flush(word, &word->above);
	for (int i = 0; i < word->below_count; i++)
		flush(word, &word->below[i]);
	bool go_on = !word->over || (owes_any(word) && clock_now() < word->leave);
	pthread_mutex_unlock(&word->lock);
	return go_on;
}

static void *run_thread(void *arg)
{
	while (work(arg))
		await_work(arg);
	return NULL;
}

/* ---- for the owner ---- */

struct step_word *step_word_open(int rank, int world_size, const char *address, struct err *err)
{
	const int first = rank * STEP_WORD_FANOUT + 1;
	struct step_word *word = calloc(1, sizeof *word);
	if (!word) {
		err_set(err, "word: out of memory");
		return NULL;
	}
	*word = (struct step_word) { .rank = rank,
		.world_size = world_size,
		.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.above = { .rank = step_word_parent(rank), .fd = -1, .waits = -1 },
		.sum.rank = -1,
		.missing = -1,
		.lost = -1 };
	pthread_mutex_init(&word->lock, NULL);
	deadline_condition(&word->changed);
	if (first < world_size)
		word->below_count =
			world_size - first < STEP_WORD_FANOUT ? world_size - first : STEP_WORD_FANOUT;
	word->below = calloc((size_t)word->below_count + 1, sizeof *word->below);
	for (int i = 0; i < word->below_count && word->below; i++)
		word->below[i] = (struct step_word_peer) { .rank = first + i, .fd = -1, .waits = -1 };
	if (word->wake < 0)
		err_fail(err, io_status(errno), "word: couldn't make an eventfd: %m");
	else if (!word->below)
		err_set(err, "word: out of memory");
	else if (!(word->links = rank_links_open(rank, world_size, address, err)))
		err_prefix(err, "word: couldn't listen on %s", address);
	else
		return word;
	step_word_close(word);
	return NULL;
}

const char *step_word_place(const struct step_word *word)
{
	return rank_links_place(word->links);
}

int step_word_begin(struct step_word *word, const char *place, struct err *err)
{
	if (word->rank > 0 && rank_links_find(word->links, word->above.rank, place) < 0)
		return err_set(err, "word: rank %d's place is malformed: %.60s", word->above.rank, place);
	int error = thread_start(&word->thread, run_thread, word);
	if (error)
		return err_set(err, "word: couldn't start a thread: %s", strerror(error));
	word->started = true;
	return 0;
}

bool step_word_connected(struct step_word *word, struct deadline deadline)
{
	struct timespec until = deadline_timespec(deadline);
	pthread_mutex_lock(&word->lock);
	while (word->above.rank >= 0 && !word->above.came
		&& pthread_cond_timedwait(&word->changed, &word->lock, &until) == 0)
		;
	bool connected = word->above.rank < 0 || word->above.came;
	pthread_mutex_unlock(&word->lock);
	return connected;
}

static void wake(struct step_word *word)
{
	eventfd_write(word->wake, 1);
}

/* Whether nothing is left for the thread. The one frame that goes up is sent here: that is less
 * work than to wake the thread for it. */
static bool send_up(struct step_word *word)
{
	struct step_word_peer *above = &word->above;
	if (above->fd >= 0 && above->came && above->to_send > 0 && !step_word_peer_send(above))
		return false;
	for (int i = 0; i < word->below_count; i++)
		if (step_word_peer_has_to_send(&word->below[i]))
			return false;
	return !step_word_peer_has_to_send(above);
}

void step_word_say(struct step_word *word, uint64_t flags)
{
	pthread_mutex_lock(&word->lock);
	word->own[word->said & 1] = flags;
	word->since = clock_now();
	if (word->said++ == word->heard)
		add_own(word);
	pass(word);
	bool sent = send_up(word);
	pthread_mutex_unlock(&word->lock);
	if (!sent)
		wake(word);
}

enum step_word_end step_word_wait(struct step_word *word, uint64_t step, struct deadline deadline,
	struct step_word_sum *sum, int *rank)
{
	struct timespec until = deadline_timespec(deadline);
	enum step_word_end end = STEP_WORD_HEARD;
	pthread_mutex_lock(&word->lock);
	while (word->heard <= step && word->lost < 0
		&& pthread_cond_timedwait(&word->changed, &word->lock, &until) == 0)
		;
	*rank = -1;
	if (word->heard > step) {
		*sum = word->sums[step & 1];
	} else if (word->lost >= 0) {
		end = STEP_WORD_LOST;
		*rank = word->lost;
	} else {
		int missing = missing_below(word);
		end = STEP_WORD_LATE;
		*rank = word->missing >= 0 ? word->missing : missing >= 0 ? missing : word->above.rank;
	}
	pthread_mutex_unlock(&word->lock);
	return end;
}

/* ---- gatherings, for the owner ---- */

int step_word_give(struct step_word *word, const void *bytes, uint64_t size, struct err *err)
{
	struct step_word_data *data = step_word_data_make(word->rank, size);
	if (!data)
		return err_set(err, "word: out of memory");
	memcpy(data->bytes, bytes, size);
	pthread_mutex_lock(&word->lock);
	word->given++;
	bool taken = take_data(word, data);
	pthread_mutex_unlock(&word->lock);
	wake(word);
	return taken ? 0 : err_set(err, "word: out of memory");
}

enum step_word_end step_word_gathered(struct step_word *word, struct deadline deadline,
	struct step_word_data ***all, int *rank)
{
	struct timespec until = deadline_timespec(deadline);
	enum step_word_end end = STEP_WORD_HEARD;
	pthread_mutex_lock(&word->lock);
	while (word->gathered < word->given && word->lost < 0
		&& pthread_cond_timedwait(&word->changed, &word->lock, &until) == 0)
		;
	*all = NULL;
	*rank = -1;
	if (word->gathered == word->given) {
		*all = word->last.pieces;
		word->last = (struct step_word_inbox) { 0 };
	} else if (word->lost >= 0) {
		end = STEP_WORD_LOST;
		*rank = word->lost;
	} else {
		end = STEP_WORD_LATE;
		*rank = word->rank > 0 ? word->above.rank
							   : step_word_inbox_missing(&word->inbox, word->world_size);
	}
	pthread_mutex_unlock(&word->lock);
	return end;
}

void step_word_close(struct step_word *word)
{
	if (!word)
		return;
	if (word->started) {
		pthread_mutex_lock(&word->lock);
		word->over = true;
		word->leave = clock_now() + LEAVE_SECONDS;
		pthread_mutex_unlock(&word->lock);
		wake(word);
		pthread_join(word->thread, NULL);
	}
	step_word_peer_close(&word->above);
	for (int i = 0; i < word->below_count && word->below; i++)
		step_word_peer_close(&word->below[i]);
	step_word_inbox_clear(&word->inbox, word->world_size);
	step_word_inbox_clear(&word->last, word->world_size);
	rank_links_close(word->links);
	if (word->wake >= 0)
		close(word->wake);
	pthread_mutex_destroy(&word->lock);
	pthread_cond_destroy(&word->changed);
	free(word->below);
	free(word);
}
