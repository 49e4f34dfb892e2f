/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt show: prints what one checkpoint's manifest and headers contain. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "checkpoint/directory/pin.h"
#include "common/record.h"
#include "checkpoint/load/ckpt.h"
#include "common/progress.h"

static const struct argp_option option_rows[] = {
	CKPT_WORDS_JSON,
	{ 0 },
};

static const struct argp argp = { .options = option_rows,
	.parser = ckpt_words_parse,
	.args_doc = "DIR|STEPDIR [STEP]",
	.doc =
		"Shows the newest checkpoint in DIR, that of STEP, or the one in STEPDIR: when and by whom "
		"it was saved, the configuration, what its bits depend on, its files and tensors." };

/* ---- as JSON ---- */

static json_t *files_json(const struct manifest *manifest)
{
	json_t *files = json_array();
	char hex[HASH_HEX_SIZE];
	for (size_t i = 0; i < manifest->file_count; i++) {
		const struct manifest_file *file = &manifest->files[i];
		files = record_append(files,
			json_pack("{s:s, s:s, s:I, s:s}", "name", file->name, "role",
				manifest_role_name(file->role), "size", (json_int_t)file->size, "xxh3_128",
				hash_hex(file->hash, hex)));
	}
	return files;
}

static json_t *tensor_json(const struct safetensors_tensor *tensor)
{
	return json_pack("{s:s, s:s, s:o}", "name", tensor->name, "dtype",
		safetensors_dtype_name(tensor->dtype), "shape",
		record_integers(tensor->shape, tensor->dims));
}

static json_t *tensors_json(const struct ckpt *ckpt)
{
	json_t *tensors = json_array();
	for (size_t i = 0; i < ckpt_tensor_count(ckpt); i++) {
		json_t *tensor = tensor_json(ckpt_tensor_at(ckpt, i));
		tensor = record_set(tensor, "state",
			json_boolean(ckpt_has_state(ckpt, ckpt_tensor_at(ckpt, i)->name)));
		tensors = record_append(tensors, tensor);
	}
	return tensors;
}

static json_t *state_json(const struct ckpt *ckpt)
{
	json_t *tensors = json_array();
	for (size_t i = ckpt_tensor_count(ckpt); i < ckpt_tensor_total(ckpt); i++) {
		json_t *tensor = tensor_json(ckpt_tensor_at(ckpt, i));
		tensor = record_set(tensor, "boxes", json_integer((json_int_t)ckpt_tensor_boxes(ckpt, i)));
		tensors = record_append(tensors, tensor);
	}
	return tensors;
}

static int show_json(const struct ckpt_place *place, const struct ckpt *ckpt, const json_t *values)
{
	const struct manifest *m = ckpt_manifest(ckpt);
	char seed[24];
	snprintf(seed, sizeof seed, "%" PRIu64, m->seed);
	return ckpt_cmd_print_json(json_pack("{s:s, s:s, s:I, s:i, s:s, s:i, s:f, s:s, s:I, s:o, s:o, "
										 "s:b, s:O, s:O, s:o, s:o, s:o, s:O?}",
		"directory", place->dir.path, "folder", place->name, "step", (json_int_t)m->step, "attempt",
		m->attempt, "token", m->token, "world_size", m->world_size, "time", m->time, "seed", seed,
		"cursor", (json_int_t)m->cursor, "loss", ckpt_cmd_number(m->loss), "validation_loss",
		ckpt_cmd_number(m->validation_loss), "pinned",
		pin_is_set(place->dir.fd, place->name, NULL) == 1, "config", m->config, "numerics",
		m->numerics, "files", files_json(m), "tensors", tensors_json(ckpt), "state",
		state_json(ckpt), "values", values));
}

/* ---- text output ---- */

/* Adds a configuration value as one line. */
static void add_value(struct ckpt_table *table, const char *name, const json_t *value)
{
	ckpt_table_add(table, "  %s", name);
	ckpt_table_take(table,
		json_is_string(value)
			? strdup(json_string_value(value))
			: record_dump(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)));
}

static void show_group(const char *title, const json_t *group)
{
	struct ckpt_table table = { .columns = 2 };
	const char *name;
	json_t *value;
	if (json_object_size(group) == 0)
		return;
	json_object_foreach((json_t *)group, name, value) add_value(&table, name, value);
	printf("%s\n", title);
	ckpt_table_print(&table);
	ckpt_table_clear(&table);
}

static void show_config(const json_t *config)
{
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)config, name, value)
	{
		if (json_is_object(value))
			show_group(name, value);
		else if (json_is_array(value))
			for (size_t i = 0; i < json_array_size(value); i++)
				show_group(name, json_array_get(value, i));
		else if (json_is_true(value))
			printf("%s\n", name);
	}
}

static void show_files(const struct manifest *manifest)
{
	struct ckpt_table table = { .columns = 4, .right = 0x4 };
	for (size_t i = 0; i < manifest->file_count; i++) {
		const struct manifest_file *file = &manifest->files[i];
		char size[16], hex[HASH_HEX_SIZE];
		ckpt_table_add(&table, "  %s", file->name);
		ckpt_table_add(&table, "%s", manifest_role_name(file->role));
		ckpt_table_add(&table, "%s", progress_bytes((double)file->size, size));
		ckpt_table_add(&table, "%s", hash_hex(file->hash, hex));
	}
	puts("files");
	ckpt_table_print(&table);
	ckpt_table_clear(&table);
}

static void add_tensor(struct ckpt_table *table, const struct safetensors_tensor *tensor)
{
	json_t *shape = record_integers(tensor->shape, tensor->dims);
	ckpt_table_add(table, "  %s", tensor->name);
	ckpt_table_add(table, "%s", safetensors_dtype_name(tensor->dtype));
	ckpt_table_take(table, record_dump(shape, JSON_COMPACT));
	json_decref(shape);
}

static void show_tensors(const struct ckpt *ckpt)
{
	struct ckpt_table table = { .columns = 4 };
	uint64_t total = 0;
	for (size_t i = 0; i < ckpt_tensor_count(ckpt); i++) {
		const struct safetensors_tensor *tensor = ckpt_tensor_at(ckpt, i);
		uint64_t elements = 0;
		safetensors_elements(tensor->shape, tensor->dims, &elements);
		total += elements;
		add_tensor(&table, tensor);
		ckpt_table_add(&table, "%s", ckpt_has_state(ckpt, tensor->name) ? "master m v" : "-");
	}
	printf("tensors: %zu, %" PRIu64 " parameters\n", ckpt_tensor_count(ckpt), total);
	ckpt_table_print(&table);
	ckpt_table_clear(&table);
}

static void show_state(const struct ckpt *ckpt)
{
	struct ckpt_table table = { .columns = 4 };
	uint64_t total = 0;
	char size[16];
	size_t first = ckpt_tensor_count(ckpt), end = ckpt_tensor_total(ckpt);
	if (first == end)
		return;
	for (size_t i = first; i < end; i++) {
		const struct safetensors_tensor *tensor = ckpt_tensor_at(ckpt, i);
		size_t boxes = ckpt_tensor_boxes(ckpt, i);
		total += tensor->end - tensor->begin;
		add_tensor(&table, tensor);
		if (boxes == 1)
			ckpt_table_add(&table, "-");
		else
			ckpt_table_add(&table, "%zu boxes", boxes);
	}
	printf("state: %zu tensors, %s\n", end - first, progress_bytes((double)total, size));
	ckpt_table_print(&table);
	ckpt_table_clear(&table);
}

static int show_text(const struct ckpt_place *place, const struct ckpt *ckpt, const json_t *values)
{
	const struct manifest *m = ckpt_manifest(ckpt);
	char time[32], loss[24], validation[24];
	printf("%s/%s%s\n", place->dir.path, place->name,
		pin_is_set(place->dir.fd, place->name, NULL) == 1 ? " (pinned)" : "");
	printf("step %" PRId64 ", saved %s by attempt %d with %d rank%s; loss %s, validation loss %s\n",
		m->step, ckpt_cmd_time(m->time, time), m->attempt, m->world_size,
		m->world_size == 1 ? "" : "s", ckpt_cmd_loss(m->loss, loss),
		ckpt_cmd_loss(m->validation_loss, validation));
	printf("seed %" PRIu64 ", next sample %" PRIu64 ", token %s\n", m->seed, m->cursor, m->token);
	show_config(m->config);
	show_group("numerics", m->numerics);
	show_files(m);
	show_tensors(ckpt);
	show_state(ckpt);
	show_group("values", values);
	return ckpt_cmd_flush();
}

/* The exit status; -1 with err set where the checkpoint can't be read. */
static int show(const struct ckpt_place *place, struct ckpt *ckpt, bool as_json, struct err *err)
{
	json_t *values;
	if (ckpt_cmd_values(ckpt, &values, err) < 0)
		return -1;
	int status = as_json ? show_json(place, ckpt, values) : show_text(place, ckpt, values);
	json_decref(values);
	return status;
}

int ckpt_cmd_show(int argc, char **argv)
{
	struct ckpt_words words = { .least = 1,
		.most = 2,
		.what = "a checkpoint directory and a step, or a step folder" };
	struct ckpt_place place;
	struct ckpt *ckpt = NULL;
	struct err err;
	argp_parse(&argp, argc, argv, 0, NULL, &words);
	if (ckpt_place_open(&place, words.word[0], words.word[1], &err) < 0)
		return ckpt_cmd_fail(&err);
	int status = ckpt_open_folder(&place.dir, place.name, ckpt_step_of(place.name),
					 CKPT_CMD_IO_TIMEOUT, &ckpt, &err)
			< 0
		? -1
		: show(&place, ckpt, words.json, &err);
	if (status < 0) {
		err_prefix(&err, "%s/%s", place.dir.path, place.name);
		status = ckpt_cmd_fail(&err);
	}
	ckpt_close(ckpt);
	ckpt_place_close(&place);
	return status;
}
