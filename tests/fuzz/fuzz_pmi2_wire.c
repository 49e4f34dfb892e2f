/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the client's side of PMI2: a server that has said anything, and then closed.
 * What is read is a text inside the message; what is refused has its one line, and after it nothing
 * is sent. Base64 and the mapping are read from the same bytes; what they accept is what would be
 * written. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base64.h"
#include "launch/pmi2_wire.h"

#define HELLO_BACK "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check_error(const struct pmi2_wire *wire, const struct err *err)
{
	if (!err->text[0] || strchr(err->text, '\n')
		|| (err->status != EXIT_LOST && (err->status != EXIT_USAGE || !wire->lost)))
		abort();
}

static void use_text(const struct pmi2_wire *wire, const char *name)
{
	char *text = pmi2_wire_text(wire, name);
	if (text && (strchr(text, ';') || strlen(text) >= wire->length))
		abort();
	free(text);
}

static void converse(struct pmi2_wire *wire)
{
	struct err err = { .text = "" };
	struct deadline now = deadline_in(0);
	for (int i = 0; i < 8 && !wire->lost; i++) {
		int rc = i % 3 == 1 ? pmi2_wire_fence(wire, now, &err)
							: pmi2_wire_ask(wire, now, &err, "cmd=kvs-get;key=a;") == 0;
		if (rc < 0)
			check_error(wire, &err);
		use_text(wire, "value");
		use_text(wire, "errmsg");
		if (pmi2_wire_number(wire, "rank", 100) > 100)
			abort();
	}
	if (wire->lost
		&& (pmi2_wire_ask(wire, now, &err, "cmd=finalize;") == 0
			|| pmi2_wire_fence(wire, now, &err) >= 0))
		abort();
}

static void talk(const char *hello, const unsigned char *bytes, size_t size)
{
	struct pmi2_wire wire;
	struct err err = { .text = "" };
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 || send(pair[1], hello, strlen(hello), 0) < 0
		|| send(pair[1], bytes, size, 0) != (ssize_t)size || shutdown(pair[1], SHUT_WR) < 0)
		abort();
	if (pmi2_wire_open(&wire, pair[0], deadline_in(0), &err) == 0)
		converse(&wire);
	else
		check_error(&wire, &err);
	pmi2_wire_clear(&wire);
	close(pair[0]);
	close(pair[1]);
}

static void decode(const char *text, size_t size)
{
	unsigned char out[4096];
	char again[BASE64_LENGTH(sizeof out) + 1];
	long n = base64_decode(text, size, out, sizeof out);
	if (n < 0)
		return;
	base64_encode(out, (size_t)n, again);
	if (strlen(again) != size || memcmp(again, text, size) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char *text = malloc(size + 1);
	memcpy(text, bytes, size);
	text[size] = '\0';
	talk(HELLO_BACK, bytes, size);
	talk("", bytes, size);
	decode(text, size);
	for (long rank = -1; rank < 20; rank++)
		if (pmi2_map_node(text, rank) < -1)
			abort();
	free(text);
	return 0;
}
