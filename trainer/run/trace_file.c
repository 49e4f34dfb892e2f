/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 collects one rank's spans after the other's, so that it never holds more than one other
 * rank's beside its own. */
#include "config.h"

#include "trainer/run/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "trainer/run/trace_clock.h"

#define SPANS_ALL 400000 /* of all ranks and both threads; gives a file of about 80 MB */
#define SPANS_MOST 50000 /* of one thread */
#define SPANS_LEAST 500

enum state { STATE_BEFORE, STATE_RECORDING, STATE_DONE };

/* What a rank sends before its spans. */
struct summary {
	uint64_t count[TRACE_THREADS], dropped;
	char node[64];
};

struct trace_file {
	struct trace *trace;
	struct comm *comm;
	uint64_t first, last, begun; /* `begun`: the first step that was recorded */
	enum state state;
	char node[64];
	/* only on rank 0 */
	char *path, *part;
	FILE *out;
	double axis;                        /* the clock_now() at which the time axis begins */
	struct trace_clock *before, *after; /* [ranks] measured before and after the traced steps */
	struct summary *summaries;
	uint64_t events, dropped;
};

static size_t room_of(int ranks)
{
	size_t room = (size_t)(SPANS_ALL / TRACE_THREADS / ranks);
	return room > SPANS_MOST ? SPANS_MOST : room < SPANS_LEAST ? SPANS_LEAST : room;
}

static int open_part(struct trace_file *file, const char *path, struct err *err)
{
	size_t ranks = (size_t)comm_size(file->comm);
	file->before = calloc(ranks, sizeof *file->before);
	file->after = calloc(ranks, sizeof *file->after);
	file->path = strdup(path);
	if (!file->before || !file->after || !file->path || asprintf(&file->part, "%s.part", path) < 0)
		return err_set(err, "trace: out of memory");
	file->out = fopen(file->part, "we");
	return file->out ? 0
					 : err_fail(err, io_status_or(errno, EXIT_USAGE),
						 "trace: couldn't create %s: %m; give --trace a file in a folder that rank "
						 "0 may write to",
						 file->part);
}

struct trace_file *trace_file_open(const char *path, const char *node, uint64_t first,
	uint64_t last, struct comm *comm, struct err *err)
{
	struct trace_file *file = calloc(1, sizeof *file);
	if (!file) {
		err_set(err, "trace: out of memory");
		return NULL;
	}
	file->comm = comm;
	file->first = first;
	file->last = last;
	snprintf(file->node, sizeof file->node, "%.63s", node);
	file->trace = trace_create(room_of(comm_size(comm)), err);
	file->summaries = calloc((size_t)comm_size(comm), sizeof *file->summaries);
	if (file->trace && !file->summaries)
		err_set(err, "trace: out of memory");
	if (!file->trace || !file->summaries
		|| (comm_rank(comm) == 0 && open_part(file, path, err) < 0)) {
		trace_file_close(file);
		return NULL;
	}
	return file;
}

void trace_file_close(struct trace_file *file)
{
	if (!file)
		return;
	if (file->out) {
		fclose(file->out);
		unlink(file->part);
	}
	trace_destroy(file->trace);
	free(file->summaries);
	free(file->before);
	free(file->after);
	free(file->part);
	free(file->path);
	free(file);
}

struct trace *trace_file_recorder(struct trace_file *file)
{
	return file ? file->trace : NULL;
}

int trace_file_step(struct trace_file *file, uint64_t step, struct err *err)
{
	if (!file || file->state == STATE_DONE || step < file->first || step > file->last)
		return 0;
	if (file->state == STATE_BEFORE) {
		file->axis = clock_now();
		if (trace_clock_measure(file->comm, file->before, err) < 0)
			return -1;
		file->begun = step;
		file->state = STATE_RECORDING;
	}
	trace_step(file->trace, step);
	return 0;
}

/* ---- writing, on rank 0 ---- */

static void name_thread(struct trace_file *file, int rank, int thread, const char *name)
{
	fprintf(file->out,
		"{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": "
		"\"%s\"}},\n",
		rank, thread, name);
	fprintf(file->out,
		"{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_sort_index\", \"args\": "
		"{\"sort_index\": %d}},\n",
		rank, thread, thread);
}

static void name_rank(struct trace_file *file, int rank)
{
	char name[100];
	snprintf(name, sizeof name, "rank %d on %.63s", rank, file->summaries[rank].node);
	json_t *json = json_string(name);
	AUTO_FREE char *text = record_dump(json, JSON_ENCODE_ANY); /* NULL if the name is not UTF-8 */
	json_decref(json);
	fprintf(file->out,
		"{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_name\", \"args\": {\"name\": "
		"%s}},\n",
		rank, text ? text : "\"a rank\"");
	fprintf(file->out,
		"{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_sort_index\", \"args\": "
		"{\"sort_index\": %d}},\n",
		rank, rank);
	name_thread(file, rank, TRACE_COMPUTE, "compute");
	name_thread(file, rank, TRACE_COMMUNICATION, "communication");
}

/* Nanoseconds on the axis: whole numbers, so that adjacent spans still touch in the file. */
static long long on_axis(const struct trace_file *file, int rank, double time)
{
	return llround(
		(trace_clock_on_axis(&file->before[rank], &file->after[rank], time) - file->axis) * 1e9);
}

static void write_span(struct trace_file *file, int rank, const struct trace_span *span)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): where there are spans, there is room */
	long long begin = on_axis(file, rank, span->begin), end = on_axis(file, rank, span->end);
	fprintf(file->out,
		"%s{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": "
		"\"%s\", \"cat\": \"%s\", \"args\": {\"step\": %" PRIu64,
		file->events++ ? ",\n" : "", rank, (int)span->thread, (double)begin / 1e3,
		(double)(end - begin) / 1e3, span->name,
		span->thread == TRACE_COMPUTE ? "compute" : "communication", span->step);
	if (span->ready > 0)
		fprintf(file->out, ", \"ready\": %.3f", (double)on_axis(file, rank, span->ready) / 1e3);
	if (span->bytes)
		fprintf(file->out, ", \"bytes\": %" PRIu64, span->bytes);
	fputs("}}", file->out);
}

static void write_head(struct trace_file *file)
{
	fputs("{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n", file->out);
	for (int rank = 0; rank < comm_size(file->comm); rank++)
		name_rank(file, rank);
}

/* Writes how accurate the time axis is. Perfetto shows it under "Info and stats". */
static void write_tail(struct trace_file *file, uint64_t step)
{
	fprintf(file->out,
		"\n],\n\"otherData\": {\"program\": \"%s\", \"steps\": \"%" PRIu64 "-%" PRIu64
		"\", \"spans_left_out\": %" PRIu64
		", \"time_axis\": \"microseconds of rank 0's monotonic clock; the others' clocks were "
		"compared with it before and after these steps, and may be off by error_us\", \"clocks\": "
		"[\n",
		PACKAGE_STRING, file->begun, step, file->dropped);
	for (int rank = 0; rank < comm_size(file->comm); rank++) {
		const struct trace_clock *before = &file->before[rank], *after = &file->after[rank];
		fprintf(file->out,
			"{\"rank\": %d, \"offset_us\": %.3f, \"drift_us\": %.3f, \"error_us\": %.3f}%s\n", rank,
			before->offset * 1e6, (after->offset - before->offset) * 1e6,
			fmax(before->error, after->error) * 1e6, rank + 1 < comm_size(file->comm) ? "," : "");
	}
	fputs("]}}\n", file->out);
}

/* Gives the file its own name once it is whole. */
static void finish_file(struct trace_file *file, uint64_t step)
{
	bool bad = fflush(file->out) != 0 || ferror(file->out);
	int why = errno;
	if (fclose(file->out) != 0 && !bad) {
		bad = true;
		why = errno;
	}
	file->out = NULL;
	if (!bad && rename(file->part, file->path) < 0) {
		bad = true;
		why = errno;
	}
	if (bad) {
		log_warn("trace: couldn't write %s: %s; the training goes on without it", file->path,
			strerror(why));
		unlink(file->part);
		return;
	}
	log_info("trace: steps %" PRIu64 " to %" PRIu64 " are in %s, %" PRIu64 " spans", file->begun,
		step, file->path, file->events);
	if (file->dropped)
		log_warn("trace: %" PRIu64
				 " spans were left out, since there was no room for them: give fewer --trace-steps",
			file->dropped);
}

/* ---- collecting ---- */

static int gather_summaries(struct trace_file *file, struct err *err)
{
	struct summary mine = { 0 };
	for (int i = 0; i < TRACE_THREADS; i++) {
		mine.count[i] = file->trace->count[i];
		mine.dropped += file->trace->dropped[i];
	}
	memcpy(mine.node, file->node, sizeof mine.node);
	if (comm_wait(file->comm,
			comm_allgather(file->comm, "the trace's size", &mine, file->summaries, sizeof mine),
			err)
		< 0)
		return -1;
	for (int rank = 0; rank < comm_size(file->comm); rank++)
		file->dropped += file->summaries[rank].dropped;
	return 0;
}

/* Sends `peer`'s spans, one thread after the other, to rank 0, which writes them. */
static int move_spans(struct trace_file *file, int peer, struct trace_span *room, struct err *err)
{
	int me = comm_rank(file->comm);
	for (int thread = 0; thread < TRACE_THREADS; thread++) {
		size_t count = file->summaries[peer].count[thread];
		struct trace_span *spans = me == peer ? file->trace->spans[thread] : room;
		const struct comm_transfer transfer = { me == 0 ? peer : 0, spans, count * sizeof *spans,
			me == 0 };
		if (peer != 0
			&& comm_wait(file->comm,
				   comm_exchange(file->comm, "the trace", &transfer, 1, NULL, NULL), err)
				< 0)
			return -1;
		for (size_t i = 0; me == 0 && i < count; i++)
			write_span(file, peer, &spans[i]);
	}
	return 0;
}

static int collect(struct trace_file *file, uint64_t step, struct err *err)
{
	int me = comm_rank(file->comm);
	AUTO_FREE struct trace_span *room = me == 0 ? calloc(file->trace->room, sizeof *room) : NULL;
	if (me == 0 && !room)
		return err_set(err, "trace: out of memory");
	if (trace_clock_measure(file->comm, file->after, err) < 0 || gather_summaries(file, err) < 0)
		return -1;
	if (me == 0)
		write_head(file);
	for (int peer = 0; peer < comm_size(file->comm); peer++)
		if ((me == 0 || me == peer) && move_spans(file, peer, room, err) < 0)
			return -1;
	if (me != 0)
		return 0;
	write_tail(file, step);
	finish_file(file, step);
	return 0;
}

int trace_file_finish(struct trace_file *file, uint64_t step, bool ended, struct err *err)
{
	if (!file || file->state == STATE_DONE || (!ended && step < file->last))
		return 0;
	trace_step(file->trace, 0);
	bool recorded = file->state == STATE_RECORDING;
	file->state = STATE_DONE;
	if (recorded)
		return collect(file, step, err);
	if (comm_rank(file->comm) == 0)
		log_warn("trace: none of the steps %" PRIu64 " to %" PRIu64 " was done: nothing is written",
			file->first, file->last);
	return 0;
}
