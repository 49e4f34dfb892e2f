/* SPDX-License-Identifier: Apache-2.0 */
/* A task's last log line, and whether the job made progress, kept where slurmstepd finds them
 * however the task ends: in memory that slurmstepd makes, with a slot for each task, and that the
 * task inherits. The memory has no name in a file system, so a user can't be led to it. */
#ifndef MUSTER_LAST_WORDS_H
#define MUSTER_LAST_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LAST_WORDS_VARIABLE "MUSTER_LAST_WORDS"
#define LAST_WORDS_MAX 200 /* bytes */

/* ---- in slurmstepd ---- */

/* Memory for `slots` tasks, closed at execve. Returns a descriptor, or -1 with errno. */
int last_words_make(int slots);

/* In the task, before execve: keeps the memory open across execve and writes the value of
 * LAST_WORDS_VARIABLE to `value`. -1 with errno. */
int last_words_hand_on(int memory, int slot, char *value, size_t size);

/* The last line of the slot's task; "" if there is none. Whatever the task wrote, `out` is one line
 * of printable ASCII. */
void last_words_read(int memory, int slot, char out[LAST_WORDS_MAX + 1]);

/* The process that called last_words_say_result in that slot; 0 if none did. */
pid_t last_words_result_of(int memory, int slot);

/* Whether a task of the first `slots` slots called last_words_say_progress. */
bool last_words_progressed(int memory, int slots);

/* Whether a task of the first `slots` slots called last_words_say_leaving. */
bool last_words_leaving(int memory, int slots);

/* Replaces each byte that is not printable ASCII by "?". */
void last_words_make_printable(char *text);

/* ---- in the task ---- */

/* One task's slot; fd -1: none. */
struct last_words {
	int fd;
	off_t offset;
};

/* The slot that LAST_WORDS_VARIABLE names; none if that is unset, or its descriptor now is
 * something else. */
struct last_words last_words_open(const char *value);

void last_words_write(const struct last_words *words, const char *line);

/* This process's exit status will be a result that was asked for, not a failure. */
void last_words_say_result(const struct last_words *words);

/* The job is further than after all earlier attempts: if this attempt fails now, it was not in
 * vain. */
void last_words_say_progress(const struct last_words *words);

/* This node is about to be taken away. */
void last_words_say_leaving(const struct last_words *words);

#endif
