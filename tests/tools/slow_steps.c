/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into muster-train, it has rank 0 sleep for STEP_MILLISECONDS behind each step, when its line of metrics is written: a small
 * training takes its time on a fast machine too, and no processor's. On a full disk the line stands behind others that are not
 * written yet, the first of which may be written in part. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char LINE[] = "{\"step\":";

__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t size)
{
	ssize_t (*true_write)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	const char *milliseconds = getenv("STEP_MILLISECONDS");

	if (milliseconds && memmem(data, size, LINE, strlen(LINE)))
		usleep(1000 * (useconds_t)strtoul(milliseconds, NULL, 10));
	return true_write(fd, data, size);
}
