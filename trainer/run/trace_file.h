/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --trace: all ranks' spans on one time axis, written by rank 0. The format is the JSON
 * object form of the "Trace Event Format" (Duffy, Google, 2016) as chrome://tracing and Perfetto
 * read it: one complete event ("ph": "X") a span, a process a rank, a thread for computation and
 * one for communication; ts and dur are microseconds. */
#ifndef MUSTER_TRACE_FILE_H
#define MUSTER_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/comm/comm.h"
#include "trainer/telemetry/trace.h"

struct trace_file;

/* A trace of the steps from `first` to `last`. Rank 0 creates FILE.part at once, so that a folder
 * that can't be written to is found before the first step. */
struct trace_file *trace_file_open(const char *path, const char *node, uint64_t first,
	uint64_t last, struct comm *comm, struct err *err);
/* Removes what is not finished. NULL is allowed, here and below. */
void trace_file_close(struct trace_file *file);

/* For the hooks; NULL without a file. */
struct trace *trace_file_recorder(struct trace_file *file);

/* Called by all ranks before each step: recording begins with the first step of the trace, with a
 * comparison of the clocks. -1 when the ranks can't be reached. */
int trace_file_step(struct trace_file *file, uint64_t step, struct err *err);

/* Called by all ranks behind each step (`ended` false), and when there are no more (true): behind
 * the last step that was asked for, or at the end if some were done, rank 0 gets all spans and
 * writes the file, whole or not at all. That it can't be written is only a warning; -1 when the
 * ranks can't be reached. */
int trace_file_finish(struct trace_file *file, uint64_t step, bool ended, struct err *err);

#endif
