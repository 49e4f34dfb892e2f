/* SPDX-License-Identifier: Apache-2.0 */
/* Facts as they travel between ranks: a JSON object. */
#ifndef MUSTER_FACTS_JSON_H
#define MUSTER_FACTS_JSON_H

#include <stddef.h>

#include "checks/facts.h"
#include "common/err.h"

/* malloc'ed, the caller's; NULL on error. In a text that is not UTF-8, each byte from 0x80 up
 * becomes '?'. */
char *facts_encode(const struct facts *facts, struct err *err);

/* Missing keys leave *facts unchanged, unknown keys are ignored: ranks may have different
 * builds. */
int facts_decode(const char *text, size_t size, struct facts *facts, struct err *err);

#endif
