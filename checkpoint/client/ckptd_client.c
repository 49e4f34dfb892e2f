/* SPDX-License-Identifier: Apache-2.0 */
/* Hands snapshots to the checkpoint service without making the trainer wait for it. One thread owns
 * the connection, and completes the buffers before it hands them over. The trainer's calls note
 * what they want under the lock, wake the thread, and some wait for the result. A save stays in the
 * list until it ends, so that a new service can be given it again. */
#include "config.h"
#include "checkpoint/client/ckptd_client.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "checkpoint/client/ckptd_contact.h"
#include "checkpoint/client/ckptd_entries.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "common/thread.h"

#define DEATHS_MAX 3 /* services lost in a row over the same saves */
#define RETRY_SECONDS 5.0
#define TICK_SECONDS 1.0

struct ckptd_client {
	struct ckptd_plan plan;
	struct ckptd_contact contact; /* used by the thread alone */
	int wake;
	pthread_t thread;

	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t changed;
	struct ckptd_entries entries;
	pid_t pid; /* the service's; 0: none */
	bool connected, closing, wanted, gone;
	double next_try; /* clock_now() at which to look for a service again */
	int deaths;      /* since a save last ended */
	struct ckptd_progress progress;
	struct err why; /* why there is no service; changed by the thread alone */
};

/* ---- the ends of saves, with the lock held ---- */

/* Called with the lock held; releases it during the callback, which may take its time. The callback
 * comes before the change of state, so that a waiter finds the result already reported. */
static void end_entry(struct ckptd_client *client, struct ckptd_entry *entry,
	struct save_result result)
{
	result.step = entry->snapshot.at.step;
	result.seconds = clock_now() - entry->since;
	if (result.outcome == SAVE_DURABLE)
		log_progress();
	pthread_mutex_unlock(&client->lock);
	if (client->plan.ended)
		client->plan.ended(client->plan.arg, &result);
	pthread_mutex_lock(&client->lock);
	entry->result = result;
	entry->buffer = -1;
	pthread_cond_broadcast(&client->changed);
	ckptd_entries_forget_old(&client->entries);
}

/* ---- services come and go ---- */

/* Called with the lock held; releases it while it works. */
static void get_service(struct ckptd_client *client)
{
	struct err err;
	client->wanted = false;
	pthread_mutex_unlock(&client->lock);
	int rc = ckptd_contact_find(&client->contact, &err);
	pthread_mutex_lock(&client->lock);
	client->connected = rc == 0;
	client->pid = client->connected ? (pid_t)client->contact.service : 0;
	client->next_try = clock_now() + RETRY_SECONDS;
	if (rc < 0)
		client->why = err;
}

/* Called with the lock held; releases it during the callback. */
static void tell_lost(struct ckptd_client *client, const char *text)
{
	pthread_mutex_unlock(&client->lock);
	if (client->plan.lost)
		client->plan.lost(client->plan.arg, text);
	pthread_mutex_lock(&client->lock);
}

/* Services died one after the other: their saves fail, and the next service is looked for when
 * there is a new save. */
static void give_up(struct ckptd_client *client)
{
	struct ckptd_entry *entry;
	struct save_result failed = { .outcome = SAVE_FAILED };
	err_fail(&failed.err, EXIT_LOST,
		"checkpoint: %d services in a row were lost over it; the last: %.500s", client->deaths,
		client->why.text);
	while ((entry = ckptd_entries_first_running(&client->entries)))
		end_entry(client, entry, failed);
	ckptd_entries_decide(&client->entries, -1);
	client->deaths = DEATHS_MAX - 1;
	client->next_try = clock_now() + RETRY_SECONDS;
	client->gone = true;
	tell_lost(client, client->why.text);
}

static void look_for_service(struct ckptd_client *client)
{
	struct ckptd_entry *entry;
	bool lost = client->why.text[0], again = client->gone;
	char text[sizeof client->why.text + 200];
	get_service(client);
	client->gone = !client->connected;
	if (client->connected) {
		snprintf(text, sizeof text, "%s; pid %d took over, with %d saves that were not durable",
			client->why.text, (int)client->pid, ckptd_entries_undone(&client->entries));
		client->why.text[0] = '\0';
		if (lost)
			tell_lost(client, text);
		return;
	}
	while ((entry = ckptd_entries_first_new(&client->entries, true)))
		end_entry(client, entry,
			(struct save_result) { .outcome = SAVE_REFUSED, .err = client->why });
	if (!again)
		tell_lost(client, client->why.text);
}

/* The connection broke. Saves that were sent over it and have not ended are sent again over the
 * next one. Called with the lock held; releases it while it works. */
static void lose_service(struct ckptd_client *client, const struct err *why)
{
	struct err said;
	client->connected = false;
	client->why = *why;
	pthread_mutex_unlock(&client->lock);
	ckptd_contact_lose(&client->contact, why, &said);
	pthread_mutex_lock(&client->lock);
	client->why = said;
	client->next_try = 0;
	ckptd_entries_unsend(&client->entries);
	if (++client->deaths >= DEATHS_MAX)
		give_up(client);
}

/* ---- the thread ---- */

/* Called with the lock held; releases it while it waits. */
static void complete_saves(struct ckptd_client *client)
{
	struct save_result failed = { .outcome = SAVE_FAILED };
	struct ckptd_entry *entry;
	while ((entry = ckptd_entries_first_new(&client->entries, false))) {
		pthread_mutex_unlock(&client->lock);
		int rc = client->plan.complete(client->plan.arg, entry->buffer, &entry->snapshot.at,
			&failed.err);
		pthread_mutex_lock(&client->lock);
		entry->complete = true;
		entry->since = clock_now();
		if (rc < 0)
			end_entry(client, entry, failed);
	}
}

/* -1: the service is lost. The save of a snapshot that can't be put into a message fails. */
static int send_save(struct ckptd_client *client, struct ckptd_entry *entry, struct err *err)
{
	struct ckptd_message message = { .type = CKPTD_SAVE,
		.save = { .buffer = -1, .at = entry->snapshot.at } };
	int rc = 0;
	if (entry->buffer >= 0)
		rc = ckptd_save_describe(&message.save, &entry->snapshot, client->plan.memory,
			entry->buffer, err);
	if (rc == 0)
		rc = ckptd_conn_send(&client->contact.link.conn, &message, NULL, 0, err);
	ckptd_message_release(&message);
	entry->sent = rc == 0;
	if (rc == 0 || err->status == EXIT_LOST)
		return rc;
	end_entry(client, entry, (struct save_result) { .outcome = SAVE_FAILED, .err = *err });
	return 0;
}

static int send_saves(struct ckptd_client *client, struct err *err)
{
	struct ckptd_conn *conn = &client->contact.link.conn;
	struct ckptd_entry *entry;
	while ((entry = ckptd_entries_first_unsent(&client->entries)))
		if (send_save(client, entry, err) < 0)
			return -1;
	if (ckptd_conn_flush(conn, err) < 0)
		return -1;
	/* Data in the socket's buffer reaches the service even if this process dies. */
	if (!conn->first)
		ckptd_entries_hand(&client->entries);
	pthread_cond_broadcast(&client->changed);
	return 0;
}

/* The save is over for all parts, or it failed and this part is gone with it. */
static void on_decided(struct ckptd_client *client, int64_t step)
{
	ckptd_entries_decide(&client->entries, step);
	ckptd_entries_forget_old(&client->entries);
}

static void on_result(struct ckptd_client *client, const struct save_result *result)
{
	struct ckptd_entry *entry = ckptd_entries_running(&client->entries, result->step);
	client->deaths = 0;
	/* A part that the previous service wrote is reported only once. */
	if (entry && entry->result.outcome != result->outcome)
		end_entry(client, entry, *result);
	if (result->outcome == SAVE_FAILED)
		on_decided(client, result->step);
}

static int on_message(struct ckptd_client *client, const struct ckptd_message *message,
	struct err *err)
{
	switch (message->type) {
	case CKPTD_PROGRESS: client->progress = message->progress; return 0;
	case CKPTD_SAVE_WRITTEN:
	case CKPTD_SAVE_DURABLE:
	case CKPTD_SAVE_FAILED: on_result(client, &message->result); return 0;
	case CKPTD_DECIDED: on_decided(client, message->decided.step); return 0;
	case CKPTD_REFUSED: return err_fail(err, EXIT_DATA, "refused: %s", message->refused.text);
	default:
		return err_fail(err, EXIT_DATA, "protocol: %s came to a client",
			ckptd_type_name(message->type));
	}
}

static int receive(struct ckptd_client *client, struct err *err)
{
	struct ckptd_message message;
	int rc;
	while ((rc = ckptd_conn_receive(&client->contact.link.conn, &message, err)) > 0) {
		rc = on_message(client, &message, err);
		ckptd_message_release(&message);
		if (rc < 0)
			break;
	}
	return rc;
}

static bool is_time_to_look(const struct ckptd_client *client)
{
	if (client->connected)
		return false;
	return ckptd_entries_have_new(&client->entries) || client->wanted || client->next_try == 0
		|| (ckptd_entries_undone(&client->entries) > 0 && clock_now() >= client->next_try);
}

static void wait_for_something(struct ckptd_client *client)
{
	const struct ckptd_conn *conn = &client->contact.link.conn;
	struct pollfd wait[] = { { .fd = client->wake, .events = POLLIN },
		{ .fd = conn->fd, .events = ckptd_conn_events(conn) } };
	eventfd_t ignored;
	poll(wait, 2, (int)(TICK_SECONDS * 1000));
	eventfd_read(client->wake, &ignored);
}

static void *run(void *arg)
{
	struct ckptd_client *client = arg;
	struct err err;
	pthread_mutex_lock(&client->lock);
	while (!client->closing) {
		complete_saves(client);
		if (is_time_to_look(client))
			look_for_service(client);
		if (client->connected && (send_saves(client, &err) < 0 || receive(client, &err) < 0)) {
			lose_service(client, &err);
			continue;
		}
		pthread_mutex_unlock(&client->lock);
		wait_for_something(client);
		pthread_mutex_lock(&client->lock);
	}
	pthread_mutex_unlock(&client->lock);
	return NULL;
}

/* ---- opening ---- */

static void release(struct ckptd_client *client)
{
	ckptd_entries_clear(&client->entries);
	ckptd_contact_release(&client->contact);
	if (client->wake >= 0)
		close(client->wake);
	pthread_cond_destroy(&client->changed);
	pthread_mutex_destroy(&client->lock);
	free(client);
}

static int start(struct ckptd_client *client, struct err *err)
{
	if (ckptd_contact_init(&client->contact, &client->plan, err) < 0)
		return -1;
	client->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (client->wake < 0)
		return err_fail(err, io_status(errno), "service: couldn't make an eventfd: %m");
	if (ckptd_contact_find(&client->contact, err) < 0)
		return -1;
	client->connected = true;
	client->pid = (pid_t)client->contact.service;
	int error = thread_start(&client->thread, run, client);
	return error ? err_set(err, "service: couldn't start a thread: %s", strerror(error)) : 0;
}

struct ckptd_client *ckptd_client_open(const struct ckptd_plan *plan, struct err *err)
{
	struct ckptd_client *client = calloc(1, sizeof *client);
	if (!client) {
		err_set(err, "service: no memory");
		return NULL;
	}
	*client = (struct ckptd_client) { .plan = *plan,
		.wake = -1,
		.progress.step = -1,
		.entries.part = plan->snapshot->part > 0 };
	pthread_mutex_init(&client->lock, NULL);
	deadline_condition(&client->changed);
	if (start(client, err) == 0)
		return client;
	release(client);
	return NULL;
}

/* ---- the trainer's calls ---- */

const char *ckptd_client_address(const struct ckptd_client *client)
{
	return client->contact.address;
}

int64_t ckptd_client_service(const struct ckptd_client *client)
{
	struct ckptd_client *self = (struct ckptd_client *)(uintptr_t)client;
	pthread_mutex_lock(&self->lock);
	int64_t pid = self->pid;
	pthread_mutex_unlock(&self->lock);
	return pid;
}

/* Called with the lock held. False when the deadline has passed. */
static bool wait_for_change(struct ckptd_client *client, struct deadline deadline)
{
	struct timespec until = deadline_timespec(deadline);
	return pthread_cond_timedwait(&client->changed, &client->lock, &until) != ETIMEDOUT
		&& !deadline_passed(deadline);
}

static bool may_fill(const struct ckptd_client *client, int buffer)
{
	return ckptd_entries_is_free(&client->entries, buffer)
		&& (!client->plan.may_fill || client->plan.may_fill(client->plan.arg, buffer));
}

static int free_buffer(const struct ckptd_client *client, int live)
{
	const struct ckptd_entries *entries = &client->entries;
	bool ready =
		!ckptd_entries_have_new(entries) && (live < 0 || ckptd_entries_is_free(entries, live));
	for (int buffer = 0; ready && buffer < client->plan.memory->buffers; buffer++)
		if (buffer != live && may_fill(client, buffer))
			return buffer;
	return -1;
}

int ckptd_client_buffer(struct ckptd_client *client, int live, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	int buffer;
	pthread_mutex_lock(&client->lock);
	/* All buffers hold saves and there is no service: only finding one can free a buffer. */
	if (free_buffer(client, live) < 0 && !client->connected) {
		client->wanted = true;
		eventfd_write(client->wake, 1);
	}
	while ((buffer = free_buffer(client, live)) < 0 && wait_for_change(client, deadline))
		;
	pthread_mutex_unlock(&client->lock);
	return buffer;
}

/* Called with the lock held. NULL with err set: the buffer can't be queued. */
static struct ckptd_entry *add(struct ckptd_client *client, int buffer,
	const struct snapshot *snapshot, struct err *err)
{
	struct ckptd_entry *entry = NULL;
	if (buffer < 0 || buffer >= client->plan.memory->buffers
		|| !ckptd_entries_is_free(&client->entries, buffer))
		err_set(err,
			"service: buffer %d can't be handed over: it is none, or was handed over before",
			buffer);
	else if (!(entry = ckptd_entries_add(&client->entries, snapshot, buffer, clock_now())))
		err_set(err, "service: no memory");
	if (entry) {
		entry->complete = !client->plan.complete;
		eventfd_write(client->wake, 1);
	}
	return entry;
}

int ckptd_client_begin(struct ckptd_client *client, int buffer, const struct snapshot *snapshot,
	struct err *err)
{
	pthread_mutex_lock(&client->lock);
	int rc = add(client, buffer, snapshot, err) ? 0 : -1;
	pthread_mutex_unlock(&client->lock);
	return rc;
}

int ckptd_client_save(struct ckptd_client *client, int buffer, const struct snapshot *snapshot,
	struct err *err)
{
	pthread_mutex_lock(&client->lock);
	struct ckptd_entry *entry = add(client, buffer, snapshot, err);
	int rc = entry ? 0 : -1;
	while (entry && entry->result.outcome == SAVE_RUNS && !entry->handed)
		pthread_cond_wait(&client->changed, &client->lock);
	if (entry && entry->result.outcome == SAVE_REFUSED) {
		*err = entry->result.err;
		ckptd_entries_drop(&client->entries, entry);
		rc = -1;
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

/* Sets err to the reason why a save has not ended yet. */
static int still_running(const struct ckptd_client *client, int64_t step, double seconds,
	struct err *err)
{
	if (!client->connected)
		return err_fail(err, EXIT_LOST,
			"checkpoint: the save of step %" PRId64 " has no service: %.600s", step,
			client->why.text);
	if (client->progress.step == step)
		return err_fail(err, EXIT_LOST,
			"checkpoint: the save of step %" PRId64
			" still runs after %.0f s: %.2f of %.2f GB are written",
			step, seconds, (double)client->progress.bytes * 1e-9,
			(double)client->progress.total * 1e-9);
	return err_fail(err, EXIT_LOST,
		"checkpoint: the save of step %" PRId64 " still runs after %.0f s", step, seconds);
}

int ckptd_client_wait(struct ckptd_client *client, int64_t step, double seconds, struct err *err)
{
	const struct ckptd_entries *entries = &client->entries;
	struct deadline deadline = deadline_in(seconds);
	struct ckptd_entry *entry;
	int rc = 0;
	pthread_mutex_lock(&client->lock);
	while ((entry = ckptd_entries_find(entries, step)) && !ckptd_entries_is_over(entries, entry)
		&& wait_for_change(client, deadline))
		;
	if (!entry) {
		rc = err_set(err, "checkpoint: step %" PRId64 " was not handed over", step);
	} else if (entry->result.outcome == SAVE_FAILED || entry->result.outcome == SAVE_REFUSED) {
		*err = entry->result.err;
		rc = -1;
	} else if (!ckptd_entries_is_over(entries, entry)) {
		rc = still_running(client, step, seconds, err);
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

static bool has_buffers(const struct ckptd_client *client)
{
	for (int buffer = 0; buffer < client->plan.memory->buffers; buffer++)
		if (!ckptd_entries_is_free(&client->entries, buffer))
			return true;
	return false;
}

bool ckptd_client_close(struct ckptd_client *client, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	if (!client)
		return true;
	pthread_mutex_lock(&client->lock);
	while (has_buffers(client) && wait_for_change(client, deadline))
		;
	bool closing = client->closing = !ckptd_entries_have_new(&client->entries);
	pthread_mutex_unlock(&client->lock);
	if (!closing)
		return false;
	eventfd_write(client->wake, 1);
	pthread_join(client->thread, NULL);
	release(client);
	return true;
}
