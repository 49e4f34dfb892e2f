/* SPDX-License-Identifier: Apache-2.0 */
/* comm_conn: what one end posts arrives at the other in order and whole, however little a call
 * moves; a window bounds what comes early; a goodbye passes all that was not asked for; and what is
 * no frame ends the connection. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "tests/tools/partial_io.h"
#include "trainer/comm/comm_conn.h"

#define FIRST 1
#define TRANSFERS 40

struct ends {
	struct comm_conn conn[2];
	char heard[2][8];
};

static void connect_ends(struct ends *ends)
{
	int fds[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	for (int i = 0; i < 2; i++)
		ends->conn[i] = (struct comm_conn) { .fd = fds[i],
			.heard = ends->heard[i],
			.heard_bytes = sizeof ends->heard[i] };
}

static void close_ends(struct ends *ends)
{
	for (int i = 0; i < 2; i++)
		comm_conn_clear(&ends->conn[i]);
}

/* Moves bytes until neither end has anything to do. */
static void settle(struct ends *ends)
{
	for (int quiet = 0; quiet < 4; quiet++)
		for (int i = 0; i < 2; i++) {
			struct comm_conn before = ends->conn[i];
			comm_conn_write(&ends->conn[i]);
			comm_conn_read(&ends->conn[i], COMM_CONN_CHUNK);
			if (memcmp(&before, &ends->conn[i], sizeof before) != 0)
				quiet = 0;
		}
}

static uint32_t draw(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Both ends post transfers of many sizes in random order of time; all arrive as they were sent. */
static void run_transfers(uint32_t seed)
{
	static const size_t sizes[] = { 1, 15, 4096, 65537, COMM_CONN_WINDOW, COMM_CONN_WINDOW + 1,
		COMM_CONN_CHUNK + 7, 3 * COMM_CONN_CHUNK };
	struct comm_conn_transfer out[2][TRANSFERS] = { { { 0 } } }, in[2][TRANSFERS] = { { { 0 } } };
	int sent[2] = { 0 }, received[2] = { 0 };
	struct ends ends = { 0 };
	connect_ends(&ends);
	for (int i = 0; i < 2; i++)
		for (int t = 0; t < TRANSFERS; t++) {
			size_t bytes = sizes[draw(&seed) % (sizeof sizes / sizeof sizes[0])];
			out[i][t] = (struct comm_conn_transfer) { .buffer = malloc(bytes),
				.bytes = bytes,
				.ready = bytes };
			in[!i][t] = (struct comm_conn_transfer) { .buffer = calloc(1, bytes), .bytes = bytes };
			for (size_t b = 0; b < bytes; b++)
				out[i][t].buffer[b] = (char)draw(&seed);
		}
	while (sent[0] + sent[1] + received[0] + received[1] < 4 * TRANSFERS) {
		int i = draw(&seed) % 2;
		if (draw(&seed) % 2 && sent[i] < TRANSFERS)
			comm_conn_send(&ends.conn[i], &out[i][sent[i]++]);
		else if (received[i] < TRANSFERS)
			comm_conn_receive(&ends.conn[i], &in[i][received[i]++]);
		comm_conn_write(&ends.conn[i]);
		if (draw(&seed) % 3 == 0)
			comm_conn_read(&ends.conn[!i], 1 + draw(&seed) % COMM_CONN_CHUNK);
	}
	settle(&ends);
	for (int i = 0; i < 2; i++)
		for (int t = 0; t < TRANSFERS; t++) {
			assert_int_equal(out[i][t].done, out[i][t].bytes);
			assert_int_equal(in[!i][t].done, out[i][t].bytes);
			assert_memory_equal(in[!i][t].buffer, out[i][t].buffer, out[i][t].bytes);
			free(in[!i][t].buffer);
			free(out[i][t].buffer);
		}
	assert_false(ends.conn[0].ended || ends.conn[1].ended);
	close_ends(&ends);
}

static void all_arrives_in_order(void **state)
{
	for (uint32_t seed = FIRST; seed < FIRST + 5; seed++)
		run_transfers(seed);
}

static void all_arrives_by_calls_that_do_little(void **state)
{
	partial_io_here = true;
	run_transfers(FIRST);
	partial_io_here = false;
}

/* Without a receive no more than a window leaves; a goodbye comes through all the same, and what is
 * read of the window is there when it is asked for. */
static void a_window_bounds_what_comes_early(void **state)
{
	size_t bytes = 2 * COMM_CONN_CHUNK;
	struct comm_conn_transfer out = { .buffer = malloc(bytes), .bytes = bytes, .ready = bytes };
	struct comm_conn_transfer in = { .buffer = malloc(bytes), .bytes = bytes };
	struct ends ends = { 0 };
	memset(out.buffer, 7, bytes);
	connect_ends(&ends);
	comm_conn_send(&ends.conn[0], &out);
	settle(&ends);
	assert_int_equal(out.done, COMM_CONN_WINDOW);
	assert_false(comm_conn_is_pending(&ends.conn[0]));
	comm_conn_say(&ends.conn[0], "goodbye", 8);
	settle(&ends);
	assert_true(ends.conn[1].said && !ends.conn[1].ended);
	assert_string_equal(ends.heard[1], "goodbye");
	comm_conn_receive(&ends.conn[1], &in);
	assert_int_equal(in.done, COMM_CONN_WINDOW);
	settle(&ends);
	assert_int_equal(in.done, COMM_CONN_WINDOW); /* nothing follows a goodbye */
	assert_memory_equal(in.buffer, out.buffer, COMM_CONN_WINDOW);
	close(ends.conn[0].fd);
	ends.conn[0].fd = -1;
	comm_conn_read(&ends.conn[1], COMM_CONN_CHUNK);
	assert_true(ends.conn[1].ended && ends.conn[1].said);
	close_ends(&ends);
	free(out.buffer);
	free(in.buffer);
}

/* A sum goes as far as it is made. */
static void a_send_waits_for_what_is_ready(void **state)
{
	char from[1000], to[1000];
	struct comm_conn_transfer out = { .buffer = from, .bytes = sizeof from };
	struct comm_conn_transfer in = { .buffer = to, .bytes = sizeof to };
	struct ends ends = { 0 };
	memset(from, 3, sizeof from);
	connect_ends(&ends);
	comm_conn_send(&ends.conn[0], &out);
	comm_conn_receive(&ends.conn[1], &in);
	for (size_t ready = 0; ready <= sizeof from; ready += 250) {
		out.ready = ready;
		settle(&ends);
		assert_int_equal(in.done, ready);
	}
	assert_memory_equal(from, to, sizeof from);
	close_ends(&ends);
}

static void take_frame(struct ends *ends, uint32_t frame, uint32_t size, uint64_t number)
{
	unsigned char head[COMM_CONN_HEAD];
	bytes_put_le32(head, frame);
	bytes_put_le32(head + 4, size);
	bytes_put_le64(head + 8, number);
	comm_conn_take(&ends->conn[0], head, sizeof head);
}

/* Data beyond the window is a fault, too. */
static void other_bytes_end_the_connection(void **state)
{
	static const struct {
		uint32_t frame, size;
		uint64_t number;
	} bad[] = {
		{ 0, 0, 0 },
		{ 4, 8, 0 },
		{ 1, 0, 0 },
		{ 1, COMM_CONN_CHUNK + 1, 0 },
		{ 2, 1, 5 },
		{ 3, 7, 0 },
		{ 3, 9, 0 },
		{ 0x47474747, 0x47474747, 0 },
	};
	struct ends ends = { 0 };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		connect_ends(&ends);
		take_frame(&ends, bad[i].frame, bad[i].size, bad[i].number);
		assert_true(ends.conn[0].ended);
		close_ends(&ends);
	}
	connect_ends(&ends);
	take_frame(&ends, 2, 0, 9);
	assert_false(ends.conn[0].ended);
	take_frame(&ends, 2, 0, 8); /* a window never shrinks */
	assert_true(ends.conn[0].ended);
	close_ends(&ends);

	char *much = calloc(1, COMM_CONN_WINDOW + 1);
	connect_ends(&ends);
	take_frame(&ends, 1, COMM_CONN_WINDOW + 1, 0);
	comm_conn_take(&ends.conn[0], much, COMM_CONN_WINDOW + 1);
	assert_true(ends.conn[0].ended);
	close_ends(&ends);
	free(much);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_arrives_in_order),
		cmocka_unit_test(all_arrives_by_calls_that_do_little),
		cmocka_unit_test(a_window_bounds_what_comes_early),
		cmocka_unit_test(a_send_waits_for_what_is_ready),
		cmocka_unit_test(other_bytes_end_the_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
