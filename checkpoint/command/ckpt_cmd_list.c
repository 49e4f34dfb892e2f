/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt ls: lists the checkpoints of a directory, one per row. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "checkpoint/directory/pin.h"
#include "checkpoint/format/manifest.h"
#include "common/record.h"
#include "checkpoint/load/ckpt_check.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/progress.h"

struct options {
	struct ckpt_words words;
	bool deep;
};

static const struct argp_option option_rows[] = {
	{ "deep", 'd', NULL, 0,
		"read every byte and compare all hashes (default: manifest, sizes and headers)", 0 },
	CKPT_WORDS_JSON,
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	if (key != 'd')
		return ckpt_words_parse(key, arg, state);
	options->deep = true;
	return 0;
}

static const struct argp argp = { .options = option_rows,
	.parser = parse_option,
	.args_doc = "DIR",
	.doc = "Lists the checkpoints in DIR: step, when it was saved, size, the attempt that saved "
		   "it, its losses, whether it is pinned, and whether it is valid." };

static void advance(void *arg, uint64_t bytes)
{
	progress_add(arg, bytes);
}

static const char *verdict_text(enum ckpt_verdict verdict)
{
	return verdict == CKPT_VALID ? "yes" : verdict == CKPT_FAULTY ? "NO" : "?";
}

static uint64_t size_of(const struct manifest *manifest)
{
	uint64_t size = 0;
	for (size_t i = 0; manifest && i < manifest->file_count; i++)
		size += manifest->files[i].size;
	return size;
}

/* The facts that a row and a JSON object show. `manifest` is NULL where there is no valid one. */
struct row {
	int64_t step;
	char name[CKPT_STEP_NAME_SIZE];
	struct manifest *manifest;
	bool pinned;
	enum ckpt_verdict verdict;
	struct err err;
};

static void add_row(struct ckpt_table *table, const struct row *row)
{
	char time[32], size[16], loss[24], validation[24];
	const struct manifest *m = row->manifest;
	ckpt_table_add(table, "%" PRId64, row->step);
	ckpt_table_add(table, "%s", ckpt_cmd_time(m ? m->time : 0, time));
	ckpt_table_add(table, "%s", m ? progress_bytes((double)size_of(m), size) : "-");
	if (m)
		ckpt_table_add(table, "%d", m->attempt);
	else
		ckpt_table_add(table, "-");
	ckpt_table_add(table, "%s", ckpt_cmd_loss(m ? m->loss : NAN, loss));
	ckpt_table_add(table, "%s", ckpt_cmd_loss(m ? m->validation_loss : NAN, validation));
	ckpt_table_add(table, "%s", row->pinned ? "yes" : "-");
	ckpt_table_add(table, "%s%s%s", verdict_text(row->verdict),
		row->verdict == CKPT_VALID ? "" : ": ", row->verdict == CKPT_VALID ? "" : row->err.text);
}

static json_t *row_json(const struct row *row)
{
	const struct manifest *m = row->manifest;
	json_t *object = json_pack("{s:I, s:s, s:b, s:o}", "step", (json_int_t)row->step, "folder",
		row->name, "pinned", (int)row->pinned, "valid",
		row->verdict == CKPT_UNKNOWN ? json_null() : json_boolean(row->verdict == CKPT_VALID));
	if (m)
		object = record_update(object,
			json_pack("{s:f, s:I, s:i, s:i, s:o, s:o}", "time", m->time, "size",
				(json_int_t)size_of(m), "attempt", m->attempt, "world_size", m->world_size, "loss",
				ckpt_cmd_number(m->loss), "validation_loss", ckpt_cmd_number(m->validation_loss)));
	if (row->verdict != CKPT_VALID)
		object = record_set(object, "why", json_string(row->err.text));
	return object;
}

static void look_at(const struct ckpt_dir *dir, int64_t step, const struct ckpt_check *check,
	struct row *row)
{
	struct err err;
	*row = (struct row) { .step = step };
	ckpt_step_name(step, row->name);
	row->manifest = ckpt_dir_manifest(dir, step, &err);
	const int pinned = row->manifest ? pin_is_set(dir->fd, row->name, &err) : -1;
	row->pinned = pinned == 1;
	row->verdict = ckpt_check(dir, row->name, check, &row->err);
	/* It is valid, so that the rest of the row could not be found out this time alone. */
	if (row->verdict == CKPT_VALID && pinned < 0) {
		row->verdict = CKPT_UNKNOWN;
		row->err = err;
	}
}

/* ---- other folders ---- */

/* Lists the names of damaged folders that were set aside, and of saves that are not committed. */
static int list_others(const struct ckpt_dir *dir, json_t **set_aside, json_t **unfinished,
	struct err *err)
{
	DIR *stream = io_open_list(dir->fd);
	struct dirent *entry;
	if (!stream)
		return err_fail(err, io_status(errno), "checkpoint: couldn't list %s: %m", dir->path);
	while ((entry = readdir(stream))) {
		if (strncmp(entry->d_name, "step-", 5) == 0 && strstr(entry->d_name, ".damaged-"))
			*set_aside = record_append(*set_aside, json_string(entry->d_name));
		if (strncmp(entry->d_name, ".saving-step-", 13) == 0)
			*unfinished = record_append(*unfinished, json_string(entry->d_name));
	}
	closedir(stream);
	return 0;
}

static void print_names(const char *what, const json_t *names)
{
	size_t i;
	json_t *name;
	json_array_foreach(names, i, name) printf("%s%s%s", i ? ", " : what, json_string_value(name),
		i + 1 == json_array_size(names) ? "\n" : "");
}

/* ---- the command ---- */

struct listing {
	struct ckpt_table table;
	json_t *rows, *set_aside, *unfinished;
	int status; /* of the first checkpoint of which not all could be found out, if any */
};

static void list_steps(const struct ckpt_dir *dir, const int64_t *steps, size_t count, bool deep,
	struct listing *listing)
{
	struct progress progress;
	char name[CKPT_STEP_NAME_SIZE];
	uint64_t total = 0;
	for (size_t i = 0; deep && i < count; i++)
		total += ckpt_check_bytes(dir, ckpt_step_name(steps[i], name));
	progress_begin(&progress, "verify", total, !deep);
	const struct ckpt_check check = { .deep = deep, .progress = advance, .arg = &progress };
	for (size_t i = 0; i < count; i++) {
		struct row row;
		look_at(dir, steps[i], &check, &row);
		if (row.verdict == CKPT_UNKNOWN && listing->status == EXIT_OK)
			listing->status = row.err.status;
		if (row.verdict != CKPT_GONE) {
			add_row(&listing->table, &row);
			listing->rows = record_append(listing->rows, row_json(&row));
		}
		manifest_destroy(row.manifest);
	}
	progress_end(&progress);
}

static int print_listing(const struct ckpt_dir *dir, const struct listing *listing, bool json)
{
	struct err err;
	if (!listing->rows || !listing->set_aside || !listing->unfinished) {
		err_set(&err, "output: no memory for a list");
		return ckpt_cmd_fail(&err);
	}
	if (json)
		return ckpt_cmd_print_json(
			json_pack("{s:s, s:O, s:O, s:O}", "directory", dir->path, "checkpoints", listing->rows,
				"set_aside", listing->set_aside, "unfinished", listing->unfinished));
	if (json_array_size(listing->rows) == 0)
		printf("no checkpoints in %s\n", dir->path);
	else
		ckpt_table_print(&listing->table);
	print_names("set aside because of damage: ", listing->set_aside);
	print_names("saves that are under way or were given up: ", listing->unfinished);
	const int status = ckpt_cmd_flush();
	progress_next("muster-ckpt show %s", dir->path);
	return status;
}

int ckpt_cmd_ls(int argc, char **argv)
{
	struct options options = {
		.words = { .least = 1, .most = 1, .what = "the checkpoint directory" }
	};
	struct ckpt_dir dir;
	struct err err;
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	static const char *const titles[] = { "step", "saved", "size", "attempt", "loss", "validation",
		"pinned", "valid" };
	struct listing listing = { .table = { .columns = 8, .right = 0x3d },
		.rows = json_array(),
		.set_aside = json_array(),
		.unfinished = json_array() };
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	for (int i = 0; i < 8; i++)
		ckpt_table_add(&listing.table, "%s", titles[i]);
	int status = EXIT_OK;
	if (ckpt_dir_open_existing(&dir, options.words.word[0], &err) < 0)
		status = ckpt_cmd_fail(&err);
	else if (ckpt_dir_steps(&dir, &steps, &count, &err) < 0
		|| list_others(&dir, &listing.set_aside, &listing.unfinished, &err) < 0)
		status = ckpt_cmd_fail(&err);
	if (status == EXIT_OK) {
		list_steps(&dir, steps, count, options.deep, &listing);
		status = print_listing(&dir, &listing, options.words.json);
		status = status == EXIT_OK ? listing.status : status;
	}
	ckpt_dir_close(&dir);
	ckpt_table_clear(&listing.table);
	json_decref(listing.rows);
	json_decref(listing.set_aside);
	json_decref(listing.unfinished);
	return status;
}
