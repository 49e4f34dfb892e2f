/* SPDX-License-Identifier: Apache-2.0 */
/* One thread owns the connection; the trainer's calls note what they want under the lock, wake it up, and wait for what came of
 * it. A save stays in the list until its end, so that whatever service is there can be given it again. */
#include "config.h"
#include "checkpoint/ckptd_client.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "checkpoint/ckptd_attach.h"
#include "checkpoint/ckptd_start.h"
#include "checkpoint/ckptd_tcp.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"

#define REMEMBERED 8       /* saves that have had their end, for ckptd_client_wait */
#define DEATHS_MAX 3       /* services that are lost over the same saves */
#define RETRY_SECONDS 5.0
#define TICK_SECONDS 1.0

enum state { WAITS, WRITTEN, DURABLE, FAILED, REFUSED };

/* One save. */
struct entry {
	struct entry *next;
	struct ckptd_step step;
	int slot;                   /* -1: given back */
	enum state state;
	bool sent;                  /* to the service that is there now */
	bool handed;                /* to any: it is not refused any more */
	bool decided;               /* of parts from 1 on: the whole save is over, so that no service need know of the part */
	double since;
	struct err err;             /* of FAILED and REFUSED */
};

struct ckptd_client {
	struct ckptd_plan plan;
	struct ckptd_message attach;
	char *path;                 /* of the directory, in UTF-8 */
	char secret[33], address[CKPTD_ADDRESS_SIZE];
	struct ckptd_link link;     /* the thread's own, but for the pid */
	int wake;
	pthread_t thread;

	pthread_mutex_t lock;       /* of all below */
	pthread_cond_t changed;
	struct entry *entries;      /* in the order of the saves */
	pid_t service;
	bool connected, closing, wanted, gone;
	double next_try;            /* clock_now() of the next look for a service */
	int deaths;                 /* since a save had its end */
	int64_t progress_step, progress_bytes, progress_total;
	struct err why;             /* no service is there */
};

/* ---- entries, with the lock held ---- */

/* For who waits for it. */
static bool is_over(const struct ckptd_client *client, const struct entry *entry)
{
	return entry->state == DURABLE || entry->state == FAILED || entry->state == REFUSED ||
		(entry->state == WRITTEN && client->attach.attach.part > 0);
}

/* For a service that takes over: part 0's may have lost word of a part that is written. */
static bool is_done(const struct ckptd_client *client, const struct entry *entry)
{
	return is_over(client, entry) && (entry->state != WRITTEN || entry->decided);
}

static struct entry *find(struct ckptd_client *client, int64_t step)
{
	struct entry *found = NULL;
	for (struct entry *entry = client->entries; entry; entry = entry->next)
		if (entry->step.step == step)
			found = entry;
	return found;
}

static bool is_free(const struct ckptd_client *client, int slot)
{
	for (const struct entry *entry = client->entries; entry; entry = entry->next)
		if (entry->slot == slot)
			return false;
	return true;
}

static int count_pending(const struct ckptd_client *client)
{
	int count = 0;
	for (const struct entry *entry = client->entries; entry; entry = entry->next)
		count += !is_done(client, entry);
	return count;
}

/* Of those that have had their end only the last few are remembered. */
static void forget_old(struct ckptd_client *client)
{
	int over = -count_pending(client);
	for (const struct entry *entry = client->entries; entry; entry = entry->next)
		over++;
	for (struct entry **at = &client->entries; *at && over > REMEMBERED;) {
		struct entry *entry = *at;
		if (!is_done(client, entry)) {
			at = &entry->next;
			continue;
		}
		*at = entry->next;
		free(entry);
		over--;
	}
}

/* With the lock held, which it gives up meanwhile: who is called may take his time. */
static void emit(struct ckptd_client *client, struct ckptd_event event)
{
	pthread_mutex_unlock(&client->lock);
	if (client->plan.event)
		client->plan.event(client->plan.arg, &event);
	pthread_mutex_lock(&client->lock);
}

/* The event comes first, so that who waited for the end finds it told. */
static void end_entry(struct ckptd_client *client, struct entry *entry, enum state state, uint64_t bytes, const struct err *err)
{
	static const enum ckptd_event_type types[] = { [WRITTEN] = CKPTD_WRITTEN, [DURABLE] = CKPTD_DURABLE, [FAILED] = CKPTD_FAILED };
	struct err copy = { .text = "" };
	if (err)
		entry->err = copy = *err;
	emit(client, (struct ckptd_event){ .type = types[state], .step = entry->step.step, .bytes = bytes,
		.seconds = clock_now() - entry->since, .status = copy.status, .text = copy.text });
	entry->state = state;
	entry->slot = -1;
	pthread_cond_broadcast(&client->changed);
	forget_old(client);
}

static struct entry *first_pending(struct ckptd_client *client)
{
	struct entry *entry = client->entries;
	while (entry && is_over(client, entry))
		entry = entry->next;
	return entry;
}

/* ---- a service ---- */

static int send_attach(struct ckptd_client *client, struct ckptd_link *link, struct err *err)
{
	const struct snapshot_memory *memory = client->plan.memory;
	int descriptors[CKPTD_DESCRIPTORS] = { client->plan.dir->fd };
	for (int i = 0; i < memory->slots; i++)
		descriptors[1 + i] = memory->fd[i];
	return ckptd_conn_send(&link->conn, &client->attach, descriptors, 1 + memory->slots, err);
}

static int hear_attached(struct ckptd_client *client, const struct ckptd_message *answer, struct err *err)
{
	struct ckptd_attach *attach = &client->attach.attach;
	if (answer->type == CKPTD_REFUSED)
		return err_fail(err, (enum exit_status)answer->refused.status, "refused: %s", answer->refused.text);
	if (answer->type != CKPTD_ATTACHED)
		return err_fail(err, EXIT_DATA, "protocol: %s came where ATTACHED should", ckptd_type_name(answer->type));
	if (!attach->host || answer->attached.port == attach->port)
		return 0;
	if (attach->port > 0) {
		log_error("checkpoint: the service that took over couldn't take port %d: the other parts' services won't find it",
			(int)attach->port);
		return 0;
	}
	attach->port = answer->attached.port;
	snprintf(client->address, sizeof client->address, "%s:%d:%s", attach->host, (int)attach->port, client->secret);
	return 0;
}

static int attach_to(struct ckptd_client *client, struct ckptd_link *link, struct err *err)
{
	struct ckptd_message answer;
	if (send_attach(client, link, err) < 0 ||
		ckptd_conn_await(&link->conn, &answer, deadline_in(client->plan.timeout), err) < 0)
		return -1;
	int rc = hear_attached(client, &answer, err);
	ckptd_message_release(&answer);
	return rc;
}

static int use_node_service(struct ckptd_client *client, const char *path, struct err *err)
{
	if (ckptd_start_connect(path, &client->link, err) < 0)
		return -1;
	if (attach_to(client, &client->link, err) == 0)
		return 0;
	ckptd_start_leave(&client->link);
	return -1;
}

static int use_own_service(struct ckptd_client *client, struct err *err)
{
	char fate[60];
	if (ckptd_start_own(&client->link, err) < 0)
		return -1;
	if (attach_to(client, &client->link, err) == 0)
		return 0;
	/* It may take a moment from its last word to its end. */
	ckptd_conn_close(&client->link.conn);
	ckptd_process_wait(&client->link.process, deadline_in(1));
	err_prefix(err, "service: the one that was started %s", ckptd_process_fate(&client->link.process, fate, sizeof fate));
	ckptd_process_kill(&client->link.process, deadline_in(client->plan.timeout));
	ckptd_start_leave(&client->link);
	return -1;
}

/* The service that is lost must not write any more when another begins to: two of them in one folder would tear its files.
 * One of our own is killed; the node's can only be gone, or be found again. */
static int retire(struct ckptd_client *client, bool *lives, struct err *err)
{
	struct ckptd_process *process = &client->link.process;
	*lives = ckptd_process_alive(process);
	if (*lives && process->child) {
		*lives = false;
		if (!ckptd_process_kill(process, deadline_in(client->plan.timeout)))
			return err_fail(err, EXIT_LOST, "service: pid %d hangs and can't be killed", (int)process->pid);
	}
	if (!*lives)
		ckptd_process_close(process);
	return 0;
}

static int find_service(struct ckptd_client *client, struct err *err)
{
	const char *path = client->plan.socket ? client->plan.socket : getenv("MUSTER_CKPTD");
	bool lives;
	if (retire(client, &lives, err) < 0)
		return -1;
	struct ckptd_process old = client->link.process;
	err_fail(err, EXIT_LOST, "service: pid %d still runs, but can't be reached", (int)old.pid);
	if (path && path[0]) {
		if (use_node_service(client, path, err) == 0) {
			ckptd_process_close(&old);
			return 0;
		}
		client->link.process = old;
		if (!lives)
			log_warn("checkpoint: %s: starting a service of its own, which ends with the step", err->text);
	}
	return lives ? -1 : use_own_service(client, err);
}

/* With the lock held, which it gives up meanwhile. */
static void get_service(struct ckptd_client *client)
{
	struct err err;
	client->wanted = false;
	pthread_mutex_unlock(&client->lock);
	int rc = find_service(client, &err);
	pthread_mutex_lock(&client->lock);
	client->connected = rc == 0;
	client->service = client->connected ? client->link.process.pid : 0;
	client->next_try = clock_now() + RETRY_SECONDS;
	if (rc < 0)
		client->why = err;
}

/* ---- what is lost and found ---- */

static void refuse_new(struct ckptd_client *client)
{
	for (struct entry *entry = client->entries; entry; entry = entry->next)
		if (entry->state == WAITS && !entry->handed) {
			entry->state = REFUSED;
			entry->slot = -1;
			entry->err = client->why;
		}
	pthread_cond_broadcast(&client->changed);
}

/* Services die one after the other: their saves are given up, and the next one is looked for when there is a new save. */
static void give_up(struct ckptd_client *client)
{
	struct entry *entry;
	struct err err;
	char text[sizeof client->why.text];
	err_fail(&err, EXIT_LOST, "checkpoint: %d services in a row were lost over it; the last: %.500s", client->deaths,
		client->why.text);
	while ((entry = first_pending(client)))
		end_entry(client, entry, FAILED, 0, &err);
	for (entry = client->entries; entry; entry = entry->next)
		entry->decided = true;
	client->deaths = DEATHS_MAX - 1;
	client->next_try = clock_now() + RETRY_SECONDS;
	client->gone = true;
	snprintf(text, sizeof text, "%s", client->why.text);
	emit(client, (struct ckptd_event){ .type = CKPTD_GONE, .text = text });
}

static void look_for_service(struct ckptd_client *client)
{
	bool lost = client->why.text[0], again = client->gone;
	char reason[sizeof client->why.text], text[sizeof reason + 200];
	snprintf(reason, sizeof reason, "%s", client->why.text);
	get_service(client);
	if (client->connected) {
		client->gone = false;
		client->why.text[0] = '\0';
		snprintf(text, sizeof text, "%s; pid %d took over, with %d saves that were not durable", reason, (int)client->service,
			count_pending(client));
		if (lost)
			emit(client, (struct ckptd_event){ .type = CKPTD_RESTARTED, .text = text });
		return;
	}
	refuse_new(client);
	client->gone = true;
	snprintf(text, sizeof text, "%s", client->why.text);
	if (!again)
		emit(client, (struct ckptd_event){ .type = CKPTD_GONE, .text = text });
}

/* The connection broke. What was sent over it and has not had its end is sent again over the next one. */
static void lose_service(struct ckptd_client *client, const struct err *why)
{
	char fate[60];
	ckptd_conn_close(&client->link.conn);
	if (why->status == EXIT_LOST)
		ckptd_process_wait(&client->link.process, deadline_in(0.2));
	err_fail(&client->why, EXIT_LOST, "the service, pid %d, %s (%.500s)", (int)client->service,
		ckptd_process_fate(&client->link.process, fate, sizeof fate), why->text);
	client->connected = false;
	client->next_try = 0;
	for (struct entry *entry = client->entries; entry; entry = entry->next)
		entry->sent = false;
	if (++client->deaths >= DEATHS_MAX)
		give_up(client);
}

/* ---- the thread ---- */

static int send_saves(struct ckptd_client *client, struct err *err)
{
	for (struct entry *entry = client->entries; entry; entry = entry->next) {
		if (entry->sent || is_done(client, entry))
			continue;
		const struct ckptd_step *step = &entry->step;
		const struct ckptd_message save = { .type = CKPTD_SAVE, .save = { entry->slot, step->step, (int64_t)step->cursor,
			step->loss, step->validation_loss } };
		if (ckptd_conn_send(&client->link.conn, &save, NULL, 0, err) < 0)
			return -1;
		entry->sent = true;
	}
	if (ckptd_conn_flush(&client->link.conn, err) < 0)
		return -1;
	/* In the socket it reaches the service, whatever becomes of this process. */
	for (struct entry *entry = client->entries; entry && !client->link.conn.first; entry = entry->next)
		entry->handed |= entry->sent;
	pthread_cond_broadcast(&client->changed);
	return 0;
}

/* The save is over for all, or this part of it is gone with it. */
static void on_decided(struct ckptd_client *client, int64_t step)
{
	for (struct entry *entry = client->entries; entry; entry = entry->next)
		entry->decided |= entry->step.step == step && entry->state == WRITTEN && is_over(client, entry);
	forget_old(client);
}

static void on_end(struct ckptd_client *client, int64_t step, enum state state, int64_t bytes, const struct err *err)
{
	struct entry *entry = client->entries;
	while (entry && (entry->step.step != step || is_over(client, entry)))
		entry = entry->next;
	client->deaths = 0;
	/* A part that was written by the service before is told once. */
	if (entry && entry->state != state)
		end_entry(client, entry, state, (uint64_t)bytes, err);
	if (state == FAILED)
		on_decided(client, step);
}

static int on_message(struct ckptd_client *client, const struct ckptd_message *message, struct err *err)
{
	struct err failed;
	switch (message->type) {
	case CKPTD_PROGRESS:
		client->progress_step = message->progress.step;
		client->progress_bytes = message->progress.bytes;
		client->progress_total = message->progress.total;
		return 0;
	case CKPTD_SAVE_WRITTEN:
		on_end(client, message->durable.step, WRITTEN, message->durable.bytes, NULL);
		return 0;
	case CKPTD_SAVE_DURABLE:
		on_end(client, message->durable.step, DURABLE, message->durable.bytes, NULL);
		return 0;
	case CKPTD_SAVE_FAILED:
		err_fail(&failed, (enum exit_status)message->failed.status, "%s", message->failed.text);
		on_end(client, message->failed.step, FAILED, 0, &failed);
		return 0;
	case CKPTD_DECIDED:
		on_decided(client, message->decided.step);
		return 0;
	case CKPTD_REFUSED:
		return err_fail(err, EXIT_DATA, "refused: %s", message->refused.text);
	default:
		return err_fail(err, EXIT_DATA, "protocol: %s came to a client", ckptd_type_name(message->type));
	}
}

static int receive(struct ckptd_client *client, struct err *err)
{
	struct ckptd_message message;
	int rc;
	while ((rc = ckptd_conn_receive(&client->link.conn, &message, err)) > 0) {
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
	for (const struct entry *entry = client->entries; entry; entry = entry->next)
		if (entry->state == WAITS && !entry->handed)
			return true;
	return client->wanted || client->next_try == 0 || (count_pending(client) > 0 && clock_now() >= client->next_try);
}

static void wait_for_something(struct ckptd_client *client)
{
	const struct ckptd_conn *conn = &client->link.conn;
	struct pollfd wait[] = { { .fd = client->wake, .events = POLLIN }, { .fd = conn->fd, .events = ckptd_conn_events(conn) } };
	uint64_t ignored;
	poll(wait, 2, (int)(TICK_SECONDS * 1000));
	ssize_t n = read(client->wake, &ignored, sizeof ignored);
	(void)n;
}

static void *run(void *arg)
{
	struct ckptd_client *client = arg;
	struct err err;
	pthread_mutex_lock(&client->lock);
	while (!client->closing) {
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

static void wake(const struct ckptd_client *client)
{
	const uint64_t one = 1;
	ssize_t ignored = write(client->wake, &one, sizeof one);
	(void)ignored;
}

/* ---- opening ---- */

/* The files' modes are to be as if this process made them. Asking for the umask by umask() would change it for a moment. */
static int64_t own_umask(void)
{
	AUTO_FCLOSE FILE *status = fopen("/proc/self/status", "re");
	unsigned mask = 022;
	char line[256];
	while (status && fgets(line, sizeof line, status))
		if (sscanf(line, "Umask: %o", &mask) == 1)
			break;
	return (int64_t)(mask & 0777);
}

/* JSON holds UTF-8 only; the path is for messages. */
static char *path_as_text(const char *path)
{
	json_t *text = json_string(path);
	char *copy = strdup(path);
	for (char *c = copy; c && *c && !text; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	json_decref(text);
	return copy;
}

static int make_secret(char secret[33], struct err *err)
{
	unsigned char bytes[16];
	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		return err_set(err, "service: couldn't get random bytes: %m");
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

static int describe(struct ckptd_client *client, struct err *err)
{
	const struct ckptd_plan *plan = &client->plan;
	struct ckptd_attach *attach = &client->attach.attach;
	client->attach.type = CKPTD_ATTACH;
	client->path = path_as_text(plan->dir->path);
	attach->token = plan->token;
	attach->path = client->path;
	attach->keep_last = (int64_t)plan->retention.keep_last;
	attach->keep_every = plan->retention.keep_every;
	attach->keep_best = (int64_t)plan->retention.keep_best;
	attach->umask = own_umask();
	if (!client->path || make_secret(client->secret, err) < 0)
		return client->path ? -1 : err_set(err, "service: no memory");
	if (plan->snapshot->parts > 1 && plan->snapshot->part == 0) {
		attach->host = plan->host;
		attach->secret = client->secret;
	} else if (plan->snapshot->parts > 1) {
		attach->first = plan->first;
	}
	return ckptd_attach_describe(attach, plan->snapshot, plan->memory, err);
}

static void release(struct ckptd_client *client)
{
	while (client->entries) {
		struct entry *entry = client->entries;
		client->entries = entry->next;
		free(entry);
	}
	ckptd_start_leave(&client->link);
	if (client->wake >= 0)
		close(client->wake);
	ckptd_message_release(&client->attach);
	free(client->path);
	pthread_cond_destroy(&client->changed);
	pthread_mutex_destroy(&client->lock);
	free(client);
}

static int start(struct ckptd_client *client, struct err *err)
{
	client->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (client->wake < 0)
		return err_set(err, "service: couldn't make an eventfd: %m");
	if (describe(client, err) < 0 || find_service(client, err) < 0)
		return -1;
	client->connected = true;
	client->service = client->link.process.pid;
	int error = pthread_create(&client->thread, NULL, run, client);
	return error ? err_set(err, "service: couldn't start a thread: %s", strerror(error)) : 0;
}

struct ckptd_client *ckptd_client_open(const struct ckptd_plan *plan, struct err *err)
{
	struct ckptd_client *client = calloc(1, sizeof *client);
	if (!client) {
		err_set(err, "service: no memory");
		return NULL;
	}
	*client = (struct ckptd_client){ .plan = *plan, .wake = -1, .progress_step = -1, .link = { .conn.fd = -1, .process.fd = -1 } };
	pthread_mutex_init(&client->lock, NULL);
	deadline_condition(&client->changed);
	if (start(client, err) == 0)
		return client;
	release(client);
	return NULL;
}

void ckptd_client_close(struct ckptd_client *client)
{
	if (!client)
		return;
	pthread_mutex_lock(&client->lock);
	client->closing = true;
	pthread_mutex_unlock(&client->lock);
	wake(client);
	pthread_join(client->thread, NULL);
	release(client);
}

/* ---- the trainer's calls ---- */

const char *ckptd_client_address(const struct ckptd_client *client)
{
	return client->address;
}

int64_t ckptd_client_service(const struct ckptd_client *client)
{
	struct ckptd_client *self = (struct ckptd_client *)(uintptr_t)client;
	pthread_mutex_lock(&self->lock);
	int64_t pid = self->service;
	pthread_mutex_unlock(&self->lock);
	return pid;
}

/* With the lock held. False when the deadline has passed. */
static bool wait_for_change(struct ckptd_client *client, struct deadline deadline)
{
	struct timespec until = deadline_timespec(deadline);
	return pthread_cond_timedwait(&client->changed, &client->lock, &until) != ETIMEDOUT && !deadline_passed(deadline);
}

static int free_slot(const struct ckptd_client *client, int live)
{
	for (int slot = 0; slot < client->plan.memory->slots && (live < 0 || is_free(client, live)); slot++)
		if (slot != live && is_free(client, slot))
			return slot;
	return -1;
}

int ckptd_client_slot(struct ckptd_client *client, int live, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	int slot;
	pthread_mutex_lock(&client->lock);
	/* All slots hold saves that no service has: a look for one is all that helps. */
	if (free_slot(client, live) < 0 && !client->connected) {
		client->wanted = true;
		wake(client);
	}
	while ((slot = free_slot(client, live)) < 0 && wait_for_change(client, deadline))
		;
	pthread_mutex_unlock(&client->lock);
	return slot;
}

/* With the lock held: a save that nobody took leaves no trace. */
static void drop_entry(struct ckptd_client *client, struct entry *entry)
{
	struct entry **at = &client->entries;
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	free(entry);
}

int ckptd_client_save(struct ckptd_client *client, int slot, const struct ckptd_step *step, struct err *err)
{
	struct entry *entry = calloc(1, sizeof *entry), **at;
	int rc = 0;
	if (!entry)
		return err_set(err, "service: no memory");
	*entry = (struct entry){ .step = *step, .slot = slot, .since = clock_now() };
	pthread_mutex_lock(&client->lock);
	if (slot < 0 || slot >= client->plan.memory->slots || !is_free(client, slot)) {
		pthread_mutex_unlock(&client->lock);
		free(entry);
		return err_set(err, "service: slot %d can't be handed over: it is none, or was handed over before", slot);
	}
	for (at = &client->entries; *at; at = &(*at)->next)
		;
	*at = entry;
	wake(client);
	while (entry->state == WAITS && !entry->handed)
		pthread_cond_wait(&client->changed, &client->lock);
	if (entry->state == REFUSED) {
		*err = entry->err;
		drop_entry(client, entry);
		rc = -1;
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

/* Why a save has not had its end yet. */
static int still_running(const struct ckptd_client *client, int64_t step, double seconds, struct err *err)
{
	if (!client->connected)
		return err_fail(err, EXIT_LOST, "checkpoint: the save of step %" PRId64 " has no service: %.600s", step, client->why.text);
	if (client->progress_step == step)
		return err_fail(err, EXIT_LOST, "checkpoint: the save of step %" PRId64 " still runs after %.0f s: %.2f of %.2f GB are "
			"written", step, seconds, (double)client->progress_bytes * 1e-9, (double)client->progress_total * 1e-9);
	return err_fail(err, EXIT_LOST, "checkpoint: the save of step %" PRId64 " still runs after %.0f s", step, seconds);
}

int ckptd_client_wait(struct ckptd_client *client, int64_t step, double seconds, struct err *err)
{
	struct deadline deadline = deadline_in(seconds);
	struct entry *entry;
	int rc = 0;
	pthread_mutex_lock(&client->lock);
	while ((entry = find(client, step)) && !is_over(client, entry) && wait_for_change(client, deadline))
		;
	if (!entry) {
		rc = err_set(err, "checkpoint: step %" PRId64 " was not handed over", step);
	} else if (entry->state == FAILED) {
		*err = entry->err;
		rc = -1;
	} else if (!is_over(client, entry)) {
		rc = still_running(client, step, seconds, err);
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}
