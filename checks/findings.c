/* SPDX-License-Identifier: Apache-2.0 */
/* Collects findings, merges equal ones of several tasks, and prints one as a line. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks/check.h"

#define NODES_NAMED 8

/* Replaces "{}" in the remedy by the value. */
static void make_remedy(char *out, size_t size, const char *remedy, const char *value)
{
	const char *hole = strstr(remedy, "{}");
	if (hole)
		snprintf(out, size, "%.*s%s%s", (int)(hole - remedy), remedy, value ? value : "", hole + 2);
	else
		snprintf(out, size, "%s", remedy);
}

/* Text from the environment or a file may hold anything; a finding stays one line. */
static void keep_one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

/* The finding with exactly this text; added if there is none. */
static struct finding *find(struct findings *findings, const struct finding *wanted)
{
	for (int i = 0; i < findings->count; i++) {
		struct finding *one = &findings->list[i];
		if (one->check == wanted->check && strcmp(one->text, wanted->text) == 0
			&& strcmp(one->remedy, wanted->remedy) == 0)
			return one;
	}
	struct finding *list = realloc(findings->list, ((size_t)findings->count + 1) * sizeof *list);
	if (!list)
		return NULL;
	findings->list = list;
	list[findings->count] = *wanted;
	return &list[findings->count++];
}

void findings_add(struct findings *findings, const struct check *check, int task, const char *value,
	const char *format, ...)
{
	struct finding wanted = { .check = check };
	va_list args;
	va_start(args, format);
	vsnprintf(wanted.text, sizeof wanted.text, format, args);
	va_end(args);
	make_remedy(wanted.remedy, sizeof wanted.remedy, check->remedy, value);
	keep_one_line(wanted.text);
	keep_one_line(wanted.remedy);
	struct finding *finding = find(findings, &wanted);
	if (finding && task >= 0 && !finding->tasks)
		finding->tasks = calloc((size_t)findings->task_count, sizeof *finding->tasks);
	if (finding && task >= 0 && finding->tasks)
		finding->tasks[task] = true;
	findings->incomplete |= !finding || (task >= 0 && !finding->tasks);
}

void findings_clear(struct findings *findings)
{
	for (int i = 0; i < findings->count; i++)
		free(findings->list[i].tasks);
	free(findings->list);
	*findings = (struct findings) { 0 };
}

int findings_worst(const struct findings *findings)
{
	int worst = -1;
	for (int i = 0; i < findings->count; i++)
		if ((int)findings->list[i].check->severity > worst)
			worst = findings->list[i].check->severity;
	return worst;
}

const char *check_severity_name(enum check_severity severity)
{
	return severity == CHECK_ERROR ? "error" : severity == CHECK_WARNING ? "warning" : "note";
}

/* ---- as text ---- */

struct line {
	char *out;
	size_t size, used;
};

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line->out + line->used, line->size - line->used, format, args);
	va_end(args);
	line->used += n < 0 ? 0 : (size_t)n;
	if (line->used >= line->size)
		line->used = line->size - 1;
}

/* "rank 3" or "ranks 0-3, 8". */
static void add_ranks(struct line *line, const struct finding *finding,
	const struct checkup *checkup)
{
	int total = 0, runs = 0;
	for (int i = 0; i < checkup->count; i++)
		total += finding->tasks[i];
	add(line, total == 1 ? "rank " : "ranks ");
	for (int i = 0; i < checkup->count; i++) {
		int last = i;
		if (!finding->tasks[i])
			continue;
		while (last + 1 < checkup->count && finding->tasks[last + 1]
			&& checkup->tasks[last + 1].rank == checkup->tasks[last].rank + 1)
			last++;
		if (runs == NODES_NAMED)
			add(line, " and more");
		if (runs < NODES_NAMED)
			add(line, last > i ? "%s%d-%d" : "%s%d", runs ? ", " : "", checkup->tasks[i].rank,
				checkup->tasks[last].rank);
		runs++;
		i = last;
	}
}

static bool named_before(const struct finding *finding, const struct checkup *checkup, int task)
{
	for (int i = 0; i < task; i++)
		if (finding->tasks[i] && strcmp(checkup->tasks[i].node, checkup->tasks[task].node) == 0)
			return true;
	return false;
}

static void add_nodes(struct line *line, const struct finding *finding,
	const struct checkup *checkup)
{
	int nodes = 0;
	for (int i = 0; i < checkup->count; i++) {
		if (!finding->tasks[i] || named_before(finding, checkup, i))
			continue;
		if (nodes < NODES_NAMED)
			add(line, "%s%s", nodes ? ", " : "", checkup->tasks[i].node);
		nodes++;
	}
	if (nodes > NODES_NAMED)
		add(line, " and %d more", nodes - NODES_NAMED);
}

char *finding_line(const struct finding *finding, const struct checkup *checkup, char *out,
	size_t size)
{
	struct line line = { out, size, 0 };
	out[0] = '\0';
	add(&line, "%s: %s: ", check_severity_name(finding->check->severity), finding->check->name);
	if (finding->tasks) {
		bool in_step = checkup->tasks[0].in_step || checkup->tasks[0].world_size > 1;
		if (in_step)
			add_ranks(&line, finding, checkup);
		if (in_step)
			add(&line, " on ");
		add_nodes(&line, finding, checkup);
		add(&line, ": ");
	}
	add(&line, "%s: %s", finding->text, finding->remedy);
	keep_one_line(out);
	return out;
}
