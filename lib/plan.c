/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a plan, and a checkpoint against it. */
#include "config.h"
#include "lib/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "lib/muster_private.h"

static int check_given(const struct muster_ckpt_plan *given, struct muster_ckpt_plan *whole,
	struct err *err)
{
	*whole = (struct muster_ckpt_plan) { 0 };
	if (muster_check_given(given, "the plan", err) < 0
		|| muster_take_sized(whole, sizeof *whole, given, given->size,
			   offsetof(struct muster_ckpt_plan, keep_best), "muster_ckpt_plan", err)
			< 0
		|| muster_check_timeout(whole->timeout, err) < 0)
		return -1;
	if (!whole->dir || !whole->dir[0])
		return err_fail(err, EXIT_USAGE, "checkpoint: couldn't use the plan: it needs a directory");
	if (whole->writers < MUSTER_WRITERS_RANK0 || whole->writers > MUSTER_WRITERS_ALL)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use the plan: its writers are %d, which is none of "
			"MUSTER_WRITERS_RANK0, _NODE and _ALL",
			whole->writers);
	if (!whole->tensors && whole->tensor_count > 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use the plan: it has %zu tensors, and nothing says which",
			whole->tensor_count);
	return 0;
}

static int take_identity(struct plan *plan, const char *text, struct err *err)
{
	if (!text)
		return 0;
	plan->identity = muster_parse_object(text, err);
	return plan->identity ? 0 : err_prefix(err, "checkpoint: couldn't use the plan's identity");
}

/* All of them are this rank's until the writers are known, and each can be loaded. */
static int take_tensors(struct plan *plan, const struct muster_ckpt_plan *whole, struct err *err)
{
	const struct muster_state state = { .model = whole->tensors,
		.model_count = whole->tensor_count };
	if (arrays_open(&plan->arrays, &state, &(struct writers) { 0 }, err) < 0)
		return -1;
	if (arrays_check_data(&plan->arrays, err) == 0)
		return 0;
	arrays_release(&plan->arrays);
	return -1;
}

int plan_open(struct plan *plan, const struct muster_ckpt_plan *given, struct err *err)
{
	struct muster_ckpt_plan whole;
	*plan = (struct plan) { 0 };
	if (check_given(given, &whole, err) < 0 || take_tensors(plan, &whole, err) < 0)
		return -1;
	plan->writers = (enum muster_writers)whole.writers;
	plan->timeout = muster_or(whole.timeout, MUSTER_SECONDS);
	plan->retention = (struct retention) { .keep_last = whole.keep_last,
		.keep_every = whole.keep_every,
		.keep_best = whole.keep_best };
	if (take_identity(plan, whole.identity, err) == 0)
		return 0;
	plan_release(plan);
	return -1;
}

void plan_release(struct plan *plan)
{
	arrays_release(&plan->arrays);
	json_decref(plan->identity);
	*plan = (struct plan) { 0 };
}

/* ---- the identity ---- */

/* The value as text, at most `size` - 1 bytes of it; "nothing" for NULL. */
static void show(const json_t *value, int digits, char *text, size_t size)
{
	const size_t flags = JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(digits);
	AUTO_FREE char *whole = record_dump(value, flags);
	snprintf(text, size, "%s", whole ? whole : "nothing");
}

static int refuse(const struct manifest *manifest, const char *name, const json_t *was,
	const json_t *is, struct err *err)
{
	char old[200], new[200];
	/* 15 digits show 0.1 as it was written; 17 tell any two numbers apart. */
	for (int digits = 15; digits <= 17; digits += 2) {
		show(was, digits, old, sizeof old);
		show(is, digits, new, sizeof new);
		if (strcmp(old, new) != 0)
			break;
	}
	return err_fail(err, EXIT_USAGE,
		"resume: the checkpoint of step %" PRId64
		" was saved with \"%.60s\" %s, and this run has %s: "
		"that is part of a run's identity; give this run a directory of its own",
		manifest->step, name, old, new);
}

int plan_check_identity(const struct plan *plan, const struct manifest *manifest, struct err *err)
{
	json_t *recorded = json_object_get(manifest->config, "identity"), *value;
	const char *name;
	if (!plan->identity)
		return 0;
	json_object_foreach(recorded, name, value)
	{
		json_t *own = json_object_get(plan->identity, name);
		if (!own || !json_equal(own, value))
			return refuse(manifest, name, value, own, err);
	}
	json_object_foreach(plan->identity, name,
		value) if (!json_object_get(recorded, name)) return refuse(manifest, name, NULL, value,
		err);
	return 0;
}

int plan_hash(const struct plan *plan, struct hash128 *hash, struct err *err)
{
	struct hash128 parts[3] = { { 0 } };
	AUTO_FREE char *text = record_dump(plan->identity, JSON_COMPACT | JSON_SORT_KEYS);
	if (plan->identity && !text)
		return err_set(err, "checkpoint: out of memory");
	if (arrays_hash(&plan->arrays, &parts[0], err) < 0)
		return -1;
	if (text)
		parts[1] = hash_bytes(text, strlen(text));
	parts[2].low = plan->writers;
	*hash = hash_bytes(parts, sizeof parts);
	return 0;
}
