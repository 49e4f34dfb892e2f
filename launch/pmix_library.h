/* SPDX-License-Identifier: Apache-2.0 */
/* The PMIx client library, loaded on first use: one build serves nodes with it and without. Its
 * functions are those of the PMIx standard, version 3 and later, under their own names. */
#ifndef MUSTER_PMIX_LIBRARY_H
#define MUSTER_PMIX_LIBRARY_H

#include <pmix.h>

#include "common/err.h"

struct pmix_library {
	__typeof__(PMIx_Init) *init;
	__typeof__(PMIx_Finalize) *finalize;
	__typeof__(PMIx_Abort) *abort;
	__typeof__(PMIx_Put) *put;
	__typeof__(PMIx_Commit) *commit;
	__typeof__(PMIx_Get_nb) *get_nb;
	__typeof__(PMIx_Fence_nb) *fence_nb;
	__typeof__(PMIx_Error_string) *error_string;
	__typeof__(PMIx_Register_event_handler) *register_event_handler; /* NULL: it has none */
};

/* Fails where it can't be loaded, each time with the reason. The library is the file
 * MUSTER_PMIX_LIBRARY, or that of the build's folder, or the loader's. */
int pmix_library_load(struct err *err);

/* What pmix_library_load() has found. */
extern struct pmix_library pmix_library;

/* A parameter of a call that is true or false. */
void pmix_library_flag(pmix_info_t *info, const char *key, bool value);

#endif
