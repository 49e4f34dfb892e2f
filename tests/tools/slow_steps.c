/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into muster-train, it makes rank 0 sleep for STEP_MILLISECONDS after each step, when it
 * writes the step's line of metrics: a small training takes its time on a fast machine too, and
 * costs no processor time. It looks for the line anywhere in what is written: after a full disk one
 * write has the lines of several steps, and may begin in the middle of one. */
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
	const char *milliseconds = getenv("STEP_MILLISECONDS");

	if (milliseconds && memmem(data, size, LINE, strlen(LINE)))
		usleep(1000 * (useconds_t)strtoul(milliseconds, NULL, 10));
	return true_write(fd, data, size);
}
