/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of a step was the first to fail: the message by which a node tells srun how one of its
 * tasks ended (doc/first-failure.md), the decision, and the line for srun's user. All pure
 * functions. */
#ifndef MUSTER_FIRST_END_H
#define MUSTER_FIRST_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/last_words.h"

#define END_SECRET_SIZE 33 /* 32 hexadecimal digits */
#define END_NODE_SIZE 65
#define END_MESSAGE_MAX 512 /* bytes, with the final newline */

/* How a task ended. A value. */
struct task_report {
	int rank, world;
	int wait_status;
	char node[END_NODE_SIZE];
	char words[LAST_WORDS_MAX + 1]; /* its last log line; "" for none */
	uint32_t step;                  /* of END_STEP, which has this and the node; else 0 */
};

enum end_message { END_BAD, END_REPORT, END_RUNNING, END_STEP };

/* The messages: a task's end; that the job was neither cancelled nor preempted when it ended; and,
 * for muster-run, that a step begins on a node. Return the length. */
size_t end_write_report(const char *secret, const struct task_report *report,
	char out[END_MESSAGE_MAX]);
size_t end_write_running(const char *secret, char out[END_MESSAGE_MAX]);
size_t end_write_step(const char *secret, uint32_t step, const char *node,
	char out[END_MESSAGE_MAX]);

/* Reads a message from any sender: END_BAD unless it is exactly one of these, with that secret.
 * *report is filled in only for END_REPORT and END_STEP; its texts are printable ASCII. */
enum end_message end_read(const char *bytes, size_t size, const char *secret,
	struct task_report *report);

/* Whether these bytes may be the first of a message with that secret; no byte is none. */
bool end_begins(const char *bytes, size_t size, const char *secret);

/* What is known of a step's end. Start with zeros. A value. */
struct first_end {
	bool found, told, running;
	bool others_go_on; /* the step goes on after a failure (--kill-on-bad-exit=0) */
	struct task_report first;
	int own; /* nodes with a task that failed by itself */
};

/* Takes a report of a task's end. They come in the order in which the tasks ended. */
void first_end_add(struct first_end *state, const struct task_report *report);

/* Writes the line for the user to `out`. False if no rank failed: the job was cancelled or
 * preempted, or its tasks were told to end, and did. */
bool first_end_line(const struct first_end *state, char *out, size_t size);

#endif
