/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of lists of hosts: LIST, a zero byte, NAME. A name that a list gives is found
 * in it, at that place or before; and what is found at a place stands there. */
#include <stdlib.h>
#include <string.h>

#include "common/hostlist.h"

#define PLACES 40

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check_place(const char *list, long index)
{
	char name[300], again[300], small[4];
	if (hostlist_nth(list, index, name, 256) < 0)
		return;
	if (hostlist_nth(list, index, small, sizeof small) == 0 && strcmp(small, name) != 0)
		abort();
	long place = hostlist_find(list, name);
	/* A list may be malformed after the name, or of more names than are looked at. */
	if (place > index
		|| (place >= 0 && (hostlist_nth(list, place, again, 256) < 0 || strcmp(again, name) != 0)))
		abort();
	if (place < 0 && index < PLACES && strlen(list) < 256)
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char *text = malloc(size + 1), found[300];
	if (!text)
		return 0;
	memcpy(text, bytes, size);
	text[size] = '\0';
	const char *name = strlen(text) < size ? text + strlen(text) + 1 : "";
	for (long index = -1; index < PLACES; index++)
		check_place(text, index);
	check_place(text, 65535);
	long place = hostlist_find(text, name);
	if (place >= 0 && (hostlist_nth(text, place, found, 256) < 0 || strcmp(found, name) != 0))
		abort();
	free(text);
	return 0;
}
