/* SPDX-License-Identifier: Apache-2.0 */
/* owner: of all who start at once one owns the directory, a later attempt takes over, and who has
 * lost it stops. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/io.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"

#define RACERS 8
#define RACES 20

static void open_dir(struct ckpt_dir *dir, const char *name)
{
	struct err err;
	if (ckpt_dir_open(dir, files_path(name), &err) < 0)
		fail_msg("%s", err.text);
}

static struct owner job(uint32_t number, int attempt)
{
	struct owner owner = { .cluster = "big", .job = number, .attempt = attempt };
	return owner;
}

static void claims(const struct ckpt_dir *dir, struct owner *self, owner_check *check)
{
	struct err err;
	if (owner_claim(dir, self, check, NULL, 5, &err) < 0)
		fail_msg("%s", err.text);
}

static void refused(const struct ckpt_dir *dir, struct owner *self, owner_check *check,
	enum exit_status status, const char *why)
{
	struct err err;
	assert_int_equal(owner_claim(dir, self, check, NULL, 5, &err), -1);
	assert_int_equal(err.status, status);
	if (!strstr(err.text, why))
		fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static enum owner_life says_runs(void *arg, const struct owner *other)
{
	return OWNER_RUNS;
}
static enum owner_life says_ended(void *arg, const struct owner *other)
{
	return OWNER_ENDED;
}
static enum owner_life says_unknown(void *arg, const struct owner *other)
{
	return OWNER_UNKNOWN;
}

/* Rewrites owner.json as it would be if its process ran on another machine. */
static void move_elsewhere(const struct ckpt_dir *dir)
{
	char *text;
	size_t size;
	assert_int_equal(io_read_file(dir->fd, OWNER_NAME, 10000, &text, &size, NULL), 0);
	char *process = strstr(text, "\"process\": \"");
	process[strlen("\"process\": \"")] ^= 1;
	assert_int_equal(io_replace_durably(dir->fd, OWNER_NAME, text, size, NULL), 0);
	free(text);
}

static void age_heartbeat(const struct ckpt_dir *dir, double seconds)
{
	struct timespec times[2];
	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= (time_t)seconds;
	times[1] = times[0];
	assert_int_equal(utimensat(dir->fd, OWNER_NAME, times, 0), 0);
}

static void the_claim_is_on_disk(void **state)
{
	struct ckpt_dir dir;
	struct owner self = job(7, 3), found, other;
	struct err err;
	open_dir(&dir, "disk");
	assert_int_equal(owner_read(&dir, &found, &err), 0);
	assert_int_equal(owner_verify(&dir, "x", &err), -1);
	claims(&dir, &self, NULL);
	assert_int_equal(owner_read(&dir, &found, &err), 1);
	assert_memory_equal(&found, &self, sizeof self);
	assert_int_equal(found.pid, getpid());
	assert_int_equal(owner_verify(&dir, self.token, &err), 0);
	/* Every claim has a token of its own. */
	other = job(7, 4);
	claims(&dir, &other, NULL);
	assert_string_not_equal(other.token, self.token);
	ckpt_dir_close(&dir);
}

static void another_job_is_refused_while_the_owner_runs(void **state)
{
	struct ckpt_dir dir;
	struct owner first = job(7, 0), second = job(8, 5);
	open_dir(&dir, "refused");
	claims(&dir, &first, NULL);
	refused(&dir, &second, says_runs, EXIT_USAGE, "job 7");
	/* Where Slurm can't be asked: the process lives; then, from another machine, the heartbeat is
	 * young. */
	refused(&dir, &second, says_unknown, EXIT_USAGE, "in use by job 7");
	refused(&dir, &second, NULL, EXIT_USAGE, "in use by job 7");
	move_elsewhere(&dir);
	refused(&dir, &second, NULL, EXIT_USAGE, "in use by job 7");
	age_heartbeat(&dir, OWNER_HEARTBEAT - 5);
	refused(&dir, &second, NULL, EXIT_USAGE, "in use by job 7");
	/* What Slurm says counts more than either. */
	age_heartbeat(&dir, 2 * OWNER_HEARTBEAT);
	refused(&dir, &second, says_runs, EXIT_USAGE, "in use by job 7");
	assert_int_equal(owner_verify(&dir, first.token, NULL), 0);
	ckpt_dir_close(&dir);
}

/* Seconds by which the clock of an owner's node is ahead of ours, one for each directory. */
static const double clocks[] = { 600, 90, -90, -600 };
#define CLOCKS (sizeof clocks / sizeof clocks[0])

static void own_from_elsewhere(struct ckpt_dir *dir, const char *name, size_t clock)
{
	char path[40];
	struct owner first = job(7, 0);
	snprintf(path, sizeof path, "%s-%zu", name, clock);
	open_dir(dir, path);
	claims(dir, &first, NULL);
	move_elsewhere(dir);
	age_heartbeat(dir, -clocks[clock]);
}

/* In a process of its own, so that all wait at once. Ends with 0 if it has become the owner, else
 * with the error's status. */
static pid_t begin_claim(const struct ckpt_dir *dir)
{
	struct owner second = job(8, 0);
	struct err err;
	pid_t pid = fork();
	if (pid == 0)
		_exit(owner_claim(dir, &second, says_unknown, NULL, 5, &err) < 0 ? (int)err.status : 0);
	return pid;
}

static void a_dead_owner_is_outlived_whatever_its_clock(void **state)
{
	struct ckpt_dir dirs[CLOCKS];
	pid_t pids[CLOCKS];
	int status;
	for (size_t i = 0; i < CLOCKS; i++) {
		own_from_elsewhere(&dirs[i], "dead", i);
		pids[i] = begin_claim(&dirs[i]);
	}
	for (size_t i = 0; i < CLOCKS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
		ckpt_dir_close(&dirs[i]);
	}
}

/* They beat more often than owners do, and are refused the more quickly for it. */
static void a_living_owner_is_not_outlived_whatever_its_clock(void **state)
{
	struct ckpt_dir dirs[CLOCKS];
	pid_t pids[CLOCKS];
	struct owner found;
	int status;
	for (size_t i = 0; i < CLOCKS; i++) {
		own_from_elsewhere(&dirs[i], "living", i);
		pids[i] = begin_claim(&dirs[i]);
	}
	for (size_t i = 0; i < CLOCKS; i++) {
		for (; waitpid(pids[i], &status, WNOHANG) == 0; usleep(10000))
			for (size_t beats = i; beats < CLOCKS; beats++)
				age_heartbeat(&dirs[beats], -clocks[beats]);
		assert_int_equal(WEXITSTATUS(status), EXIT_USAGE);
		assert_int_equal(owner_read(&dirs[i], &found, NULL), 1);
		assert_int_equal(found.job, 7);
		ckpt_dir_close(&dirs[i]);
	}
}

static void a_gone_owner_is_no_owner(void **state)
{
	struct ckpt_dir dir;
	struct err err;
	struct owner first = job(7, 0), second = job(8, 0), third = job(9, 0), none = { .cluster = "" };
	open_dir(&dir, "gone");
	claims(&dir, &first, NULL);
	claims(&dir, &second, says_ended);
	assert_int_equal(owner_verify(&dir, first.token, NULL), -1);
	/* Released in order. */
	assert_int_equal(owner_release(&dir, first.token, &err), -1);
	assert_int_equal(owner_release(&dir, second.token, &err), 0);
	claims(&dir, &third, says_runs);
	assert_int_equal(owner_release(&dir, third.token, &err), 0);
	/* Killed on this machine, without Slurm: no wait for the heartbeat. */
	pid_t child = fork();
	if (child == 0)
		_exit(owner_claim(&dir, &none, NULL, NULL, 5, NULL) < 0);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	claims(&dir, &none, NULL);
	ckpt_dir_close(&dir);
}

static void attempts_of_one_job_take_over_upwards_only(void **state)
{
	struct ckpt_dir dir;
	struct owner first = job(7, 1), later = job(7, 2), earlier = job(7, 1), twin = job(7, 2);
	open_dir(&dir, "attempts");
	claims(&dir, &first, NULL);
	claims(&dir, &later, says_runs);
	refused(&dir, &earlier, says_ended, EXIT_FAULT, "later attempt");
	/* Slurm calls the job running whichever of its processes asks: it is not asked. */
	refused(&dir, &twin, says_ended, EXIT_USAGE, "in use by job 7");
	/* So do the restarts of one attempt, and come back as they were written. */
	struct owner restart = { .cluster = "big", .job = 7, .attempt = 2, .restart = 2 },
				 before = { .cluster = "big", .job = 7, .attempt = 2, .restart = 1 },
				 next = job(7, 3), found;
	claims(&dir, &restart, says_runs);
	assert_int_equal(owner_read(&dir, &found, NULL), 1);
	assert_int_equal(found.restart, 2);
	refused(&dir, &before, says_ended, EXIT_FAULT, "later attempt");
	claims(&dir, &next, says_runs);
	refused(&dir, &restart, says_ended, EXIT_FAULT, "later attempt");
	/* The same number on another cluster is another job. */
	struct owner foreign = { .cluster = "small", .job = 7, .attempt = 9 };
	refused(&dir, &foreign, says_runs, EXIT_USAGE, "cluster big");
	ckpt_dir_close(&dir);
}

static void who_has_lost_the_directory_stops(void **state)
{
	struct ckpt_dir dir;
	struct err err;
	struct owner old = job(7, 0), new = job(7, 1);
	struct ckpt_sample sample;
	struct stat before, after;
	open_dir(&dir, "lost");
	claims(&dir, &old, NULL);
	ckpt_sample_fill(&sample, 1);
	assert_int_equal(ckpt_save(&dir, &sample.snapshot, old.token, NULL, NULL, &err), 0);
	assert_int_equal(owner_heartbeat(&dir, old.token, &err), 0);
	claims(&dir, &new, NULL);
	ckpt_sample_fill(&sample, 2);
	assert_int_equal(ckpt_save(&dir, &sample.snapshot, old.token, NULL, NULL, &err), -1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_int_equal(remove_step(&dir, 1, old.token, &err), -1);
	assert_int_equal(remove_leftovers(&dir, old.token, &err), -1);
	age_heartbeat(&dir, 30);
	assert_int_equal(fstatat(dir.fd, OWNER_NAME, &before, 0), 0);
	assert_int_equal(owner_heartbeat(&dir, old.token, &err), -1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_int_equal(fstatat(dir.fd, OWNER_NAME, &after, 0), 0);
	assert_int_equal(after.st_mtime, before.st_mtime);
	assert_int_equal(owner_heartbeat(&dir, new.token, &err), 0);
	assert_int_equal(fstatat(dir.fd, OWNER_NAME, &after, 0), 0);
	assert_true(after.st_mtime >= before.st_mtime + 29);
	struct stat st;
	assert_int_equal(fstatat(dir.fd, "step-00000002", &st, 0), -1);
	assert_int_equal(fstatat(dir.fd, "step-00000001", &st, 0), 0);
	ckpt_dir_close(&dir);
}

static void a_damaged_record_is_told_of(void **state)
{
	struct ckpt_dir dir;
	struct owner self = job(7, 0);
	static const char *const records[] = { "", "{}", "[]", "{\"job\": 7, \"attempt\": 0",
		"{\"cluster\": \"big\", \"job\": 4294967303, \"attempt\": 0, \"token\": "
		"\"0123456789abcdef0123456789abcdef\", \"host\": \"\", \"process\": \"\"}",
		"{\"cluster\": \"big\", \"job\": 7, \"attempt\": -1, \"token\": "
		"\"0123456789abcdef0123456789abcdef\", \"host\": \"\", \"process\": \"\"}" };
	open_dir(&dir, "damaged");
	for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
		assert_int_equal(io_replace_durably(dir.fd, OWNER_NAME, records[i], strlen(records[i]),
							 NULL),
			0);
		refused(&dir, &self, NULL, EXIT_DATA, "remove that file");
	}
	ckpt_dir_close(&dir);
}

/* One racer: waits for the gun, claims, says whether it won, and lives until everybody has. */
static void racer(const struct ckpt_dir *dir, int gun, int result, uint32_t number)
{
	struct owner self = job(number, 0);
	char byte;
	/* However the test ends, the racer does. */
	alarm(HANG_SECONDS);
	ssize_t ignored = read(gun, &byte, 1);
	byte = owner_claim(dir, &self, NULL, NULL, 10, NULL) == 0 ? 'w' : 'l';
	ignored = write(result, &byte, 1);
	(void)ignored;
	pause();
}

static void of_many_starts_exactly_one_wins(void **state)
{
	for (int race = 0; race < RACES; race++) {
		struct ckpt_dir dir;
		char name[32], byte;
		int gun[2], result[2], won = 0;
		pid_t children[RACERS];
		snprintf(name, sizeof name, "race-%d", race);
		open_dir(&dir, name);
		assert_int_equal(pipe(gun), 0);
		assert_int_equal(pipe(result), 0);
		for (int i = 0; i < RACERS; i++) {
			children[i] = fork();
			if (children[i] == 0) {
				close(gun[1]);
				racer(&dir, gun[0], result[1], (uint32_t)(100 + i));
			}
		}
		close(gun[1]);
		for (int i = 0; i < RACERS; i++) {
			assert_int_equal(read(result[0], &byte, 1), 1);
			won += byte == 'w';
		}
		for (int i = 0; i < RACERS; i++) {
			kill(children[i], SIGKILL);
			waitpid(children[i], NULL, 0);
		}
		close(gun[0]);
		close(result[0]);
		close(result[1]);
		ckpt_dir_close(&dir);
		assert_int_equal(won, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_claim_is_on_disk),
		cmocka_unit_test(another_job_is_refused_while_the_owner_runs),
		cmocka_unit_test(a_dead_owner_is_outlived_whatever_its_clock),
		cmocka_unit_test(a_living_owner_is_not_outlived_whatever_its_clock),
		cmocka_unit_test(a_gone_owner_is_no_owner),
		cmocka_unit_test(attempts_of_one_job_take_over_upwards_only),
		cmocka_unit_test(who_has_lost_the_directory_stops),
		cmocka_unit_test(a_damaged_record_is_told_of),
		cmocka_unit_test(of_many_starts_exactly_one_wins),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
