/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, checks and maps a file of training data. */
#include "trainer/data/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/auto.h"
#include "common/io.h"

int mapping_open(struct mapping *mapping, const char *path, struct err *err)
{
	*mapping = (struct mapping) { 0 };
	/* O_NONBLOCK: opening a FIFO without a writer must not block. */
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "data: couldn't open %s: %m", path);
	struct stat st;
	if (fstat(fd, &st) < 0)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "data: couldn't look at %s: %m", path);
	if (!S_ISREG(st.st_mode))
		return err_fail(err, EXIT_DATA, "data: couldn't map %s: not a regular file", path);
	if (st.st_size == 0)
		return err_fail(err, EXIT_DATA, "data: couldn't read %s: the file is empty", path);
	AUTO_FREE char *copy = strdup(path);
	if (!copy)
		return err_set(err, "data: no memory to open %s", path);
	void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "data: couldn't map %s: %m", path);
	*mapping =
		(struct mapping) { .path = AUTO_TAKE(copy), .bytes = bytes, .size = (size_t)st.st_size };
	return 0;
}

void mapping_close(struct mapping *mapping)
{
	if (mapping->bytes)
		munmap((void *)mapping->bytes, mapping->size);
	free(mapping->path);
	*mapping = (struct mapping) { 0 };
}
