/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of a connection's frames: whatever a peer sends, in whatever pieces, the
 * receives get no byte too many, and what is read is bounded by the window. */
#include <stdlib.h>
#include <string.h>

#include "trainer/comm/comm_conn.h"

#define RECEIVES 3

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char buffers[RECEIVES][100], heard[24];
	struct comm_conn_transfer receives[RECEIVES];
	struct comm_conn conn = { .fd = -1, .heard = heard, .heard_bytes = sizeof heard };
	size_t next = 0;
	for (size_t at = 0; at < size && !conn.ended;) {
		size_t part = bytes[at] % 64, left = size - at - 1;
		if (bytes[at] >= 192 && next < RECEIVES) {
			receives[next] =
				(struct comm_conn_transfer) { .buffer = buffers[next], .bytes = sizeof buffers[0] };
			comm_conn_receive(&conn, &receives[next++]);
		}
		at++;
		part = part < left ? part : left;
		comm_conn_take(&conn, bytes + at, part);
		at += part;
		for (size_t i = 0; i < next; i++)
			if (receives[i].done > receives[i].bytes)
				abort();
		if (conn.early_begin + conn.early_size > COMM_CONN_WINDOW
			|| conn.heard_size > conn.heard_bytes)
			abort();
	}
	comm_conn_clear(&conn);
	return 0;
}
