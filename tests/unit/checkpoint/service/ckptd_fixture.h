/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer's side of the checkpoint service: a directory that it owns, the memory of its snapshots
 * with the sample state and ballast in it, a client, and the events that came. Include after
 * cmocka.h and tests/unit/files.h. */
#ifndef MUSTER_CKPTD_FIXTURE_H
#define MUSTER_CKPTD_FIXTURE_H

#include <pthread.h>
#include <sys/types.h>

#include "checkpoint/client/ckptd_client.h"
#include "checkpoint/directory/owner.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/hang.h"

#define CKPTD_EVENTS 1024

/* The end of a save, or news about the service. */
enum ckptd_event_type {
	CKPTD_WRITTEN = SAVE_WRITTEN,
	CKPTD_DURABLE = SAVE_DURABLE,
	CKPTD_FAILED = SAVE_FAILED,
	CKPTD_NO_SERVICE = SAVE_REFUSED,
	CKPTD_RESTARTED,
	CKPTD_GONE,
};

struct ckptd_event {
	enum ckptd_event_type type;
	int64_t step;
	uint64_t bytes;
	double seconds;
	char text[400];
};

struct ckptd_fixture;
typedef void ckptd_fixture_event(struct ckptd_fixture *fixture, const struct ckptd_event *event);

struct ckptd_fixture {
	struct ckpt_dir dir;
	char token[33];
	struct snapshot_memory memory;
	struct snapshot_tensor tensors[CKPT_SAMPLE_TENSORS + 1 + CKPT_SAMPLE_STATE];
	struct snapshot_box box[3];
	char values[SNAPSHOT_BUFFERS][sizeof((struct ckpt_sample *)0)->values];
	struct snapshot_slice slices[CKPT_SAMPLE_SLICES];
	struct snapshot snapshot;
	struct ckptd_plan plan;
	struct ckptd_client *client;
	size_t ballast; /* bytes */
	pthread_mutex_t lock;
	struct ckptd_event events[CKPTD_EVENTS];
	int count;
	ckptd_fixture_event *also;
};

/* The program under test, from where the test's own lies; sets MUSTER_CKPTD_PROGRAM to it. */
const char *ckptd_program(void);

/* A trainer whose checkpoint directory is `path`, with `ballast` bytes besides the sample state,
 * that has part `part` of `parts`. Part 0 claims the directory; the others have `token`, of part
 * 0's. Fails the test on errors. */
void ckptd_fixture_make(struct ckptd_fixture *fixture, const char *path, size_t ballast, int part,
	int parts, const char *token);

/* What is called with each event besides, from the client's thread; NULL: nothing. */
void ckptd_fixture_also(struct ckptd_fixture *fixture, ckptd_fixture_event *also);

/* Opens the client; the plan may be changed before. */
void ckptd_fixture_open(struct ckptd_fixture *fixture);
void ckptd_fixture_end(struct ckptd_fixture *fixture);

/* Fills a free buffer with the state after `step` steps. Returns the buffer. */
int ckptd_fixture_fill(struct ckptd_fixture *fixture, int64_t step);

/* The same, and hands it over. */
/* What is in a buffer that ckptd_fixture_fill has filled. */
struct snapshot ckptd_fixture_describe(struct ckptd_fixture *fixture, int buffer, int64_t step);

void ckptd_fixture_save(struct ckptd_fixture *fixture, int64_t step);

/* Waits until the save is durable. */
void ckptd_fixture_await_durable(struct ckptd_fixture *fixture, int64_t step);

/* Saves, and waits for the end. */
void ckptd_fixture_durable(struct ckptd_fixture *fixture, int64_t step);

/* How many events of the type came, of the step or (-1) of any. */
int ckptd_fixture_events(struct ckptd_fixture *fixture, enum ckptd_event_type type, int64_t step);

/* Waits for the first such event and returns its text; fails the test after HANG_SECONDS. */
const char *ckptd_fixture_await(struct ckptd_fixture *fixture, enum ckptd_event_type type,
	int64_t step);

/* The step is there and verifies, with the sample state in it and the ballast. */
void ckptd_fixture_check(struct ckptd_fixture *fixture, int64_t step);

/* Whether DIR has a folder of the step; of an unfinished save of it. */
bool ckptd_fixture_has(const struct ckptd_fixture *fixture, int64_t step);
bool ckptd_fixture_saving(const struct ckptd_fixture *fixture, int64_t step);

/* Waits for a condition. */
#define CKPTD_UNTIL(condition) \
	do { \
		struct deadline until_ = deadline_in(HANG_SECONDS); \
		while (!(condition)) \
			if (!deadline_sleep(until_, 0.002)) \
				fail_msg("waited in vain for " #condition); \
	} while (0)

#endif
