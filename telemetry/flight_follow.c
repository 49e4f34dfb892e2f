/* SPDX-License-Identifier: Apache-2.0 */
/* Does what the kernel's write-back would do with a mapped file, but in a thread that no other
 * waits for. */
#include "config.h"

#include "telemetry/flight_follow.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"

#define PAUSE 0.5 /* seconds */

struct flight_follow {
	const struct flight_recorder *flight;
	int dirfd, fd;
	char name[96];
	unsigned char written[FLIGHT_SIZE];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool over;
};

/* A failed write is tried again with the next change. */
static void write_change(struct flight_follow *follow)
{
	unsigned char bytes[FLIGHT_SIZE];
	flight_copy(follow->flight, bytes);
	if (memcmp(bytes, follow->written, sizeof bytes) != 0
		&& pwrite(follow->fd, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes)
		memcpy(follow->written, bytes, sizeof bytes);
}

static void *run_thread(void *arg)
{
	struct flight_follow *follow = arg;
	pthread_mutex_lock(&follow->lock);
	while (!follow->over) {
		struct timespec until = deadline_timespec(deadline_in(PAUSE));
		pthread_mutex_unlock(&follow->lock);
		write_change(follow);
		pthread_mutex_lock(&follow->lock);
		if (!follow->over)
			pthread_cond_timedwait(&follow->wake, &follow->lock, &until);
	}
	pthread_mutex_unlock(&follow->lock);
	return NULL;
}

static void release(struct flight_follow *follow)
{
	pthread_mutex_destroy(&follow->lock);
	pthread_cond_destroy(&follow->wake);
	close(follow->fd);
	free(follow);
}

struct flight_follow *flight_follow_begin(const struct flight_recorder *flight, int dirfd,
	const char *name, struct err *err)
{
	struct flight_follow *follow = calloc(1, sizeof *follow);
	if (!follow) {
		err_set(err, "flight recorder: out of memory");
		return NULL;
	}
	follow->flight = flight;
	follow->dirfd = dirfd;
	snprintf(follow->name, sizeof follow->name, "%s", name);
	flight_copy(flight, follow->written);
	follow->fd = flight_create_file(dirfd, name, follow->written, err);
	if (follow->fd < 0) {
		free(follow);
		return NULL;
	}
	pthread_mutex_init(&follow->lock, NULL);
	deadline_condition(&follow->wake);
	int error = thread_start(&follow->thread, run_thread, follow);
	if (error == 0)
		return follow;
	err_set(err, "flight recorder: couldn't start a thread: %s", strerror(error));
	unlinkat(dirfd, name, 0);
	release(follow);
	return NULL;
}

void flight_follow_end(struct flight_follow *follow, bool remove)
{
	if (!follow)
		return;
	pthread_mutex_lock(&follow->lock);
	follow->over = true;
	pthread_cond_signal(&follow->wake);
	pthread_mutex_unlock(&follow->lock);
	pthread_join(follow->thread, NULL);
	if (remove)
		unlinkat(follow->dirfd, follow->name, 0);
	else
		write_change(follow);
	release(follow);
}
