/* SPDX-License-Identifier: Apache-2.0 */
/* Linux tells the processor in a text for people, and the C library the rest. */
#include "config.h"

#include "checkpoint/attempt/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/progress.h"

/* x86 has a line "model name"; elsewhere the architecture must do. */
static void find_model(const char *cpuinfo, char *out, size_t size)
{
	struct utsname name;
	const char *line = strstr(cpuinfo, "model name");
	const char *from = line ? strpbrk(line, ":\n") : NULL;
	if (from && *from == ':') {
		from += 1 + strspn(from + 1, " \t");
		snprintf(out, size, "%.*s", (int)strcspn(from, "\n"), from);
	} else {
		snprintf(out, size, "%s", uname(&name) == 0 ? name.machine : "unknown");
	}
}

void machine_describe(const char *cpuinfo, long cpus, double bytes, char out[MACHINE_SIZE])
{
	char model[80], memory[16];
	find_model(cpuinfo, model, sizeof model);
	snprintf(out, MACHINE_SIZE, "%s (%ld CPU%s, %s)", model, cpus, cpus == 1 ? "" : "s",
		progress_bytes(bytes, memory));
}

void machine_text(char out[MACHINE_SIZE])
{
	char head[4096] = "";
	AUTO_FCLOSE FILE *file = fopen("/proc/cpuinfo", "re");
	const size_t n = file ? fread(head, 1, sizeof head - 1, file) : 0;
	head[n] = '\0';
	machine_describe(head, sysconf(_SC_NPROCESSORS_ONLN),
		(double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE), out);
}
