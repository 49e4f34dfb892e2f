/* SPDX-License-Identifier: Apache-2.0 */
/* opt: values from text and back, records, and what the comparison of a record finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/opt.h"

struct values {
	int mode;
	int64_t layers, units, every;
	int64_t most;
	double rate;
	const char *path;
	bool loud;
};

#define AT(field) offsetof(struct values, field)

static const struct opt table[] = { { "mode", OPT_IDENTITY, OPT_CHOICE, AT(mode), "deep",
										.choices = "deep|wide", .group = "Model:", .help = "mode" },
	{ "layers", OPT_IDENTITY, OPT_COUNT, AT(layers), "12", 1, 100, .argument = "N", .mode = "deep",
		.help = "layers" },
	{ "units", OPT_IDENTITY, OPT_COUNT, AT(units), "7", 1, 100, .argument = "N", .mode = "wide",
		.help = "units" },
	{ "rate", OPT_SCHEDULE, OPT_REAL, AT(rate), "0.1", 0, 10, .argument = "X", .help = "rate" },
	{ "every", OPT_SCHEDULE, OPT_COUNT, AT(every), "auto", 1, 9e15, .automatic = true,
		.argument = "N", .help = "every" },
	{ "path", OPT_OPERATION, OPT_TEXT, AT(path), .argument = "FILE",
		.group = "Rest:", .help = "path" },
	{ "most", OPT_SCHEDULE, OPT_SIZE, AT(most), "4GiB", 1, 1e15, .argument = "SIZE",
		.help = "most" },
	{ "loud", OPT_OPERATION, OPT_SWITCH, AT(loud), .help = "loud" }, { 0 } };

#define ROWS 8

static int parse(struct values *values, struct err *err, ...)
{
	char *argv[20] = { "program" };
	bool given[ROWS];
	int argc = 1;
	va_list args;
	va_start(args, err);
	while ((argv[argc] = va_arg(args, char *)))
		argc++;
	va_end(args);
	return opt_parse(table, "doc", argc, argv, values, given, err);
}

static void defaults_and_values_are_taken(void **state)
{
	struct values v;
	struct err err;
	assert_int_equal(parse(&v, &err, NULL), 0);
	assert_int_equal(v.layers, 12);
	assert_int_equal(v.every, OPT_AUTO);
	assert_null(v.path);
	assert_false(v.loud);
	assert_int_equal(parse(&v, &err, "--mode=wide", "--layers", "3", "--rate", "1e-3", "--path",
						 "/x", "--loud", NULL),
		0);
	assert_int_equal(v.mode, 1);
	assert_int_equal(v.layers, 3);
	assert_true(v.rate == 1e-3);
	assert_string_equal(v.path, "/x");
	assert_true(v.loud);
}

/* Every refusal is one line that names the option, with the status of a usage error. */
static void refused(const char *must_name, const char *arg1, const char *arg2)
{
	struct values v;
	struct err err = { 0 };
	assert_int_equal(parse(&v, &err, arg1, arg2, NULL), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, must_name));
	assert_null(strchr(err.text, '\n'));
}

static void bad_values_are_refused_by_name(void **state)
{
	static const char *const numbers[] = { "", "x", "1x", "0", "101", "99999999999999999999", "1.5",
		"-1", NULL };
	for (int i = 0; numbers[i]; i++)
		refused("--layers", "--layers", numbers[i]);
	refused("--rate", "--rate", "nan");
	refused("--rate", "--rate", "inf");
	refused("--rate", "--rate", "11");
	refused("deep|wide", "--mode", "dee");
	refused("--path", "--path", "");
	refused("--layers needs a value", "--layers", NULL);
	refused("--loud takes no value", "--loud=on", NULL);
	refused("did you mean --layers?", "--layer5", NULL);
	refused("did you mean --layers?", "--layer5", "3");
	refused("did you mean --layers?", "--loud", "--layer5");
	refused("--layers needs a value", "--loud", "--layers");
	refused("unknown option --zzzzzzzz", "--zzzzzzzz", NULL);
	refused("-x", "-x", NULL);
	refused("\"3\"", "3", NULL);
}

static void sizes_have_units(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes;
		const char *shown;
	} cases[] = {
		{ "1", 1, "1" },
		{ "4096", 4096, "4KiB" },
		{ "5B", 5, "5" },
		{ "1K", 1024, "1KiB" },
		{ "3M", 3 << 20, "3MiB" },
		{ "4GiB", (int64_t)4 << 30, "4GiB" },
		{ "4096MiB", (int64_t)4 << 30, "4GiB" },
		{ "2T", (int64_t)2 << 40, "2TiB" },
		{ "500MB", 500000000, "500000000" },
		{ "1GB", 1000000000, "1000000000" },
		{ "1kB", 1000, "1000" },
	};
	static const char *const bad[] = { "", "GiB", "0", "-1", "1.5G", "4 GiB", "4gib", "4GiBs",
		"9999999TiB", "99999999999999999999", NULL };
	const struct opt *row = &table[opt_find(table, "most")];
	struct values v;
	struct err err;
	char text[100];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(parse(&v, &err, "--most", cases[i].text, NULL), 0);
		assert_int_equal(v.most, cases[i].bytes);
		assert_string_equal(opt_text(row, &v, text, sizeof text), cases[i].shown);
		assert_int_equal(opt_set(row, &v, cases[i].shown, &err), 0);
		assert_int_equal(v.most, cases[i].bytes);
	}
	for (int i = 0; bad[i]; i++)
		refused("--most", "--most", bad[i]);
}

static int collect(void *arg, const struct opt *opt, const char *recorded, const char *present,
	struct err *err)
{
	char *text = arg;
	snprintf(text + strlen(text), 200, "%s:%s>%s ", opt->name, recorded, present);
	return strcmp(opt->name, "mode") == 0 ? err_set(err, "refused") : 0;
}

/* A record that went through JSON text compares equal; each change is found with both values. */
static void record_and_comparison(void **state)
{
	struct values v;
	struct err err;
	char found[500] = "";
	assert_int_equal(parse(&v, &err, "--rate", "0.30000000000000004", NULL), 0);
	json_t *record = opt_record(table, OPT_SCHEDULE, "deep", &v);
	char *text = json_dumps(record, 0);
	json_t *back = json_loads(text, 0, NULL);
	assert_int_equal(opt_compare(table, OPT_SCHEDULE, "deep", back, &v, collect, found, &err), 0);
	assert_string_equal(found, "");
	v.rate = 2;
	v.most = 1000;
	v.every = 5;
	assert_int_equal(opt_compare(table, OPT_SCHEDULE, "deep", back, &v, collect, found, &err), 0);
	assert_string_equal(found, "rate:0.30000000000000004>2 every:auto>5 most:4GiB>1000 ");
	free(text);
	json_decref(back);
	json_decref(record);
}

static void comparison_knows_modes_and_refusals(void **state)
{
	struct values v;
	struct err err;
	char found[500] = "";
	assert_int_equal(parse(&v, &err, NULL), 0);
	json_t *record = opt_record(table, OPT_IDENTITY, "deep", &v);
	assert_non_null(json_object_get(record, "layers"));
	assert_null(json_object_get(record, "units"));
	assert_null(json_object_get(record, "rate"));
	v.units = 50; /* does not count in this mode */
	assert_int_equal(opt_compare(table, OPT_IDENTITY, "deep", record, &v, collect, found, &err), 0);
	assert_string_equal(found, "");
	v.mode = 1;
	assert_int_equal(opt_compare(table, OPT_IDENTITY, "wide", record, &v, collect, found, &err),
		-1);
	assert_string_equal(found, "mode:deep>wide ");
	json_decref(record);
}

static void unknown_names_of_a_record_are_refused(void **state)
{
	struct values v;
	struct err err;
	char found[500] = "";
	assert_int_equal(parse(&v, &err, NULL), 0);
	json_t *record = json_pack("{s:i}", "colour", 3);
	assert_int_equal(opt_compare(table, OPT_IDENTITY, "deep", record, &v, collect, found, &err),
		-1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "colour"));
	json_decref(record);
	assert_int_equal(opt_compare(table, OPT_IDENTITY, "deep", NULL, &v, collect, found, &err), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_and_values_are_taken),
		cmocka_unit_test(bad_values_are_refused_by_name),
		cmocka_unit_test(sizes_have_units),
		cmocka_unit_test(record_and_comparison),
		cmocka_unit_test(comparison_knows_modes_and_refusals),
		cmocka_unit_test(unknown_names_of_a_record_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
