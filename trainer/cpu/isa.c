/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the instruction set of the CPU's kernels, and names it and the libraries for the numerics
 * record. */
#include "config.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <string.h>
#ifdef HAVE_DNNL
#include <dnnl.h>
#endif

#include "trainer/cpu/isa.h"
#include "trainer/ops/ops.h"

static const char *const isa_names[] = { "default", "avx2", "avx512" };
static int pinned = -1;

static enum cpu_isa best_isa(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
		&& __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return CPU_ISA_AVX512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return CPU_ISA_AVX2;
#endif
	return CPU_ISA_DEFAULT;
}

enum cpu_isa cpu_isa(void)
{
	return pinned >= 0 ? (enum cpu_isa)pinned : best_isa();
}

const char *ops_cpu_isa(void)
{
	return isa_names[cpu_isa()];
}

/* oneDNN generates its code at the first product; pinning later is an error. */
static int pin_dnnl(enum cpu_isa isa, struct err *err)
{
#ifdef HAVE_DNNL
	static const dnnl_cpu_isa_t limits[] = { dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
		dnnl_cpu_isa_avx512_core };

	if (dnnl_set_max_cpu_isa(limits[isa]) != dnnl_success)
		return err_set(err,
			"ops: couldn't pin the instruction set to %s: oneDNN has begun with another",
			isa_names[isa]);
#endif
	return 0;
}

int ops_cpu_pin_isa(const char *name, struct err *err)
{
	if (!strcmp(name, "auto"))
		return pinned >= 0 ? err_fail(err, EXIT_USAGE,
				   "ops: couldn't take the instruction set auto: %s is pinned", isa_names[pinned])
						   : 0;
	for (int i = 0; i < 3; i++) {
		if (strcmp(name, isa_names[i]))
			continue;
		if (i > (int)best_isa())
			return err_fail(err, EXIT_USAGE,
				"ops: couldn't pin the instruction set to %s: this CPU has only %s", name,
				isa_names[best_isa()]);
		if (pinned == i)
			return 0;
		if (pin_dnnl((enum cpu_isa)i, err))
			return -1;
		pinned = i;
		return 0;
	}
	return err_fail(err, EXIT_USAGE,
		"ops: couldn't pin the instruction set to '%s': it is auto, avx512, avx2 or default", name);
}

int cpu_isa_settle(struct err *err)
{
	return pinned >= 0 ? 0 : ops_cpu_pin_isa(isa_names[best_isa()], err);
}

const char *ops_cpu_versions(void)
{
	static char text[100];
	int used = 0;

#ifdef HAVE_DNNL
	const dnnl_version_t *v = dnnl_version();

	used = snprintf(text, sizeof(text), "oneDNN %d.%d.%d, ", v->major, v->minor, v->patch);
#endif
	snprintf(text + used, sizeof(text) - (size_t)used, "glibc %s", gnu_get_libc_version());
	return text;
}
