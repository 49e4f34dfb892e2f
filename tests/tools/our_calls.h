/* SPDX-License-Identifier: Apache-2.0 */
/* For libraries that are preloaded: whether the code that made a call is Muster's. */
#ifndef MUSTER_TESTS_OUR_CALLS_H
#define MUSTER_TESTS_OUR_CALLS_H

#include <stdbool.h>

/* `caller` is the call's return address. Code is Muster's where its file lies in one of the folders
 * OUR_FOLDERS, each with a slash at its end, and in no virtual environment there. */
bool our_call(const void *caller);

#endif
