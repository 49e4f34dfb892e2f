/* SPDX-License-Identifier: Apache-2.0 */
/* The memory is a sealed memfd: the task can neither shrink it while slurmstepd reads it nor grow
 * it. */
#include "config.h"

#include "common/last_words.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SLOT_BYTES 256
#define LEAVING_OFFSET 250   /* a byte: 1 means that the node is about to be taken away */
#define PROGRESS_OFFSET 251  /* a byte: 1 means progress */
#define RESULT_OFFSET 252    /* int32_t: the process whose status is a result */
#define FIRST_DESCRIPTOR 200 /* out of the way of scripts, which choose low numbers */

int last_words_make(int slots)
{
	AUTO_CLOSE int fd = memfd_create("muster-last-words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)slots * SLOT_BYTES) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return -1;
	return AUTO_TAKE_FD(fd);
}

int last_words_hand_on(int memory, int slot, char *value, size_t size)
{
	struct stat st;
	int fd = fcntl(memory, F_DUPFD, FIRST_DESCRIPTOR);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	snprintf(value, size, "%d:%ju:%jd", fd, (uintmax_t)st.st_ino, (intmax_t)slot * SLOT_BYTES);
	return 0;
}

void last_words_make_printable(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

void last_words_read(int memory, int slot, char out[LAST_WORDS_MAX + 1])
{
	ssize_t size = pread(memory, out, LAST_WORDS_MAX, (off_t)slot * SLOT_BYTES);
	out[size < 0 ? 0 : size] = '\0';
	last_words_make_printable(out);
}

pid_t last_words_result_of(int memory, int slot)
{
	int32_t pid = 0;
	ssize_t size = pread(memory, &pid, sizeof pid, (off_t)slot * SLOT_BYTES + RESULT_OFFSET);
	return size == sizeof pid ? pid : 0;
}

/* Whether the byte at that place of any slot is 1. */
static bool any_said(int memory, int slots, int offset)
{
	for (int i = 0; i < slots; i++) {
		char byte = 0;
		if (pread(memory, &byte, 1, (off_t)i * SLOT_BYTES + offset) == 1 && byte == 1)
			return true;
	}
	return false;
}

bool last_words_progressed(int memory, int slots)
{
	return any_said(memory, slots, PROGRESS_OFFSET);
}

bool last_words_leaving(int memory, int slots)
{
	return any_said(memory, slots, LEAVING_OFFSET);
}

struct last_words last_words_open(const char *value)
{
	const struct last_words none = { .fd = -1 };
	struct stat st;
	int fd, end = 0;
	uintmax_t inode;
	intmax_t offset;
	if (!value || sscanf(value, "%d:%ju:%jd%n", &fd, &inode, &offset, &end) != 3 || value[end]
		|| fd < 0 || offset < 0)
		return none;
	/* Another program in between may have closed the descriptor and opened something else under its
	 * number. */
	if (fstat(fd, &st) < 0 || st.st_ino != inode || fcntl(fd, F_GET_SEALS) != SEALS
		|| offset > st.st_size - SLOT_BYTES)
		return none;
	return (struct last_words) { fd, offset };
}

void last_words_write(const struct last_words *words, const char *line)
{
	char slot[LAST_WORDS_MAX] = "";
	if (words->fd < 0)
		return;
	int saved = errno;
	memcpy(slot, line, strnlen(line, sizeof slot));
	/* One call, which a SIGKILL does not split. */
	ssize_t ignored = pwrite(words->fd, slot, sizeof slot, words->offset);
	(void)ignored;
	errno = saved;
}

void last_words_say_result(const struct last_words *words)
{
	int32_t pid = getpid();
	if (words->fd < 0)
		return;
	ssize_t ignored = pwrite(words->fd, &pid, sizeof pid, words->offset + RESULT_OFFSET);
	(void)ignored;
}

static void say_byte(const struct last_words *words, int offset)
{
	if (words->fd < 0)
		return;
	ssize_t ignored = pwrite(words->fd, "\1", 1, words->offset + offset);
	(void)ignored;
}

void last_words_say_progress(const struct last_words *words)
{
	say_byte(words, PROGRESS_OFFSET);
}

void last_words_say_leaving(const struct last_words *words)
{
	say_byte(words, LEAVING_OFFSET);
}
