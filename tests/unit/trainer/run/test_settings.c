/* SPDX-License-Identifier: Apache-2.0 */
/* settings: slots that follow from the batch, refused combinations, and the three kinds at a
 * resume. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/run/settings.h"

/* Parses a command line given as one string of words. */
static int parse(struct settings *settings, const char *line, struct err *err)
{
	static char words[2000];
	char *argv[60] = { "muster-train" }, *save;
	int argc = 1;
	snprintf(words, sizeof words, "%s", line);
	for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return settings_parse(settings, argc, argv, NULL, err);
}

static void slots_are_the_largest_power_of_two(void **state)
{
	static const struct {
		int batch, micro, slots, each;
	} cases[] = {
		{ 32, 4, 8, 1 },
		{ 512, 2, 64, 4 },
		{ 24, 2, 4, 3 },
		{ 7, 1, 1, 7 },
		{ 96, 1, 32, 3 },
		{ 1024, 1, 64, 16 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct settings s;
		struct err err;
		char line[200];
		snprintf(line, sizeof line, "--data x --global-batch %d --microbatch %d", cases[i].batch,
			cases[i].micro);
		assert_int_equal(parse(&s, line, &err), 0);
		assert_int_equal(s.slots, cases[i].slots);
		assert_int_equal(s.slot_microbatches, cases[i].each);
	}
}

/* As many as a new run's ranks need, or those of the checkpoint; what is given stays. */
static void slots_fit_the_world(void **state)
{
	static const struct {
		const char *batch;
		int recorded, ranks, slots, each;
	} cases[] = {
		{ "--global-batch 512", 0, 64, 64, 8 },
		{ "--global-batch 512", 0, 65, 128, 4 },
		{ "--global-batch 4096", 0, 1024, 1024, 4 },
		{ "--global-batch 8192", 0, 4096, 4096, 2 },
		{ "--global-batch 32768", 0, 16384, 16384, 2 },
		{ "--global-batch 32768", 0, 16385, 64, 512 },
		{ "--global-batch 96", 0, 33, 48, 2 },
		{ "--global-batch 96", 0, 97, 32, 3 },
		{ "--global-batch 512", 128, 8, 128, 4 },
		{ "--global-batch 512", 16, 64, 16, 32 },
		{ "--global-batch 512", 48, 8, 64, 8 },
		{ "--global-batch 512 --slots 32", 0, 65, 32, 16 },
		{ "--global-batch 512 --slots 32", 128, 65, 32, 16 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct settings s;
		struct err err;
		char line[200];
		snprintf(line, sizeof line, "--data x --microbatch 1 %s", cases[i].batch);
		assert_int_equal(parse(&s, line, &err), 0);
		settings_fit_slots(&s, cases[i].recorded, cases[i].ranks);
		assert_int_equal(s.slots, cases[i].slots);
		assert_int_equal(s.slot_microbatches, cases[i].each);
	}
}

static void refused(const char *line, const char *must_say)
{
	struct settings s;
	struct err err = { 0 };
	if (parse(&s, line, &err) == 0)
		fail_msg("accepted: %s", line);
	assert_int_equal(err.status, EXIT_USAGE);
	if (!strstr(err.text, must_say))
		fail_msg("%s: \"%s\" does not say \"%s\"", line, err.text, must_say);
}

static void bad_combinations_name_the_flag(void **state)
{
	refused("", "--data is missing");
	refused("--data x --global-batch 10 --microbatch 4", "--global-batch 10");
	refused("--data x --global-batch 12 --microbatch 4 --slots 2", "--slots 2");
	refused("--data x --hidden 5", "--hidden belongs to --model mlp");
	refused("--data x --model mlp", "--labels");
	refused("--data x --model mlp --labels y --layers 3", "--layers belongs to --model gpt2");
	refused("--data x --validate-every 5", "--validation-data");
	refused("--data x --sample-tokens 5", "--sample-tokens is for the text that --sample-every");
	refused("--data x --tokenizer t", "--tokenizer is for the text that --sample-every writes");
	refused("--data x --model mlp --labels y --sample-every 5", "--sample-every belongs to");
	refused("--data x --comm none --sample-every 5", "there is nothing for --sample-every");
	refused("--data x --trace-steps 3-5", "--trace-steps 3-5 has no file: give --trace FILE");
	for (int i = 0; i < 8; i++) {
		static const char *const bad[] = { "5-3", "0-3", "-3", "3-", "3-x", "3-4-5", "x",
			"3-99999999999999999999999999" };
		char line[200];
		snprintf(line, sizeof line, "--data x --trace t --trace-steps=%s", bad[i]);
		refused(line, "is no range of steps");
	}
#ifndef HAVE_CUBLAS
	refused("--data x --device cuda", "--with-cuda");
#endif
	refused("--data x --precision fp16", "auto|bf16|fp32|tf32");
	refused("--data x --comm half", "real|none|replay");
	refused("--data x --comm none --ckpt-dir y",
		"--comm none measures a step and trains no model, so there is nothing for --ckpt-dir");
	refused("--data x --comm replay --ckpt-dir y", "--comm replay measures");
	refused("--data x --comm replay --check-replicas 5", "nothing for --check-replicas");
	refused("--data x --comm none --validation-data y --validate-every 5",
		"nothing for --validate-every");
	refused("--data x --fresh", "--ckpt-dir");
	refused("--data x --grad-dtype bf16", "--reduction native");
	refused("--data x --ckpt-every 5days", "5days");
	refused("--data x --keep-best 2", "--validation-data");
	refused("--data x --ckpt-writers some", "rank0|node|all");
	refused("--data x --shard-size 0", "--shard-size");
	refused("--data x --ckpt-slots 3", "--ckpt-slots");
	refused("--data x --keep-best 2 --validation-data y", "--validate-every");
	refused("--data x --min-learning-rate 1", "--min-learning-rate");
	refused("--data x --change seed", "identity");
	refused("--data x --change threads", "any time");
	refused("--data x --change --steps", "\"--steps\"");
	refused("--data x --change clip,colour", "colour");
}

static void the_cadence_is_understood(void **state)
{
	struct settings s;
	struct err err;
	assert_int_equal(parse(&s, "--data x", &err), 0);
	assert_int_equal(s.schedule.unit, SAVE_STEPS);
	assert_true(s.schedule.every == 100);
	assert_int_equal(parse(&s, "--data x --ckpt-every 5m", &err), 0);
	assert_int_equal(s.schedule.unit, SAVE_SECONDS);
	assert_true(s.schedule.every == 300);
	assert_int_equal(
		parse(&s, "--data x --ckpt-every auto --keep-best 2 --validation-data y --validate-every 5",
			&err),
		0);
	assert_int_equal(s.schedule.unit, SAVE_AUTO);
}

static const struct hash128 data = { 1, 2 };

/* Compares a run begun with `before` and gone on with `after`; *changes is the text of what was
 * recorded. */
static int resume(const char *before, const char *after, char **changes, struct err *err)
{
	struct settings old, new;
	assert_int_equal(parse(&old, before, err), 0);
	json_t *record = settings_record(&old, data), *list = json_array();
	assert_non_null(record);
	assert_int_equal(parse(&new, after, err), 0);
	int rc = settings_compare(&new, data, record, 40, list, err);
	*changes = json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(record);
	json_decref(list);
	return rc;
}

static void operation_is_free(void **state)
{
	struct err err;
	char *changes;
	assert_int_equal(
		resume("--data x",
			"--data elsewhere --threads 3 --ckpt-every 7 --bucket-mb 1 --slots 8 --log-level warn",
			&changes, &err),
		0);
	assert_string_equal(changes, "[]");
	free(changes);
}

static void identity_is_refused_with_both_values(void **state)
{
	static const char *const options[] = { "--seed 99", "--layers 99", "--global-batch 96",
		"--order file", "--last-batch pad", "--context 99", "--slots 4", "--split-embedding",
		"--model mlp --labels y" };
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
		struct err err;
		char after[200], *changes;
		snprintf(after, sizeof after, "--data x --microbatch 1 %s", options[i]);
		assert_int_equal(resume("--data x --microbatch 1 --slots 8", after, &changes, &err), -1);
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, "--"));
		free(changes);
	}
	struct err err;
	char *changes;
	assert_int_equal(resume("--data x --seed 5", "--data x --seed 99", &changes, &err), -1);
	assert_non_null(strstr(err.text, "--seed is 99"));
	assert_non_null(strstr(err.text, "begun with 5"));
	free(changes);
}

/* Checkpoints of versions that computed in fp32 only don't say so. */
static void older_records_are_of_fp32(void **state)
{
	struct settings s;
	struct err err = { 0 };
	for (int precision = PRECISION_BF16; precision <= PRECISION_TF32; precision++) {
		assert_int_equal(parse(&s, "--data x", &err), 0);
		json_t *record = settings_record(&s, data), *changes = json_array();
		assert_int_equal(json_object_del(json_object_get(record, "identity"), "precision"), 0);
		s.precision = precision;
		assert_int_equal(settings_compare(&s, data, record, 40, changes, &err),
			precision == PRECISION_FP32 ? 0 : -1);
		if (precision != PRECISION_FP32)
			assert_non_null(strstr(err.text, "begun with fp32"));
		json_decref(record);
		json_decref(changes);
	}
}

static void schedule_needs_its_name(void **state)
{
	struct err err;
	char *changes;
	assert_int_equal(resume("--data x --steps 10", "--data x --steps 20 --change clip", &changes,
						 &err),
		-1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "--change steps"));
	free(changes);
	assert_int_equal(resume("--data x --steps 10",
						 "--data x --steps 20 --clip 3 --change clip,steps", &changes, &err),
		0);
	assert_string_equal(changes,
		"[{\"from\":\"10\",\"name\":\"steps\",\"step\":40,\"to\":\"20\"},{\"from\":\"1\",\"name\":"
		"\"clip\",\"step\":40,\"to\":\"3\"}]");
	free(changes);
}

static void other_data_is_refused(void **state)
{
	struct settings s;
	struct err err;
	assert_int_equal(parse(&s, "--data x", &err), 0);
	json_t *record = settings_record(&s, data), *list = json_array();
	assert_int_equal(settings_compare(&s, (struct hash128) { 1, 3 }, record, 1, list, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "--data"));
	assert_int_equal(settings_compare(&s, data, NULL, 1, list, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	json_decref(record);
	json_decref(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_the_largest_power_of_two),
		cmocka_unit_test(slots_fit_the_world),
		cmocka_unit_test(bad_combinations_name_the_flag),
		cmocka_unit_test(the_cadence_is_understood),
		cmocka_unit_test(operation_is_free),
		cmocka_unit_test(identity_is_refused_with_both_values),
		cmocka_unit_test(older_records_are_of_fp32),
		cmocka_unit_test(schedule_needs_its_name),
		cmocka_unit_test(other_data_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
