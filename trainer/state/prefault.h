/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is there before it is needed. */
#ifndef MUSTER_PREFAULT_H
#define MUSTER_PREFAULT_H

#include <stddef.h>

/* Makes the pages of these bytes be there for writing, by all threads: quicker than by one fault a
 * page. What they hold stays. */
void prefault(void *from, size_t bytes);

#endif
