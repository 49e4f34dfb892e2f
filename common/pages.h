/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for much data: whole pages, and huge ones where the kernel gives them. The runs of memory
 * of which a request to a disk may consist are counted: with O_DIRECT from pages of 4 KiB it is
 * full at 1 MiB or less, and costs the disk more. */
#ifndef MUSTER_PAGES_H
#define MUSTER_PAGES_H

#include <stddef.h>

/* Bytes of a page, as O_DIRECT counts: memory, offsets and lengths that are multiples of it are
 * taken everywhere. */
#define PAGES_ONE ((size_t)4096)

/* The same, rounded up to whole pages. */
size_t pages_round(size_t size);

/* At least `size` bytes, of unknown content: whole pages that begin at a page. The caller's, by
 * free(). NULL when there are none. */
void *pages_alloc(size_t size);

#endif
