/* SPDX-License-Identifier: Apache-2.0 */
/* opt_config: values from a file and from variables, and the lines that a file is read from. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/opt.h"

struct values {
	int mode;
	int64_t layers, every, most;
	double rate;
	const char *path;
	bool loud, only;
};

#define AT(field) offsetof(struct values, field)

static const struct opt table[] = { { "mode", OPT_IDENTITY, OPT_CHOICE, AT(mode), "deep",
										.choices = "deep|wide", .help = "mode" },
	{ "layers", OPT_IDENTITY, OPT_COUNT, AT(layers), "12", -100, 100, .argument = "N",
		.help = "layers" },
	{ "every", OPT_SCHEDULE, OPT_COUNT, AT(every), "auto", 1, 9e15, .automatic = true,
		.argument = "N", .help = "every" },
	{ "most-bytes", OPT_SCHEDULE, OPT_SIZE, AT(most), "4GiB", 1, 1e15, .argument = "SIZE",
		.help = "most" },
	{ "rate", OPT_SCHEDULE, OPT_REAL, AT(rate), "0.1", -10, 1e9, .argument = "X", .help = "rate" },
	{ "path", OPT_OPERATION, OPT_TEXT, AT(path), .argument = "FILE", .help = "path" },
	{ "loud", OPT_OPERATION, OPT_SWITCH, AT(loud), .help = "loud" },
	{ "only", OPT_OPERATION, OPT_SWITCH, AT(only), .help = "only", .flag_only = true }, { 0 } };

#define ROWS (sizeof table / sizeof table[0])

static char *texts;
static int lines[ROWS];

static int read_bytes(struct values *values, const void *bytes, size_t size, struct err *err)
{
	char path[64];
	int fd = memfd_create("config", 0);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	free(texts);
	texts = NULL;
	assert_int_equal(opt_defaults(table, values, err), 0);
	int rc = opt_read_file(table, path, values, lines, &texts, err);
	assert_int_equal(!texts, rc < 0);
	close(fd);
	return rc;
}

static void accepted(struct values *values, const char *text)
{
	struct err err = { 0 };
	if (read_bytes(values, text, strlen(text), &err) < 0)
		fail_msg("%s: %s", text, err.text);
}

static void values_of_all_types_are_read(void **state)
{
	struct values v;
	(void)state;
	accepted(&v,
		"# first\n\n  mode = \"wide\" # why\r\nlayers=1_0\nevery = \"auto\"\n\tmost-bytes "
		"= '2KiB'\nrate = -2.5e-01\npath = 'a#\"b\\'#c\nloud = true");
	assert_int_equal(v.mode, 1);
	assert_int_equal(v.layers, 10);
	assert_int_equal(v.every, OPT_AUTO);
	assert_int_equal(v.most, 2048);
	assert_true(v.rate == -0.25);
	assert_string_equal(v.path, "a#\"b\\");
	assert_true(v.loud);
	assert_int_equal(lines[opt_find(table, "mode")], 3);
	assert_int_equal(lines[opt_find(table, "loud")], 9);
	accepted(&v,
		"path = \"\\\"\\\\\\n\\r\\t\xc3\xa9\"\nlayers = -7\nrate = +5\nmost-bytes = 4096\n");
	assert_string_equal(v.path, "\"\\\n\r\t\xc3\xa9");
	assert_int_equal(v.layers, -7);
	assert_true(v.rate == 5);
	assert_int_equal(v.most, 4096);
	assert_int_equal(lines[opt_find(table, "loud")], 0);
	accepted(&v, "");
}

/* Each is refused in its second line, with one line that says so and what is wrong. */
static void all_else_is_refused_by_line(void **state)
{
	static const struct {
		const char *line, *words;
	} cases[] = {
		{ "[model]", "tables, arrays and dotted names" },
		{ "layers", "is no \"name = value\"" },
		{ "= 5", "is no \"name = value\"" },
		{ "\"layers\" = 5", "is no \"name = value\"" },
		{ "a.b = 5", "dotted names" },
		{ "layers = ", "not nothing" },
		{ "layers = # 5", "not nothing" },
		{ "layers = 5 6", "\"6\" comes after the value" },
		{ "layers = 05", "not 05" },
		{ "layers = 5__0", "not 5__0" },
		{ "layers = 5_", "not 5_" },
		{ "layers = _5", "not _5" },
		{ "layers = 0x5", "not 0x5" },
		{ "layers = 1e1", "--layers takes a whole number" },
		{ "layers = 101", "--layers takes a whole number from -100 to 100" },
		{ "layers = true", "not true" },
		{ "layers = [5]", "not [5]" },
		{ "rate = .5", "not .5" },
		{ "rate = 5.", "not 5." },
		{ "rate = 5e", "not 5e" },
		{ "rate = inf", "not inf" },
		{ "rate = 2024-01-01", "not 2024-01-01" },
		{ "path = a", "path takes text in quotes" },
		{ "path = 5", "path takes text in quotes" },
		{ "path = true", "path takes text in quotes" },
		{ "path = \"\"", "--path is empty" },
		{ "path = \"a", "no quote at its end" },
		{ "path = 'a", "no quote at its end" },
		{ "path = \"a\\", "backslash" },
		{ "path = \"\\x41\"", "backslash" },
		{ "path = \"\\u0041\"", "backslash" },
		{ "path = \"\"\"a\"\"\"", "several lines" },
		{ "path = '''a'''", "several lines" },
		{ "path = \"a\" b", "comes after the value" },
		{ "path = \"\xff\"", "not UTF-8" },
		{ "# \xff", "not UTF-8" },
		{ "path = \"\x01\"", "control character (0x01)" },
		{ "# \x7f", "control character (0x7f)" },
		{ "loud = 1", "loud is true or false" },
		{ "loud = yes", "loud is true or false" },
		{ "laysers = 1", "did you mean layers?" },
		{ "whatever-this-is = 1", "unknown option whatever-this-is" },
		{ "mode = \"deep\"", "line 1 has it, too" },
		{ "only = true", "belongs on the command line" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct values v;
		struct err err = { 0 };
		char text[200];
		snprintf(text, sizeof text, "mode = \"wide\"\n%s\n", cases[i].line);
		if (read_bytes(&v, text, strlen(text), &err) == 0)
			fail_msg("accepted: %s", cases[i].line);
		assert_int_equal(err.status, EXIT_USAGE);
		assert_null(strchr(err.text, '\n'));
		if (!strstr(err.text, ":2: ") || !strstr(err.text, cases[i].words))
			fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].line, err.text, cases[i].words);
	}
	struct values v;
	struct err err = { 0 };
	assert_int_equal(read_bytes(&v, "layers = 5\0", 12, &err), -1);
	assert_non_null(strstr(err.text, "control character (0x00)"));
	assert_int_equal(opt_read_file(table, "/nonexistent/file", &v, lines, &texts, &err), -1);
	assert_null(texts);
	assert_int_equal(err.status, EXIT_USAGE);
}

static void a_written_line_reads_back(void **state)
{
	char line[OPT_LINE_SIZE], text[64];
	struct err err = { 0 };
	(void)state;
	for (int round = 0; round < 3000; round++) {
		const size_t size = 1 + (size_t)rand() % 20;
		for (size_t i = 0; i < size; i++)
			text[i] = "\"\\\n\r\t #='abn_5\x7f\x01"[rand() % 16];
		text[size] = 0;
		struct values given = { .path = text,
			.rate = ldexp(rand(), rand() % 60 - 61),
			.layers = rand() % 201 - 100 };
		const bool writable = !strpbrk(text, "\x01\x7f");
		assert_int_equal(opt_line(&table[5], &given, line, sizeof line, &err), writable ? 0 : -1);
		if (writable) {
			struct values read;
			accepted(&read, line);
			assert_string_equal(read.path, text);
		}
		struct values read;
		assert_int_equal(opt_line(&table[4], &given, line, sizeof line, &err), 0);
		accepted(&read, line);
		assert_true(read.rate == given.rate);
		assert_int_equal(opt_line(&table[1], &given, line, sizeof line, &err), 0);
		accepted(&read, line);
		assert_int_equal(read.layers, given.layers);
	}
}

static void variables_are_read_by_the_names_of_options(void **state)
{
	struct values v;
	struct err err = { 0 };
	bool given[ROWS];
	char name[40];
	(void)state;
	assert_string_equal(opt_variable(&table[3], "OPT_TEST_", name, sizeof name),
		"OPT_TEST_MOST_BYTES");
	setenv("OPT_TEST_MOST_BYTES", "1MiB", 1);
	setenv("OPT_TEST_LOUD", "on", 1);
	assert_int_equal(opt_defaults(table, &v, &err), 0);
	assert_int_equal(opt_read_variables(table, "OPT_TEST_", &v, given, &err), 0);
	assert_int_equal(v.most, 1 << 20);
	assert_true(v.loud && given[6] && given[3] && !given[0]);
	setenv("OPT_TEST_LOUD", "maybe", 1);
	assert_int_equal(opt_read_variables(table, "OPT_TEST_", &v, given, &err), -1);
	assert_non_null(strstr(err.text, "OPT_TEST_LOUD: --loud is on or off"));
	unsetenv("OPT_TEST_LOUD");
	static const char *const unknown[][2] = { { "OPT_TEST_LAYRES",
												  "did you mean OPT_TEST_LAYERS?" },
		{ "OPT_TEST_WHATEVER_IT_IS", "unset it" }, { "OPT_TEST_ONLY", "no such option" },
		{ "OPT_TEST_", "no such option" } };
	for (size_t i = 0; i < 4; i++) {
		setenv(unknown[i][0], "1", 1);
		assert_int_equal(opt_read_variables(table, "OPT_TEST_", &v, given, &err), -1);
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, unknown[i][1]));
		unsetenv(unknown[i][0]);
	}
}

static int release(void **state)
{
	(void)state;
	free(texts);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_all_types_are_read),
		cmocka_unit_test(all_else_is_refused_by_line),
		cmocka_unit_test(a_written_line_reads_back),
		cmocka_unit_test(variables_are_read_by_the_names_of_options),
	};
	return cmocka_run_group_tests(tests, NULL, release);
}
