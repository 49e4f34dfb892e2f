/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt prune: removes checkpoints by the rules of retention after a training has ended. It
 * owns the directory while it removes, so that it can't take checkpoints from a running training.
 * It reads the newest checkpoint whole before it removes any other, so that at least one good
 * checkpoint stays. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/pin.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/format/manifest.h"
#include "common/record.h"
#include "checkpoint/load/ckpt_check.h"
#include "common/auto.h"
#include "common/number.h"
#include "common/progress.h"

#define CLAIM_SECONDS 10.0

struct options {
	struct ckpt_words words;
	struct retention policy;
	bool dry_run;
};

static const struct argp_option option_rows[] = {
	{ "keep-last", 'n', "N", 0, "the newest N stay; needed, at least 1", 0 },
	{ "keep-every", 'k', "K", 0, "steps that are multiples of K stay (default: none does so)", 0 },
	{ "keep-best", 'b', "N", 0,
		"the N with the lowest validation loss stay (default: none does so)", 0 },
	{ "dry-run", 'd', NULL, 0, "remove nothing, only say what would go", 0 },
	CKPT_WORDS_JSON,
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'n':
		options->policy.keep_last = (size_t)number_option(state, "keep-last", arg, 1, INT64_MAX);
		return 0;
	case 'k':
		options->policy.keep_every = number_option(state, "keep-every", arg, 0, INT64_MAX);
		return 0;
	case 'b':
		options->policy.keep_best = (size_t)number_option(state, "keep-best", arg, 0, INT64_MAX);
		return 0;
	case 'd': options->dry_run = true; return 0;
	case ARGP_KEY_SUCCESS:
		if (options->policy.keep_last == 0)
			argp_error(state, "--keep-last is missing: say how many of the newest stay");
		return 0;
	default: return ckpt_words_parse(key, arg, state);
	}
}

static const struct argp argp = { .options = option_rows,
	.parser = parse_option,
	.args_doc = "DIR --keep-last N",
	.doc = "Removes old checkpoints from DIR. Pinned ones stay, and so does everything that is not "
		   "valid: muster-ckpt verify says what is wrong with it. Before anything is removed the "
		   "newest valid checkpoint is read whole. A directory that a training uses is refused." };

/* ---- the survey ---- */

struct entry {
	char name[CKPT_STEP_NAME_SIZE];
	uint64_t size;
	bool removed;
	bool failed;     /* it couldn't be removed */
	char stays[100]; /* "stays: " and why, or nothing */
};

/* The valid checkpoints of the directory; the others are left alone. */
struct pruning {
	const struct options *options;
	struct ckpt_dir dir;
	struct retention_item *items;
	struct entry *entries;
	size_t count;
	int64_t *remove;
	size_t picked;
	json_t *left_alone; /* {name: why} of the checkpoints that are not valid */
	int status;         /* exit status of the first failed removal or check */
};

static void add_step(struct pruning *p, int64_t step)
{
	const struct ckpt_check check = { .deep = false };
	struct err why;
	struct entry *entry = &p->entries[p->count];
	ckpt_step_name(step, entry->name);
	enum ckpt_verdict verdict = ckpt_check(&p->dir, entry->name, &check, &why);
	struct manifest *manifest =
		verdict == CKPT_VALID ? ckpt_dir_manifest(&p->dir, step, &why) : NULL;
	const int pinned = manifest ? pin_is_set(p->dir.fd, entry->name, &why) : 0;
	if (verdict == CKPT_UNKNOWN || (verdict == CKPT_VALID && (!manifest || pinned < 0))) {
		err_prefix(&why, "%s", entry->name);
		const int status = ckpt_cmd_fail(&why);
		p->status = p->status ? p->status : status;
		p->left_alone =
			record_set(p->left_alone, entry->name, json_string("it could not be checked"));
	} else if (verdict == CKPT_FAULTY) {
		p->left_alone = record_set(p->left_alone, entry->name,
			json_string("it is not valid (see muster-ckpt verify)"));
	}
	if (!manifest)
		return;
	p->items[p->count++] = (struct retention_item) { .step = step,
		.validation_loss = manifest->validation_loss,
		.pinned = pinned != 0 };
	for (size_t i = 0; i < manifest->file_count; i++)
		entry->size += manifest->files[i].size;
	manifest_destroy(manifest);
}

static int survey(struct pruning *p, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	if (ckpt_dir_steps(&p->dir, &steps, &count, err) < 0)
		return -1;
	p->items = calloc(count + 1, sizeof *p->items);
	p->entries = calloc(count + 1, sizeof *p->entries);
	p->remove = calloc(count + 1, sizeof *p->remove);
	p->left_alone = json_object();
	for (size_t i = 0; p->items && p->entries && p->remove && i < count; i++)
		add_step(p, steps[i]);
	if (!p->items || !p->entries || !p->remove || !p->left_alone)
		return err_set(err, "prune: no memory");
	p->picked = retention_pick(&p->options->policy, p->items, p->count, p->remove);
	return 0;
}

static void advance(void *arg, uint64_t bytes)
{
	progress_add(arg, bytes);
}

/* Reads the newest checkpoint whole. */
static int verify_newest(const struct pruning *p, struct err *err)
{
	struct progress progress;
	const char *name = p->entries[p->count - 1].name;
	const struct ckpt_check check = { .deep = true, .progress = advance, .arg = &progress };
	progress_begin(&progress, "verify the newest", ckpt_check_bytes(&p->dir, name), false);
	enum ckpt_verdict verdict = ckpt_check(&p->dir, name, &check, err);
	progress_end(&progress);
	if (verdict == CKPT_VALID)
		return 0;
	return err_prefix(err,
		"prune: nothing was removed, since the newest checkpoint, %s, does not verify", name);
}

/* ---- is the directory in use ---- */

/* After its trainer is gone, a checkpoint service may still be writing; it shows that by the
 * owner's heartbeat. Taking ownership would lose that save. */
static int check_use(const struct ckpt_dir *dir, struct err *err)
{
	if (!owner_beats(dir))
		return 0;
	return err_fail(err, EXIT_USAGE,
		"prune: %s is in use, or was a moment ago: try again when its training has ended (one that "
		"was killed has after %g s)",
		dir->path, OWNER_HEARTBEAT);
}

/* ---- removing ---- */

static struct entry *entry_of(struct pruning *p, int64_t step)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->items[i].step == step)
			return &p->entries[i];
	return NULL;
}

/* A checkpoint that can't be removed doesn't stop the removal of the others. */
static void remove_picked(struct pruning *p, const char *token)
{
	for (size_t i = 0; i < p->picked; i++) {
		struct err why;
		struct entry *entry = entry_of(p, p->remove[i]);
		int result = remove_step(&p->dir, p->remove[i], token, &why);
		entry->removed = result == 0;
		entry->failed = result < 0;
		if (result == 1)
			snprintf(entry->stays, sizeof entry->stays, "%s", strstr(why.text, "stays: "));
		int status = entry->failed                   ? ckpt_cmd_fail(&why)
			: result == 1 && why.status == EXIT_LOST ? EXIT_LOST
													 : EXIT_OK;
		p->status = p->status ? p->status : status;
		if (entry->failed && owner_verify(&p->dir, token, NULL) < 0)
			return;
	}
}

static int claim_and_remove(struct pruning *p, struct err *err)
{
	struct owner self = { .brief = true };
	struct err ignored;
	if (check_use(&p->dir, err) < 0 || verify_newest(p, err) < 0 || check_use(&p->dir, err) < 0
		|| owner_claim(&p->dir, &self, NULL, NULL, CLAIM_SECONDS, err) < 0)
		return -1;
	remove_picked(p, self.token);
	owner_release(&p->dir, self.token, &ignored);
	return 0;
}

/* ---- output ---- */

static int print_json(struct pruning *p)
{
	json_t *removed = json_array(), *kept = json_array(), *left_alone = json_array(), *why;
	const char *name;
	for (size_t i = 0; i < p->count; i++) {
		bool gone = p->entries[i].removed;
		for (size_t r = 0; p->options->dry_run && r < p->picked; r++)
			gone |= p->remove[r] == p->items[i].step;
		json_t **list = gone ? &removed : &kept;
		*list = record_append(*list,
			json_pack("{s:I, s:s, s:I, s:b, s:o}", "step", (json_int_t)p->items[i].step, "folder",
				p->entries[i].name, "size", (json_int_t)p->entries[i].size, "pinned",
				(int)(p->items[i].pinned || strstr(p->entries[i].stays, "pinned")),
				"validation_loss", ckpt_cmd_number(p->items[i].validation_loss)));
	}
	json_object_foreach(p->left_alone, name, why)
	{
		left_alone = record_append(left_alone, json_string(name));
	}
	return ckpt_cmd_print_json(
		json_pack("{s:s, s:b, s:o, s:o, s:o}", "directory", p->dir.path, "dry_run",
			(int)p->options->dry_run, "removed", removed, "kept", kept, "left_alone", left_alone));
}

static int print_text(struct pruning *p)
{
	uint64_t bytes = 0;
	size_t removed = 0;
	char size[16];
	const char *name;
	json_t *why;
	for (size_t r = 0; r < p->picked; r++) {
		const struct entry *entry = entry_of(p, p->remove[r]);
		bool gone = entry->removed || p->options->dry_run;
		removed += gone;
		bytes += gone ? entry->size : 0;
		printf("%s: %s\n", entry->name,
			p->options->dry_run   ? "would be removed"
				: gone            ? "removed"
				: entry->stays[0] ? entry->stays
				: entry->failed   ? "couldn't be removed"
								  : "stays");
	}
	json_object_foreach(p->left_alone, name, why)
		printf("%s: left alone: %s\n", name, json_string_value(why));
	printf("%s%zu of %zu checkpoints, %s\n", p->options->dry_run ? "would remove " : "removed ",
		removed, p->count, progress_bytes((double)bytes, size));
	return ckpt_cmd_flush();
}

int ckpt_cmd_prune(int argc, char **argv)
{
	struct options options = {
		.words = { .least = 1, .most = 1, .what = "the checkpoint directory" }
	};
	struct pruning p = { .options = &options };
	struct err err;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	int result = ckpt_dir_open_existing(&p.dir, options.words.word[0], &err);
	if (result == 0)
		result = survey(&p, &err);
	if (result == 0 && p.picked > 0 && !options.dry_run)
		result = claim_and_remove(&p, &err);
	int status = result < 0  ? ckpt_cmd_fail(&err)
		: options.words.json ? print_json(&p)
							 : print_text(&p);
	status = status ? status : p.status;
	ckpt_dir_close(&p.dir);
	free(p.items);
	free(p.entries);
	free(p.remove);
	json_decref(p.left_alone);
	return status;
}
