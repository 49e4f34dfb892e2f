/* SPDX-License-Identifier: Apache-2.0 */
/* Three fences: rank 0 has told where it is; all are there at one moment; each has told its facts. */
#include "config.h"

#include "doctor/doctor_meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "doctor/doctor_dir.h"
#include "doctor/doctor_way.h"
#include "doctor/facts_json.h"

#define KEY_HOST "doctor-host"
#define KEY_FACTS "doctor-facts"
#define WAY_SECONDS 5.0

/* What rank 0 tells the others, as text: its port, whether it has marked the directory, and the word. */
struct host {
	struct way *way;
	int port, marked;
	char word[40];
};

/* On rank 0. What it can't do the others are told, so that they don't wait for it. */
static void open_host(struct host *host, const struct facts *own, const char *dir)
{
	uint64_t number = (uint64_t)getpid();
	ssize_t ignored = getrandom(&number, sizeof number, 0);
	(void)ignored;
	snprintf(host->word, sizeof host->word, "%016llx", (unsigned long long)number);
	host->way = way_open(own->port_error[0] ? 0 : own->port, host->word, &host->port, NULL);
	host->marked = dir && doctor_dir_mark(dir, host->word) == 0;
}

static void close_host(struct host *host, const char *dir)
{
	way_close(host->way);
	if (dir && host->marked)
		doctor_dir_unmark(dir, host->word);
}

static int tell_host(struct rdzv *rdzv, const struct host *host, struct err *err)
{
	char text[100];
	snprintf(text, sizeof text, "%d %d %s", host->port, host->marked, host->word);
	return rdzv_put(rdzv, KEY_HOST, text, strlen(text) + 1, err);
}

static int hear_host(struct rdzv *rdzv, struct host *host, struct err *err)
{
	AUTO_FREE void *text = NULL;
	size_t size;
	if (rdzv_get(rdzv, 0, KEY_HOST, &text, &size, 0, err) < 0)
		return -1;
	if (size == 0 || ((char *)text)[size - 1] || sscanf(text, "%d %d %39s", &host->port, &host->marked, host->word) != 3)
		return err_set(err, "muster-doctor: couldn't read what rank 0 tells: its build differs");
	return 0;
}

/* Once a node. */
static void look_around(struct facts *own, const struct host *host, const char *dir)
{
	struct err err;
	if (own->local_rank != 0)
		return;
	if (host->port > 0 && own->master[0] && way_try(own->master, host->port, host->word, WAY_SECONDS, &err) < 0)
		snprintf(own->master_error, sizeof own->master_error, "%.299s", err.text);
	if (dir)
		doctor_dir_look(own, dir, host->word, host->marked);
}

static int tell_facts(struct rdzv *rdzv, const struct facts *own, struct err *err)
{
	AUTO_FREE char *text = facts_encode(own, err);
	return text ? rdzv_put(rdzv, KEY_FACTS, text, strlen(text), err) : -1;
}

static int collect(struct rdzv *rdzv, int count, struct facts *all, struct err *err)
{
	for (int rank = 0; rank < count; rank++) {
		AUTO_FREE void *text = NULL;
		size_t size;
		if (rdzv_get(rdzv, rank, KEY_FACTS, &text, &size, 0, err) < 0 || facts_decode(text, size, &all[rank], err) < 0)
			return -1;
	}
	return 0;
}

static int exchange(struct rdzv *rdzv, struct facts *own, struct host *host, const char *dir, struct facts *all,
	struct err *err)
{
	if ((own->rank == 0 && tell_host(rdzv, host, err) < 0) || rdzv_fence(rdzv, 0, err) < 0 || hear_host(rdzv, host, err) < 0)
		return -1;
	own->met_before = clock_wall();
	if (rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	own->met_after = clock_wall();
	look_around(own, host, dir);
	if (tell_facts(rdzv, own, err) < 0 || rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	return all ? collect(rdzv, own->world_size, all, err) : 0;
}

int doctor_meet(struct rdzv *rdzv, struct facts *own, const char *dir, struct facts **all, struct err *err)
{
	struct host host = { 0 };
	*all = NULL;
	if (own->rank == 0) {
		*all = calloc((size_t)own->world_size, sizeof **all);
		if (!*all)
			return err_set(err, "muster-doctor: no memory");
		open_host(&host, own, dir);
	}
	int rc = exchange(rdzv, own, &host, dir, *all, err);
	if (own->rank == 0)
		close_host(&host, dir);
	/* Rank 0 was still reading: nobody leaves before it is done. */
	return rc < 0 ? -1 : rdzv_fence(rdzv, 0, err);
}
