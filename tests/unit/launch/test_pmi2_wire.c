/* SPDX-License-Identifier: Apache-2.0 */
/* The wire protocol of PMI2 against a server that answers well, slowly, wrongly or not at all. What
 * it will say is put into the socket beforehand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/pmi2_wire.h"

#define HELLO_BACK "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"

static int server;
static struct pmi2_wire wire;
static struct err err;

/* The server says this, and `more`, before it is asked. */
static int begin(const char *hello)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	server = pair[1];
	assert_int_equal(write(server, hello, strlen(hello)), strlen(hello));
	err.text[0] = '\0';
	return pmi2_wire_open(&wire, pair[0], deadline_in(0.2), &err);
}

static void say(const char *bytes, size_t size)
{
	assert_int_equal(write(server, bytes, size), size);
}

static void say_message(const char *body)
{
	char head[8];
	snprintf(head, sizeof head, "%-6zu", strlen(body));
	say(head, 6);
	say(body, strlen(body));
}

static void end(void)
{
	pmi2_wire_clear(&wire);
	close(wire.fd);
	if (server >= 0)
		close(server);
}

/* What the client has sent, as text. */
static const char *heard(void)
{
	static char text[4096];
	ssize_t n = recv(server, text, sizeof text - 1, MSG_DONTWAIT);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static int get(double seconds)
{
	return pmi2_wire_ask(&wire, deadline_in(seconds), &err, "cmd=kvs-get;key=%s;", "a");
}

static void an_answer_is_read_field_by_field(void **state)
{
	assert_int_equal(begin(HELLO_BACK), 0);
	assert_string_equal(heard(), "cmd=init pmi_version=2 pmi_subversion=0\n");
	say_message("cmd=kvs-get-response;rc=0;found=TRUE;value=x=y;size=12;empty=;");
	assert_int_equal(get(1), 0);
	assert_string_equal(heard(), "18    cmd=kvs-get;key=a;");
	char *value = pmi2_wire_text(&wire, "value");
	assert_string_equal(value, "x=y");
	free(value);
	size_t size;
	assert_int_equal(pmi2_wire_number(&wire, "size", 12), 12);
	assert_int_equal(pmi2_wire_number(&wire, "size", 11), -1);
	assert_int_equal(pmi2_wire_number(&wire, "value", 11), -1);
	assert_non_null(pmi2_wire_field(&wire, "empty", &size));
	assert_int_equal(size, 0);
	assert_null(pmi2_wire_field(&wire, "valu", &size));
	assert_null(pmi2_wire_field(&wire, "y", &size));
	say_message("cmd=kvs-get-response;rc=0;found=FALSE;value=never;");
	assert_int_equal(get(1), 0);
	assert_null(pmi2_wire_text(&wire, "value"));
	end();
}

static void a_refusal_leaves_the_connection(void **state)
{
	assert_int_equal(begin(HELLO_BACK), 0);
	say_message("cmd=kvs-get-response;rc=4;errmsg=no such thing;");
	assert_int_equal(get(1), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_non_null(strstr(err.text, "do kvs-get: no such thing"));
	assert_false(wire.lost);
	say_message("cmd=kvs-get-response;rc=0;");
	assert_int_equal(get(1), 0);
	end();
}

static void hostile_answers_end_the_connection(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
		const char *words;
	} rows[] = {
#define ROW(bytes, words) { bytes, sizeof bytes - 1, words }
		ROW("999999cmd=kvs-get-response;rc=0;", "too long"),
		ROW("262145cmd=kvs-get-response;rc=0;", "too long"),
		ROW("abcdef", "has no length"),
		ROW("      ", "has no length"),
		ROW("-1    ", "has no length"),
		ROW(" 12   ", "has no length"),
		ROW("1 2   ", "has no length"),
		ROW("12\0   ", "has no length"),
		ROW("0     ", "no command"),
		ROW("4     cmd=", "no command"),
		ROW("20    cmd=kvs-get-response;rc=0;", "no command"),
		ROW("9     kvs-get;;", "no command"),
		ROW("25    cmd=kvs-get-response;rc=0", "no command"),
		ROW("26    cmd=kvs-get-resp\0nse;rc=0;", "no command"),
		ROW("26    cmd=kvs-put-response;rc=0;", "not to what was asked"),
		ROW("28    cmd=kvs-fence-response;rc=0;", "not to what was asked"),
		ROW("27    cmd=kvs-get-responses;rc=0;", "not to what was asked"),
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(begin(HELLO_BACK), 0);
		say(rows[i].bytes, rows[i].size);
		int rc = get(0.2);
		if (rc == 0 || !wire.lost || !strstr(err.text, rows[i].words))
			fail_msg("row %zu: rc %d: %s", i, rc, err.text);
		assert_int_equal(err.status, EXIT_LOST);
		/* Nothing is asked of it any more. */
		heard();
		assert_int_equal(get(1), -1);
		assert_non_null(strstr(err.text, "was lost before"));
		assert_string_equal(heard(), "");
		end();
	}
}

static void what_is_cut_off_is_no_answer(void **state)
{
	const char *whole = "26    cmd=kvs-get-response;rc=0;";
	for (size_t size = 0; size < strlen(whole); size++) {
		for (int closed = 0; closed < 2; closed++) {
			assert_int_equal(begin(HELLO_BACK), 0);
			say(whole, size);
			if (closed)
				shutdown(server, SHUT_WR);
			assert_int_equal(get(0.005), -1);
			assert_non_null(strstr(err.text, closed ? "reset by peer" : "does not answer"));
			assert_true(wire.lost);
			end();
		}
	}
	assert_int_equal(begin(HELLO_BACK), 0);
	close(server);
	server = -1;
	assert_int_equal(get(1), -1);
	assert_non_null(strstr(err.text, "Broken pipe"));
	end();
}

static void an_answer_may_come_byte_by_byte(void **state)
{
	const char *whole = "34    cmd=kvs-get-response;rc=0;value=b;";
	assert_int_equal(begin(HELLO_BACK), 0);
	pid_t pid = fork();
	if (pid == 0) {
		for (const char *c = whole; *c; c++) {
			usleep(500);
			if (write(server, c, 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	assert_int_equal(get(5), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	char *value = pmi2_wire_text(&wire, "value");
	assert_string_equal(value, "b");
	free(value);
	end();
}

static void a_fence_may_be_over_between_other_answers(void **state)
{
	assert_int_equal(begin(HELLO_BACK), 0);
	heard();
	assert_int_equal(pmi2_wire_fence(&wire, deadline_in(0.01), &err), 0);
	say("28    cmd=kvs-fen", 17);
	assert_int_equal(pmi2_wire_fence(&wire, deadline_in(0.01), &err), 0);
	assert_string_equal(heard(), "14    cmd=kvs-fence;");
	say("ce-response;rc=0;", 17);
	say_message("cmd=kvs-get-response;rc=0;value=c;");
	assert_int_equal(get(1), 0);
	char *value = pmi2_wire_text(&wire, "value");
	assert_string_equal(value, "c");
	free(value);
	assert_int_equal(pmi2_wire_fence(&wire, deadline_in(0), &err), 1);
	/* The next one is another. */
	heard();
	say_message("cmd=kvs-fence-response;rc=0;");
	assert_int_equal(pmi2_wire_fence(&wire, deadline_in(1), &err), 1);
	assert_string_equal(heard(), "14    cmd=kvs-fence;");
	say_message("cmd=kvs-fence-response;rc=-1;errmsg=a node is gone;");
	assert_int_equal(pmi2_wire_fence(&wire, deadline_in(1), &err), -1);
	assert_non_null(strstr(err.text, "a node is gone"));
	assert_int_equal(err.status, EXIT_LOST);
	say_message("cmd=kvs-get-response;rc=0;");
	assert_int_equal(pmi2_wire_fence(&wire, deadline_in(1), &err), -1);
	assert_true(wire.lost);
	end();
}

static void a_greeting_that_is_none_is_refused(void **state)
{
	static const struct {
		const char *hello;
		enum exit_status status;
		const char *words;
	} rows[] = {
		{ "", EXIT_LOST, "does not answer" },
		{ "cmd=response_to_init rc=0", EXIT_LOST, "does not answer" },
		{ "cmd=response_to_init rc=1 pmi_version=1 pmi_subversion=1\n", EXIT_LOST, "version 2" },
		{ "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n", EXIT_LOST, "version 2" },
		{ "29    cmd=finalize-response;rc=0;;\n", EXIT_USAGE, "one program of a task" },
		{ "\n", EXIT_USAGE, "one program of a task" },
		{ "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
		  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
		  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
			EXIT_USAGE, "one program of a task" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(begin(rows[i].hello), -1);
		assert_int_equal(err.status, rows[i].status);
		assert_non_null(strstr(err.text, rows[i].words));
		assert_int_equal(get(1), -1);
		end();
	}
}

/* A peer that takes nothing must not keep the others waiting. */
static void a_server_that_reads_nothing_is_given_up(void **state)
{
	static char much[1 << 20];
	assert_int_equal(begin(HELLO_BACK), 0);
	memset(much, 'x', sizeof much - 1);
	double began = clock_now();
	assert_int_equal(pmi2_wire_ask(&wire, deadline_in(0.05), &err, "cmd=kvs-put;key=a;value=%s;",
						 much),
		-1);
	assert_non_null(strstr(err.text, "takes nothing"));
	assert_true(clock_now() - began < 30);
	end();
}

static void ranks_are_found_in_the_mapping(void **state)
{
	static const struct {
		const char *map;
		long rank, node;
	} rows[] = {
		{ "(vector,(0,4,2))", 0, 0 },
		{ "(vector,(0,4,2))", 5, 2 },
		{ "(vector,(0,4,2))", 7, 3 },
		{ "(vector,(0,4,2))", 8, -1 },
		{ "(vector,(0,2,3),(2,1,1))", 5, 1 },
		{ "(vector,(0,2,3),(2,1,1))", 6, 2 }, /* uneven nodes */
		{ "(vector,(0,4,1),(0,1,1))", 3, 3 },
		{ "(vector,(0,4,1),(0,1,1))", 4, 0 }, /* cyclic */
		{ "(vector,(0,4,2))", -1, -1 },
		{ "(vector)", 0, -1 },
		{ "", 0, -1 },
		{ "(vector,(0,4,0))", 0, -1 },
		{ "(vector,(-1,4,2))", 0, -1 },
		{ "(vector,(0,-4,2))", 0, -1 },
		{ "(vector,(0,4", 0, -1 },
		{ "(vector,(0,4,2)", 5, 2 },
		{ "(vector,(0,99999999,99999999))", 99999999, 1 },
		{ "(matrix,(0,4,2))", 0, -1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (pmi2_map_node(rows[i].map, rows[i].rank) != rows[i].node)
			fail_msg("rank %ld of %s is on %ld", rows[i].rank, rows[i].map,
				pmi2_map_node(rows[i].map, rows[i].rank));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_read_field_by_field),
		cmocka_unit_test(a_refusal_leaves_the_connection),
		cmocka_unit_test(hostile_answers_end_the_connection),
		cmocka_unit_test(what_is_cut_off_is_no_answer),
		cmocka_unit_test(an_answer_may_come_byte_by_byte),
		cmocka_unit_test(a_fence_may_be_over_between_other_answers),
		cmocka_unit_test(a_greeting_that_is_none_is_refused),
		cmocka_unit_test(a_server_that_reads_nothing_is_given_up),
		cmocka_unit_test(ranks_are_found_in_the_mapping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
