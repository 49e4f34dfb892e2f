/* SPDX-License-Identifier: Apache-2.0 */
/* Times the reduction of gradients alone, without computing, for reduction.sh and nodes.sh: several
 * kinds, alternately. Each rank is one process; the ranks meet in a folder.
 *     reduce_step MEGABYTES SLOTS ROUNDS STEPS INTERFACE KIND…
 * with the kinds canonical, flat (the same, but ranks of one node add nothing there), native and
 * native-bf16. Rank 0 prints a line for each kind: its name, the seconds of a step in the fastest
 * round (other load on the machine can only slow a round down) and in the median one, the CPU
 * seconds of all ranks for a step, the bytes of a step that left by that interface of its node, and
 * the bytes that the rank that sends most should send in a step. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/layers.h"
#include "common/clock.h"
#include "common/ident.h"
#include "common/log.h"
#include "launch/rdzv.h"
#include "trainer/ddp/ddp.h"
#include "trainer/ddp/ddp_plan.h"

#define KINDS_MAX 4
#define ROUNDS_MAX 1000
#define ARGUMENTS 6 /* before the kinds */

struct bench {
	struct comm *comm;
	struct ops *ops;
	struct tensor_table table;
	const char *interface;
	char **names; /* of the kinds */
	int kinds;
	struct ddp *ddp[KINDS_MAX];
	double seconds[KINDS_MAX][ROUNDS_MAX], cpu[KINDS_MAX], bytes[KINDS_MAX]; /* cpu, bytes: of all
																				  rounds */
	uint64_t step;
};

static void die(const struct err *err)
{
	fprintf(stderr, "reduce_step: %s\n", err->text);
	_Exit(1);
}

/* Bytes that the interface has sent so far. */
static double sent_bytes(const struct bench *b)
{
	char line[400], name[40];
	double sent = 0, bytes;
	FILE *file = fopen("/proc/net/dev", "r");

	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, " %39[^:]: %*s %*s %*s %*s %*s %*s %*s %*s %lf", name, &bytes) == 2
			&& strcmp(name, b->interface) == 0)
			sent = bytes;
	if (file)
		fclose(file);
	return sent;
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
		+ (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void barrier(struct bench *b)
{
	struct err err;
	char all[1024];

	if (comm_wait(b->comm, comm_allgather(b->comm, "barrier", "x", all, 1), &err) < 0)
		die(&err);
}

static void step(struct bench *b, struct ddp *ddp)
{
	struct ddp_control control = { .step = ++b->step };
	struct ddp_result result;
	struct err err;

	ddp_begin(ddp, b->step);
	for (int slot = 0; slot < ddp_slot_count(ddp); slot++) {
		for (int layer = 0; layer < LAYERS; layer++)
			ddp_ready(ddp, layer);
		ddp_slot_end(ddp, 1);
	}
	if (ddp_finish(ddp, &control, &result, &err) < 0)
		die(&err);
}

static void open_bench(struct bench *b, size_t megabytes, int slots)
{
	static struct ident ident;
	struct err err;

	if (ident_discover(&ident, &err) < 0)
		die(&err);
	struct rdzv *rdzv = rdzv_open(&ident, NULL, 30, &err);
	b->comm = rdzv ? comm_open(&ident, rdzv, NULL, 60, &err) : NULL;
	b->ops = b->comm ? ops_cpu_create(false, &err) : NULL;
	if (!b->ops)
		die(&err);
	if (layers_add(&b->table, megabytes, &err) < 0)
		die(&err);
	for (int kind = 0; kind < b->kinds; kind++) {
		const char *name = b->names[kind];
		const struct ddp_config config = { .slots = slots,
			.bucket_bytes = (size_t)ddp_bucket_mb(&b->table, comm_size(b->comm)) << 20,
			.native = strncmp(name, "native", 6) == 0,
			.bf16 = strcmp(name, "native-bf16") == 0,
			.node = strcmp(name, "flat") == 0 ? 0 : ident.node_rank };

		b->ddp[kind] = ddp_create(b->comm, b->ops, &b->table, &config, &err);
		if (!b->ddp[kind])
			die(&err);
		step(b, b->ddp[kind]);
	}
}

static void measure(struct bench *b, int kind, int round, int steps)
{
	barrier(b);
	double begun = clock_now(), sent = sent_bytes(b), cpu = cpu_seconds();

	for (int i = 0; i < steps; i++)
		step(b, b->ddp[kind]);
	barrier(b);
	b->seconds[kind][round] = (clock_now() - begun) / steps;
	b->cpu[kind] += cpu_seconds() - cpu;
	b->bytes[kind] += sent_bytes(b) - sent;
}

/* Replaces each rank's CPU seconds by the sum over all ranks. */
static void sum_cpu(struct bench *b)
{
	double all[1024][KINDS_MAX];
	struct err err;

	if (comm_wait(b->comm, comm_allgather(b->comm, "cpu", b->cpu, all, sizeof b->cpu), &err) < 0)
		die(&err);
	for (int kind = 0; kind < b->kinds; kind++) {
		b->cpu[kind] = 0;
		for (int rank = 0; rank < comm_size(b->comm); rank++)
			b->cpu[kind] += all[rank][kind];
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static struct bench b;

	b.kinds = argc - ARGUMENTS;
	if (b.kinds < 1 || b.kinds > KINDS_MAX || atoi(argv[3]) < 1 || atoi(argv[3]) > ROUNDS_MAX) {
		fprintf(stderr, "usage: reduce_step MEGABYTES SLOTS ROUNDS STEPS INTERFACE KIND…\n");
		return 2;
	}
	int rounds = atoi(argv[3]);
	b.interface = argv[5];
	b.names = argv + ARGUMENTS;
	log_set_level(LOG_LEVEL_ERROR);
	open_bench(&b, (size_t)atoi(argv[1]), atoi(argv[2]));
	for (int round = 0; round < rounds; round++)
		for (int kind = 0; kind < b.kinds; kind++)
			measure(&b, (kind + round) % b.kinds, round, atoi(argv[4]));
	sum_cpu(&b);
	for (int kind = 0; kind < b.kinds && comm_rank(b.comm) == 0; kind++) {
		double steps = (double)rounds * atoi(argv[4]);

		qsort(b.seconds[kind], (size_t)rounds, sizeof(double), ascending);
		printf("%s %.6f %.6f %.6f %.0f %zu\n", b.names[kind], b.seconds[kind][0],
			b.seconds[kind][rounds / 2], b.cpu[kind] / steps, b.bytes[kind] / steps,
			ddp_cost(b.ddp[kind]).sent);
	}
	fflush(stdout);
	comm_close(b.comm);
	_Exit(0);
}
