/* SPDX-License-Identifier: Apache-2.0 */
/* What was found of a return address is remembered. */
#define _GNU_SOURCE
#include "tests/tools/our_calls.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define CALLERS 1024

static bool is_ours(const void *caller)
{
	static const char *const folders[] = { OUR_FOLDERS };
	char path[4096] = "";
	Dl_info in, main;
	if (!dladdr(caller, &in))
		return false;
	/* The name of a program is what it was called by. */
	if (dladdr((const void *)getauxval(AT_ENTRY), &main) && main.dli_fbase == in.dli_fbase)
		(void)!readlink("/proc/self/exe", path, sizeof path - 1);
	else
		strncpy(path, in.dli_fname, sizeof path - 1);
	if (strstr(path, "/site-packages/"))
		return false;
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		if (strncmp(path, folders[i], strlen(folders[i])) == 0)
			return true;
	return false;
}

bool our_call(const void *caller)
{
	static struct {
		const void *caller;
		bool ours;
	} known[CALLERS];
	size_t at = (uintptr_t)caller / 4 % CALLERS;
	if (__atomic_load_n(&known[at].caller, __ATOMIC_ACQUIRE) == caller)
		return known[at].ours;
	bool ours = is_ours(caller);
	if (!known[at].caller) {
		known[at].ours = ours;
		__atomic_store_n(&known[at].caller, caller, __ATOMIC_RELEASE);
	}
	return ours;
}
