/* SPDX-License-Identifier: Apache-2.0 */
/* Makes memory be there before it is needed, so that a training step takes no page faults. */
#ifndef MUSTER_PREFAULT_H
#define MUSTER_PREFAULT_H

#include <stddef.h>

/* Prefaults the pages of these bytes for writing, with all threads, which is faster than one page
 * fault after the other. Their contents stay. */
void prefault(void *from, size_t bytes);

#endif
