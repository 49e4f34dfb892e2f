/* SPDX-License-Identifier: Apache-2.0 */
/* The last line that a task has logged, and whether it came further, kept where slurmstepd finds it
 * however the task ends: a slot of memory that slurmstepd has made and that the task has inherited.
 * It is no file: no name leads a user to it. */
#ifndef MUSTER_LAST_WORDS_H
#define MUSTER_LAST_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LAST_WORDS_VARIABLE "MUSTER_LAST_WORDS"
#define LAST_WORDS_MAX 200 /* bytes */

/* ---- in slurmstepd ---- */

/* Memory for `slots` tasks, closed at execve. -1 with errno. */
int last_words_make(int slots);

/* In the task, before execve: lets it keep the memory, and writes to `value` what
 * LAST_WORDS_VARIABLE is to say. -1 with errno. */
int last_words_hand_on(int memory, int slot, char *value, size_t size);

/* What the task of a slot has said last; "" for nothing. Whatever it wrote, `out` is one line of
 * printable ASCII. */
void last_words_read(int memory, int slot, char out[LAST_WORDS_MAX + 1]);

/* The process that has said last_words_say_result in that slot; 0 for none. */
pid_t last_words_result_of(int memory, int slot);

/* Whether the task of one of the first `slots` has said last_words_say_progress. */
bool last_words_progressed(int memory, int slots);

/* Replaces whatever is not printable ASCII. */
void last_words_make_printable(char *text);

/* ---- in the task ---- */

/* A slot; fd -1 for none. */
struct last_words {
	int fd;
	off_t offset;
};

/* The slot that LAST_WORDS_VARIABLE names; none where it is unset, or its descriptor has become
 * something else. */
struct last_words last_words_open(const char *value);

void last_words_write(const struct last_words *words, const char *line);

/* The status that this process is about to end with is what it was started to find out, and no
 * failure. */
void last_words_say_result(const struct last_words *words);

/* The job has come further than all its attempts before: if this one fails now, it was not in vain.
 */
void last_words_say_progress(const struct last_words *words);

#endif
