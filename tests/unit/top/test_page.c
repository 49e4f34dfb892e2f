/* SPDX-License-Identifier: Apache-2.0 */
/* page: lines that fit, whatever the directory holds, and the words for each state of a run. */
#include "config.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <wchar.h>
#include <cmocka.h>

#include "tests/unit/top/view_fixture.h"
#include "top/page.h"

/* All that is shown of a view, a line each; the caller's. */
static char *text_of(const struct view *view, int columns)
{
	char *text, line[PAGE_LINE_SIZE];
	size_t size;
	FILE *out = open_memstream(&text, &size);
	const int width = page_node_width(view);
	page_figures(view, columns, out);
	page_curve(view, columns, 4, out);
	page_note(view, line, sizeof line);
	fprintf(out, "%.*s\n", columns, line);
	page_title(width, columns, line, sizeof line);
	fprintf(out, "%s\n", line);
	for (size_t i = 0; i < view->count; i++) {
		page_rank(&view->ranks[i], width, columns, line, sizeof line);
		fprintf(out, "%s\n", line);
	}
	fclose(out);
	return text;
}

static void check_lines(char *text, int columns)
{
	char *rest = NULL;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		wchar_t wide[PAGE_LINE_SIZE];
		const size_t length = mbstowcs(wide, line, PAGE_LINE_SIZE);
		assert_true(length < PAGE_LINE_SIZE);
		assert_in_range(wcswidth(wide, length), 0, columns);
	}
}

#define HARM "\\u001b[2J\\u0007\\u009b31m\\nx"

/* Names and reasons that would take a terminal over. */
static void no_line_controls_the_terminal(void **state)
{
	struct run run;
	(void)state;
	record("start", 0, 0, -1, ",\"world_size\":4,\"nodes\":\"" HARM "\"");
	steps(0, 1, 30, 1, "");
	record("end", 0, 40, 30, ",\"why\":\"" HARM "\",\"status\":75");
	record("start", 1, 50, 30, ",\"world_size\":4,\"nodes\":\"" HARM "\"");
	record("notice", 1, 60, 30, ",\"why\":\"" HARM "\"");
	struct flight_recorder *recorder = keep_record(0, 4,
		"n\xc2\x9b"
		"31m\xff\033");
	for (int running = 0; running < 2; running++) {
		if (running)
			begin_running();
		struct view view = view_in(&run, 0);
		for (int columns = 1; columns < 300; columns += columns < 120 ? 1 : 60) {
			char *text = text_of(&view, columns);
			check_lines(text, columns);
			free(text);
		}
		end_view(&view, &run);
	}
	flight_destroy(recorder);
}

static void says(const char *words)
{
	struct run run;
	struct view view = view_in(&run, 0);
	char *text = text_of(&view, PAGE_LINE_SIZE);
	if (!strstr(text, words))
		fail_msg("\"%s\" is not in: %s", words, text);
	free(text);
	end_view(&view, &run);
}

static void each_state_has_its_words(void **state)
{
	(void)state;
	record("start", 3, 0, -1, ",\"world_size\":4,\"nodes\":\"n[1-4]\"");
	says("none is done");
	steps(0, 1, 4, 1, "");
	says("gone: attempt 0 left no record of its end, its last step ended ");
	says(" ago; Slurm may bring job 7 back");
	record("end", 3, 9, 4, ",\"why\":\"preempted\",\"status\":75");
	says("waiting: requeued as job 7, attempt 0 ended with 75, ");
	says("\nwhy         preempted\n");
	record("start", 4, 20, 4, ",\"world_size\":4,\"nodes\":\"n[1-4]\"");
	record("end", 4, 29, 4, ",\"why\":\"the loss is not finite\",\"status\":1");
	says("failed: attempt 1 ended with 1, ");
	says("\nwhy         the loss is not finite\n");
	says("2, goodput");
	says(" ago at step 4: preempted\n");
	record("start", 5, 30, 4, ",\"world_size\":4,\"nodes\":\"n[1-4]\"");
	begin_running();
	says("runs: attempt 2 of job 7 for ");
	says("4 ranks on n[1-4]");
	record("end", 5, 40, 5, ",\"why\":\"finished\",\"status\":0");
	says("finished: attempt 2 ended with 0, ");
	says("no rank has left a record");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(no_line_controls_the_terminal),
		TEST(each_state_has_its_words) };
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
