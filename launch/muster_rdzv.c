/* SPDX-License-Identifier: Apache-2.0 */
/* muster-rdzv: shows each rank's identity and how long the ranks take to meet. The first program to
 * run on a new cluster. */
#include "config.h"

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alone.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/ident.h"
#include "common/io.h"
#include "common/log.h"
#include "common/number.h"
#include "launch/rdzv.h"

struct options {
	const char *provider;
	double timeout;
	bool json;
};

/* A rank's measurements, in seconds; they travel through the rendezvous as one line of text. */
struct times {
	double open, fence, exchange;
};

#define IDENT_KEY "ident"
#define TIMES_KEY "times"

static const struct argp_option option_table[] = {
	{ "provider", 'p', "NAME", 0, "pmix, pmi2, file or single (default: the first that fits)", 0 },
	{ "timeout", 't', "SECONDS", 0, "deadline of each call (default 60)", 0 },
	{ "json", 'j', NULL, 0, "one JSON object a rank, on rank 0's standard output", 0 },
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'p': options->provider = arg; return 0;
	case 't':
		if (!number_real(arg, 0.001, 86400, &options->timeout))
			argp_error(state, "--timeout=%s: not a number of seconds from 0.001 to 86400", arg);
		return 0;
	case 'j': options->json = true; return 0;
	case ARGP_KEY_ARG: argp_error(state, "%s: no arguments are taken", arg); return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = option_table,
	.parser = parse_option,
	.doc = "Shows each rank's identity and the times of a rendezvous: opening it, a fence, an "
		   "exchange of one value from each rank to all.\vStart it with srun, one task a rank: "
		   "srun --mpi=pmix -N4 --ntasks-per-node=2 muster-rdzv",
};

/* Every rank reads a value of every rank, as the set-up of a collective does. */
static int exchange(struct rdzv *rdzv, const struct ident *ident, struct err *err)
{
	for (int rank = 0; rank < ident->world_size; rank++) {
		AUTO_FREE void *value = NULL;
		size_t size;
		if (rdzv_get(rdzv, rank, IDENT_KEY, &value, &size, 0, err) < 0)
			return -1;
	}
	return 0;
}

static int put_ident(struct rdzv *rdzv, const struct ident *ident, struct err *err)
{
	AUTO_FREE char *text = NULL;
	json_t *object =
		json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:I,s:I,s:i,s:s,s:s}", "rank", ident->rank,
			"world_size", ident->world_size, "local_rank", ident->local_rank, "local_world_size",
			ident->local_world_size, "node_rank", ident->node_rank, "node_count", ident->node_count,
			"node", ident->node, "job", (json_int_t)ident->job, "step", (json_int_t)ident->step,
			"attempt", ident->attempt, "source", ident->source, "provider", rdzv_provider(rdzv));
	text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	if (!text)
		return err_set(err, "muster-rdzv: couldn't describe this rank: its names are not UTF-8");
	return rdzv_put(rdzv, IDENT_KEY, text, strlen(text), err);
}

/* Measures a fence alone, then put, fence and get of one value per rank. The caller has timed
 * open. */
static int measure(struct rdzv *rdzv, const struct ident *ident, struct times *times,
	struct err *err)
{
	double start = clock_now();
	if (rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	times->fence = clock_now() - start;
	start = clock_now();
	if (put_ident(rdzv, ident, err) < 0 || rdzv_fence(rdzv, 0, err) < 0
		|| exchange(rdzv, ident, err) < 0)
		return -1;
	times->exchange = clock_now() - start;
	return 0;
}

static json_t *get_json(struct rdzv *rdzv, int rank, const char *key, struct err *err)
{
	AUTO_FREE void *text = NULL;
	size_t size;
	if (rdzv_get(rdzv, rank, key, &text, &size, 0, err) < 0)
		return NULL;
	json_t *object = json_loadb(text, size, 0, NULL);
	if (!object)
		err_set(err, "muster-rdzv: couldn't read what rank %d put under %s", rank, key);
	return object;
}

static void print_row(const json_t *row, const char *times_text)
{
	struct times times = { 0 };
	sscanf(times_text, "%lf %lf %lf", &times.open, &times.fence, &times.exchange);
	const char *node = json_string_value(json_object_get(row, "node"));
	printf("%5lld/%-5lld %5lld/%-5lld %5lld/%-5lld %-16s %-9s %-8s %9.2f %9.2f %9.2f\n",
		json_integer_value(json_object_get(row, "rank")),
		json_integer_value(json_object_get(row, "world_size")),
		json_integer_value(json_object_get(row, "local_rank")),
		json_integer_value(json_object_get(row, "local_world_size")),
		json_integer_value(json_object_get(row, "node_rank")),
		json_integer_value(json_object_get(row, "node_count")), node,
		json_string_value(json_object_get(row, "source")),
		json_string_value(json_object_get(row, "provider")), times.open * 1e3, times.fence * 1e3,
		times.exchange * 1e3);
}

static int print_json(json_t *row, const char *times_text)
{
	struct times times = { 0 };
	sscanf(times_text, "%lf %lf %lf", &times.open, &times.fence, &times.exchange);
	json_object_set_new(row, "open_seconds", json_real(times.open));
	json_object_set_new(row, "fence_seconds", json_real(times.fence));
	json_object_set_new(row, "exchange_seconds", json_real(times.exchange));
	json_dumpf(row, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	return 0;
}

static int print_all(struct rdzv *rdzv, const struct ident *ident, bool json, struct err *err)
{
	if (!json)
		printf("%11s %11s %11s %-16s %-9s %-8s %9s %9s %9s\n", "rank/size", "local", "node", "name",
			"identity", "provider", "open ms", "fence ms", "xchg ms");
	for (int rank = 0; rank < ident->world_size; rank++) {
		AUTO_FREE void *times = NULL;
		size_t size;
		if (rdzv_get(rdzv, rank, TIMES_KEY, &times, &size, 0, err) < 0)
			return -1;
		AUTO_FREE char *times_text = strndup(times, size);
		json_t *row = get_json(rdzv, rank, IDENT_KEY, err);
		if (!row || !times_text)
			return -1;
		if (json)
			print_json(row, times_text);
		else
			print_row(row, times_text);
		json_decref(row);
	}
	return io_flush_output(err);
}

static int report(struct rdzv *rdzv, const struct ident *ident, const struct times *times,
	bool json, struct err *err)
{
	char text[100];
	snprintf(text, sizeof text, "%.9f %.9f %.9f", times->open, times->fence, times->exchange);
	if (rdzv_put(rdzv, TIMES_KEY, text, strlen(text), err) < 0 || rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	if (ident->rank == 0 && print_all(rdzv, ident, json, err) < 0)
		return -1;
	/* Nobody leaves before rank 0 has read everything. */
	return rdzv_fence(rdzv, 0, err);
}

int main(int argc, char **argv)
{
	struct options options = { .timeout = 60 };
	struct ident ident;
	struct times times;
	struct err err;
	descriptors_raise();
	log_keep_last();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (ident_discover(&ident, &err) < 0)
		return rdzv_leave(NULL, &err);
	alone_warn(&ident);
	log_set_tag("rank %d on %s", ident.rank, ident.node);
	double start = clock_now();
	struct rdzv *rdzv = rdzv_open(&ident, options.provider, options.timeout, &err);
	if (!rdzv && err.status == EXIT_USAGE && ident.rank != 0)
		return err.status; /* rank 0 prints the same */
	if (!rdzv)
		return rdzv_leave(NULL, &err);
	times.open = clock_now() - start;
	if (measure(rdzv, &ident, &times, &err) < 0
		|| report(rdzv, &ident, &times, options.json, &err) < 0)
		return rdzv_leave(rdzv, &err);
	rdzv_close(rdzv, 1);
	return EXIT_OK;
}
