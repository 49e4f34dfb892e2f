/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt diff: compares two checkpoints tensor by tensor, and their settings. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "common/record.h"
#include "checkpoint/load/ckpt_diff.h"
#include "common/progress.h"

#define EXIT_DIFFERENT 1 /* as diff(1) */

struct options {
	struct ckpt_words words;
	bool all;
};

static const struct argp_option option_rows[] = {
	{ "all", 'a', NULL, 0, "list the tensors that are the same too (default: those that differ)",
		0 },
	CKPT_WORDS_JSON,
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	if (key != 'a')
		return ckpt_words_parse(key, arg, state);
	options->all = true;
	return 0;
}

static const struct argp argp = { .options = option_rows,
	.parser = parse_option,
	.args_doc = "A B",
	.doc = "Compares two checkpoints, tensor by tensor: the weights and the optimizer's states "
		   "(master, m, v). A and B are step folders, or checkpoint directories whose newest ones "
		   "are taken. A cell says \"same\" where all bits are, else the largest absolute and "
		   "relative difference.\vDifferences of the configuration are listed and do not count.\n\n"
		   "Exit status: 0 all tensors, states and values are the same, 1 they differ, 65 one of "
		   "them is damaged." };

struct comparison {
	const struct options *options;
	struct ckpt_place place[2];
	struct ckpt *ckpt[2];
	struct progress progress;
	struct ckpt_table table;
	json_t *tensors, *values[2]; /* values: NULL where there are none */
	size_t same, different;
};

static const char *const part_names[CKPT_DIFF_PARTS] = { "weights", "master", "m", "v" };

static void add_cell(struct ckpt_table *table, enum ckpt_diff_kind kind,
	const struct ckpt_difference *difference, bool dtypes)
{
	if (kind == CKPT_DIFF_ONLY_A || kind == CKPT_DIFF_ONLY_B)
		ckpt_table_add(table, "only in %c", kind == CKPT_DIFF_ONLY_A ? 'A' : 'B');
	else if (kind == CKPT_DIFF_SHAPE)
		ckpt_table_add(table, "other shape");
	else if (kind == CKPT_DIFF_TYPE)
		ckpt_table_add(table, "other type");
	else if (kind == CKPT_DIFF_NONE)
		ckpt_table_add(table, "-");
	else if (difference->same)
		ckpt_table_add(table, dtypes ? "same values, other type" : "same");
	else
		ckpt_table_add(table, "%.2e / %.2e%s", difference->absolute, difference->relative,
			dtypes ? ", other type" : "");
}

static json_t *part_json(enum ckpt_diff_kind kind, const struct ckpt_difference *difference)
{
	static const char *const kinds[] = { "compared", "only_a", "only_b", "shape", "type", "none" };
	json_t *part = json_pack("{s:s}", "found", kinds[kind]);
	if (kind == CKPT_DIFF_COMPARED)
		part = record_update(part,
			json_pack("{s:b, s:I, s:o, s:o}", "identical", (int)difference->same, "differing",
				(json_int_t)difference->differing, "max_absolute",
				ckpt_cmd_number(difference->absolute), "max_relative",
				ckpt_cmd_number(difference->relative)));
	return part;
}

static int add_tensor(void *arg, const struct ckpt_tensor_diff *diff)
{
	struct comparison *c = arg;
	bool same = ckpt_diff_same(diff);
	c->same += same;
	c->different += !same;
	if (same && !c->options->all)
		return 0;
	json_t *tensor = json_pack("{s:s, s:b}", "name", diff->name, "identical", (int)same);
	ckpt_table_add(&c->table, "%s", diff->name);
	for (int p = 0; p < CKPT_DIFF_PARTS; p++) {
		add_cell(&c->table, diff->kind[p], &diff->difference[p], p == 0 && diff->dtypes_differ);
		if (diff->kind[p] != CKPT_DIFF_NONE)
			tensor =
				record_set(tensor, part_names[p], part_json(diff->kind[p], &diff->difference[p]));
	}
	c->tensors = record_append(c->tensors, tensor);
	return 0;
}

static void advance(void *arg, uint64_t bytes)
{
	struct comparison *c = arg;
	progress_add(&c->progress, bytes);
}

/* ---- settings ---- */

/* Everything in the manifest in which two runs may differ, as one object. */
static json_t *settings_of(const struct ckpt *ckpt, json_t *values)
{
	const struct manifest *m = ckpt_manifest(ckpt);
	char seed[24];
	snprintf(seed, sizeof seed, "%" PRIu64, m->seed);
	return json_pack("{s:I, s:I, s:s, s:i, s:o, s:O, s:O, s:O*}", "step", (json_int_t)m->step,
		"cursor", (json_int_t)m->cursor, "seed", seed, "world_size", m->world_size, "loss",
		ckpt_cmd_number(m->loss), "config", m->config, "numerics", m->numerics, "values", values);
}

/* NULL when out of memory. */
static json_t *compare_settings(const struct comparison *c)
{
	json_t *a = settings_of(c->ckpt[0], c->values[0]), *b = settings_of(c->ckpt[1], c->values[1]);
	json_t *differences = a && b ? ckpt_diff_json(a, b) : NULL;
	json_decref(a);
	json_decref(b);
	return differences;
}

static void add_side(struct ckpt_table *table, const json_t *value)
{
	if (value)
		ckpt_table_take(table,
			record_dump(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)));
	else
		ckpt_table_add(table, "-");
}

static void print_settings(const json_t *differences)
{
	struct ckpt_table table = { .columns = 3 };
	size_t i;
	json_t *difference;
	if (!differences)
		ckpt_table_take(&table, NULL); /* so that the end of the output says so */
	else if (json_array_size(differences) == 0)
		return;
	ckpt_table_add(&table, "setting");
	ckpt_table_add(&table, "A");
	ckpt_table_add(&table, "B");
	json_array_foreach(differences, i, difference)
	{
		ckpt_table_add(&table, "%s", json_string_value(json_object_get(difference, "name")));
		add_side(&table, json_object_get(difference, "a"));
		add_side(&table, json_object_get(difference, "b"));
	}
	ckpt_table_print(&table);
	putchar('\n');
	ckpt_table_clear(&table);
}

/* ---- the command ---- */

static int print_result(struct comparison *c)
{
	json_t *settings = compare_settings(c);
	bool same_values = c->values[0] ? json_equal(c->values[0], c->values[1]) : !c->values[1];
	bool identical = c->different == 0 && same_values;
	int printed;
	if (c->options->words.json) {
		printed = ckpt_cmd_print_json(json_pack("{s:b, s:I, s:I, s:o, s:O}", "identical",
			(int)identical, "same_tensors", (json_int_t)c->same, "different_tensors",
			(json_int_t)c->different, "settings", settings, "tensors", c->tensors));
	} else {
		print_settings(settings);
		json_decref(settings);
		if (json_array_size(c->tensors) > 0)
			ckpt_table_print(&c->table);
		if (c->different)
			printf("%zu of %zu tensors differ%s\n", c->different, c->same + c->different,
				same_values ? "" : ", and so do the values");
		else if (!same_values)
			printf("all bits of %zu tensors are the same, but the values differ\n", c->same);
		else
			printf("identical: all bits of %zu tensors and their optimizer states\n", c->same);
		printed = ckpt_cmd_flush();
	}
	return printed != EXIT_OK ? printed : identical ? EXIT_OK : EXIT_DIFFERENT;
}

static int open_both(struct comparison *c, struct err *err)
{
	for (int i = 0; i < 2; i++) {
		if (ckpt_place_open(&c->place[i], c->options->words.word[i], NULL, err) < 0)
			return -1;
		const struct ckpt_place *place = &c->place[i];
		if (ckpt_open_folder(&place->dir, place->name, ckpt_step_of(place->name),
				CKPT_CMD_IO_TIMEOUT, &c->ckpt[i], err)
			< 0)
			return err_prefix(err, "%s/%s", place->dir.path, place->name);
		if (ckpt_cmd_values(c->ckpt[i], &c->values[i], err) < 0)
			return err_prefix(err, "%s/%s", place->dir.path, place->name);
	}
	return 0;
}

static int compare(struct comparison *c, struct err *err)
{
	ckpt_table_add(&c->table, "tensor");
	for (int p = 0; p < CKPT_DIFF_PARTS; p++)
		ckpt_table_add(&c->table, p ? "%s" : "%s (max absolute / relative)", part_names[p]);
	progress_begin(&c->progress, "diff", ckpt_diff_bytes(c->ckpt[0]) + ckpt_diff_bytes(c->ckpt[1]),
		false);
	int result = ckpt_diff(c->ckpt[0], c->ckpt[1], add_tensor, advance, c, err);
	progress_end(&c->progress);
	return result;
}

int ckpt_cmd_diff(int argc, char **argv)
{
	struct options options = { .words = { .least = 2, .most = 2, .what = "two step folders" } };
	struct err err;
	struct comparison c = { .options = &options,
		.place = { { .dir.fd = -1 }, { .dir.fd = -1 } },
		.table.columns = 1 + CKPT_DIFF_PARTS,
		.tensors = json_array() };
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	int status =
		open_both(&c, &err) < 0 || compare(&c, &err) < 0 ? ckpt_cmd_fail(&err) : print_result(&c);
	for (int i = 0; i < 2; i++) {
		ckpt_close(c.ckpt[i]);
		ckpt_place_close(&c.place[i]);
		json_decref(c.values[i]);
	}
	ckpt_table_clear(&c.table);
	json_decref(c.tensors);
	return status;
}
