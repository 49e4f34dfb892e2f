/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/fake_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_MICROSECONDS 100

/* A place in a stream: after that many of the tasks that it was ever given. */
struct place {
	struct stream *stream;
	uint64_t count;
};

struct task {
	struct task *next;
	fake_step *step; /* NULL: it waits for a place in another stream */
	void (*drop)(void *);
	void *arg;
	struct place place;
	struct event *event; /* that it records, in a graph; NULL: none */
};

struct stream {
	struct stream *next;
	struct task *head, *tail;
	uint64_t queued, done;
	struct stream *kept; /* while it is captured: what was queued meanwhile, in a stream that never
							runs; NULL: it isn't */
	bool spoilt;
};

struct event {
	struct place place;
	double moment;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams;
static enum fake_order order;
static uint64_t random_state;

void fake_stream_lock(void)
{
	pthread_mutex_lock(&lock);
}
void fake_stream_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static bool reached(struct place place)
{
	return !place.stream || place.stream->done >= place.count;
}

static void end_task(struct stream *stream)
{
	struct task *task = stream->head;
	stream->head = task->next;
	if (!stream->head)
		stream->tail = NULL;
	stream->done++;
	if (task->drop)
		task->drop(task->arg);
	free(task);
}

/* One look at what is first. False: it has to wait. */
static bool advance(struct stream *stream)
{
	struct task *task = stream->head;
	if (!task || !(task->step ? task->step(task->arg) : reached(task->place)))
		return false;
	end_task(stream);
	return true;
}

/* Runs what a place needs, and nothing else. */
static bool demand(struct place place)
{
	while (!reached(place)) {
		const struct task *task = place.stream->head;
		if (!task->step && !demand(task->place))
			return false;
		if (!advance(place.stream))
			return false;
	}
	return true;
}

static void run_all(void)
{
	bool any = true;
	while (any) {
		any = false;
		for (struct stream *stream = streams; stream; stream = stream->next)
			while (advance(stream))
				any = true;
	}
}

/* xorshift64* */
static uint64_t draw(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * UINT64_C(0x2545F4914F6CDD1D);
}

/* What happens beside a call. */
static void run_some(void)
{
	if (order == FAKE_EAGER)
		run_all();
	for (struct stream *stream = streams; order == FAKE_RANDOM && stream; stream = stream->next)
		for (uint64_t count = draw() >> 61; count > 0 && advance(stream); count--)
			;
}

void fake_stream_order(enum fake_order wanted, uint64_t seed)
{
	fake_stream_lock();
	order = wanted;
	random_state = seed * 2 + 1;
	fake_stream_unlock();
}

static void append(struct stream *stream, const struct task *given)
{
	struct task *task = malloc(sizeof *task);
	stream = stream->kept ? stream->kept : stream;
	*task = *given;
	if (stream->tail)
		stream->tail->next = task;
	else
		stream->head = task;
	stream->tail = task;
	stream->queued++;
	run_some();
}

void fake_stream_queue(void *stream, fake_step *step, void (*drop)(void *), void *arg)
{
	if (!stream)
		fake_stream_wait(NULL);
	fake_stream_lock();
	if (stream)
		append(stream, &(struct task) { .step = step, .drop = drop, .arg = arg });
	else if (step(arg) && drop)
		drop(arg);
	fake_stream_unlock();
}

static bool all_demanded(void)
{
	bool all = true;
	for (struct stream *stream = streams; stream; stream = stream->next)
		all = demand((struct place) { stream, stream->queued }) && all;
	return all;
}

void fake_stream_wait(void *at)
{
	struct stream *stream = at;
	for (;;) {
		fake_stream_lock();
		bool ended = stream ? demand((struct place) { stream, stream->queued }) : all_demanded();
		fake_stream_unlock();
		if (ended)
			return;
		usleep(LOOK_MICROSECONDS);
	}
}

/* Who asks is told what was so before; then it goes on. */
static bool ask(struct place place)
{
	fake_stream_lock();
	bool ended = reached(place);
	if (!ended)
		demand(place);
	run_some();
	ended = ended || (order == FAKE_EAGER && reached(place));
	fake_stream_unlock();
	return ended;
}

bool fake_stream_ended(void *at)
{
	struct stream *stream = at;
	fake_stream_lock();
	struct place place = { stream, stream->queued };
	fake_stream_unlock();
	return ask(place);
}

void fake_stream_pump(void)
{
	fake_stream_lock();
	run_all();
	fake_stream_unlock();
}

void *fake_stream_create(void)
{
	struct stream *stream = calloc(1, sizeof *stream);
	fake_stream_lock();
	stream->next = streams;
	streams = stream;
	fake_stream_unlock();
	return stream;
}

/* No event marks a place in it any more. */
void fake_stream_destroy(void *at)
{
	struct stream *stream = at, **link = &streams;
	fake_stream_wait(stream);
	fake_stream_lock();
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	fake_stream_unlock();
	free(stream);
}

void *fake_event_create(void)
{
	return calloc(1, sizeof(struct event));
}
void fake_event_destroy(void *event)
{
	free(event);
}
double *fake_event_moment(void *event)
{
	return &((struct event *)event)->moment;
}

void fake_event_record(void *event, void *at)
{
	struct stream *stream = at;
	fake_stream_lock();
	if (stream->kept) {
		append(stream, &(struct task) { .event = event });
		fake_stream_unlock();
		return;
	}
	((struct event *)event)->place = (struct place) { stream, stream->queued };
	run_some();
	fake_stream_unlock();
}

void fake_event_await(void *event, void *stream)
{
	fake_stream_lock();
	append(stream, &(struct task) { .place = ((struct event *)event)->place });
	fake_stream_unlock();
}

bool fake_event_ended(void *event)
{
	fake_stream_lock();
	struct place place = ((struct event *)event)->place;
	fake_stream_unlock();
	return ask(place);
}

void fake_event_wait(void *event)
{
	while (!fake_event_ended(event))
		usleep(LOOK_MICROSECONDS);
}

/* ---- graphs ---- */

void fake_stream_capture(void *at)
{
	struct stream *stream = at;
	fake_stream_lock();
	stream->kept = calloc(1, sizeof *stream->kept);
	stream->spoilt = false;
	fake_stream_unlock();
}

bool fake_stream_captures(void *at)
{
	return at && ((struct stream *)at)->kept;
}

void fake_stream_spoil(void *at)
{
	((struct stream *)at)->spoilt = true;
}

void *fake_stream_captured(void *at)
{
	struct stream *stream = at;
	fake_stream_lock();
	struct stream *kept = stream->kept;
	stream->kept = NULL;
	fake_stream_unlock();
	if (!kept || !stream->spoilt)
		return kept;
	fake_graph_destroy(kept);
	return NULL;
}

/* Each task again, its argument still the graph's. */
void fake_graph_launch(void *graph, void *at)
{
	struct stream *stream = at;
	fake_stream_lock();
	for (const struct task *task = ((struct stream *)graph)->head; task; task = task->next)
		if (task->event)
			task->event->place = (struct place) { stream, stream->queued };
		else
			append(stream,
				&(struct task) { .step = task->step, .arg = task->arg, .place = task->place });
	fake_stream_unlock();
}

/* Not before all that is queued has ended. */
void fake_graph_destroy(void *graph)
{
	struct stream *kept = graph;
	fake_stream_wait(NULL);
	while (kept->head)
		end_task(kept);
	free(kept);
}
