/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into muster-train, it makes rank 0 sleep for STEP_MILLISECONDS after each step, when it
 * writes the step's line of metrics: a small training takes its time on a fast machine too, and
 * costs no processor time. With STEPS_AFTER, it waits there until that file is there: what is to
 * happen before a step can't come too late. It looks for the line anywhere in what is written:
 * after a full disk one write has the lines of several steps, and may begin in the middle of one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char LINE[] = "{\"step\":";

__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t size)
{
	ssize_t (*true_write)(int, const void *, size_t) =
		(ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	const char *milliseconds = getenv("STEP_MILLISECONDS"), *gate = getenv("STEPS_AFTER");
	const int is_line = (milliseconds || gate) && memmem(data, size, LINE, strlen(LINE));

	if (is_line && milliseconds)
		usleep(1000 * (useconds_t)strtoul(milliseconds, NULL, 10));
	while (is_line && gate && access(gate, F_OK) < 0)
		usleep(10000);
	return true_write(fd, data, size);
}
