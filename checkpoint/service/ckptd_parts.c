/* SPDX-License-Identifier: Apache-2.0 */
/* A short list of saves, sorted by step. */
#include "checkpoint/service/ckptd_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS_MAX 64 /* parts that report arbitrary steps must not grow the list without limit */
#define NAMED 4      /* how many missing parts a message names */

struct ckptd_parts {
	int parts;
	double patience;
	double hurry;  /* clock_now() at which all saves are late; 0: not set */
	int64_t *left; /* [parts] the first step for which the part does not come; INT64_MAX: none */
	struct ckptd_parts_step *first;
	size_t count;
};

struct ckptd_parts *ckptd_parts_create(int parts, double patience)
{
	struct ckptd_parts *self = calloc(1, sizeof *self);
	int64_t *left = calloc((size_t)parts, sizeof *left);
	if (!self || !left) {
		free(self);
		free(left);
		return NULL;
	}
	for (int i = 0; i < parts; i++)
		left[i] = INT64_MAX;
	*self = (struct ckptd_parts) { .parts = parts, .patience = patience, .left = left };
	return self;
}

void ckptd_parts_free(struct ckptd_parts *parts, struct ckptd_parts_step *step)
{
	if (!step)
		return;
	for (int i = 0; step->texts && i < parts->parts; i++)
		free(step->texts[i]);
	free(step->texts);
	free(step->sizes);
	free(step->told);
	free(step);
}

void ckptd_parts_destroy(struct ckptd_parts *parts)
{
	if (!parts)
		return;
	while (parts->first) {
		struct ckptd_parts_step *step = parts->first;
		parts->first = step->next;
		ckptd_parts_free(parts, step);
	}
	free(parts->left);
	free(parts);
}

static double until(const struct ckptd_parts *parts, double at)
{
	return parts->hurry > 0 && parts->hurry < at ? parts->hurry : at;
}

static struct ckptd_parts_step *make_step(struct ckptd_parts *parts, int64_t step, double now)
{
	struct ckptd_parts_step *made = calloc(1, sizeof *made);
	if (!made)
		return NULL;
	size_t count = (size_t)parts->parts;
	made->texts = calloc(count, sizeof *made->texts);
	made->sizes = calloc(count, sizeof *made->sizes);
	made->told = calloc(count, sizeof *made->told);
	if (!made->texts || !made->sizes || !made->told) {
		ckptd_parts_free(parts, made);
		return NULL;
	}
	made->step = step;
	made->began = now;
	made->until = until(parts, (double)INFINITY);
	return made;
}

static void note_fault(struct ckptd_parts_step *save, int part, const struct err *fault)
{
	save->told[part] = true;
	save->count++;
	if (!save->fault.text[0])
		save->fault = *fault;
}

/* Notes as a fault that the part's client ended before it handed the part over. */
static void note_left(struct ckptd_parts *parts, struct ckptd_parts_step *save, int part)
{
	struct err fault;
	if (save->step < parts->left[part] || save->told[part])
		return;
	err_fail(&fault, EXIT_LOST,
		"checkpoint: part %d of %d was not handed over before its rank ended", part + 1,
		parts->parts);
	note_fault(save, part, &fault);
}

/* Finds the save of `step`, or inserts a new one. */
static struct ckptd_parts_step *get_step(struct ckptd_parts *parts, int64_t step, double now)
{
	struct ckptd_parts_step **at = &parts->first;
	while (*at && (*at)->step < step)
		at = &(*at)->next;
	if (*at && (*at)->step == step)
		return *at;
	struct ckptd_parts_step *made = parts->count < STEPS_MAX ? make_step(parts, step, now) : NULL;
	if (!made)
		return NULL;
	made->next = *at;
	*at = made;
	parts->count++;
	for (int part = 0; part < parts->parts; part++)
		note_left(parts, made, part);
	return made;
}

int ckptd_parts_begin(struct ckptd_parts *parts, int64_t step, double now)
{
	struct ckptd_parts_step *save = get_step(parts, step, now);
	if (!save)
		return -1;
	save->began = now;
	return 0;
}

int ckptd_parts_tell(struct ckptd_parts *parts, int64_t step, int part, char *text, size_t size,
	const struct err *fault, double now)
{
	if (text && step >= parts->left[part])
		parts->left[part] = INT64_MAX; /* the part came from another service after all */
	struct ckptd_parts_step *save = get_step(parts, step, now);
	if (!save || save->told[part]) {
		free(text);
		return save ? 0 : -1;
	}
	if (text) {
		save->told[part] = true;
		save->texts[part] = text;
		save->sizes[part] = size;
		save->count++;
	} else {
		note_fault(save, part, fault);
	}
	if (part == 0) {
		save->own = true;
		save->own_failed = !text;
		save->until = until(parts, now + parts->patience);
	}
	return 0;
}

void ckptd_parts_left(struct ckptd_parts *parts, int part, int64_t step)
{
	parts->left[part] = step;
	for (struct ckptd_parts_step *save = parts->first; save; save = save->next)
		note_left(parts, save, part);
}

void ckptd_parts_hurry(struct ckptd_parts *parts, double at)
{
	parts->hurry = at;
	for (struct ckptd_parts_step *save = parts->first; save; save = save->next)
		if (save->until > at)
			save->until = at;
}

static bool is_complete(const struct ckptd_parts *parts, const struct ckptd_parts_step *save)
{
	return save->count == parts->parts && !save->fault.text[0];
}

static enum ckptd_parts_verdict judge(const struct ckptd_parts *parts,
	const struct ckptd_parts_step *save, double now)
{
	if (save->count == parts->parts)
		return is_complete(parts, save) ? PARTS_COMPLETE : PARTS_FAILED;
	for (const struct ckptd_parts_step *later = save->next; later; later = later->next)
		if (is_complete(parts, later))
			return PARTS_OVERTAKEN;
	return now >= save->until ? PARTS_LATE : PARTS_WAIT;
}

enum ckptd_parts_verdict ckptd_parts_over(struct ckptd_parts *parts, double now,
	struct ckptd_parts_step **over)
{
	for (struct ckptd_parts_step **at = &parts->first; *at; at = &(*at)->next) {
		enum ckptd_parts_verdict verdict = judge(parts, *at, now);
		if (verdict == PARTS_WAIT)
			continue;
		*over = *at;
		*at = (*at)->next;
		(*over)->next = NULL;
		parts->count--;
		return verdict;
	}
	*over = NULL;
	return PARTS_WAIT;
}

const struct ckptd_parts_step *ckptd_parts_first(const struct ckptd_parts *parts)
{
	return parts->first;
}

char *ckptd_parts_missing(const struct ckptd_parts *parts, const struct ckptd_parts_step *step,
	char *out, size_t size)
{
	size_t used = 0;
	int missing = parts->parts - step->count, named = 0;
	out[0] = '\0';
	for (int i = 0; i < parts->parts && named < NAMED && used < size; i++)
		if (!step->told[i])
			used += (size_t)snprintf(out + used, size - used, "%s%d", named++ ? ", " : "", i + 1);
	if (missing > named && used < size)
		snprintf(out + used, size - used, " and %d others", missing - named);
	return out;
}

double ckptd_parts_next(const struct ckptd_parts *parts)
{
	double next = 0;
	for (const struct ckptd_parts_step *save = parts->first; save; save = save->next)
		if (isfinite(save->until) && (next == 0 || save->until < next))
			next = save->until;
	return next;
}
