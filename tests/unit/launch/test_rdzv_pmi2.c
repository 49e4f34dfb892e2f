/* SPDX-License-Identifier: Apache-2.0 */
/* The PMI2 rendezvous of one rank against a small server, which plays the other ranks: it keeps
 * what rank 0 puts for rank 1, too. tests/cluster/pmi2.bats has the real one. */
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

#include "common/clock.h"
#include "launch/rdzv.h"
#include "tests/unit/hang.h"

#define STORE_MAX 400
#define MESSAGE_MAX 4096

/* ---- the server ---- */

#define SYN_AGAIN \
	1100000 /* microseconds in which a connection comes about whose first SYN is lost */

/* What it answers to a command in place of what it should; an empty answer is none, and LATE what
 * it should, the first time as late as a SYN that is lost. After `from` fences. A list ends with
 * one that has no command. */
struct instead {
	const char *command, *answer;
	int from;
};

static const char LATE[] = "late";

#define AS_IT_SHOULD (&(const struct instead) { NULL, NULL, 0 })

struct server {
	int fd, stored, fences, puts, late;
	char aborted[300]; /* the request */
	const struct instead *instead;
	struct {
		char name[100], value[1100];
	} store[STORE_MAX];
};

static void answer(const struct server *server, const char *format, ...)
{
	char body[MESSAGE_MAX], head[8];
	va_list args;
	va_start(args, format);
	vsnprintf(body, sizeof body, format, args);
	va_end(args);
	snprintf(head, sizeof head, "%-6zu", strlen(body));
	assert_int_equal(send(server->fd, head, 6, MSG_NOSIGNAL), 6);
	assert_int_equal(send(server->fd, body, strlen(body), MSG_NOSIGNAL), strlen(body));
}

/* A field of a request; "" when it isn't there. */
static char *field(const char *body, const char *name, char *out, size_t size)
{
	char pattern[40];
	snprintf(pattern, sizeof pattern, ";%s=", name);
	const char *at = strstr(body, pattern);
	at = at ? at + strlen(pattern) : "";
	snprintf(out, size, "%.*s", (int)strcspn(at, ";"), at);
	return out;
}

/* `kind` is the first letter of the command: values, attributes and names don't know of each other.
 */
static void keep(struct server *server, char kind, const char *name, const char *value)
{
	assert_in_range(server->stored, 0, STORE_MAX - 1);
	snprintf(server->store[server->stored].name, sizeof server->store[0].name, "%c%s", kind, name);
	snprintf(server->store[server->stored++].value, sizeof server->store[0].value, "%s", value);
}

static const char *find(const struct server *server, char kind, const char *name)
{
	for (int i = 0; i < server->stored; i++)
		if (server->store[i].name[0] == kind && strcmp(server->store[i].name + 1, name) == 0)
			return server->store[i].value;
	return NULL;
}

/* As PMI2 has it: a key of up to 63 characters, a value of up to 1,023. */
static void put(struct server *server, const char *body, const char *command, const char *key_field,
	const char *value_field)
{
	char key[100], value[2000];
	field(body, key_field, key, sizeof key);
	field(body, value_field, value, sizeof value);
	assert_in_range(strlen(key), 1, 63);
	assert_in_range(strlen(value), 1, 1023);
	assert_null(find(server, command[0], key));
	keep(server, command[0], key, value);
	char *rank = strstr(key, ".0.");
	if (strcmp(command, "kvs-put") == 0) {
		assert_non_null(rank);
		rank[1] = '1';
		keep(server, command[0], key, value);
		server->puts++;
	}
	answer(server, "cmd=%s-response;rc=0;", command);
}

static void get(const struct server *server, const char *body, const char *command,
	const char *key_field)
{
	char key[100];
	const char *value = find(server, command[0], field(body, key_field, key, sizeof key));
	if (strcmp(key, "PMI_process_mapping") == 0)
		value = "(vector,(0,2,1))";
	if (value)
		answer(server, "cmd=%s-response;rc=0;found=TRUE;value=%s;", command, value);
	else
		answer(server, "cmd=%s-response;rc=0;found=FALSE;", command);
}

static void serve(struct server *server, const char *body)
{
	char command[40];
	snprintf(command, sizeof command, "%.*s", (int)strcspn(body + 4, ";"), body + 4);
	bool fence = strcmp(command, "kvs-fence") == 0;
	for (const struct instead *instead = server->instead; instead->command; instead++)
		if (strcmp(command, instead->command) == 0 && server->fences >= instead->from) {
			if (instead->answer == LATE) {
				if (server->late++ == 0)
					usleep(SYN_AGAIN);
				break;
			}
			if (instead->answer[0])
				answer(server, "%s", instead->answer);
			return;
		}
	server->fences += fence;
	if (strcmp(command, "fullinit") == 0)
		answer(server,
			"cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=-1;");
	else if (strcmp(command, "kvs-put") == 0 || strcmp(command, "info-putnodeattr") == 0)
		put(server, body, command, "key", "value");
	else if (strcmp(command, "name-publish") == 0)
		put(server, body, command, "name", "port");
	else if (strcmp(command, "name-lookup") == 0)
		get(server, body, command, "name");
	else if (fence || strcmp(command, "finalize") == 0)
		answer(server, "cmd=%s-response;rc=0;", command);
	else if (strcmp(command, "abort") == 0)
		snprintf(server->aborted, sizeof server->aborted, "%s", body);
	else
		get(server, body, command, "key");
}

static bool read_all(int fd, char *to, size_t size)
{
	for (ssize_t n; size > 0; to += n, size -= (size_t)n)
		if ((n = read(fd, to, size)) <= 0)
			return false;
	return true;
}

static void serve_all(struct server *server)
{
	static const char hello[] = "cmd=init pmi_version=2 pmi_subversion=0\n";
	static const char back[] = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
	char head[8] = "", body[MESSAGE_MAX];
	if (!read_all(server->fd, body, strlen(hello)))
		return;
	assert_memory_equal(body, hello, strlen(hello));
	assert_int_equal(write(server->fd, back, strlen(back)), strlen(back));
	while (read_all(server->fd, head, 6)) {
		size_t length = (size_t)atol(head);
		assert_in_range(length, 5, MESSAGE_MAX - 1);
		assert_true(read_all(server->fd, body, length));
		body[length] = '\0';
		serve(server, body);
	}
}

/* ---- the rank ---- */

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "# line %d: %s: %s\n", __LINE__, #condition, err.text); \
			exit(1); \
		} \
	} while (0)

static struct ident rank_0(void)
{
	struct ident ident = { .rank = 0,
		.world_size = 2,
		.local_world_size = 1,
		.node_count = 2,
		.node = "node0",
		.source = "pmi2" };
	return ident;
}

/* Runs `body` as rank 0 against a server. Returns that, as it was at the end. */
static struct server *run(const struct instead *instead,
	void (*body)(struct ident *ident, struct err *err))
{
	static struct server server;
	int pair[2], status = -1;
	char fd[12];
	server = (struct server) { .instead = instead };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct ident ident = rank_0();
		struct err err = { .text = "" };
		close(pair[1]);
		snprintf(fd, sizeof fd, "%d", pair[0]);
		setenv("PMI_FD", fd, 1);
		setenv("PMI_JOBID", "7.0", 1);
		setenv("SLURM_STEP_NODELIST", "node[0-1]", 1);
		unsetenv("SLURM_HET_SIZE");
		alarm(HANG_SECONDS);
		body(&ident, &err);
		exit(0);
	}
	close(pair[0]);
	server.fd = pair[1];
	serve_all(&server);
	close(server.fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return &server;
}

static const size_t sizes[] = { 0, 1, 755, 756, 757, 1512, 1513, 65535, 65536 };
#define SIZES (sizeof sizes / sizeof sizes[0])

static void exchange(struct ident *ident, struct err *errp)
{
	static unsigned char bytes[65536];
	struct err err = { .text = "" };
	char key[65];
	struct rdzv *rdzv = rdzv_open(ident, NULL, 5, &err);
	CHECK(rdzv && strcmp(rdzv_provider(rdzv), "pmi2") == 0);
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i * 131 + i / 256);
	memset(key, 'k', 64);
	key[64] = '\0';
	for (size_t i = 0; i < SIZES; i++) {
		key[63] = (char)('a' + i);
		CHECK(rdzv_put(rdzv, key, bytes, sizes[i], &err) == 0);
	}
	CHECK(rdzv_fence(rdzv, 0, &err) == 0);
	for (size_t i = 0; i < 2 * SIZES; i++) {
		void *value;
		size_t size;
		key[63] = (char)('a' + i / 2);
		CHECK(rdzv_get(rdzv, (int)i % 2, key, &value, &size, 0, &err) == 0);
		CHECK(size == sizes[i / 2] && memcmp(value, bytes, size) == 0
			&& ((char *)value)[size] == '\0');
		free(value);
	}
	rdzv_close(rdzv, 1);
}

static void values_of_all_sizes_travel_in_one_fence(void **state)
{
	const struct server *server = run(AS_IT_SHOULD, exchange);
	/* One to open, one for all the values. */
	assert_int_equal(server->fences, 2);
	/* The name of the node; 756 bytes a part. */
	assert_int_equal(server->puts, 1 + (1 + 1 + 1 + 1 + 2 + 2 + 3 + 87 + 87));
}

static void get_what_is_wrong(struct ident *ident, struct err *errp)
{
	struct err err = { .text = "" };
	void *value;
	size_t size;
	struct rdzv *rdzv = rdzv_open(ident, NULL, 5, &err);
	CHECK(rdzv && rdzv_put(rdzv, "a", "xyz", 3, &err) == 0 && rdzv_fence(rdzv, 0, &err) == 0);
	CHECK(rdzv_get(rdzv, 1, "a", &value, &size, 0, &err) == -1);
	CHECK(err.status == EXIT_LOST && strstr(err.text, "of rank 1: not ours"));
	rdzv_close(rdzv, 1);
}

static void a_value_that_is_not_ours_is_refused(void **state)
{
	static const char *const values[] = { "", "3", "eHl6", ":eHl6", "-3:eHl6", " 3:eHl6", "3x:eHl6",
		"2:eHl6", "4:eHl6", "3:eHl6eHl6", "3:eHl", "3:eHl*", "65537:eHl6", "99999999:eHl6",
		"1000:eHl6" };
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		char text[100];
		snprintf(text, sizeof text, "cmd=kvs-get-response;rc=0;found=TRUE;value=%s;", values[i]);
		const struct instead instead[] = { { "kvs-get", text, 0 }, { 0 } };
		run(instead, get_what_is_wrong);
	}
}

static void get_what_is_not_there(struct ident *ident, struct err *errp)
{
	struct err err = { .text = "" };
	void *value;
	size_t size;
	struct rdzv *rdzv = rdzv_open(ident, NULL, 5, &err);
	CHECK(rdzv && rdzv_get(rdzv, 1, "a", &value, &size, 0, &err) == -1);
	CHECK(err.status == EXIT_LOST
		&& strstr(err.text, "couldn't get a of rank 1: it was not put before the last fence"));
	/* The connection is as good as before. */
	CHECK(rdzv_fence(rdzv, 0, &err) == 0);
	rdzv_close(rdzv, 1);
}

static void a_value_that_was_not_put_is_said(void **state)
{
	run(AS_IT_SHOULD, get_what_is_not_there);
}

static void give_up(struct ident *ident, struct err *errp)
{
	struct err err = { .text = "" };
	struct rdzv *rdzv = rdzv_open(ident, NULL, 5, &err);
	CHECK(rdzv);
	rdzv_abort(rdzv, 1, "out; of\ntokens=0");
	CHECK(rdzv_fence(rdzv, 5, &err) == -1);
	rdzv_close(rdzv, 1);
}

static void an_abort_is_of_the_whole_step(void **state)
{
	assert_string_equal(run(AS_IT_SHOULD, give_up)->aborted,
		"cmd=abort;isworld=TRUE;msg=out, of,tokens=0;");
}

/* ---- ranks that do not come ---- */

static const char *words;

static void open_in_vain(struct ident *ident, struct err *errp)
{
	struct err err = { .text = "" };
	double began = clock_now();
	CHECK(!rdzv_open(ident, NULL, 0.5, &err));
	CHECK(clock_now() - began > 0.3 && clock_now() - began < 15);
	CHECK(err.status == EXIT_LOST && strstr(err.text, words));
}

static void fence_in_vain(struct ident *ident, struct err *errp)
{
	struct err err = { .text = "" };
	struct rdzv *rdzv = rdzv_open(ident, NULL, 5, &err);
	double began = clock_now();
	CHECK(rdzv && rdzv_fence(rdzv, 0.5, &err) == -1);
	CHECK(clock_now() - began > 0.3 && clock_now() - began < 15);
	CHECK(err.status == EXIT_LOST && strstr(err.text, words));
	CHECK(rdzv_fence(rdzv, 60, &err) == -1 && strstr(err.text, "was lost before"));
	CHECK(clock_now() - began < 30);
	rdzv_close(rdzv, 0);
}

static void a_rank_that_stays_away_is_named_with_its_node(void **state)
{
	const struct instead never[] = { { "kvs-fence", "", 0 }, { 0 } },
						 once[] = { { "kvs-fence", "", 1 }, { 0 } };
	words = "couldn't meet 1 of 2 ranks within 0.5 s: rank 1 (on node1) did not come";
	run(never, open_in_vain);
	/* After the first fence the ranks know each other's nodes; the server plays rank 1 on the same
	 * one. */
	words = "couldn't meet 1 of 2 ranks within 0.5 s: rank 1 (on node0) did not come";
	run(once, fence_in_vain);
}

static void a_lost_syn_leaves_time_to_name_it(void **state)
{
	const struct instead asked[] = { { "kvs-fence", "", 0 }, { "name-lookup", LATE, 0 }, { 0 } };
	const struct instead told[] = { { "kvs-fence", "", 0 }, { "name-publish", LATE, 0 }, { 0 } };
	words = "couldn't meet 1 of 2 ranks within 0.5 s: rank 1 (on node1) did not come";
	run(asked, open_in_vain);
	run(told, open_in_vain);
}

static void a_server_that_knows_no_names_blames_nobody(void **state)
{
	const struct instead forgets[] = { { "kvs-fence", "", 0 },
		{ "name-lookup", "cmd=name-lookup-response;rc=1;", 0 }, { 0 } };
	const struct instead refuses[] = { { "kvs-fence", "", 0 },
		{ "name-publish", "cmd=name-publish-response;rc=1;", 0 }, { 0 } };
	const struct instead hangs[] = { { "kvs-fence", "", 0 }, { "name-lookup", "", 0 }, { 0 } };
	words = "srun doesn't answer who is missing";
	run(forgets, open_in_vain);
	run(refuses, open_in_vain);
	run(hangs, open_in_vain);
}

static void open_wrongly(struct ident *ident, struct err *errp)
{
	struct err err = { .text = "" };
	CHECK(!rdzv_open(ident, NULL, 1, &err) && err.status == EXIT_USAGE && strstr(err.text, words));
}

static void who_is_not_who_it_was_told_is_refused(void **state)
{
	const struct instead rank[] = { { "fullinit", "cmd=fullinit-response;rc=0;rank=1;size=2;", 0 },
		{ 0 } };
	const struct instead size[] = { { "fullinit", "cmd=fullinit-response;rc=0;rank=0;size=3;", 0 },
		{ 0 } };
	const struct instead none[] = { { "fullinit", "cmd=fullinit-response;rc=0;", 0 }, { 0 } };
	words = "calls this task rank 1 of 2";
	run(rank, open_wrongly);
	words = "calls this task rank 0 of 3";
	run(size, open_wrongly);
	words = "calls this task rank -1 of -1";
	run(none, open_wrongly);
}

static void a_socket_that_is_none_is_refused(void **state)
{
	static const char *const numbers[] = { "", "x", "-1", "99", "99999999999", "0x3" };
	struct ident ident = rank_0();
	struct err err;
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		setenv("PMI_FD", numbers[i], 1);
		assert_null(rdzv_open(&ident, NULL, 1, &err));
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, "--mpi=pmi2"));
	}
	FILE *file = tmpfile();
	char number[12];
	snprintf(number, sizeof number, "%d", fileno(file));
	setenv("PMI_FD", number, 1);
	assert_null(rdzv_open(&ident, NULL, 1, &err));
	assert_int_equal(err.status, EXIT_USAGE);
	fclose(file);
	unsetenv("PMI_FD");
	assert_null(rdzv_open(&ident, NULL, 1, &err));
	assert_int_equal(err.status, EXIT_USAGE);
}

int main(void)
{
	unsetenv("MUSTER_RDZV");
	unsetenv("MUSTER_RDZV_DIR");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_all_sizes_travel_in_one_fence),
		cmocka_unit_test(a_value_that_is_not_ours_is_refused),
		cmocka_unit_test(a_value_that_was_not_put_is_said),
		cmocka_unit_test(an_abort_is_of_the_whole_step),
		cmocka_unit_test(a_rank_that_stays_away_is_named_with_its_node),
		cmocka_unit_test(a_lost_syn_leaves_time_to_name_it),
		cmocka_unit_test(a_server_that_knows_no_names_blames_nobody),
		cmocka_unit_test(who_is_not_who_it_was_told_is_refused),
		cmocka_unit_test(a_socket_that_is_none_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
