/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the CPU's tables: its device's, which is memory only, and its ops', by the plain or the
 * fast functions. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/pages.h"
#include "trainer/cpu/cpu.h"
#include "trainer/cpu/isa.h"
#include "trainer/cpu/kernels.h"
#include "trainer/cpu/gemm.h"

#define ALIGNMENT ((size_t)64)

/* Large memory comes from the kernel, zeroed, when it is first touched; in huge pages, since a
 * fault for each 4 KiB would take longer than all else at the start of a large model. The word
 * before what is returned is the block's address. */
static void *alloc(struct device *device, size_t bytes)
{
	size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	char *block = calloc(1, rounded + 2 * ALIGNMENT);
	if (!block)
		return NULL;
	char *p = block + 2 * ALIGNMENT - (uintptr_t)block % ALIGNMENT;
	((void **)(void *)p)[-1] = block;
	pages_advise(p, rounded);
	return p;
}

static void release(struct device *device, void *p)
{
	if (p)
		free(((void **)p)[-1]);
}

static int plain_prepare(struct ops *ops, const struct ops_shapes *shapes, struct err *err)
{
	struct cpu *cpu = cpu_of(ops);

	release(&cpu->device, cpu->logits);
	cpu->shapes = *shapes;
	cpu->logits = alloc(&cpu->device, (size_t)shapes->vocabulary * sizeof(float));
	if (!cpu->logits)
		return err_set(err, "ops: couldn't prepare: out of memory");
	return 0;
}

static int fast_prepare(struct ops *ops, const struct ops_shapes *shapes, struct err *err)
{
	struct cpu *cpu = cpu_of(ops);
	size_t rows = (size_t)shapes->batch * (size_t)(shapes->positions ? shapes->positions : 1);
	size_t blocks = (rows + LAYERNORM_ROWS - 1) / LAYERNORM_ROWS;

	release(&cpu->device, cpu->logits);
	release(&cpu->device, cpu->norms);
	cpu->shapes = *shapes;
	cpu->logits = alloc(&cpu->device,
		(rows < HEAD_ROWS ? rows : HEAD_ROWS) * (size_t)shapes->vocabulary * sizeof(float));
	cpu->norms = alloc(&cpu->device, blocks * 2 * (size_t)shapes->width * sizeof(float));
	if (!cpu->logits || !cpu->norms)
		return err_set(err, "ops: couldn't prepare: out of memory");
	if (shapes->heads && shapes->width / shapes->heads > ATTENTION_SIZE_MAX)
		plain_attention_install(ops);
	else
		fast_attention_install(ops);
	return 0;
}

static void plain_install(struct ops *ops)
{
	ops->name = "cpu-plain";
	ops->prepare = plain_prepare;
	plain_linear_install(ops);
	plain_norm_install(ops);
	plain_batchnorm_install(ops);
	plain_attention_install(ops);
	plain_loss_install(ops);
	plain_update_install(ops);
}

static void fast_install(struct ops *ops)
{
	ops->name = strcmp(gemm_provider(), "dnnl") ? "cpu" : "cpu-dnnl";
	ops->prepare = fast_prepare;
	cpu_of(ops)->kernels = kernels_now();
	fast_linear_install(ops);
	fast_norm_install(ops);
	fast_batchnorm_install(ops);
	fast_attention_install(ops);
	fast_loss_install(ops);
	fast_update_install(ops);
}

static void ops_cpu_destroy(struct ops *ops)
{
	if (!ops)
		return;
	release(&cpu_of(ops)->device, cpu_of(ops)->logits);
	release(&cpu_of(ops)->device, cpu_of(ops)->norms);
	free(ops->state);
	free(ops);
}

struct ops *ops_cpu_create(bool plain, struct err *err)
{
	struct ops *ops;
	struct cpu *cpu;

	if (!plain && cpu_isa_settle(err))
		return NULL;
	ops = calloc(1, sizeof(*ops));
	cpu = calloc(1, sizeof(*cpu));
	if (!ops || !cpu) {
		free(ops);
		free(cpu);
		err_set(err, "ops: couldn't create: out of memory");
		return NULL;
	}
	ops->state = cpu;
	ops->params = &cpu->params;
	ops->element = sizeof(float);
	cpu->device = (struct device) { .alloc = alloc, .release = release };
	ops->device = &cpu->device;
	ops->destroy = ops_cpu_destroy;
	if (plain)
		plain_install(ops);
	else
		fast_install(ops);
	return ops;
}
