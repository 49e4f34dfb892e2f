/* SPDX-License-Identifier: Apache-2.0 */
/* libmuster as a program sees it: the installed header, the shared library, a world of one. Several
 * ranks, preemption and requeue are tests/cluster/libmuster.bats. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#include "tests/unit/lib/alone_fixture.h"
#include "tests/unit/lib/blocked_save.h"

/* What programs have compiled in: a member that moves breaks them. */
static void the_structs_are_those_of_the_first_release(void **state)
{
	if (sizeof(void *) != 8)
		skip();
	assert_int_equal(offsetof(struct muster_tensor, dtype), 8);
	assert_int_equal(offsetof(struct muster_tensor, dims), 16);
	assert_int_equal(offsetof(struct muster_tensor, shape), 24);
	assert_int_equal(offsetof(struct muster_tensor, data), 88);
	assert_int_equal(sizeof(struct muster_tensor), 96); /* arrays of it are handed over */
	assert_int_equal(offsetof(struct muster_ckpt_plan, dir), 8);
	assert_int_equal(offsetof(struct muster_ckpt_plan, tensors), 16);
	assert_int_equal(offsetof(struct muster_ckpt_plan, tensor_count), 24);
	assert_int_equal(offsetof(struct muster_ckpt_plan, keep_last), 32);
	assert_int_equal(offsetof(struct muster_ckpt_plan, keep_every), 40);
	assert_int_equal(offsetof(struct muster_ckpt_plan, timeout), 48);
	assert_int_equal(offsetof(struct muster_ckpt_plan, identity), 64);
	assert_int_equal(offsetof(struct muster_state, validation_loss), 72);
	assert_int_equal(MUSTER_REQUEUE, 75);
	assert_int_equal(MUSTER_LOST, 69);
}

/* ---- ranks ---- */

static void a_program_by_itself_is_a_world_of_one(void **state)
{
	char host[256];
	assert_int_equal(gethostname(host, sizeof host), 0);
	assert_int_equal(muster_rank(muster), 0);
	assert_int_equal(muster_world_size(muster), 1);
	assert_int_equal(muster_local_rank(muster), 0);
	assert_int_equal(muster_local_world_size(muster), 1);
	assert_int_equal(muster_node_rank(muster), 0);
	assert_int_equal(muster_node_count(muster), 1);
	assert_int_equal(muster_attempt(muster), 0);
	assert_int_equal(muster_job(muster), 0);
	assert_string_equal(muster_node(muster, 0), host);
	assert_null(muster_node(muster, 1));
	assert_null(muster_node(muster, -1));
	assert_string_equal(muster_version(), PACKAGE_VERSION);
}

static void values_are_published_once_and_read(void **state)
{
	char longest[62];
	void *value = "";
	size_t size;
	memset(longest, 'k', sizeof longest);
	longest[60] = '\0';
	assert_ok(muster_put(muster, longest, "xyz", 3));
	assert_ok(muster_put(muster, "muster-node", "mine", 4)); /* not ours */
	assert_ok(muster_fence(muster, 5));
	assert_ok(muster_get(muster, 0, longest, &value, &size));
	assert_int_equal(size, 3);
	assert_string_equal(value, "xyz");
	muster_free(value);
	longest[60] = 'k';
	longest[61] = '\0';
	assert_refused(muster_put(muster, longest, "xyz", 3), MUSTER_USAGE, "1 to 60 characters");
	assert_int_not_equal(muster_put(muster, "muster-node", "again", 5), MUSTER_OK);
	assert_refused(muster_put(muster, "", "x", 1), MUSTER_USAGE, "1 to 60 characters");
	assert_int_not_equal(muster_get(muster, 0, "never put", &value, &size), MUSTER_OK);
	assert_null(value);
	muster_free(NULL);
}

/* A rank that can't say where the others are, in a second process's stead. */
static void a_rank_without_a_meeting_place_is_told_the_remedy(void **state)
{
	struct muster *other = muster;
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "2", 1);
	int status = muster_open(&other, 1);
	unsetenv("RANK");
	unsetenv("WORLD_SIZE");
	assert_refused(status, MUSTER_USAGE, "MUSTER_RDZV_DIR");
	assert_null(other);
}

/* Each function, with what it can't take: a line and MUSTER_USAGE, and no harm. */
static void bad_arguments_have_a_line(void **state)
{
	void *value = "";
	size_t size;
	const double bad[] = { -1, NAN, INFINITY, 1e300 };
	struct muster *other = muster;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_refused(muster_open(&other, bad[i]), MUSTER_USAGE,
			"libmuster: couldn't use a timeout of");
		assert_null(other);
		assert_refused(muster_fence(muster, bad[i]), MUSTER_USAGE,
			"libmuster: couldn't use a timeout of");
	}
	assert_refused(muster_open(NULL, 1), MUSTER_USAGE,
		"couldn't use NULL as the place for the struct muster");
	assert_refused(muster_fence(NULL, 1), MUSTER_USAGE, "muster_open gives one");
	assert_refused(muster_put(NULL, "key", "x", 1), MUSTER_USAGE, "muster_open gives one");
	assert_refused(muster_put(muster, NULL, "x", 1), MUSTER_USAGE, "1 to 60 characters");
	assert_refused(muster_put(muster, "a b", "x", 1), MUSTER_USAGE, "characters of A-Z");
	assert_refused(muster_put(muster, "key", NULL, 1), MUSTER_USAGE,
		"couldn't use NULL as a value");
	assert_refused(muster_put(muster, "key", muster, 65537), MUSTER_USAGE, "at most 65536");
	assert_refused(muster_get(NULL, 0, "key", &value, &size), MUSTER_USAGE,
		"muster_open gives one");
	assert_null(value);
	assert_refused(muster_get(muster, 0, "key", NULL, &size), MUSTER_USAGE,
		"NULL as the place for a value");
	assert_refused(muster_get(muster, 0, "key", &value, NULL), MUSTER_USAGE,
		"NULL as the place for its size");
	assert_refused(muster_get(muster, 0, NULL, &value, &size), MUSTER_USAGE, "1 to 60 characters");
	assert_refused(muster_get(muster, 1, "key", &value, &size), MUSTER_USAGE, "the world has 1");
	assert_ok(muster_put(muster, "nothing", NULL, 0));
	assert_int_equal(muster_rank(NULL), -1);
	assert_int_equal(muster_world_size(NULL), -1);
	assert_int_equal(muster_local_rank(NULL) + muster_local_world_size(NULL)
			+ muster_node_rank(NULL),
		-3);
	assert_int_equal(muster_node_count(NULL) + muster_attempt(NULL), -2);
	assert_int_equal(muster_job(NULL), 0);
	assert_null(muster_node(NULL, 0));
	assert_string_equal(muster_notice_name(-1), "a signal");
	muster_abort(NULL, 1, NULL);
	muster_close(NULL, 1);
}

/* ---- NCCL ---- */

static void without_a_gpu_a_communicator_is_refused_with_the_reason(void **state)
{
	struct ncclComm *comm = (struct ncclComm *)(void *)&muster;
	if (access("/dev/nvidiactl", F_OK) == 0)
		skip();
	assert_refused(muster_nccl_comm(muster, 5, &comm), MUSTER_USAGE, "nccl: couldn't");
	assert_null(comm);
}

static void what_is_no_communicator_is_refused(void **state)
{
	struct ncclComm *comm = (struct ncclComm *)(void *)&muster;
	assert_int_equal(muster_nccl_comm(NULL, 1, &comm), MUSTER_USAGE);
	assert_null(comm);
	assert_int_equal(muster_nccl_comm(muster, 1, NULL), MUSTER_USAGE);
	assert_int_equal(muster_nccl_comm(muster, -1, &comm), MUSTER_USAGE);
	assert_int_equal(muster_nccl_wait(muster, NULL, 0, NULL, 1), MUSTER_USAGE);
	assert_ok(muster_nccl_end(muster, NULL, 1, 1));
}

/* ---- checkpoints ---- */

#define COUNT 1000

static struct program {
	double weights[COUNT];
	int32_t table[3][5];
	int64_t step;
	uint8_t flags[7];
} now;

static const struct muster_tensor tensors[] = {
	{ "weights", "F64", 1, { COUNT }, now.weights },
	{ "table", "I32", 2, { 3, 5 }, now.table },
	{ "step", "I64", 0, { 0 }, &now.step },
	{ "flags", "U8", 1, { 7 }, now.flags },
};

static struct muster_ckpt_plan plan_of(const char *name)
{
	return (struct muster_ckpt_plan) { .size = sizeof(struct muster_ckpt_plan),
		.dir = files_path(name),
		.tensors = tensors,
		.tensor_count = sizeof tensors / sizeof tensors[0],
		.timeout = HANG_SECONDS };
}

/* The state after a step. */
static struct program state_of(int64_t step)
{
	struct program state = { .step = step };
	for (int i = 0; i < COUNT; i++)
		state.weights[i] = (double)(step * COUNT + i) / 7;
	for (int i = 0; i < 15; i++)
		state.table[i / 5][i % 5] = (int32_t)(step + i);
	for (int i = 0; i < 7; i++)
		state.flags[i] = (uint8_t)(step * 31 + i);
	return state;
}

static struct muster_ckpt *open_run(const char *name)
{
	struct muster_ckpt *ckpt;
	struct muster_ckpt_plan plan = plan_of(name);
	assert_ok(muster_ckpt_open(muster, &plan, &ckpt));
	return ckpt;
}

static void save_steps(struct muster_ckpt *ckpt, int64_t first, int64_t last)
{
	for (int64_t step = first; step <= last; step++) {
		now = state_of(step);
		assert_ok(muster_ckpt_save(ckpt, step, (double)step));
		memset(&now, 0xee, sizeof now); /* what is saved is the copy */
	}
}

static void assert_loaded(struct muster_ckpt *ckpt, int64_t wanted)
{
	int64_t step = 77;
	struct program state = state_of(wanted);
	memset(&now, 0, sizeof now);
	assert_ok(muster_ckpt_load(ckpt, &step));
	assert_int_equal(step, wanted);
	assert_memory_equal(now.weights, state.weights, sizeof now.weights);
	assert_memory_equal(now.table, state.table, sizeof now.table);
	assert_memory_equal(now.flags, state.flags, sizeof now.flags);
	assert_int_equal(now.step, wanted);
}

static void what_was_saved_is_loaded(void **state)
{
	int64_t step = 77;
	struct muster_ckpt *ckpt = open_run("run");
	now = state_of(5);
	assert_ok(muster_ckpt_load(ckpt, &step));
	assert_int_equal(step, -1);
	assert_int_equal(now.step, 5); /* nothing was there, nothing was changed */
	save_steps(ckpt, 1, 4);        /* more than there are slots */
	assert_ok(muster_ckpt_wait(ckpt, 4, 0));
	assert_ok(muster_ckpt_wait(ckpt, 2, 0));
	assert_ok(muster_ckpt_save(ckpt, 3, NAN)); /* an old step: nothing to do */
	assert_refused(muster_ckpt_save(ckpt, -1, NAN), MUSTER_USAGE, "steps count from 0");
	assert_refused(muster_ckpt_wait(ckpt, 9, 1), MUSTER_FAULT, "step 9 was not handed over");
	assert_refused(muster_ckpt_load(ckpt, &step), MUSTER_USAGE, "loaded or saved already");
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	ckpt = open_run("run");
	assert_refused(muster_ckpt_save(ckpt, 1, NAN), MUSTER_USAGE,
		"run holds step 4 already: load that first");
	assert_loaded(ckpt, 4);
	save_steps(ckpt, 5, 5);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished")); /* waits */
	ckpt = open_run("run");
	assert_loaded(ckpt, 5);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	assert_ok(muster_ckpt_close(NULL, MUSTER_OK, "never opened"));
}

/* Saves the step, which fails. Returns the status. */
static int fail_to_save(struct muster_ckpt *ckpt, const char *run, int64_t step)
{
	blocked_save_begin(files_path(run), step);
	now = state_of(step);
	assert_ok(muster_ckpt_save(ckpt, step, NAN));
	int status = muster_ckpt_wait(ckpt, step, 0);
	assert_refused(status, MUSTER_FAULT, BLOCKED_SAVE_WORDS);
	blocked_save_end(files_path(run), step);
	return status;
}

/* However many later ones become durable; and the end says so where it was the last one. */
static void a_save_that_failed_keeps_its_error(void **state)
{
	enum { FAILS = 2, LAST = 14 };
	struct muster_ckpt *ckpt = open_run("failing");
	muster_set_log(NULL, NULL);
	save_steps(ckpt, 1, 1);
	int status = fail_to_save(ckpt, "failing", FAILS);
	for (int64_t step = FAILS + 1; step <= LAST; step++) {
		save_steps(ckpt, step, step);
		assert_ok(muster_ckpt_wait(ckpt, step, 0));
		assert_refused(muster_ckpt_wait(ckpt, FAILS, 0), status, BLOCKED_SAVE_WORDS);
	}
	assert_ok(muster_ckpt_wait(ckpt, 1, 0));
	fail_to_save(ckpt, "failing", LAST + 1);
	save_steps(ckpt, LAST + 1, LAST + 1); /* once more, and this time it works */
	assert_ok(muster_ckpt_wait(ckpt, LAST + 1, 0));
	fail_to_save(ckpt, "failing", LAST + 2);
	assert_refused(muster_ckpt_close(ckpt, MUSTER_REQUEUE, "preempted"), MUSTER_LOST,
		BLOCKED_SAVE_WORDS);
	ckpt = open_run("failing");
	assert_loaded(ckpt, LAST + 1);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
}

static int lines;

static void count_lines(void *arg, int level, const char *line)
{
	if (level == 0 && strstr(line, "step-00000002"))
		++*(int *)arg;
}

static void a_damaged_checkpoint_is_set_aside_and_the_one_before_is_loaded(void **state)
{
	struct stat st;
	struct muster_ckpt *ckpt = open_run("damaged");
	save_steps(ckpt, 1, 2);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	int fd = open(files_path("damaged/step-00000002/model-00001-of-00001.safetensors"), O_RDWR);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 3), 1);
	close(fd);
	muster_set_log(count_lines, &lines);
	ckpt = open_run("damaged");
	assert_loaded(ckpt, 1);
	assert_int_equal(lines, 1);
	muster_set_log(NULL, NULL);
	assert_int_equal(stat(files_path("damaged/step-00000002.damaged-1"), &st), 0);
	save_steps(ckpt, 2, 2);
	assert_ok(muster_ckpt_wait(ckpt, 2, 0));
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
}

static void load_with(const struct muster_tensor *others, size_t count, const char *words)
{
	int64_t step;
	struct muster_ckpt *ckpt;
	struct muster_ckpt_plan plan = plan_of("run");
	plan.tensors = others;
	plan.tensor_count = count;
	assert_ok(muster_ckpt_open(muster, &plan, &ckpt));
	assert_refused(muster_ckpt_load(ckpt, &step), MUSTER_DATA, words);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_DATA, "other tensors"));
}

static void the_checkpoint_of_another_program_is_refused(void **state)
{
	struct muster_tensor other[4];
	load_with(tensors, 3, "has 4 tensors, the program 3");
	memcpy(other, tensors, sizeof other);
	other[1].shape[1] = 4;
	load_with(other, 4, "a tensor table of another type or shape");
	other[1] = tensors[1];
	other[0].dtype = "I64";
	load_with(other, 4, "a tensor weights of another type or shape");
	other[0].dtype = "F64";
	other[3].name = "banners";
	load_with(other, 4, "no tensor banners");
	struct muster_ckpt *ckpt = open_run("run");
	assert_loaded(ckpt, 5); /* nothing was set aside for it */
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
}

static void refuse_plan(struct muster_ckpt_plan plan, const char *words)
{
	struct muster_ckpt *ckpt;
	assert_refused(muster_ckpt_open(muster, &plan, &ckpt), MUSTER_USAGE, words);
	assert_null(ckpt);
}

static void a_rank_without_a_directory_may_call_all_the_same(void **state)
{
	int64_t step = 77;
	assert_ok(muster_ckpt_load(NULL, &step));
	assert_int_equal(step, -1);
	assert_ok(muster_ckpt_save(NULL, 5, NAN));
	assert_ok(muster_ckpt_wait(NULL, 5, 0));
	assert_refused(muster_ckpt_load(NULL, NULL), MUSTER_USAGE, "NULL as the place for the step");
}

static void a_plan_that_can_not_be_is_refused(void **state)
{
	struct muster_ckpt *ckpt;
	struct muster_tensor odd = tensors[0];
	struct muster_ckpt_plan plan = plan_of("plan"), wrong = plan;
	assert_refused(muster_ckpt_open(muster, NULL, &ckpt), MUSTER_USAGE,
		"couldn't use NULL as the plan");
	assert_refused(muster_ckpt_open(muster, &plan, NULL), MUSTER_USAGE,
		"NULL as the place for the struct muster_ckpt");
	assert_refused(muster_ckpt_open(NULL, &plan, &ckpt), MUSTER_USAGE, "muster_open gives one");
	assert_null(ckpt);
	wrong.timeout = -3;
	refuse_plan(wrong, "couldn't use a timeout of -3 s");
	wrong = plan;
	wrong.size = sizeof wrong + 8;
	refuse_plan(wrong, "sizeof(struct muster_ckpt_plan)");
	wrong.size = 0;
	refuse_plan(wrong, "sizeof(struct muster_ckpt_plan)");
	wrong = plan;
	wrong.dir = NULL;
	refuse_plan(wrong, "it needs a directory");
	wrong = plan;
	wrong.tensors = NULL;
	refuse_plan(wrong, "it has 4 tensors, and nothing says which");
	wrong = plan;
	wrong.identity = "[1]";
	refuse_plan(wrong, "the plan's identity: it is not a JSON object");
	wrong = plan;
	wrong.tensors = &odd;
	wrong.tensor_count = 1;
	odd.dtype = "F65";
	refuse_plan(wrong, "tensor weights: its type F65");
	odd.dtype = "F4";
	refuse_plan(wrong, "tensor weights: its type F4");
	odd.dtype = "F64";
	odd.dims = 9;
	refuse_plan(wrong, "9 dimensions");
	odd.dims = 2;
	odd.shape[0] = odd.shape[1] = INT64_MAX;
	refuse_plan(wrong, "shape is out of range");
	odd.dims = 1;
	odd.shape[0] = -1;
	refuse_plan(wrong, "shape is out of range");
	odd.name = "";
	refuse_plan(wrong, "tensor 0: it needs a name");
	odd.name = "\xff";
	refuse_plan(wrong, "tensor 0: its name is not UTF-8");
	struct muster_tensor twice[] = { tensors[0], tensors[1], tensors[0] };
	wrong.tensors = twice;
	wrong.tensor_count = 3;
	refuse_plan(wrong, "tensor weights is there twice");
}

static void a_directory_has_one_owner(void **state)
{
	struct muster_ckpt *ckpt = open_run("owned"), *second;
	struct muster_ckpt_plan plan = plan_of("owned");
	assert_refused(muster_ckpt_open(muster, &plan, &second), MUSTER_USAGE, "owned");
	assert_null(second);
	save_steps(ckpt, 1, 1);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
}

/* ---- the order of samples ---- */

/* Each epoch has every sample once, however the ranks divide a step. */
static void every_sample_comes_once_an_epoch(void **state)
{
	enum { SAMPLES = 1000, BATCH = 96 };
	static const size_t ranks[] = { 1, 3, 8 };
	struct muster_order order = { .size = sizeof order,
		.seed = 7,
		.count = SAMPLES,
		.batch = BATCH,
		.shuffle = 1,
		.complete = 1 };
	uint64_t steps, whole[BATCH], part[BATCH], before[BATCH];
	assert_ok(muster_order_steps(&order, &steps));
	assert_int_equal(steps, (SAMPLES + BATCH - 1) / BATCH);
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		int seen[SAMPLES] = { 0 }, empty = 0;
		for (uint64_t step = epoch * steps; step < (epoch + 1) * steps; step++) {
			assert_ok(muster_order_samples(&order, step, 0, BATCH, whole));
			for (size_t r = 0; r < 3; r++) {
				const size_t share = BATCH / ranks[r];
				for (size_t rank = 0; rank < ranks[r]; rank++)
					assert_ok(muster_order_samples(&order, step, rank * share, share,
						part + rank * share));
				assert_memory_equal(part, whole, sizeof whole);
			}
			for (int i = 0; i < BATCH; i++)
				if (whole[i] == MUSTER_NO_SAMPLE)
					empty++;
				else
					seen[whole[i]]++;
		}
		for (int i = 0; i < SAMPLES; i++)
			assert_int_equal(seen[i], 1);
		assert_int_equal(empty, steps * BATCH - SAMPLES);
	}
	assert_ok(muster_order_samples(&order, 0, 0, BATCH, before));
	assert_ok(muster_order_samples(&order, steps, 0, BATCH, whole));
	assert_memory_not_equal(before, whole, sizeof whole); /* another epoch, another order */
	order.complete = order.shuffle = 0;
	assert_ok(muster_order_steps(&order, &steps));
	assert_int_equal(steps, SAMPLES / BATCH);
	assert_ok(muster_order_samples(&order, steps + 1, 2, 1, whole));
	assert_int_equal(whole[0], BATCH + 2);
}

/* ---- the summation tree ---- */

/* A sum in whose last bits the order of its additions shows. */
struct stack {
	float sums[64];
	int count;
};

static void push(struct stack *stack, float sum, int additions)
{
	stack->sums[stack->count++] = sum;
	for (; additions > 0; additions--) {
		assert_true(stack->count >= 2);
		stack->sums[stack->count - 2] += stack->sums[stack->count - 1];
		stack->count--;
	}
}

static float sum_on(int slots, int world_size)
{
	struct stack all = { 0 };
	int pieces[64], joins[64], additions[64], next = 0, piece = 0;
	assert_ok(muster_tree_join(slots, world_size, pieces, joins));
	for (int rank = 0; rank < world_size; rank++) {
		struct stack own = { 0 };
		int first, count;
		assert_ok(muster_tree_rank(slots, world_size, rank, &first, &count, additions));
		assert_int_equal(first, next);
		for (int i = 0; i < count; i++)
			push(&own, 1.0f / (float)(first + i + 1), additions[i]);
		assert_int_equal(own.count, pieces[rank]);
		for (int i = 0; i < own.count; i++)
			push(&all, own.sums[i], joins[piece++]);
		next = first + count;
	}
	assert_int_equal(next, slots);
	assert_int_equal(all.count, 1);
	return all.sums[0];
}

static void a_sum_has_the_same_bits_on_any_number_of_ranks(void **state)
{
	int number;
	for (int slots = 1; slots <= 64; slots++) {
		const float one = sum_on(slots, 1);
		for (int world_size = 2; world_size <= slots; world_size++)
			assert_memory_equal(&(float) { sum_on(slots, world_size) }, &one, sizeof one);
	}
	assert_refused(muster_tree_join(4, 5, &number, &number), MUSTER_USAGE, "each needs one");
	assert_refused(muster_tree_join(20000, 5, &number, &number), MUSTER_USAGE, "give 1 to 16384");
	assert_refused(muster_tree_rank(4, 2, 2, &number, &number, &number), MUSTER_USAGE,
		"the slots of rank 2");
	assert_refused(muster_tree_rank(4, 2, 1, &number, &number, NULL), MUSTER_USAGE, "NULL as");
}

static void refuse_order(struct muster_order order, uint64_t place, size_t count, const char *words)
{
	uint64_t samples[8], steps;
	assert_refused(muster_order_samples(&order, 0, place, count, samples), MUSTER_USAGE, words);
	if (place == 0)
		assert_refused(muster_order_steps(&order, &steps), MUSTER_USAGE, words);
}

static void an_order_that_can_not_be_is_refused(void **state)
{
	const struct muster_order order = { .size = sizeof order, .count = 8, .batch = 4 };
	struct muster_order wrong = order;
	uint64_t steps;
	wrong.size--;
	refuse_order(wrong, 0, 1, "sizeof(struct muster_order)");
	wrong = order;
	wrong.count = 0;
	refuse_order(wrong, 0, 1, "couldn't order 0 samples");
	wrong.count = UINT64_MAX;
	refuse_order(wrong, 0, 1, "couldn't order 18446744073709551615 samples");
	wrong = order;
	wrong.batch = 0;
	refuse_order(wrong, 0, 1, "a batch of 0 samples");
	wrong.batch = 9;
	refuse_order(wrong, 0, 1, "a batch of 9 of 8 samples");
	refuse_order(order, 4, 1, "places 4 to 5 of a step: its batch has 4");
	refuse_order(order, UINT64_MAX, 2, "its batch has 4");
	assert_refused(muster_order_steps(NULL, &steps), MUSTER_USAGE, "NULL as the order");
	assert_refused(muster_order_steps(&order, NULL), MUSTER_USAGE, "NULL as the place");
	assert_refused(muster_order_samples(&order, 0, 0, 1, NULL), MUSTER_USAGE, "NULL as the place");
	assert_ok(muster_order_samples(&order, 0, 4, 0, NULL));
}

/* ---- notices ---- */

static void a_notice_is_seen_and_can_be_waited_for(void **state)
{
	assert_int_equal(muster_notice_fd(), -1);
	assert_ok(muster_notice_begin());
	assert_ok(muster_notice_begin());
	struct pollfd comes = { .fd = muster_notice_fd(), .events = POLLIN };
	assert_int_equal(poll(&comes, 1, 0), 0);
	assert_int_equal(muster_notice(), 0);
	assert_int_equal(kill(getpid(), SIGUSR1), 0);
	assert_int_equal(poll(&comes, 1, 1000 * HANG_SECONDS), 1);
	assert_int_equal(muster_notice(), SIGUSR1);
	assert_string_equal(muster_notice_name(muster_notice()), "SIGUSR1");
}

/* However soon the program ends after it: an attempt that a notice ended is no crash. */
static void a_notice_is_recorded_before_the_end(void **state)
{
	char text[4096];
	for (int i = 0; i < 3; i++) {
		int64_t step;
		struct muster_ckpt *ckpt = open_run("noticed");
		assert_ok(muster_ckpt_load(ckpt, &step));
		assert_int_equal(step, i - 1);
		save_steps(ckpt, i, i);
		assert_ok(muster_ckpt_close(ckpt, MUSTER_REQUEUE, "SIGUSR1"));
	}
	FILE *file = fopen(files_path("noticed/attempts.jsonl"), "r");
	assert_non_null(file);
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	char *at = text;
	for (int i = 0; i < 3; i++) {
		assert_non_null(at = strstr(at, "\"event\":\"notice\""));
		assert_non_null(at = strstr(at, "\"event\":\"end\""));
	}
}

static int begin(void **state)
{
	return files_setup(state) < 0 ? -1 : alone_setup();
}

static int end(void **state)
{
	muster_close(muster, 1);
	return files_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_structs_are_those_of_the_first_release),
		cmocka_unit_test(a_program_by_itself_is_a_world_of_one),
		cmocka_unit_test(values_are_published_once_and_read),
		cmocka_unit_test(a_rank_without_a_meeting_place_is_told_the_remedy),
		cmocka_unit_test(bad_arguments_have_a_line),
		cmocka_unit_test(what_is_no_communicator_is_refused),
		cmocka_unit_test(without_a_gpu_a_communicator_is_refused_with_the_reason),
		cmocka_unit_test(what_was_saved_is_loaded),
		cmocka_unit_test(a_save_that_failed_keeps_its_error),
		cmocka_unit_test(a_damaged_checkpoint_is_set_aside_and_the_one_before_is_loaded),
		cmocka_unit_test(the_checkpoint_of_another_program_is_refused),
		cmocka_unit_test(a_rank_without_a_directory_may_call_all_the_same),
		cmocka_unit_test(a_plan_that_can_not_be_is_refused),
		cmocka_unit_test(a_directory_has_one_owner),
		cmocka_unit_test(every_sample_comes_once_an_epoch),
		cmocka_unit_test(an_order_that_can_not_be_is_refused),
		cmocka_unit_test(a_sum_has_the_same_bits_on_any_number_of_ranks),
		cmocka_unit_test(a_notice_is_seen_and_can_be_waited_for),
		cmocka_unit_test(a_notice_is_recorded_before_the_end),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
