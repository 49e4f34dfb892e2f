/* SPDX-License-Identifier: Apache-2.0 */
/* The record's bytes. Each of its two writers has two places and writes them in turn, with a hash: whenever the process stops,
 * one of them is whole. */
#include "config.h"

#include "trainer/telemetry/standing.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/hash.h"

#define MAGIC "MSTAND01"
#define PART 256 /* the header, and an entry */
#define HASHED (PART - 8)
#define TRAINING PART
#define COMMUNICATOR (3 * PART)
#define NOW 16
#define FINISHED 128
#define MAPPED 4096

struct standing {
	unsigned char *map; /* MAPPED bytes, of which STANDING_SIZE are the record; a page of its own */
	/* the training thread's */
	uint64_t training_number;
	unsigned char training[PART];
	/* the communicator's thread's */
	uint64_t communicator_number;
	unsigned char communicator[PART];
};

/* ---- writing ---- */

static void put_double(unsigned char *at, double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	bytes_put_le64(at, bits);
}

static void put_text(unsigned char *at, size_t size, const char *text)
{
	memset(at, 0, size);
	for (size_t i = 0; i < size - 1 && text[i]; i++)
		at[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : (unsigned char)text[i];
}

static void seal(unsigned char part[PART])
{
	bytes_put_le64(part + HASHED, hash_bytes(part, HASHED).low);
}

/* Word by word, since another thread may be copying the record: what it then gets has a wrong hash. */
static void copy_words(void *to, const void *from, size_t size)
{
	uint64_t *out = to;
	const uint64_t *in = from;
	for (size_t i = 0; i < size / sizeof *in; i++)
		__atomic_store_n(&out[i], __atomic_load_n(&in[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Writes the next entry at one of the two places from `offset` on. */
static void publish(struct standing *standing, size_t offset, uint64_t *number, unsigned char entry[PART])
{
	_Alignas(uint64_t) unsigned char sealed[PART];
	bytes_put_le64(entry, ++*number);
	seal(entry);
	memcpy(sealed, entry, PART);
	copy_words(standing->map + offset + (*number % 2 ? 0 : PART), sealed, PART);
}

void standing_begin(struct standing *standing, enum standing_phase phase, uint64_t step, int slot)
{
	if (!standing)
		return;
	unsigned char *entry = standing->training;
	bytes_put_le64(entry + 8, step);
	bytes_put_le32(entry + 16, (uint32_t)slot);
	bytes_put_le32(entry + 20, phase);
	put_double(entry + 24, clock_now());
	put_double(entry + 32, 0);
	publish(standing, TRAINING, &standing->training_number, entry);
}

void standing_wait(struct standing *standing, bool waits)
{
	if (!standing)
		return;
	put_double(standing->training + 32, waits ? clock_now() : 0);
	publish(standing, TRAINING, &standing->training_number, standing->training);
}

static void put_operation(unsigned char *at, const struct standing_operation *operation)
{
	bytes_put_le64(at, operation->step);
	bytes_put_le64(at + 8, operation->bytes);
	put_double(at + 16, operation->entered);
	bytes_put_le32(at + 24, (uint32_t)operation->bucket);
	put_text(at + 32, sizeof operation->operation, operation->operation);
	put_text(at + 48, sizeof operation->label, operation->label);
}

void standing_enter(struct standing *standing, const struct standing_operation *operation)
{
	if (!standing)
		return;
	put_operation(standing->communicator + NOW, operation);
	publish(standing, COMMUNICATOR, &standing->communicator_number, standing->communicator);
}

void standing_finish(struct standing *standing)
{
	static const struct standing_operation none = { .bucket = -1 };
	if (!standing)
		return;
	unsigned char *entry = standing->communicator;
	put_double(entry + 8, clock_now());
	memcpy(entry + FINISHED, entry + NOW, FINISHED - NOW);
	put_operation(entry + NOW, &none);
	publish(standing, COMMUNICATOR, &standing->communicator_number, entry);
}

/* ---- making and keeping ---- */

/* All ranks of an attempt that share a folder have the same parent or the same step. */
static void name_run(const struct ident *ident, char *out, size_t size)
{
	if (ident->job)
		snprintf(out, size, "job %" PRIu32 ", step %" PRIu32 ", attempt %d", ident->job, ident->step, ident->attempt);
	else
		snprintf(out, size, "%d ranks of process %d", ident->world_size, (int)getppid());
}

static void put_header(unsigned char *at, const struct ident *ident)
{
	char run[64];
	name_run(ident, run, sizeof run);
	memcpy(at, MAGIC, 8);
	bytes_put_le32(at + 8, (uint32_t)ident->rank);
	bytes_put_le32(at + 12, (uint32_t)ident->world_size);
	bytes_put_le32(at + 16, (uint32_t)ident->attempt);
	bytes_put_le32(at + 20, (uint32_t)getpid());
	put_double(at + 24, clock_wall() - clock_now());
	put_text(at + 32, 64, ident->node);
	put_text(at + 96, 64, run);
	seal(at);
}

struct standing *standing_create(const struct ident *ident, struct err *err)
{
	struct standing *standing = calloc(1, sizeof *standing);
	void *map = standing ? mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
	if (map == MAP_FAILED) {
		free(standing);
		err_set(err, "standing: out of memory");
		return NULL;
	}
	standing->map = map;
	put_header(standing->map, ident);
	standing_begin(standing, STANDING_START, 0, -1);
	return standing;
}

/* With all its blocks: a store into a hole on a full disk would kill the process. */
int standing_create_file(int dirfd, const char *name, const unsigned char bytes[STANDING_SIZE], struct err *err)
{
	char fresh[256];
	snprintf(fresh, sizeof fresh, ".%.200s.%d", name, (int)getpid());
	int fd = openat(dirfd, fresh, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_set(err, "standing: couldn't create %s: %m", name);
	if (pwrite(fd, bytes, STANDING_SIZE, 0) == STANDING_SIZE && renameat(dirfd, fresh, dirfd, name) == 0)
		return fd;
	err_set(err, "standing: couldn't write %s: %m", name);
	unlinkat(dirfd, fresh, 0);
	close(fd);
	return -1;
}

int standing_keep(struct standing *standing, int dirfd, const char *name, struct err *err)
{
	unsigned char bytes[STANDING_SIZE];
	standing_copy(standing, bytes);
	AUTO_CLOSE int fd = standing_create_file(dirfd, name, bytes, err);
	if (fd < 0)
		return -1;
	if (mmap(standing->map, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return err_set(err, "standing: couldn't map %s: %m", name);
	publish(standing, TRAINING, &standing->training_number, standing->training);
	return 0;
}

void standing_copy(const struct standing *standing, unsigned char out[STANDING_SIZE])
{
	_Alignas(uint64_t) unsigned char words[STANDING_SIZE];
	copy_words(words, standing->map, sizeof words);
	memcpy(out, words, sizeof words);
}

void standing_destroy(struct standing *standing)
{
	if (!standing)
		return;
	munmap(standing->map, MAPPED);
	free(standing);
}
