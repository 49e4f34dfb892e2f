/* SPDX-License-Identifier: Apache-2.0 */
/* Finds PMIx and its functions. */
#include "config.h"

#include "launch/pmix_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SONAME "libpmix.so.2"

struct pmix_library pmix_library;
static struct err load_error;
static bool loaded;

/* PMIx's own plugins look for its functions among the process's. */
static void *open_library(void)
{
	const char *given = getenv("MUSTER_PMIX_LIBRARY");
	if (given && given[0])
		return dlopen(given, RTLD_NOW | RTLD_GLOBAL);
	void *library = dlopen(PMIX_LIBDIR "/" SONAME, RTLD_NOW | RTLD_GLOBAL);
	return library ? library : dlopen(SONAME, RTLD_NOW | RTLD_GLOBAL);
}

/* By the process's scope, so that a preloaded library can take a function's place. */
static bool find(const char *name, void *function)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);
	memcpy(function, &symbol, sizeof symbol);
	if (symbol)
		return true;
	err_fail(&load_error, EXIT_USAGE,
		"rendezvous: couldn't use the PMIx of this node: it has no %s: install PMIx 3 or newer",
		name);
	return false;
}

/* Some do without. */
static void find_others(void)
{
	void *symbol = dlsym(RTLD_DEFAULT, "PMIx_Register_event_handler");
	memcpy(&pmix_library.register_event_handler, &symbol, sizeof symbol);
}

static void load(void)
{
	if (!open_library()) {
		err_fail(&load_error, EXIT_USAGE,
			"rendezvous: couldn't load PMIx, which the launcher offers: %s: name the launcher's in "
			"MUSTER_PMIX_LIBRARY, or let the ranks meet by srun --mpi=pmi2 or MUSTER_RDZV_DIR",
			dlerror());
		return;
	}
	loaded = find("PMIx_Init", &pmix_library.init) && find("PMIx_Finalize", &pmix_library.finalize)
		&& find("PMIx_Abort", &pmix_library.abort) && find("PMIx_Put", &pmix_library.put)
		&& find("PMIx_Commit", &pmix_library.commit) && find("PMIx_Get_nb", &pmix_library.get_nb)
		&& find("PMIx_Fence_nb", &pmix_library.fence_nb)
		&& find("PMIx_Error_string", &pmix_library.error_string);
	find_others();
}

int pmix_library_load(struct err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	return loaded ? 0 : err_fail(err, load_error.status, "%s", load_error.text);
}

void pmix_library_flag(pmix_info_t *info, const char *key, bool value)
{
	memset(info, 0, sizeof *info);
	snprintf(info->key, sizeof info->key, "%s", key);
	info->value.type = PMIX_BOOL;
	info->value.data.flag = value;
}
