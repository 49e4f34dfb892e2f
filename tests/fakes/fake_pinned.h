/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a program that the stand-in of the runtime has pinned. */
#ifndef MUSTER_TESTS_FAKE_PINNED_H
#define MUSTER_TESTS_FAKE_PINNED_H

#include <stdbool.h>
#include <stddef.h>

/* Whether all of it lies in one piece that was registered. */
bool fake_pinned_has(const void *p, size_t bytes);

#endif
