/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as a data set: a sample is a row of features and its class, from two .npy files. */
#include <limits.h>
#include <string.h>

#include "common/bytes.h"
#include "trainer/data/dataset.h"
#include "trainer/data/dataset_private.h"
#include "trainer/data/file_list.h"

static int open_file(struct dataset_shard *shard, int i, const char *path, struct npy *npy,
	struct err *err)
{
	if (mapping_open(&shard->files[i], path, err) < 0)
		return -1;
	if (npy_parse(shard->files[i].bytes, shard->files[i].size, path, npy, err) < 0)
		return -1;
	shard->headers[i] = npy->offset;
	return 0;
}

static int check_shapes(const struct npy *features, const struct npy *classes,
	const char *features_path, const char *classes_path, struct err *err)
{
	if (features->type != NPY_FLOAT32 || features->dims != 2)
		return err_fail(err, EXIT_DATA,
			"data: couldn't use %s as features: %s in %d dimensions; float32 [samples, columns] is "
			"needed",
			features_path, npy_type_name(features->type), features->dims);
	if (classes->type == NPY_FLOAT32 || classes->dims != 1)
		return err_fail(err, EXIT_DATA,
			"data: couldn't use %s as classes: %s in %d dimensions; uint8, int32 or int64 "
			"[samples] is needed",
			classes_path, npy_type_name(classes->type), classes->dims);
	if (features->shape[0] != classes->shape[0])
		return err_fail(err, EXIT_DATA, "data: %s has %llu rows, but %s has %llu", features_path,
			(unsigned long long)features->shape[0], classes_path,
			(unsigned long long)classes->shape[0]);
	if (features->shape[0] == 0 || features->shape[1] == 0 || features->shape[1] > INT_MAX)
		return err_fail(err, EXIT_DATA, "data: couldn't use %s: %llu rows of %llu columns",
			features_path, (unsigned long long)features->shape[0],
			(unsigned long long)features->shape[1]);
	return 0;
}

static int open_shard(struct dataset *dataset, struct dataset_shard *shard,
	const char *features_path, const char *classes_path, struct err *err)
{
	struct npy features, classes;
	if (open_file(shard, 0, features_path, &features, err) < 0
		|| open_file(shard, 1, classes_path, &classes, err) < 0)
		return -1;
	if (check_shapes(&features, &classes, features_path, classes_path, err) < 0)
		return -1;
	if (dataset->features && features.shape[1] != (uint64_t)dataset->features)
		return err_fail(err, EXIT_DATA, "data: %s has %llu columns, but %s has %d", features_path,
			(unsigned long long)features.shape[1], dataset->shards[0].files[0].path,
			dataset->features);
	dataset->features = (int)features.shape[1];
	shard->samples = features.shape[0];
	shard->class_type = classes.type;
	return 0;
}

static int open_files(struct dataset *dataset, const struct file_list *features,
	const struct file_list *classes, struct err *err)
{
	for (size_t i = 0; i < features->count; i++)
		if (open_shard(dataset, &dataset->shards[i], features->paths[i], classes->paths[i], err)
			< 0)
			return -1;
	return dataset_complete(dataset, err);
}

static struct dataset *open_table(const char *name, const struct file_list *features,
	const struct file_list *classes, struct err *err)
{
	struct dataset *dataset = dataset_create(name, features->count, 2, err);
	if (dataset && open_files(dataset, features, classes, err) < 0) {
		dataset_close(dataset);
		return NULL;
	}
	return dataset;
}

struct dataset *dataset_open_table(const char *features, const char *classes, struct err *err)
{
	struct dataset *dataset = NULL;
	struct file_list lists[2] = { 0 };
	if (file_list_make(&lists[0], features, err) == 0
		&& file_list_make(&lists[1], classes, err) == 0) {
		if (lists[0].count == lists[1].count)
			dataset = open_table(features, &lists[0], &lists[1], err);
		else
			err_fail(err, EXIT_DATA,
				"data: %s names %zu file%s of features, but %s names %zu of classes: each needs "
				"the other",
				features, lists[0].count, lists[0].count == 1 ? "" : "s", classes, lists[1].count);
	}
	file_list_clear(&lists[0]);
	file_list_clear(&lists[1]);
	return dataset;
}

static int64_t class_at(const struct dataset_shard *shard, uint64_t sample)
{
	const unsigned char *at =
		shard->files[1].bytes + shard->headers[1] + sample * npy_type_size(shard->class_type);
	switch (shard->class_type) {
	case NPY_UINT8: return *at;
	case NPY_INT32: return (int32_t)bytes_le32(at);
	default: return (int64_t)bytes_le64(at);
	}
}

int dataset_read_table(const struct dataset *dataset, const struct dataset_shard *shard,
	uint64_t sample, int classes, struct batch *batch, int row, struct err *err)
{
	size_t columns = (size_t)dataset->features;
	int64_t class = class_at(shard, sample);
	if (class < 0 || class >= classes)
		return err_fail(err, EXIT_DATA,
			"data: class %lld of sample %llu in %s is not one of the %d classes", (long long)class,
			(unsigned long long)sample, shard->files[1].path, classes);
	memcpy(batch->inputs + (size_t)row * columns,
		shard->files[0].bytes + shard->headers[0] + sample * columns * sizeof(float),
		columns * sizeof(float));
	batch->targets[row] = (int32_t) class;
	return 0;
}
