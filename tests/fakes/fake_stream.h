/* SPDX-License-Identifier: Apache-2.0 */
/* The streams and events of the stand-in runtime: what is queued on a stream runs in its order,
 * after the events that the stream was told to wait for, and as late as the tests want. Code
 * that forgets to wait computes with what was there before. */
#ifndef MUSTER_TESTS_FAKE_STREAM_H
#define MUSTER_TESTS_FAKE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

/* When queued work runs. */
enum fake_order {
	FAKE_EAGER,  /* as soon as it can */
	FAKE_LAZY,   /* when someone waits for it, or asks; and then nothing but what that needs */
	FAKE_RANDOM, /* the same, and now and then a piece of any stream that can run */
};

/* One look at queued work: 1 it is done, 0 it has to be looked at again. Never two at once, from
 * whichever thread. */
typedef int fake_step(void *arg);

/* For the streams to come and those that are there. `seed`: of FAKE_RANDOM. */
void fake_stream_order(enum fake_order order, uint64_t seed);

/* Queues work on a stream (NULL: it runs at once, after all that is queued anywhere). `drop` ends
 * the argument when it is done. */
void fake_stream_queue(void *stream, fake_step *step, void (*drop)(void *), void *arg);

/* Waits until the stream has done all that is queued on it; NULL: all streams. */
void fake_stream_wait(void *stream);
/* Whether it has. In any order but the eager one the first answer is no. */
bool fake_stream_ended(void *stream);
/* Does what can be done of all streams. */
void fake_stream_pump(void);

void *fake_stream_create(void);
void fake_stream_destroy(void *stream);

void *fake_event_create(void);
void fake_event_destroy(void *event);
void fake_event_record(void *event, void *stream);
/* What is queued on the stream from now on waits for what the event marks now. */
void fake_event_await(void *event, void *stream);
bool fake_event_ended(void *event);
void fake_event_wait(void *event);
/* Room for the moment at which the stream came to it; 0 in a new one. */
double *fake_event_moment(void *event);

/* What is queued on the stream from now on is kept and not done, until fake_stream_captured(),
 * which gives it, NULL where a wait or a copy of unpinned memory spoilt it. It is queued again by
 * each launch; its steps must be such that can be done again. */
void fake_stream_capture(void *stream);
bool fake_stream_captures(void *stream);
void fake_stream_spoil(void *stream);
void *fake_stream_captured(void *stream);
void fake_graph_launch(void *graph, void *stream);
void fake_graph_destroy(void *graph);

/* The lock that is held in each step, for what steps share with others. */
void fake_stream_lock(void);
void fake_stream_unlock(void);

#endif
