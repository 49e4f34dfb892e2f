/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into muster-train, it makes rank 0 sleep for STEP_MILLISECONDS after each step, when it
 * writes the step's line of metrics: a small training takes its time on a fast machine too, and
 * costs no processor time. With STEPS_AFTER, it waits there until that file is there: what is to
 * happen before a step can't come too late. It looks for the line anywhere in what is written:
 * after a full disk one write has the lines of several steps, and may begin in the middle of one.
 * With STEPS_PACE, a file, the milliseconds are those in it, read for each step. Where a number
 * follows them, no step after that one ends until the file has another.
 * A program over libmuster sleeps before each muster_allgather.
 * With CLOCK_FILE, the time of day is ahead by the seconds that this file has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char LINE[] = "{\"step\":";

struct pace {
	unsigned long milliseconds, last;
};

/* What the file has, else `otherwise`. */
static struct pace read_pace(const char *otherwise, const char *path)
{
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char text[40] = "", *rest;

	if (file >= 0 && read(file, text, sizeof text - 1) > 0)
		otherwise = text;
	if (file >= 0)
		close(file);
	unsigned long milliseconds = strtoul(otherwise, &rest, 10);
	return (struct pace) { milliseconds, strtoul(rest, NULL, 10) };
}

/* The step of the last line in the data. */
static unsigned long last_step(const char *data, size_t size)
{
	unsigned long step = 0;
	const char *line = data, *end = data + size;

	while ((line = memmem(line, (size_t)(end - line), LINE, strlen(LINE)))) {
		line += strlen(LINE);
		step = strtoul(line, NULL, 10);
	}
	return step;
}

static void keep_pace(const char *milliseconds, const char *data, size_t size)
{
	const char *path = getenv("STEPS_PACE");
	struct pace pace = read_pace(milliseconds, path);

	usleep((useconds_t)(1000 * pace.milliseconds));
	while (pace.last > 0 && last_step(data, size) > pace.last) {
		usleep(10000);
		pace = read_pace(milliseconds, path);
	}
}

__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t size)
{
	ssize_t (*true_write)(int, const void *, size_t) =
		(ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	const char *milliseconds = getenv("STEP_MILLISECONDS"), *gate = getenv("STEPS_AFTER");
	const int is_line = (milliseconds || gate) && memmem(data, size, LINE, strlen(LINE));

	if (is_line && milliseconds)
		keep_pace(milliseconds, data, size);
	while (is_line && gate && access(gate, F_OK) < 0)
		usleep(10000);
	return true_write(fd, data, size);
}

struct muster;

/* Of a program over libmuster that has one in each of its steps, on all ranks. */
__attribute__((visibility("default"))) int muster_allgather(struct muster *muster, const void *mine,
	void *all, size_t size, double timeout)
{
	int (*true_allgather)(struct muster *, const void *, void *, size_t, double) =
		(int (*)(struct muster *, const void *, void *, size_t, double))dlsym(RTLD_NEXT,
			"muster_allgather");
	const char *milliseconds = getenv("STEP_MILLISECONDS");

	if (milliseconds)
		keep_pace(milliseconds, "", 0);
	return true_allgather(muster, mine, all, size, timeout);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
	int (*true_clock)(clockid_t, struct timespec *) =
		(int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	const char *path = clock == CLOCK_REALTIME ? getenv("CLOCK_FILE") : NULL;
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1, status = true_clock(clock, now);
	char text[16] = "";

	if (file >= 0 && read(file, text, sizeof text - 1) > 0)
		now->tv_sec += strtol(text, NULL, 10);
	if (file >= 0)
		close(file);
	return status;
}
