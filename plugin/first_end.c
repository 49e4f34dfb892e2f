/* SPDX-License-Identifier: Apache-2.0 */
/* The format of the messages, and the rules by which one rank is named as the first that failed. */
#include "config.h"

#include "plugin/first_end.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/number.h"
#include "plugin/task_end.h"

#define START "muster-end 1 "
#define START_SIZE (sizeof START + END_SECRET_SIZE + 1)
#define RANKS_MAX (1 << 24)

/* ---- the messages ---- */

static void make_word(const char *text, char out[END_NODE_SIZE])
{
	snprintf(out, END_NODE_SIZE, "%s", text[0] ? text : "?");
	last_words_make_printable(out);
	for (char *p = out; *p; p++)
		*p = *p == ' ' ? '?' : *p;
}

size_t end_write_report(const char *secret, const struct task_report *report,
	char out[END_MESSAGE_MAX])
{
	char node[END_NODE_SIZE], words[LAST_WORDS_MAX + 1];
	make_word(report->node, node);
	snprintf(words, sizeof words, "%s", report->words);
	last_words_make_printable(words);
	return (size_t)snprintf(out, END_MESSAGE_MAX, START "%s end %d %d %d %s %s\n", secret,
		report->rank, report->world, report->wait_status, node, words);
}

size_t end_write_running(const char *secret, char out[END_MESSAGE_MAX])
{
	return (size_t)snprintf(out, END_MESSAGE_MAX, START "%s running\n", secret);
}

size_t end_write_step(const char *secret, uint32_t step, const char *name,
	char out[END_MESSAGE_MAX])
{
	char node[END_NODE_SIZE];
	make_word(name, node);
	return (
		size_t)snprintf(out, END_MESSAGE_MAX, START "%s step %" PRIu32 " %s\n", secret, step, node);
}

/* Cuts the next word off a line; NULL if no space follows it. */
static char *take_word(char **rest)
{
	char *word = *rest, *space = strchr(word, ' ');
	if (!space)
		return NULL;
	*space = '\0';
	*rest = space + 1;
	return word;
}

static bool take_number(char **rest, int least, int most, int *value)
{
	int64_t number;
	const char *word = take_word(rest);
	if (!word || !number_whole(word, least, most, &number))
		return false;
	*value = (int)number;
	return true;
}

/* Parses what follows "end ". */
static enum end_message read_report(char *rest, struct task_report *report)
{
	struct task_report read = { 0 };
	const char *node;
	if (!take_number(&rest, 0, RANKS_MAX, &read.rank)
		|| !take_number(&rest, 1, RANKS_MAX, &read.world)
		|| !take_number(&rest, 1, 0xffff, &read.wait_status) || !(node = take_word(&rest)))
		return END_BAD;
	if (read.rank >= read.world || !node[0] || strlen(node) >= sizeof read.node
		|| strlen(rest) >= sizeof read.words)
		return END_BAD;
	strcpy(read.node, node);
	strcpy(read.words, rest);
	last_words_make_printable(read.node);
	last_words_make_printable(read.words);
	*report = read;
	return END_REPORT;
}

/* Parses what follows "step ". */
static enum end_message read_step(char *rest, struct task_report *report)
{
	int64_t step;
	const char *word = take_word(&rest);
	if (!word || !number_whole(word, 0, UINT32_MAX, &step) || !rest[0] || strchr(rest, ' ')
		|| strlen(rest) >= sizeof report->node)
		return END_BAD;
	*report = (struct task_report) { .step = (uint32_t)step };
	strcpy(report->node, rest);
	last_words_make_printable(report->node);
	return END_STEP;
}

/* What every message with that secret begins with. Returns its length. */
static size_t write_start(const char *secret, char out[START_SIZE])
{
	return (size_t)snprintf(out, START_SIZE, START "%s ", secret);
}

bool end_begins(const char *bytes, size_t size, const char *secret)
{
	char start[START_SIZE];
	size_t length = write_start(secret, start);
	return size > 0 && memcmp(bytes, start, size < length ? size : length) == 0;
}

enum end_message end_read(const char *bytes, size_t size, const char *secret,
	struct task_report *report)
{
	char text[END_MESSAGE_MAX + 1], start[START_SIZE];
	if (size == 0 || size > END_MESSAGE_MAX || bytes[size - 1] != '\n')
		return END_BAD;
	memcpy(text, bytes, size - 1);
	text[size - 1] = '\0';
	size_t length = write_start(secret, start);
	if (strlen(text) != size - 1 || strchr(text, '\n') || strncmp(text, start, length) != 0)
		return END_BAD;
	if (strcmp(text + length, "running") == 0)
		return END_RUNNING;
	if (strncmp(text + length, "step ", 5) == 0)
		return read_step(text + length + 5, report);
	return strncmp(text + length, "end ", 4) == 0 ? read_report(text + length + 4, report)
												  : END_BAD;
}

/* ---- the judgement ---- */

void first_end_add(struct first_end *state, const struct task_report *report)
{
	enum task_blame blame = task_end_blame(report->wait_status);
	state->own += blame == TASK_BLAME_OWN;
	if (blame == TASK_BLAME_TOLD)
		state->told = true;
	else if (!state->found && (blame == TASK_BLAME_OWN || !state->told)) {
		/* If a task was told to end, later ends that are no failures of their own have the same
		 * cause. */
		state->found = true;
		state->first = *report;
	}
}

/* What became of the other ranks, if known. If several nodes had a failure of their own, their
 * ranks were not stopped. */
static void tell_of_others(const struct first_end *state, char *out, size_t size)
{
	int others = state->first.world - 1;
	out[0] = '\0';
	if (state->others_go_on || task_end_blame(state->first.wait_status) == TASK_BLAME_LOST
		|| state->own > 1 || others == 0)
		return;
	if (others == 1)
		snprintf(out, size, "; the other was stopped for it");
	else
		snprintf(out, size, "; the %d others were stopped for it", others);
}

bool first_end_line(const struct first_end *state, char *out, size_t size)
{
	const struct task_report *first = &state->first;
	char end[100], words[sizeof first->words + 30] = "", place[60] = "", others[60];
	if (!state->found || !state->running)
		return false;
	if (first->words[0])
		snprintf(words, sizeof words, "; it last said \"%s\"", first->words);
	if (first->world > 1)
		snprintf(place, sizeof place, ", the first of %d ranks to fail", first->world);
	tell_of_others(state, others, sizeof others);
	snprintf(out, size, "rank %d on %s %s%s%s%s", first->rank, first->node,
		task_end_describe(first->wait_status, end, sizeof end), place, words, others);
	return true;
}
