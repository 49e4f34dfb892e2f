/* SPDX-License-Identifier: Apache-2.0 */
/* Three fences: rank 0 has published where it listens; all ranks are there at one moment, and each
 * node has published where it listens; each rank has published its facts. */
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
#define KEY_DOOR "doctor-door"
#define WAY_SECONDS 5.0
#define DOOR_SECONDS 2.0 /* for each address of another node */
#define DOORS 4          /* addresses that are tried for NCCL, and the same number for Gloo */

/* What rank 0 tells the others, as text: its port, whether it has marked the directory, and the
 * word. */
struct host {
	struct way *way;
	int port, marked;
	char word[40];
};

/* On rank 0. What fails is told to the others, so that they don't wait for it. */
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
	if (size == 0 || ((char *)text)[size - 1]
		|| sscanf(text, "%d %d %39s", &host->port, &host->marked, host->word) != 3)
		return err_set(err, "muster-doctor: couldn't read rank 0's report: its build differs");
	return 0;
}

/* On the first task of each node. */
static void look_around(struct facts *own, const struct host *host, const char *dir)
{
	struct err err;
	if (own->local_rank != 0)
		return;
	if (host->port > 0 && own->master[0]
		&& way_try(own->master, host->port, host->word, WAY_SECONDS, &err) < 0)
		snprintf(own->master_error, sizeof own->master_error, "%.299s", err.text);
	if (dir)
		doctor_dir_look(own, dir, host->word, host->marked);
}

/* ---- from node to node ---- */

/* Where another node's first task listens, and the addresses that NCCL and Gloo would publish for
 * that node. */
struct door {
	int port;
	char node[256], nccl[sizeof((struct facts *)0)->nccl_ways],
		gloo[sizeof((struct facts *)0)->gloo_ways];
};

/* The first task of each node opens a door; other tasks publish that they have none. */
static int open_door(struct rdzv *rdzv, const struct facts *own, const struct host *host,
	struct way **way, struct err *err)
{
	char text[sizeof(struct door) + 40] = "-";
	int port = 0;
	if (own->local_rank == 0 && own->node_count > 1)
		*way = way_open(0, host->word, &port, NULL);
	if (*way)
		snprintf(text, sizeof text, "%d\n%s\n%s\n%s\n", port, own->node, own->nccl_ways,
			own->gloo_ways);
	return rdzv_put(rdzv, KEY_DOOR, text, strlen(text) + 1, err);
}

static char *take_line(char **rest)
{
	char *line = *rest, *end = strchr(line, '\n');
	*rest = end ? end + 1 : line + strlen(line);
	if (end)
		*end = '\0';
	return line;
}

/* False if the rank has no door. */
static bool read_door(char *text, struct door *door)
{
	if (text[0] == '-')
		return false;
	door->port = atoi(take_line(&text));
	snprintf(door->node, sizeof door->node, "%s", take_line(&text));
	snprintf(door->nccl, sizeof door->nccl, "%s", take_line(&text));
	snprintf(door->gloo, sizeof door->gloo, "%s", take_line(&text));
	return door->port > 0;
}

/* Finds the next other node's door, in rank order, so that each node is tried by one. 0: there is
 * none. */
static int find_door(struct rdzv *rdzv, const struct facts *own, struct door *door, struct err *err)
{
	for (int next = 1; next < own->world_size; next++) {
		AUTO_FREE void *text = NULL;
		size_t size;
		if (rdzv_get(rdzv, (own->rank + next) % own->world_size, KEY_DOOR, &text, &size, 0, err)
			< 0)
			return -1;
		if (size > 0 && !((char *)text)[size - 1] && read_door(text, door)
			&& strcmp(door->node, own->node) != 0)
			return 1;
	}
	return 0;
}

/* Tries the addresses of a list until one can't be reached, and says so in `error`. */
static void try_ways(const struct door *door, const char *ways, int most, const char *word,
	char *error, size_t size)
{
	char list[sizeof door->nccl], *rest = NULL;
	struct err err = { 0 };
	snprintf(list, sizeof list, "%s", ways);
	for (char *name = strtok_r(list, " ", &rest); name && most-- > 0 && !error[0];
		 name = strtok_r(NULL, " ", &rest)) {
		char *address = strchr(name, '=');
		if (!address)
			continue;
		*address++ = '\0';
		bool loopback = strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
		if (loopback)
			err_set(&err, "a loopback address");
		if (loopback || way_try(address, door->port, word, DOOR_SECONDS, &err) < 0)
			snprintf(error, size, "%.60s by %.40s, which is %.60s there: %.100s", door->node, name,
				address, err.text);
	}
}

/* NCCL needs one interface if an RDMA adapter carries the data; otherwise it uses all that it has
 * chosen. */
static int look_next_door(struct rdzv *rdzv, struct facts *own, const char *word, struct err *err)
{
	struct door door;
	int found = own->local_rank == 0 && own->node_count > 1 ? find_door(rdzv, own, &door, err) : 0;
	if (found <= 0)
		return found;
	if (own->gpus > 0 || own->nccl_wanted[0])
		try_ways(&door, door.nccl, own->rdma ? 1 : DOORS, word, own->nccl_error,
			sizeof own->nccl_error);
	try_ways(&door, door.gloo, DOORS, word, own->gloo_error, sizeof own->gloo_error);
	return 0;
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
		if (rdzv_get(rdzv, rank, KEY_FACTS, &text, &size, 0, err) < 0
			|| facts_decode(text, size, &all[rank], err) < 0)
			return -1;
	}
	return 0;
}

static int exchange(struct rdzv *rdzv, struct facts *own, struct host *host, struct way **door,
	const char *dir, struct facts *all, struct err *err)
{
	if ((own->rank == 0 && tell_host(rdzv, host, err) < 0) || rdzv_fence(rdzv, 0, err) < 0
		|| hear_host(rdzv, host, err) < 0)
		return -1;
	if (open_door(rdzv, own, host, door, err) < 0)
		return -1;
	own->met_before = clock_wall();
	if (rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	own->met_after = clock_wall();
	look_around(own, host, dir);
	if (look_next_door(rdzv, own, host->word, err) < 0)
		return -1;
	if (tell_facts(rdzv, own, err) < 0 || rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	return all ? collect(rdzv, own->world_size, all, err) : 0;
}

int doctor_meet(struct rdzv *rdzv, struct facts *own, const char *dir, struct facts **all,
	struct err *err)
{
	struct host host = { 0 };
	struct way *door = NULL;
	*all = NULL;
	if (own->rank == 0) {
		*all = calloc((size_t)own->world_size, sizeof **all);
		if (!*all)
			return err_set(err, "muster-doctor: no memory");
		open_host(&host, own, dir);
	}
	int rc = exchange(rdzv, own, &host, &door, dir, *all, err);
	way_close(door);
	if (own->rank == 0)
		close_host(&host, dir);
	/* Nobody leaves before rank 0 has read everything. */
	return rc < 0 ? -1 : rdzv_fence(rdzv, 0, err);
}
