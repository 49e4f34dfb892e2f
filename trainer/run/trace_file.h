/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --trace: all ranks' spans on one time axis, written by rank 0. Its format is the JSON
 * object form of the "Trace Event Format" (Duffy, Google, 2016), which chrome://tracing and
 * Perfetto read: each span is a complete event ("ph": "X"), each rank a process with one thread for
 * computation and one for communication; ts and dur are microseconds. */
#ifndef MUSTER_TRACE_FILE_H
#define MUSTER_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/comm/comm.h"
#include "telemetry/trace.h"

struct trace_file;

/* Prepares a trace of the steps from `first` to `last`. Rank 0 creates FILE.part at once, so that
 * an unwritable folder is found before the first step. */
struct trace_file *trace_file_open(const char *path, const char *node, uint64_t first,
	uint64_t last, struct comm *comm, struct err *err);
/* Removes an unfinished file. `file` may be NULL, here and below. */
void trace_file_close(struct trace_file *file);

/* The recorder for the hooks; NULL without a file. */
struct trace *trace_file_recorder(struct trace_file *file);

/* Called by all ranks before each step: the trace's first step compares the clocks and starts to
 * record. -1 when the ranks can't be reached. */
int trace_file_step(struct trace_file *file, uint64_t step, struct err *err);

/* Called by all ranks after each step (`ended` false), and after the last one (`ended` true). After
 * the last traced step, or at the end if some were traced, rank 0 gets all spans and writes the
 * file, whole or not at all. A file that can't be written is only a warning; -1 when the ranks
 * can't be reached. */
int trace_file_finish(struct trace_file *file, uint64_t step, bool ended, struct err *err);

#endif
