/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages are only requested: if the kernel has none or is set to give none, all works the same,
 * only slower. */
#include "config.h"
#include "common/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE \
	((size_t)2 \
		<< 20) /* of x86 and of Arm with pages of 4 KiB; a multiple of the page everywhere else */

size_t pages_round(size_t size)
{
	return (size + PAGES_ONE - 1) / PAGES_ONE * PAGES_ONE;
}

void *pages_alloc(size_t size)
{
	void *memory;
	size_t whole = size > 0 ? pages_round(size) : PAGES_ONE;
	if (posix_memalign(&memory, whole < HUGE ? PAGES_ONE : HUGE, whole) != 0)
		return NULL;
	pages_advise(memory, whole);
	return memory;
}

void pages_advise(void *memory, size_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
			  from = ((uintptr_t)memory + page - 1) / page * page,
			  to = ((uintptr_t)memory + size) / page * page;
	if (size >= HUGE)
		madvise((void *)from, to - from, MADV_HUGEPAGE);
}
