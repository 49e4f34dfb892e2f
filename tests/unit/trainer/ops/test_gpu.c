/* SPDX-License-Identifier: Apache-2.0 */
/* gpu: which device is chosen by what a driver shows, the message where none can be, and what
 * ranks make of each other's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/launch/meeting_fixture.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/comm/gpu_meet.h"

/* ---- a driver that shows what the test says ---- */

static struct {
	int init, count_error, count, version, major, minor;
} fake;

static int fake_init(unsigned flags)
{
	return flags ? 1 : fake.init;
}
static int fake_version(int *version)
{
	*version = fake.version;
	return 0;
}
static int fake_count(int *count)
{
	*count = fake.count;
	return fake.count_error;
}
static int fake_get(int *device, int index)
{
	*device = 100 + index;
	return index < fake.count ? 0 : 101;
}
static int fake_total(size_t *bytes, int device)
{
	*bytes = (size_t)141 << 30;
	return 0;
}

static int fake_uuid(unsigned char *uuid, int device)
{
	memset(uuid, device, GPU_UUID_BYTES);
	return 0;
}

static int fake_name(char *name, int size, int device)
{
	snprintf(name, (size_t)size, "Fake %d", device);
	return 0;
}

static int fake_attribute(int *value, int which, int device)
{
	*value = which == 16 ? 132 : which == 75 ? fake.major : which == 76 ? fake.minor : -1;
	return 0;
}

static int fake_error_name(int error, const char **name)
{
	*name = "CUDA_ERROR_FAKE";
	return error == 777;
}

static const struct gpu_driver driver = { fake_init, fake_version, fake_count, fake_get, fake_uuid,
	fake_name, fake_total, fake_attribute, fake_error_name };

static int set_up(void **state)
{
	fake.init = fake.count_error = 0;
	fake.count = 4;
	fake.version = 13010;
	fake.major = 9;
	fake.minor = 0;
	unsetenv("CUDA_VISIBLE_DEVICES");
	return 0;
}

static const struct ident third = { .rank = 6,
	.world_size = 8,
	.local_rank = 2,
	.local_world_size = 4,
	.node = "n1" };

static int choose(struct gpu *gpu, struct err *err)
{
	return gpu_choose(&driver, &third, 13000, false, gpu, err);
}

/* --gpus-per-node: all tasks see all devices. */
static void several_are_dealt_out_by_local_rank(void **state)
{
	struct gpu gpu;
	struct err err;
	assert_int_equal(choose(&gpu, &err), 0);
	assert_int_equal(gpu.index, 2);
	assert_int_equal(gpu.visible, 4);
	assert_string_equal(gpu.name, "Fake 102");
	assert_int_equal(gpu.capability, 90);
	assert_int_equal(gpu.processors, 132);
	assert_true(gpu.bytes == (uint64_t)141 << 30);
	assert_int_equal(gpu.uuid[0], 102);
}

/* --gpus-per-task=1: each task sees its own, whatever its list holds. */
static void the_only_one_is_taken(void **state)
{
	static const char *const lists[] = { "2", "GPU-8a7e5d7c-10ab-4e44-9b63-0e6a5a4ed5c1",
		"MIG-55d5cf1f-5f17-5b1f-b1f5-d1f55d5cf1f5" };
	struct gpu gpu;
	struct err err;
	fake.count = 1;
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		setenv("CUDA_VISIBLE_DEVICES", lists[i], 1);
		assert_int_equal(choose(&gpu, &err), 0);
		assert_int_equal(gpu.index, 0);
	}
}

static void assert_says(const struct err *err, const char *fault, const char *remedy)
{
	if (!strstr(err->text, fault) || !strstr(err->text, remedy) || strchr(err->text, '\n'))
		fail_msg("\"%s\" lacks \"%s\" or \"%s\"", err->text, fault, remedy);
}

static void too_few_are_refused_unless_shared(void **state)
{
	struct gpu gpu;
	struct err err;
	fake.count = 2;
	assert_int_equal(choose(&gpu, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_says(&err, "local rank 2 of 4 on n1, and sees 2 GPUs", "--share-gpu");
	assert_int_equal(gpu_choose(&driver, &third, 13000, true, &gpu, &err), 0);
	assert_int_equal(gpu.index, 0);
}

static void none_visible_is_no_fault(void **state)
{
	struct gpu gpu;
	struct err err = { 0 };
	fake.init = 100;
	assert_int_equal(choose(&gpu, &err), GPU_NONE);
	assert_says(&err, "CUDA_VISIBLE_DEVICES is not set", "--gpus-per-task=1");
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	assert_int_equal(choose(&gpu, &err), GPU_NONE);
	assert_says(&err, "CUDA_VISIBLE_DEVICES is empty", "--device cpu");
	set_up(NULL);
	fake.count = 0;
	setenv("CUDA_VISIBLE_DEVICES", "GPU-gone", 1);
	assert_int_equal(choose(&gpu, &err), GPU_NONE);
	assert_says(&err, "CUDA_VISIBLE_DEVICES is GPU-gone", "--device cpu");
}

static void what_is_too_old_is_named(void **state)
{
	struct gpu gpu;
	struct err err;
	fake.version = 12040;
	assert_int_equal(choose(&gpu, &err), -1);
	assert_says(&err, "supports CUDA 12.4, and this program was built with 13.0", "newer driver");
	fake.version = 13000;
	assert_int_equal(choose(&gpu, &err), 0);
	assert_int_equal(gpu_choose(&driver, &third, 13020, false, &gpu, &err),
		0); /* minor versions go together */
	fake.major = 7;
	fake.minor = 5;
	assert_int_equal(choose(&gpu, &err), -1);
	assert_says(&err, "Fake 102 has compute capability 7.5, and at least 8.0 is needed",
		"--constraint");
}

static void faults_of_the_driver_are_told(void **state)
{
	struct gpu gpu;
	struct err err;
	fake.init = 802;
	assert_int_equal(choose(&gpu, &err), -1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_says(&err, "cuInit says CUDA_ERROR_FAKE (802)", "fabric manager");
	fake.init = 803;
	assert_int_equal(choose(&gpu, &err), -1);
	assert_says(&err, "(803)", "without a restart");
	fake.init = 0;
	fake.count_error = 777;
	assert_int_equal(choose(&gpu, &err), -1);
	assert_says(&err, "cuDeviceGetCount says an error without a name (777)", "--exclude");
}

static void uuids_are_written_as_nvidia_smi_does(void **state)
{
	unsigned char uuid[GPU_UUID_BYTES];
	char text[GPU_UUID_TEXT];
	for (int i = 0; i < GPU_UUID_BYTES; i++)
		uuid[i] = (unsigned char)(0x10 * i + i);
	assert_string_equal(gpu_uuid_text(uuid, text), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

/* ---- between ranks ---- */

static struct gpu_word word_of(int card)
{
	struct gpu_word word = { .on_gpu = card > 0, .name = "Fake" };
	memset(word.uuid, card, sizeof word.uuid);
	return word;
}

static void ranks_are_judged(void **state)
{
	struct gpu_word words[3] = { word_of(1), word_of(2), word_of(3) };
	struct rank_status statuses[3];
	struct err err;
	for (int i = 0; i < 3; i++)
		statuses[i] = (struct rank_status) { .node = "n0",
			.data = (void *)&words[i],
			.size = sizeof words[i] };
	assert_int_equal(gpu_judge(statuses, 3, false, &err), 0);
	words[2] = word_of(2);
	assert_int_equal(gpu_judge(statuses, 3, false, &err), ERR_SHARED);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_says(&err, "ranks 1 and 2 on n0 have the same GPU, GPU-02020202-", "--share-gpu");
	assert_int_equal(gpu_judge(statuses, 3, true, &err), 0);
	words[0] = word_of(0);
	assert_int_equal(gpu_judge(statuses, 3, true, &err), ERR_SHARED);
	assert_says(&err, "rank 1 on n0 has a GPU (Fake), and rank 0 on n0 sees none", "--device cpu");
	words[0] = word_of(1);
	words[1] = word_of(0);
	assert_int_equal(gpu_judge(statuses, 3, true, &err), ERR_SHARED);
	assert_says(&err, "rank 0 on n0 has a GPU (Fake), and rank 1 on n0 sees none",
		"--gpus-per-task=1");
	for (int i = 0; i < 3; i++)
		words[i] = word_of(0); /* none has a UUID */
	assert_int_equal(gpu_judge(statuses, 3, false, &err), 0);
	statuses[1].status = EXIT_FAULT;
	statuses[1].data = "it is broken";
	assert_int_equal(gpu_judge(statuses, 3, false, &err), ERR_SHARED);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_string_equal(err.text, "rank 1 on n0: it is broken");
}

static struct gpu own_gpu(const struct ident *ident)
{
	struct gpu gpu = { .name = "Fake" };
	memset(gpu.uuid, 1 + ident->rank, sizeof gpu.uuid);
	return gpu;
}

static int meet_well(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	struct gpu gpu = own_gpu(ident);
	return gpu_meet(rdzv, ident, &gpu, 0, false, err);
}

static int meet_on_one(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	struct gpu gpu = own_gpu(ident);
	if (ident->rank == 2)
		memset(gpu.uuid, 1, sizeof gpu.uuid);
	return gpu_meet(rdzv, ident, &gpu, 0, false, err);
}

static int meet_broken(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	struct gpu gpu = own_gpu(ident);
	int rc = ident->rank == 1 ? err_set(err, "device: it is broken") : 0;
	return gpu_meet(rdzv, ident, &gpu, rc, false, err);
}

/* Rank 2 has no driver: it goes on to the next fence, which is that of the communicator. */
static int meet_without_one(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	struct gpu gpu = own_gpu(ident);
	if (ident->rank == 2)
		return rdzv_fence(rdzv, 0, err);
	return gpu_meet(rdzv, ident, &gpu, 0, false, err);
}

/* Every rank has the same words. */
static void ranks_meet(void **state)
{
	struct meeting_rank ranks[3];
	meeting_run(3, meet_well, ranks);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ranks[i].rc, 0);
	meeting_run(3, meet_on_one, ranks);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ranks[i].rc, ERR_SHARED);
		assert_non_null(strstr(ranks[i].err.text, "ranks 0 and 2 on n2 have the same GPU"));
	}
	meeting_run(3, meet_without_one, ranks);
	assert_int_equal(ranks[2].rc, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, EXIT_USAGE);
		assert_non_null(strstr(ranks[i].err.text, "rank 2 said nothing of a GPU"));
	}
	meeting_run(3, meet_broken, ranks);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ranks[i].rc, ERR_SHARED);
		assert_string_equal(ranks[i].err.text, "rank 1 on n1: device: it is broken");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(several_are_dealt_out_by_local_rank, set_up),
		cmocka_unit_test_setup(the_only_one_is_taken, set_up),
		cmocka_unit_test_setup(too_few_are_refused_unless_shared, set_up),
		cmocka_unit_test_setup(none_visible_is_no_fault, set_up),
		cmocka_unit_test_setup(what_is_too_old_is_named, set_up),
		cmocka_unit_test_setup(faults_of_the_driver_are_told, set_up),
		cmocka_unit_test(uuids_are_written_as_nvidia_smi_does),
		cmocka_unit_test(ranks_are_judged),
		cmocka_unit_test(ranks_meet),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
