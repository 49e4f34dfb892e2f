/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank computes every world-size-th microbatch; then all ranks add the gathered sums in the
 * order of the microbatches. */
#include "trainer/run/validate.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/log.h"
#include "trainer/comm/status_exchange.h"

/* The outcome of one microbatch. */
struct part {
	double loss;
	int64_t valid;
	int64_t status; /* exit status when its samples couldn't be read, else 0 */
};

struct validation {
	const struct dataset *dataset;
	struct model *model;
	struct comm *comm;
	uint64_t samples;
	int microbatch, vocabulary;
	size_t parts; /* microbatches of one rank; the last may be empty */
	struct batch *batch;
	uint64_t *indices; /* sample indices of one microbatch */
	validation_watch *watch;
	void *watch_arg;
	struct err why; /* the last sample that couldn't be read */
	struct part *mine, *all;
};

struct validation *validation_create(const struct dataset *dataset, struct model *model,
	struct comm *comm, uint64_t samples, int microbatch, int vocabulary, struct err *err)
{
	struct validation *v = calloc(1, sizeof *v);
	if (!v) {
		err_set(err, "validation: out of memory");
		return NULL;
	}
	size_t size = (size_t)comm_size(comm),
		   microbatches = (samples + (uint64_t)microbatch - 1) / (uint64_t)microbatch;
	*v = (struct validation) { .dataset = dataset,
		.model = model,
		.comm = comm,
		.samples = samples,
		.microbatch = microbatch,
		.vocabulary = vocabulary,
		.parts = (microbatches + size - 1) / size };
	v->indices = calloc((size_t)microbatch, sizeof *v->indices);
	v->mine = calloc(v->parts, sizeof *v->mine);
	v->all = calloc(v->parts * size, sizeof *v->all);
	if (!v->indices || !v->mine || !v->all)
		err_set(err, "validation: out of memory");
	else
		v->batch = batch_alloc(dataset, microbatch, err);
	if (!v->batch) {
		validation_destroy(v);
		return NULL;
	}
	return v;
}

void validation_destroy(struct validation *v)
{
	if (!v)
		return;
	if (v->batch)
		batch_free(v->batch);
	free(v->indices);
	free(v->mine);
	free(v->all);
	free(v);
}

void validation_set_watch(struct validation *v, validation_watch *watch, void *arg)
{
	v->watch = watch;
	v->watch_arg = arg;
}

static struct part part_of(struct validation *v, uint64_t microbatch)
{
	struct part part = { 0 };
	uint64_t first = microbatch * (uint64_t)v->microbatch;
	if (first >= v->samples)
		return part;
	int count = 0;
	for (int i = 0; i < v->microbatch; i++) {
		const bool exists = first + (uint64_t)i < v->samples;
		v->indices[i] = exists ? first + (uint64_t)i : SAMPLER_NONE;
		count += exists;
	}
	if (dataset_read(v->dataset, v->indices, v->microbatch, v->vocabulary, v->batch, &v->why) < 0) {
		if (comm_size(v->comm) > 1)
			log_error("validation: %s", v->why.text);
		part.status = v->why.status;
		return part;
	}
	model_loss(v->model, v->batch, &part.loss, &part.valid);
	if (v->watch)
		v->watch(v->watch_arg, count);
	return part;
}

/* Microbatch i is part i / size of rank i mod size. */
static int fold(const struct validation *v, double *loss, struct err *err)
{
	size_t size = (size_t)comm_size(v->comm);
	double sum = 0;
	int64_t valid = 0;
	for (size_t i = 0; i < v->parts * size; i++) {
		const struct part *part = &v->all[i % size * v->parts + i / size];
		if (part->status) {
			if (size == 1)
				err_fail(err, v->why.status, "%s", v->why.text);
			else
				err_fail(err, (enum exit_status)part->status,
					"validation: rank %zu couldn't read its samples", i % size);
			return ERR_SHARED;
		}
		sum += part->loss;
		valid += part->valid;
	}
	*loss = valid ? sum / (double)valid : 0;
	return 0;
}

int validation_loss(struct validation *v, double *loss, struct err *err)
{
	size_t size = (size_t)comm_size(v->comm), rank = (size_t)comm_rank(v->comm);
	bool failed = false; /* then the sum is not made, and further parts would not count */
	for (size_t i = 0; i < v->parts && !failed; i++) {
		v->mine[i] = part_of(v, i * size + rank);
		failed = v->mine[i].status != 0;
	}
	if (comm_wait(v->comm,
			comm_allgather(v->comm, "validation", v->mine, v->all, v->parts * sizeof *v->mine), err)
		< 0)
		return -1;
	return fold(v, loss, err);
}
