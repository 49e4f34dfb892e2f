/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for large buffers: whole pages, and huge ones if the kernel gives them. A request to a
 * disk may consist of a limited number of contiguous runs of memory: O_DIRECT from 4 KiB pages
 * fills one at 1 MiB or less, which costs the disk more. */
#ifndef MUSTER_PAGES_H
#define MUSTER_PAGES_H

#include <stddef.h>

/* The page size that O_DIRECT is sure to accept: memory, offsets and lengths that are multiples of
 * it work everywhere. Bytes. */
#define PAGES_ONE ((size_t)4096)

/* `size` rounded up to whole pages. */
size_t pages_round(size_t size);

/* At least `size` bytes of undefined content: whole pages, page-aligned. The caller frees them with
 * free(). NULL when out of memory. */
void *pages_alloc(size_t size);

/* Asks for huge pages in memory that has not been touched; its edges need not be those of pages. */
void pages_advise(void *memory, size_t size);

#endif
