/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_fault NAME: runs a kernel of the shim's samples with a fault that its own results, in
 * ascending order, do not show, so that it is a sanitizer's to tell. Prints "right" or "wrong",
 * what the results are. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/samples.h"

#define THREADS 64

static float in[THREADS];

/* A copy of `in` of its exact size, and room for the results. */
struct operands {
	float *in, *out;
};

/* clang-format off: a line each */
static int neighbour(const struct operands *o)
{
	return sample_neighbour(o->out, o->in, THREADS, true);
}
static int no_barrier(const struct operands *o)
{
	return sample_neighbour(o->out, o->in, THREADS, false);
}
static int neighbour_warp(const struct operands *o)
{
	return sample_neighbour_warp(o->out, o->in, 32, true);
}
static int no_warp_barrier(const struct operands *o)
{
	return sample_neighbour_warp(o->out, o->in, 32, false);
}
static int blocks_share(const struct operands *o)
{
	return sample_blocks_share(o->out, THREADS / 2);
}
static int past_end(const struct operands *o)
{
	return sample_past_end(o->out, o->in, THREADS);
}
static int shared_past_end(const struct operands *o)
{
	return sample_shared_past_end(o->out, THREADS);
}

/* What out[i] is where nothing is wrong. */
static float before(int i)
{
	return in[i > 0 ? i - 1 : 0];
}
static float after(int i)
{
	return i + 1 < THREADS ? in[i + 1] : 0;
}
static float one(int i)
{
	return 1;
}
/* clang-format on */

static const struct fault {
	const char *name;
	int (*run)(const struct operands *o);
	float (*expected)(int i);
	int count; /* of the elements that are right */
} faults[] = {
	{ "none", neighbour, before, THREADS },
	{ "none-in-a-warp", neighbour_warp, before, 32 },
	{ "no-barrier", no_barrier, before, THREADS },
	{ "no-warp-barrier", no_warp_barrier, before, 32 },
	{ "blocks-share", blocks_share, one, THREADS },
	{ "past-end", past_end, after, THREADS - 1 },
	{ "shared-past-end", shared_past_end, one, THREADS - 1 },
};

static int run(const struct fault *fault)
{
	struct operands o = { malloc(sizeof in), malloc(sizeof in) };
	bool right = true;
	if (!o.in || !o.out)
		return 1;
	for (int i = 0; i < THREADS; i++)
		o.in[i] = in[i] = (float)i + 1;
	if (fault->run(&o))
		return 1;
	for (int i = 0; i < fault->count; i++)
		right = right && o.out[i] == fault->expected(i);
	puts(right ? "right" : "wrong");
	free(o.in), free(o.out);
	return 0;
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof faults / sizeof *faults; i++)
		if (strcmp(argv[1], faults[i].name) == 0)
			return run(&faults[i]);
	fprintf(stderr, "kernel_fault: couldn't run a kernel: the argument is none of its names\n");
	return 2;
}
