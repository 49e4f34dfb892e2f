/* SPDX-License-Identifier: Apache-2.0 */
/* What clang-tidy, which sees one source at a time, has to know of the others. tests/lint.sh
 * includes it before each source but common/err.c. */
#include "common/err.h"

#define err_set(...) (err_set(__VA_ARGS__), -1)
#define err_fail(...) (err_fail(__VA_ARGS__), -1)
#define err_prefix(...) (err_prefix(__VA_ARGS__), -1)

/* GCC has it, clang does not. */
#define __builtin_shuffle(a, ...) (a)
