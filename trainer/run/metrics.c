/* SPDX-License-Identifier: Apache-2.0 */
/* Appends the lines of the metrics. A line is kept in memory until it is written whole, so that a
 * full disk costs no line once there is room again. */
#include "config.h"

#include "trainer/run/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/io.h"

struct metrics {
	int fd;
	char name[64];
	pthread_mutex_t lock; /* guards what follows; not held while waiting for the disk */
	char *pending;        /* lines that are not written yet */
	size_t size, room;
};

struct metrics *metrics_open(int dirfd, int attempt, struct err *err)
{
	struct metrics *metrics = calloc(1, sizeof *metrics);
	if (!metrics) {
		err_set(err, "metrics: out of memory");
		return NULL;
	}
	pthread_mutex_init(&metrics->lock, NULL);
	snprintf(metrics->name, sizeof metrics->name, "metrics-%d.jsonl", attempt);
	metrics->fd = openat(dirfd, metrics->name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (metrics->fd < 0) {
		err_fail(err, io_status(errno), "metrics: couldn't create %s: %m", metrics->name);
		metrics_close(metrics);
		return NULL;
	}
	/* Makes the name durable once, or lines that metrics_sync makes durable could be lost with
	 * it. */
	if (io_sync_dir(dirfd, err) < 0) {
		err_prefix(err, "metrics: %s", metrics->name);
		metrics_close(metrics);
		return NULL;
	}
	return metrics;
}

static int flush(struct metrics *metrics, struct err *err)
{
	size_t done = 0;
	while (done < metrics->size) {
		ssize_t n = write(metrics->fd, metrics->pending + done, metrics->size - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err_fail(err, io_status(errno), "metrics: couldn't write %s: %m", metrics->name);
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	metrics->size -= done;
	if (metrics->size > 0) /* pending may still be NULL */
		memmove(metrics->pending, metrics->pending + done, metrics->size);
	return metrics->size ? -1 : 0;
}

static int append_locked(struct metrics *metrics, const char *line, struct err *err)
{
	size_t length = strlen(line);
	if (metrics->size + length > metrics->room) {
		size_t room = (metrics->size + length) * 2;
		char *grown = realloc(metrics->pending, room);
		if (!grown)
			return err_set(err, "metrics: out of memory");
		metrics->pending = grown;
		metrics->room = room;
	}
	memcpy(metrics->pending + metrics->size, line, length);
	metrics->size += length;
	return flush(metrics, err);
}

static int append(struct metrics *metrics, const char *line, struct err *err)
{
	pthread_mutex_lock(&metrics->lock);
	int rc = append_locked(metrics, line, err);
	pthread_mutex_unlock(&metrics->lock);
	return rc;
}

/* A number as JSON allows it: NaN and infinity become null. */
static const char *number(float value, char out[32])
{
	if (!isfinite(value))
		return "null";
	snprintf(out, 32, "%.9g", (double)value);
	return out;
}

int metrics_step(struct metrics *metrics, const struct metrics_step *step, struct err *err)
{
	char line[768], loss[32], norm[32], rate[32], time[32], use[40] = "";
	if (step->use > 0)
		snprintf(use, sizeof use, "\"mfu\": %.6g, ", step->use);
	snprintf(line, sizeof line,
		"{\"step\": %llu, \"loss\": %s, \"loss_bits\": \"%08x\", \"norm\": %s, \"norm_bits\": "
		"\"%08x\", \"learning_rate\": %s, \"tokens_per_second\": %.1f, \"milliseconds\": %.3f, "
		"\"exposed_milliseconds\": %.3f, \"communication_milliseconds\": %.3f, \"ranks\": %d, "
		"\"uneven\": %.4f, \"sent_bytes\": %zu, \"ring_bytes\": %zu, %s\"skipped\": %s, \"time\": "
		"\"%s\"}\n",
		(unsigned long long)step->step, number(step->loss, loss), bytes_of_float(step->loss),
		number(step->norm, norm), bytes_of_float(step->norm), number(step->learning_rate, rate),
		step->tokens_per_second, step->milliseconds, step->exposed * 1e3, step->communication * 1e3,
		step->ranks, step->cost.uneven, step->cost.sent, step->cost.ring, use,
		step->skipped ? "true" : "false", clock_iso8601(clock_wall(), time, sizeof time));
	return append(metrics, line, err);
}

int metrics_validation(struct metrics *metrics, uint64_t step, float loss, struct err *err)
{
	char line[256], text[32], time[32];
	snprintf(line, sizeof line,
		"{\"step\": %llu, \"validation_loss\": %s, \"validation_loss_bits\": \"%08x\", \"time\": "
		"\"%s\"}\n",
		(unsigned long long)step, number(loss, text), bytes_of_float(loss),
		clock_iso8601(clock_wall(), time, sizeof time));
	return append(metrics, line, err);
}

int metrics_sample(struct metrics *metrics, uint64_t step, const char *text, struct err *err)
{
	char time[32];
	AUTO_FREE char *line = NULL;
	json_t *value = json_string(text);
	AUTO_FREE char *quoted = record_dump(value, JSON_ENCODE_ANY);
	json_decref(value);
	if (!quoted
		|| asprintf(&line, "{\"step\": %" PRIu64 ", \"sample\": %s, \"time\": \"%s\"}\n", step,
			   quoted, clock_iso8601(clock_wall(), time, sizeof time))
			< 0)
		return err_set(err, "metrics: out of memory");
	return append(metrics, line, err);
}

int metrics_checkpoint(struct metrics *metrics, const struct save_result *saved, struct err *err)
{
	char line[256], time[32];
	snprintf(line, sizeof line,
		"{\"step\": %lld, \"checkpoint\": {\"stall\": %.6f, \"flush\": %.6f, \"bytes\": %llu}, "
		"\"time\": \"%s\"}\n",
		(long long)saved->step, saved->stall, saved->seconds, (unsigned long long)saved->bytes,
		clock_iso8601(clock_wall(), time, sizeof time));
	return append(metrics, line, err);
}

int metrics_sync(struct metrics *metrics, struct err *err)
{
	pthread_mutex_lock(&metrics->lock);
	int rc = flush(metrics, err);
	pthread_mutex_unlock(&metrics->lock);
	if (rc < 0)
		return -1;
	if (fsync(metrics->fd) < 0)
		return err_fail(err, io_status(errno), "metrics: couldn't fsync %s: %m", metrics->name);
	return 0;
}

void metrics_close(struct metrics *metrics)
{
	if (!metrics)
		return;
	if (metrics->fd >= 0) {
		flush(metrics, NULL);
		close(metrics->fd);
	}
	pthread_mutex_destroy(&metrics->lock);
	free(metrics->pending);
	free(metrics);
}
