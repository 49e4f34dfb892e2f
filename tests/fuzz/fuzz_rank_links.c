/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of what comes before ranks are connected. A first byte of 0: the rest is the
 * place of a peer, as text. Else a stranger sends the rest to rank 0 of two, its tag made right
 * where that byte is odd. Nobody is taken for rank 1 but who says hello as doc/rank-links.md has
 * it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/siphash.h"
#include "launch/rank_links.h"
#include "launch/run_key.h"

#define HELLO RANK_LINKS_HELLO
#define TAG_AT 12
#define ROUNDS 4 /* more than a stranger takes whose bytes are all there */

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static struct rank_links *listen_here(void)
{
	struct err err;
	struct rank_links *links = rank_links_open(0, 2, "127.0.0.1", &err);
	if (!links)
		abort();
	return links;
}

static void try_place(const unsigned char *bytes, size_t size)
{
	struct rank_links *links = listen_here();
	char *text = malloc(size + 1), address[200], key[200];
	int port, used = 0;
	if (!text)
		abort();
	memcpy(text, bytes, size);
	text[size] = '\0';
	if (rank_links_find(links, 1, rank_links_place(links)) < 0)
		abort();
	/* What is taken has three words, the last of 32 digits. */
	if (rank_links_find(links, 1, text) == 0
		&& (sscanf(text, "%199s %d %199s%n", address, &port, key, &used) != 3 || text[used]
			|| strlen(key) != 32))
		abort();
	free(text);
	rank_links_close(links);
}

/* Whether the bytes begin with the hello of rank 1. */
static bool is_right(const unsigned char *said, size_t size, const unsigned char key[16])
{
	return size >= HELLO && memcmp(said, "MCL1", 4) == 0 && bytes_le32(said + 4) == 1
		&& bytes_le32(said + 8) == 0 && bytes_le64(said + TAG_AT) == siphash(key, said, TAG_AT);
}

static void try_hello(bool tagged, unsigned char *said, size_t size)
{
	struct rank_links *links = listen_here();
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	unsigned char key[16];
	char digits[40];
	int port, peer, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err err;
	if (fd < 0 || sscanf(rank_links_place(links), "%*s %d %39s", &port, digits) != 2
		|| run_key_read(digits, key, &err) < 0)
		abort();
	at.sin_port = htons((uint16_t)port);
	if (tagged && size >= HELLO)
		bytes_put_le64(said + TAG_AT, siphash(key, said, TAG_AT));
	if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0
		|| send(fd, said, size, MSG_NOSIGNAL) != (ssize_t)size)
		abort();
	int taken = -1;
	for (int round = 0; round < ROUNDS && taken < 0; round++)
		taken = rank_links_accept(links, &peer);
	if ((taken >= 0) != is_right(said, size, key) || (taken >= 0 && peer != 1))
		abort();
	if (taken >= 0)
		close(taken);
	close(fd);
	rank_links_close(links);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	unsigned char *said = size > 1 ? malloc(size - 1) : NULL;
	if (!said)
		return 0;
	memcpy(said, bytes + 1, size - 1);
	if (bytes[0] == 0)
		try_place(said, size - 1);
	else
		try_hello(bytes[0] & 1, said, size - 1);
	free(said);
	return 0;
}
