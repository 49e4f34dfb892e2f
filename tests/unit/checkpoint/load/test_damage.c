/* SPDX-License-Identifier: Apache-2.0 */
/* Damage: whatever happens to the bytes of a checkpoint behind our back, a load sets it aside and
 * uses the one before, and a verification says so. Every bit of the manifest, of all headers and
 * small files; bits of the data at random; every length. All is tried with MUSTER_TEST_SHARE=0.
 * Without it, of a second and third shard of a kind one bit of the header in seven, and not each
 * bit by both (the load verifies too); with MUSTER_TEST_SHARE=N one in N of all. */
#include "config.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/io.h"
#include "tests/unit/files.h"
#include "tests/unit/quiet.h"

#define PAGE 4096
#define VICTIM 2      /* the step that is damaged; the one before stays whole */
#define ELEMENTS 2800 /* of a tensor */
#define TENSORS 3
#define RANDOM_BITS 10000
#define FILES 32

/* Nothing here is to outlive a power loss, and hundreds of thousands of renames need not wait for a
 * disk. */
int fsync(int fd)
{
	(void)fd;
	return 0;
}

struct damaged_file {
	char name[64];
	int fd;
	size_t size, prefix; /* prefix: what comes before the data; of a small file all of it */
	char *bytes;         /* as they were saved */
};

static struct ckpt_dir dir;
static char token[MANIFEST_TOKEN_SIZE];
static struct damaged_file files[FILES];
static size_t file_count, tries, share = 1;
static bool all;

/* ---- the checkpoints ---- */

static void save(int64_t step)
{
	static float values[SNAPSHOT_STATES + 1][TENSORS][ELEMENTS];
	static const char *const names[TENSORS] = { "a", "b.weight", "c" };
	struct snapshot_tensor tensors[TENSORS + 2];
	struct snapshot_slice slices[TENSORS];
	struct err err;
	for (int t = 0; t < TENSORS; t++) {
		for (int s = 0; s <= SNAPSHOT_STATES; s++)
			for (int i = 0; i < ELEMENTS; i++)
				values[s][t][i] = (float)((s * TENSORS + t) * ELEMENTS + i) * (float)(step + 1);
		tensors[t] = (struct snapshot_tensor) { .name = names[t],
			.dtype = SAFETENSORS_F32,
			.dims = 2,
			.shape = { 70, ELEMENTS / 70 },
			.data = values[0][t] };
		slices[t] = (struct snapshot_slice) { .tensor = names[t],
			.count = ELEMENTS,
			.state = { values[1][t], values[2][t], values[3][t] } };
	}
	/* A tensor of the state, in two boxes. */
	const struct snapshot_box boxes[2] = { { { 70, 40 }, { 0, 0 } }, { { 70, 40 }, { 0, 16 } } };
	for (int b = 0; b < 2; b++)
		tensors[TENSORS + b] = (struct snapshot_tensor) { .name = "d",
			.dtype = SAFETENSORS_F32,
			.dims = 2,
			.shape = { 70, b ? 24 : 16 },
			.data = values[0][b],
			.state = true,
			.box = &boxes[b] };
	const struct snapshot snapshot = { .at = { .step = step, .loss = 0.5, .validation_loss = NAN },
		.world_size = 1,
		.config_json = "{\"identity\": {}, \"schedule\": {}, \"operation\": {}}",
		.numerics_json = "{}",
		.model_json = "{\"model_type\": \"gpt2\"}\n",
		.values_json = "{\"epoch\": 1}",
		.tensors = tensors,
		.tensor_count = TENSORS + 2,
		.slices = slices,
		.slice_count = TENSORS,
		.shard_size = 2 * SNAPSHOT_STATES * ELEMENTS * sizeof(float) };
	if (ckpt_save(&dir, &snapshot, token, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

static const char *victim(const char *name)
{
	static char path[200];
	char folder[CKPT_STEP_NAME_SIZE];
	snprintf(path, sizeof path, "%s/%s", ckpt_step_name(VICTIM, folder), name);
	return path;
}

static void remember_file(const char *name, bool shard)
{
	struct damaged_file *file = &files[file_count++];
	struct err err;
	uint64_t prefix;
	assert_true(file_count <= FILES);
	snprintf(file->name, sizeof file->name, "%s", name);
	assert_int_equal(io_read_file(dir.fd, victim(name), SIZE_MAX / 2, &file->bytes, &file->size,
						 &err),
		0);
	file->prefix = file->size;
	file->fd = openat(dir.fd, victim(name), O_RDWR | O_CLOEXEC);
	assert_true(file->fd >= 0);
	if (!shard)
		return;
	assert_int_equal(safetensors_prefix_size(file->bytes, file->size, &prefix, &err), 0);
	file->prefix = prefix;
}

static int set_up(void **state)
{
	const char *every = getenv("MUSTER_TEST_SHARE"), *memory = getenv("MUSTER_TEST_MEMORY");
	struct owner owner = { .cluster = "" };
	struct ckpt *ckpt;
	struct err err;
	/* Without it most of the time goes into fresh pages for the 16 MiB that each load reads chunks
	 * into. */
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 28);
	/* In memory where that can be had. */
	memory = memory ? memory : "/dev/shm";
	if (access(memory, W_OK) == 0)
		setenv("TMPDIR", memory, 1);
	all = every && atoi(every) == 0;
	if (every && atoi(every) > 0)
		share = (size_t)atoi(every);
	quiet_log();
	if (files_setup(state) < 0 || ckpt_dir_open(&dir, files_path("run"), &err) < 0
		|| owner_claim(&dir, &owner, NULL, NULL, 5, &err) < 0)
		return -1;
	strcpy(token, owner.token);
	save(VICTIM - 1);
	save(VICTIM);
	assert_int_equal(ckpt_open(&dir, VICTIM, 0, &ckpt, &err), 0);
	const struct manifest *manifest = ckpt_manifest(ckpt);
	remember_file(MANIFEST_NAME, false);
	for (size_t i = 0; i < manifest->file_count; i++) {
		enum manifest_role role = manifest->files[i].role;
		remember_file(manifest->files[i].name,
			role == MANIFEST_MODEL || role == MANIFEST_OPTIMIZER || role == MANIFEST_STATE);
	}
	ckpt_close(ckpt);
	return 0;
}

static int tear_down(void **state)
{
	for (size_t i = 0; i < file_count; i++) {
		close(files[i].fd);
		free(files[i].bytes);
	}
	ckpt_dir_close(&dir);
	return files_teardown(state);
}

/* ---- damage, and that it is found ---- */

static void put(struct damaged_file *file, size_t at, const void *bytes, size_t size)
{
	assert_int_equal(pwrite(file->fd, bytes, size, (off_t)at), size);
}

static void put_back(struct damaged_file *file, size_t at, size_t size)
{
	assert_int_equal(ftruncate(file->fd, (off_t)file->size), 0);
	put(file, at, file->bytes + at, size);
}

/* What happened, for the message of a failure. */
static struct {
	const char *what, *file;
	size_t at;
	int bit;
} now;

static void missed(const char *how, const struct err *err)
{
	fail_msg("%s of %s at %zu, bit %d: %s (%s)", now.what, now.file, now.at, now.bit, how,
		err->text);
}

static void verification_finds_it(void)
{
	struct ckpt *ckpt = NULL;
	struct err err = { .text = "" };
	int result = ckpt_open(&dir, VICTIM, 0, &ckpt, &err);
	if (result == 0) {
		result = ckpt_verify(ckpt, &err);
		ckpt_close(ckpt);
	}
	if (result != CKPT_DAMAGED || err.status != EXIT_DATA || !err.text[0])
		missed("not found by a verification", &err);
}

static void load_finds_it(void)
{
	char folder[CKPT_STEP_NAME_SIZE], aside[CKPT_STEP_NAME_SIZE + 20];
	struct ckpt *ckpt = NULL;
	struct err err = { .text = "" };
	if (ckpt_open_newest(&dir, 0, &ckpt, &err) != 1)
		missed("nothing was loaded", &err);
	if (ckpt_manifest(ckpt)->step != VICTIM - 1)
		missed("not found by a load", &err);
	ckpt_close(ckpt);
	snprintf(aside, sizeof aside, "%s.damaged-1", ckpt_step_name(VICTIM, folder));
	if (renameat(dir.fd, aside, dir.fd, folder) < 0)
		missed("not set aside", &err);
}

static void is_found(const char *what, const char *file, size_t at, int bit)
{
	now.what = what;
	now.file = file;
	now.at = at;
	now.bit = bit;
	if (tries++ % 8 == 0 || all)
		verification_finds_it();
	load_finds_it();
}

/* The undamaged checkpoint is loaded: all was put back, and what was found was not there before. */
static void all_is_well(void)
{
	struct ckpt *ckpt;
	struct err err;
	if (ckpt_open_newest(&dir, 0, &ckpt, &err) != 1)
		fail_msg("%s", err.text);
	assert_int_equal(ckpt_manifest(ckpt)->step, VICTIM);
	ckpt_close(ckpt);
}

static void flip(struct damaged_file *file, size_t at, int bit)
{
	char byte = (char)(file->bytes[at] ^ 1 << bit);
	put(file, at, &byte, 1);
	is_found("flip", file->name, at, bit);
	put_back(file, at, 1);
}

static void told(const char *what)
{
	all_is_well();
	print_message("# %zu %s: each was found\n", tries, what);
	tries = 0;
}

/* ---- the tests ---- */

static void every_bit_before_the_data(void **state)
{
	for (size_t i = 0; i < file_count; i++) {
		bool first = !strchr(files[i].name, '-') || strstr(files[i].name, "-00001-of-");
		size_t stride = first || all ? share : 7 * share;
		for (size_t bit = i % stride; bit < 8 * files[i].prefix; bit += stride)
			flip(&files[i], bit / 8, (int)(bit % 8));
	}
	told("bits of manifest, index, configuration and headers");
}

static uint64_t draw(void)
{
	static uint64_t random =
		88172645463325252u; /* xorshift64, G. Marsaglia, "Xorshift RNGs", 2003 */
	random ^= random << 13;
	random ^= random >> 7;
	return random ^= random << 17;
}

static void random_bits_of_the_data(void **state)
{
	for (size_t i = 0; i < RANDOM_BITS / share; i++) {
		struct damaged_file *file = &files[draw() % file_count];
		if (file->prefix < file->size)
			flip(file, file->prefix + draw() % (file->size - file->prefix), (int)(draw() % 8));
		else
			i--;
	}
	told("random bits of the data");
}

static void cut(struct damaged_file *file, size_t size)
{
	assert_int_equal(ftruncate(file->fd, (off_t)size), 0);
	is_found("truncation", file->name, size, 0);
	put_back(file, size, file->size - size);
}

static void every_length(void **state)
{
	for (size_t i = 0; i < file_count; i++) {
		struct damaged_file *file = &files[i];
		size_t stride = file->prefix < file->size ? PAGE : share;
		for (size_t size = 0; size < file->size; size += stride)
			cut(file, size);
		cut(file, file->size - 1);
		for (size_t more = 1; more <= 2 * PAGE; more *= 2) {
			assert_int_equal(ftruncate(file->fd, (off_t)(file->size + more)), 0);
			is_found("bytes appended to the end", file->name, more, 0);
			put_back(file, 0, 0);
		}
	}
	told("other lengths");
}

/* A page that was never written, one that went to a wrong place, and one of an older checkpoint. */
static void wrong_pages(void **state)
{
	static const char zeros[PAGE];
	char path[200], folder[CKPT_STEP_NAME_SIZE];
	for (size_t i = 0; i < file_count; i++) {
		struct damaged_file *file = &files[i];
		char old[PAGE];
		snprintf(path, sizeof path, "%s/%s", ckpt_step_name(VICTIM - 1, folder), file->name);
		int fd =
			openat(dir.fd, path, O_RDONLY | O_CLOEXEC); /* none where that one has fewer shards */
		for (size_t at = 0; at < file->size; at += PAGE) {
			size_t n = file->size - at < PAGE ? file->size - at : PAGE;
			const char *pages[] = { zeros, file->bytes + (at + PAGE < file->size ? 0 : at), old };
			bool there = pread(fd, old, n, (off_t)at) == (ssize_t)n;
			for (int p = 0; p < (there ? 3 : 2); p++) {
				if (memcmp(pages[p], file->bytes + at, n) == 0)
					continue;
				put(file, at, pages[p], n);
				is_found("wrong page", file->name, at, p);
				put_back(file, at, n);
			}
		}
		if (fd >= 0)
			close(fd);
	}
	told("wrong pages");
}

static void missing_and_strange_files(void **state)
{
	for (size_t i = 0; i < file_count; i++) {
		const char *path = victim(files[i].name);
		assert_int_equal(renameat(dir.fd, path, dir.fd, "away"), 0);
		is_found("absence", files[i].name, 0, 0);
		assert_int_equal(mkdirat(dir.fd, path, 0755), 0);
		is_found("a folder in the place", files[i].name, 0, 0);
		assert_int_equal(unlinkat(dir.fd, path, AT_REMOVEDIR), 0);
		assert_int_equal(symlinkat("../away", dir.fd, path), 0);
		is_found("a link in the place", files[i].name, 0, 0);
		assert_int_equal(unlinkat(dir.fd, path, 0), 0);
		assert_int_equal(mkfifoat(dir.fd, path, 0644), 0);
		is_found("a pipe in the place", files[i].name, 0, 0);
		assert_int_equal(renameat(dir.fd, "away", dir.fd, path), 0);
	}
	told("missing and strange files");
}

/* Opened while all was well: what is read later is compared again. */
static void damage_after_the_load(void **state)
{
	float out[ELEMENTS];
	struct err err;
	for (size_t i = 0; i < file_count; i++) {
		struct damaged_file *file = &files[i];
		for (size_t at = file->prefix; at < file->size; at += 997 * share) {
			struct ckpt *ckpt;
			char byte = (char)(file->bytes[at] ^ 1);
			assert_int_equal(ckpt_open(&dir, VICTIM, 0, &ckpt, &err), 0);
			put(file, at, &byte, 1);
			int bad = 0;
			for (size_t t = 0; t < ckpt_tensor_total(ckpt); t++) {
				const char *name = ckpt_tensor_at(ckpt, t)->name;
				bad += ckpt_read_tensor(ckpt, name, 0, ELEMENTS, out, &err) == CKPT_DAMAGED;
				for (int s = 0; s < SNAPSHOT_STATES && ckpt_has_state(ckpt, name); s++)
					bad +=
						ckpt_read_state(ckpt, (enum snapshot_state)s, name, 0, ELEMENTS, out, &err)
						== CKPT_DAMAGED;
			}
			assert_true(bad > 0);
			put_back(file, at, 1);
			ckpt_close(ckpt);
			tries++;
		}
	}
	told("bytes changed behind an open checkpoint");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_bit_before_the_data),
		cmocka_unit_test(random_bits_of_the_data),
		cmocka_unit_test(every_length),
		cmocka_unit_test(wrong_pages),
		cmocka_unit_test(missing_and_strange_files),
		cmocka_unit_test(damage_after_the_load),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
