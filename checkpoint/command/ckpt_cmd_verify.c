/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt verify: finds every damaged byte range, and changes nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "common/record.h"
#include "checkpoint/load/ckpt_check.h"
#include "common/auto.h"
#include "common/progress.h"

struct options {
	const char *path;
	char **steps;
	int step_count;
	bool deep, json;
};

static const struct argp_option option_rows[] = {
	{ "deep", 'd', NULL, 0,
		"read every byte and compare all hashes (default: manifest, sizes and headers)", 0 },
	{ "json", 'j', NULL, 0, "print a JSON object", 0 },
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'd': options->deep = true; return 0;
	case 'j': options->json = true; return 0;
	case ARGP_KEY_ARG:
		if (options->path)
			return ARGP_ERR_UNKNOWN;
		options->path = arg;
		return 0;
	case ARGP_KEY_ARGS:
		options->steps = state->argv + state->next;
		options->step_count = state->argc - state->next;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "give a checkpoint directory or a step folder");
		return 0;
	case ARGP_KEY_END:
		if (options->step_count && ckpt_place_is_step(options->path))
			argp_error(state, "%s is a step folder already: leave the steps out", options->path);
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = { .options = option_rows,
	.parser = parse_option,
	.args_doc = "DIR|STEPDIR [STEP...]",
	.doc = "Looks at the checkpoints in DIR, or at those of the STEPs, or at the one in STEPDIR, "
		   "and names what is damaged: the file, its chunk and the bytes. Nothing is renamed or "
		   "removed.\vExit status: 0 all are valid, 65 some are damaged, 69 some couldn't be read "
		   "now (an I/O error), 1 you may not read some." };

/* The results so far. */
struct report {
	const struct options *options;
	struct progress progress;
	json_t *checkpoints, *faults; /* `faults`: of the current checkpoint */
	const char *name;
	int damaged, unknown, valid;
	enum exit_status unknown_status;
};

static void add_fault(void *arg, const char *file, uint64_t first, uint64_t size, const char *what)
{
	struct report *report = arg;
	json_t *fault = json_pack("{s:s, s:s}", "file", file, "what", what);
	if (size)
		fault = record_update(fault,
			json_pack("{s:I, s:I}", "first_byte", (json_int_t)first, "last_byte",
				(json_int_t)(first + size - 1)));
	report->faults = record_append(report->faults, fault);
}

static void advance(void *arg, uint64_t bytes)
{
	struct report *report = arg;
	progress_add(&report->progress, bytes);
}

static void print_faults(const struct report *report)
{
	size_t i;
	json_t *fault;
	if (!report->faults)
		printf("%s: DAMAGED; there is no memory to say where\n", report->name);
	json_array_foreach(report->faults, i, fault)
	{
		const char *file = json_string_value(json_object_get(fault, "file"));
		const char *what = json_string_value(json_object_get(fault, "what"));
		const json_t *first = json_object_get(fault, "first_byte"),
					 *last = json_object_get(fault, "last_byte");
		printf("%s: DAMAGED: %s", report->name, file);
		if (first)
			printf(", bytes %lld to %lld", (long long)json_integer_value(first),
				(long long)json_integer_value(last));
		printf(": %s\n", what);
	}
}

static void print_result(const struct report *report, enum ckpt_verdict verdict,
	const struct err *err)
{
	progress_wipe(&report->progress);
	if (verdict == CKPT_VALID)
		printf("%s: valid%s\n", report->name,
			report->options->deep ? "" : " (manifest, sizes and headers; --deep reads all)");
	else if (verdict == CKPT_FAULTY)
		print_faults(report);
	else if (verdict == CKPT_UNKNOWN)
		printf("%s: UNKNOWN: %s\n", report->name, err->text);
	else
		printf("%s: was removed meanwhile\n", report->name);
}

static void add_result(struct report *report, enum ckpt_verdict verdict, const struct err *err)
{
	json_t *valid = verdict == CKPT_VALID ? json_true()
		: verdict == CKPT_FAULTY          ? json_false()
										  : json_null();
	json_t *result = json_pack("{s:s, s:o, s:O}", "folder", report->name, "valid", valid, "faults",
		report->faults);
	if (verdict == CKPT_UNKNOWN)
		result = record_set(result, "why", json_string(err->text));
	if (verdict == CKPT_GONE)
		json_decref(result);
	else
		report->checkpoints = record_append(report->checkpoints, result);
	if (!report->options->json)
		print_result(report, verdict, err);
}

static void verify_one(struct report *report, const struct ckpt_dir *dir, const char *name)
{
	struct err err = { 0 };
	const struct ckpt_check check = { .deep = report->options->deep,
		.fault = add_fault,
		.progress = advance,
		.arg = report };
	report->name = name;
	report->faults = json_array();
	enum ckpt_verdict verdict = ckpt_check(dir, name, &check, &err);
	add_result(report, verdict, &err);
	json_decref(report->faults);
	report->valid += verdict == CKPT_VALID;
	report->damaged += verdict == CKPT_FAULTY;
	if (verdict == CKPT_UNKNOWN && report->unknown++ == 0)
		report->unknown_status = err.status;
}

/* ---- which checkpoints ---- */

struct names {
	char (*all)[256];
	size_t count;
};

static int add_name(struct names *names, const char *name, struct err *err)
{
	char(*more)[256] = realloc(names->all, (names->count + 1) * sizeof *more);
	if (!more)
		return err_set(err, "checkpoint: no memory");
	names->all = more;
	snprintf(more[names->count++], sizeof *more, "%s", name);
	return 0;
}

static int add_all(struct names *names, const struct ckpt_dir *dir, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	char name[CKPT_STEP_NAME_SIZE];
	if (ckpt_dir_steps(dir, &steps, &count, err) < 0)
		return -1;
	if (count == 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: %s holds no checkpoint: give a checkpoint directory or a step folder",
			dir->path);
	for (size_t i = 0; i < count; i++)
		if (add_name(names, ckpt_step_name(steps[i], name), err) < 0)
			return -1;
	return 0;
}

/* Opens the directory and lists the folders to verify. */
static int find(const struct options *options, struct ckpt_place *place, struct names *names,
	struct err *err)
{
	*place = (struct ckpt_place) { .dir.fd = -1 };
	if (ckpt_place_is_step(options->path))
		return ckpt_place_open(place, options->path, NULL, err) < 0
			? -1
			: add_name(names, place->name, err);
	for (int i = 0; i < options->step_count; i++) {
		ckpt_place_close(place);
		if (ckpt_place_open(place, options->path, options->steps[i], err) < 0
			|| add_name(names, place->name, err) < 0)
			return -1;
	}
	if (options->step_count)
		return 0;
	return ckpt_dir_open_existing(&place->dir, options->path, err) < 0
		? -1
		: add_all(names, &place->dir, err);
}

static int summarize(struct report *report, const struct ckpt_dir *dir)
{
	int status = report->damaged ? EXIT_DATA
		: report->unknown        ? (int)report->unknown_status
								 : EXIT_OK;
	if (report->options->json) {
		int printed = ckpt_cmd_print_json(json_pack("{s:s, s:b, s:O}", "directory", dir->path,
			"deep", (int)report->options->deep, "checkpoints", report->checkpoints));
		return printed == EXIT_OK ? status : printed;
	}
	if (report->valid + report->damaged + report->unknown > 1)
		printf("%d valid, %d damaged, %d could not be read\n", report->valid, report->damaged,
			report->unknown);
	return ckpt_cmd_flush() == EXIT_OK ? status : EXIT_FAULT;
}

static int verify(const struct options *options, const struct ckpt_place *place,
	const struct names *names)
{
	struct report report = { .options = options, .checkpoints = json_array() };
	uint64_t total = 0;
	for (size_t i = 0; options->deep && i < names->count; i++)
		total += ckpt_check_bytes(&place->dir, names->all[i]);
	progress_begin(&report.progress, "verify", total, !options->deep);
	for (size_t i = 0; i < names->count; i++)
		verify_one(&report, &place->dir, names->all[i]);
	progress_end(&report.progress);
	int status = summarize(&report, &place->dir);
	json_decref(report.checkpoints);
	return status;
}

int ckpt_cmd_verify(int argc, char **argv)
{
	struct options options = { 0 };
	struct ckpt_place place;
	struct names names = { 0 };
	struct err err;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	int status = find(&options, &place, &names, &err) < 0 ? ckpt_cmd_fail(&err)
														  : verify(&options, &place, &names);
	ckpt_place_close(&place);
	free(names.all);
	return status;
}
