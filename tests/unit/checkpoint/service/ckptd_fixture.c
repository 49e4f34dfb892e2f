/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer of the tests of the checkpoint service. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/pending_save.h"
#include "common/clock.h"
#include "tests/unit/checkpoint/service/ckptd_fixture.h"

#define BALLAST "ballast"

const char *ckptd_program(void)
{
	static char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 20);
	assert_true(length > 0);
	path[length] = '\0';
	for (int up = 0; up < 3; up++)
		*strrchr(path, '/') = '\0';
	strcat(path, "/muster-ckptd");
	assert_int_equal(access(path, X_OK), 0);
	setenv("MUSTER_CKPTD_PROGRAM", path, 1);
	return path;
}

static void note(struct ckptd_fixture *fixture, struct ckptd_event event, const char *text)
{
	snprintf(event.text, sizeof event.text, "%s", text);
	pthread_mutex_lock(&fixture->lock);
	if (fixture->count < CKPTD_EVENTS)
		fixture->events[fixture->count++] = event;
	ckptd_fixture_event *also = fixture->also;
	pthread_mutex_unlock(&fixture->lock);
	if (also)
		also(fixture, &event);
}

static void on_ended(void *arg, const struct save_result *result)
{
	const struct ckptd_event event = { .type = (enum ckptd_event_type)result->outcome,
		.step = result->step,
		.bytes = result->bytes,
		.seconds = result->seconds };
	note(arg, event, result->err.text);
}

static void on_lost(void *arg, const char *text)
{
	bool replaced = strstr(text, " took over, with ");
	note(arg, (struct ckptd_event) { .type = replaced ? CKPTD_RESTARTED : CKPTD_GONE }, text);
}

/* Tensors and slices are dealt out in their order; the ballast is the last part's. */
static void lay_out(struct ckptd_fixture *fixture, int part, int parts)
{
	struct ckpt_sample *sample = fixture->memory.base[0];
	struct snapshot_tensor *more = fixture->tensors + CKPT_SAMPLE_TENSORS;
	ckpt_sample_fill(sample, 0);
	fixture->snapshot = sample->snapshot;
	ckpt_sample_add_state(sample);
	memcpy(fixture->tensors, sample->tensors, CKPT_SAMPLE_TENSORS * sizeof *more);
	memcpy(fixture->slices, sample->slices, sizeof sample->slices);
	memcpy(fixture->box, sample->box, sizeof sample->box);
	if (fixture->ballast > 0)
		*more++ = (struct snapshot_tensor) { .name = BALLAST,
			.dtype = SAFETENSORS_U8,
			.dims = 1,
			.shape = { (int64_t)fixture->ballast },
			.data = sample + 1 };
	memcpy(more, sample->tensors + CKPT_SAMPLE_TENSORS, CKPT_SAMPLE_STATE * sizeof *more);
	for (int i = 0; i <= CKPT_SAMPLE_TENSORS; i++)
		fixture->tensors[i].writer = i * parts / (CKPT_SAMPLE_TENSORS + 1);
	for (int i = 0; i < CKPT_SAMPLE_STATE; i++) {
		more[i].writer = i * parts / CKPT_SAMPLE_STATE;
		more[i].box = more[i].box ? &fixture->box[i] : NULL;
	}
	for (int i = 0; i < CKPT_SAMPLE_SLICES; i++)
		fixture->slices[i].writer = i * parts / CKPT_SAMPLE_SLICES;
	fixture->snapshot.tensors = fixture->tensors;
	fixture->snapshot.tensor_count = CKPT_SAMPLE_TENSORS + (fixture->ballast > 0);
	fixture->snapshot.slices = fixture->slices;
	fixture->snapshot.part = part;
	fixture->snapshot.parts = parts;
}

void ckptd_fixture_make(struct ckptd_fixture *fixture, const char *path, size_t ballast, int part,
	int parts, const char *token)
{
	struct owner owner = { .attempt = 2 };
	struct err err;
	memset(fixture, 0, sizeof *fixture);
	fixture->ballast = ballast;
	pthread_mutex_init(&fixture->lock, NULL);
	if (ckpt_dir_open(&fixture->dir, path, &err) < 0
		|| (part == 0 && owner_claim(&fixture->dir, &owner, NULL, NULL, 5, &err) < 0)
		|| snapshot_memory_create(&fixture->memory, 2, sizeof(struct ckpt_sample) + ballast, &err)
			< 0)
		fail_msg("%s", err.text);
	snprintf(fixture->token, sizeof fixture->token, "%s", part == 0 ? owner.token : token);
	lay_out(fixture, part, parts);
	fixture->plan = (struct ckptd_plan) { .dir = &fixture->dir,
		.token = fixture->token,
		.memory = &fixture->memory,
		.snapshot = &fixture->snapshot,
		.timeout = HANG_SECONDS,
		.host = "127.0.0.1",
		.ended = on_ended,
		.lost = on_lost,
		.arg = fixture };
}

void ckptd_fixture_also(struct ckptd_fixture *fixture, ckptd_fixture_event *also)
{
	pthread_mutex_lock(&fixture->lock);
	fixture->also = also;
	pthread_mutex_unlock(&fixture->lock);
}

/* The addresses are not there any more when the client looks for another service. */
void ckptd_fixture_open(struct ckptd_fixture *fixture)
{
	struct ckptd_plan *plan = &fixture->plan;
	char *host = strdup(plan->host), *first = plan->first ? strdup(plan->first) : NULL;
	struct err err;
	plan->host = host;
	plan->first = first;
	fixture->client = ckptd_client_open(plan, &err);
	if (!fixture->client)
		fail_msg("%s", err.text);
	plan->host = plan->first = NULL;
	free(host), free(first);
}

void ckptd_fixture_end(struct ckptd_fixture *fixture)
{
	ckptd_client_close(fixture->client, 0);
	snapshot_memory_release(&fixture->memory);
	ckpt_dir_close(&fixture->dir);
	pthread_mutex_destroy(&fixture->lock);
}

static unsigned char ballast_of(int64_t step)
{
	return (unsigned char)(step * 37 + 11);
}

int ckptd_fixture_fill(struct ckptd_fixture *fixture, int64_t step)
{
	int buffer = ckptd_client_buffer(fixture->client, -1, HANG_SECONDS);
	assert_true(buffer >= 0);
	struct ckpt_sample *sample = fixture->memory.base[buffer];
	ckpt_sample_fill(sample, step);
	if (step % 2 == 0)
		ckpt_sample_add_state(sample);
	memset(sample + 1, ballast_of(step), fixture->ballast);
	return buffer;
}

struct snapshot ckptd_fixture_describe(struct ckptd_fixture *fixture, int buffer, int64_t step)
{
	const struct ckpt_sample *sample = fixture->memory.base[buffer];
	struct snapshot snapshot = fixture->snapshot;
	snapshot.at = sample->snapshot.at;
	snapshot.at.step = step;
	if (!sample->snapshot.values_json)
		return snapshot;
	memcpy(fixture->values[buffer], sample->values, sizeof sample->values);
	snapshot.values_json = fixture->values[buffer];
	snapshot.tensor_count += CKPT_SAMPLE_STATE;
	return snapshot;
}

void ckptd_fixture_save(struct ckptd_fixture *fixture, int64_t step)
{
	int buffer = ckptd_fixture_fill(fixture, step);
	const struct snapshot snapshot = ckptd_fixture_describe(fixture, buffer, step);
	struct err err;
	if (ckptd_client_save(fixture->client, buffer, &snapshot, &err) < 0)
		fail_msg("%s", err.text);
}

void ckptd_fixture_await_durable(struct ckptd_fixture *fixture, int64_t step)
{
	struct err err;
	if (ckptd_client_wait(fixture->client, step, HANG_SECONDS, &err) < 0)
		fail_msg("%s", err.text);
}

void ckptd_fixture_durable(struct ckptd_fixture *fixture, int64_t step)
{
	ckptd_fixture_save(fixture, step);
	ckptd_fixture_await_durable(fixture, step);
}

static int find_event(struct ckptd_fixture *fixture, enum ckptd_event_type type, int64_t step,
	int *first)
{
	int found = 0;
	pthread_mutex_lock(&fixture->lock);
	for (int i = fixture->count - 1; i >= 0; i--)
		if (fixture->events[i].type == type && (step < 0 || fixture->events[i].step == step)) {
			found++;
			*first = i;
		}
	pthread_mutex_unlock(&fixture->lock);
	return found;
}

int ckptd_fixture_events(struct ckptd_fixture *fixture, enum ckptd_event_type type, int64_t step)
{
	int first;
	return find_event(fixture, type, step, &first);
}

const char *ckptd_fixture_await(struct ckptd_fixture *fixture, enum ckptd_event_type type,
	int64_t step)
{
	int first;
	CKPTD_UNTIL(find_event(fixture, type, step, &first) > 0);
	return fixture->events[first].text;
}

static void check_ballast(struct ckptd_fixture *fixture, struct ckpt *ckpt, int64_t step)
{
	struct err err;
	unsigned char *bytes = malloc(fixture->ballast + 1);
	if (ckpt_read_tensor(ckpt, BALLAST, 0, fixture->ballast, bytes, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < fixture->ballast; i++)
		if (bytes[i] != ballast_of(step))
			fail_msg("byte %zu of the ballast differs", i);
	free(bytes);
}

void ckptd_fixture_check(struct ckptd_fixture *fixture, int64_t step)
{
	struct ckpt *ckpt;
	struct err err;
	if (ckpt_open(&fixture->dir, step, 0.2, &ckpt, &err) < 0 || ckpt_verify(ckpt, &err) < 0
		|| ckpt_sample_check(ckpt, step, &err) < 0)
		fail_msg("%s", err.text);
	if (fixture->ballast > 0)
		check_ballast(fixture, ckpt, step);
	ckpt_close(ckpt);
}

static bool exists(const struct ckptd_fixture *fixture, const char *name)
{
	struct stat st;
	return fstatat(fixture->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

bool ckptd_fixture_has(const struct ckptd_fixture *fixture, int64_t step)
{
	char name[CKPT_STEP_NAME_SIZE];
	return exists(fixture, ckpt_step_name(step, name));
}

bool ckptd_fixture_saving(const struct ckptd_fixture *fixture, int64_t step)
{
	struct pending_save saving;
	pending_save_init(&saving, &fixture->dir, step, fixture->token);
	return exists(fixture, saving.hidden);
}
