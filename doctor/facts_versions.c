/* SPDX-License-Identifier: Apache-2.0 */
/* Versions. Only this file loads these libraries, and only muster-doctor links it: no Muster
 * program that trains depends on them. */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "checks/facts_probe.h"
#include "common/auto.h"
#include "common/build_id.h"

/* cuDriverGetVersion, cudaRuntimeGetVersion and ncclGetVersion have the same form, and none of them
 * touches a GPU. */
typedef int version_function(int *version);

static int ask_library(const char *const *names, const char *function)
{
	int version = 0;
	void *library = NULL;
	for (; *names && !library; names++)
		library = dlopen(*names, RTLD_LAZY | RTLD_LOCAL);
	version_function *ask = library ? (version_function *)dlsym(library, function) : NULL;
	return ask && ask(&version) == 0 ? version : 0;
}

/* The word of the first line that is a version: "NVRM version: NVIDIA UNIX x86_64 Kernel Module
 * 535.104.05  Sat Aug …". */
static void read_driver(struct facts *facts)
{
	char line[512], *rest = NULL;
	AUTO_FCLOSE FILE *file = fopen("/proc/driver/nvidia/version", "re");
	if (!file || !fgets(line, sizeof line, file))
		return;
	for (char *word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest))
		if (strchr(word, '.') && strspn(word, "0123456789.") == strlen(word)) {
			snprintf(facts->driver, sizeof facts->driver, "%s", word);
			return;
		}
}

/* CUDA 12.4 is 12040. */
static void read_cuda(struct facts *facts)
{
	static const char *const driver[] = { "libcuda.so.1", NULL };
	static const char *const runtime[] = { "libcudart.so.13", "libcudart.so.12",
		"libcudart.so.11.0", "libcudart.so", NULL };
	int of_driver = ask_library(driver, "cuDriverGetVersion"),
		of_runtime = ask_library(runtime, "cudaRuntimeGetVersion");
	size_t used = 0;
	if (of_driver)
		used = (size_t)snprintf(facts->cuda, sizeof facts->cuda, "%d.%d", of_driver / 1000,
			of_driver % 1000 / 10);
	if (of_runtime)
		snprintf(facts->cuda + used, sizeof facts->cuda - used, "%sruntime %d.%d",
			used ? " with " : "", of_runtime / 1000, of_runtime % 1000 / 10);
}

/* NCCL 2.28.9 is 22809; up to 2.8 the form was 2804. */
static void read_nccl(struct facts *facts)
{
	static const char *const names[] = { "libnccl.so.2", "libnccl.so", NULL };
	int version = ask_library(names, "ncclGetVersion"), major = version >= 10000 ? 10000 : 1000;
	if (version)
		snprintf(facts->nccl, sizeof facts->nccl, "%d.%d.%d", version / major,
			version % major / 100, version % 100);
}

void facts_probe_versions(struct facts *facts)
{
	read_driver(facts);
	read_cuda(facts);
	read_nccl(facts);
	snprintf(facts->muster, sizeof facts->muster, "%s (build %.12s)", PACKAGE_VERSION, build_id());
}
