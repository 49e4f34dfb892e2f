/* SPDX-License-Identifier: Apache-2.0 */
/* Prefaults memory with all threads, and with one call for many pages where the kernel has one. */
#include "config.h"
#include "trainer/state/prefault.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE ((size_t)4 << 20) /* bytes that a thread prefaults at a time */

/* MADV_POPULATE_WRITE exists since Linux 5.14; without it each page is written once. */
static void prefault_piece(volatile char *from, size_t bytes, size_t page)
{
#ifdef MADV_POPULATE_WRITE
	if (madvise((void *)(uintptr_t)from, bytes, MADV_POPULATE_WRITE) == 0)
		return;
#endif
	for (size_t at = 0; at < bytes; at += page)
		from[at] = from[at];
}

void prefault(void *from, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)from % page;
	char *base = (char *)from - before;
	size_t whole = (before + bytes + page - 1) / page * page;
#pragma omp parallel for schedule(dynamic)
	for (size_t at = 0; at < whole; at += PIECE)
		prefault_piece(base + at, whole - at < PIECE ? whole - at : PIECE, page);
}
