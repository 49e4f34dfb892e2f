/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of owner.json: what is accepted has a token and texts that end, and is what a
 * check for its token finds; what is refused has its one line. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory/owner.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void write_file(int dirfd, const unsigned char *bytes, size_t size)
{
	int fd = openat(dirfd, OWNER_NAME, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || close(fd) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	static struct ckpt_dir dir = { .path = "owner.d" };
	struct owner owner;
	struct err err = { .text = "" };
	if (dir.fd == 0) {
		mkdir(dir.path, 0755);
		dir.fd = open(dir.path, O_RDONLY | O_DIRECTORY);
	}
	write_file(dir.fd, bytes, size);
	int found = owner_read(&dir, &owner, &err);
	if (found != 1) {
		if (found == 0 || err.status != EXIT_DATA || !err.text[0] || strchr(err.text, '\n'))
			abort();
		return 0;
	}
	char other[MANIFEST_TOKEN_SIZE];
	memcpy(other, owner.token, sizeof other);
	other[0] = other[0] == 'f' ? '0' : 'f';
	if (strlen(owner.token) != MANIFEST_TOKEN_SIZE - 1 || !memchr(owner.host, 0, sizeof owner.host)
		|| !memchr(owner.cluster, 0, sizeof owner.cluster)
		|| !memchr(owner.process, 0, sizeof owner.process)
		|| owner_verify(&dir, owner.token, &err) < 0 || owner_verify(&dir, other, &err) == 0)
		abort();
	return 0;
}
