/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the bytes of a flight record. Two threads write it; each has two places for its entry and
 * writes them in turn, each time with a hash. So one of the two is whole whenever the process
 * stops. */
#include "config.h"

#include "telemetry/flight.h"

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
#define PART 256 /* bytes of the header and of an entry */
#define HASHED (PART - 8)
#define TRAINING PART
#define COMMUNICATOR (3 * PART)
#define NOW 16
#define FINISHED 128
#define MAPPED 4096

struct flight_recorder {
	unsigned char *map; /* MAPPED bytes, a page of its own; the record is the first FLIGHT_SIZE */
	/* written by the training thread */
	uint64_t training_number;
	unsigned char training[PART];
	/* written by the communicator's thread */
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

/* Copies word by word, since another thread may copy the record at the same time; a torn entry then
 * has a wrong hash. */
static void copy_words(void *to, const void *from, size_t size)
{
	uint64_t *out = to;
	const uint64_t *in = from;
	for (size_t i = 0; i < size / sizeof *in; i++)
		__atomic_store_n(&out[i], __atomic_load_n(&in[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Writes the next entry to the older of the two places at `offset`. */
static void publish(struct flight_recorder *flight, size_t offset, uint64_t *number,
	unsigned char entry[PART])
{
	_Alignas(uint64_t) unsigned char sealed[PART];
	bytes_put_le64(entry, ++*number);
	seal(entry);
	memcpy(sealed, entry, PART);
	copy_words(flight->map + offset + (*number % 2 ? 0 : PART), sealed, PART);
}

void flight_begin(struct flight_recorder *flight, enum flight_phase phase, uint64_t step, int slot)
{
	if (!flight)
		return;
	unsigned char *entry = flight->training;
	bytes_put_le64(entry + 8, step);
	bytes_put_le32(entry + 16, (uint32_t)slot);
	bytes_put_le32(entry + 20, phase);
	put_double(entry + 24, clock_now());
	put_double(entry + 32, 0);
	publish(flight, TRAINING, &flight->training_number, entry);
}

void flight_wait(struct flight_recorder *flight, bool waits)
{
	if (!flight)
		return;
	put_double(flight->training + 32, waits ? clock_now() : 0);
	publish(flight, TRAINING, &flight->training_number, flight->training);
}

static void put_operation(unsigned char *at, const struct flight_operation *operation)
{
	bytes_put_le64(at, operation->step);
	bytes_put_le64(at + 8, operation->bytes);
	put_double(at + 16, operation->entered);
	bytes_put_le32(at + 24, (uint32_t)operation->bucket);
	put_text(at + 32, sizeof operation->operation, operation->operation);
	put_text(at + 48, sizeof operation->label, operation->label);
}

void flight_enter(struct flight_recorder *flight, const struct flight_operation *operation)
{
	if (!flight)
		return;
	put_operation(flight->communicator + NOW, operation);
	publish(flight, COMMUNICATOR, &flight->communicator_number, flight->communicator);
}

void flight_finish(struct flight_recorder *flight)
{
	static const struct flight_operation none = { .bucket = -1 };
	if (!flight)
		return;
	unsigned char *entry = flight->communicator;
	put_double(entry + 8, clock_now());
	memcpy(entry + FINISHED, entry + NOW, FINISHED - NOW);
	put_operation(entry + NOW, &none);
	publish(flight, COMMUNICATOR, &flight->communicator_number, entry);
}

/* ---- making and keeping ---- */

/* The same text on all ranks of an attempt that share a folder: they have the same step, or the
 * same parent. */
static void name_run(const struct ident *ident, char *out, size_t size)
{
	if (ident->job)
		snprintf(out, size, "job %" PRIu32 ", step %" PRIu32 ", attempt %d", ident->job,
			ident->step, ident->attempt);
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

struct flight_recorder *flight_create(const struct ident *ident, struct err *err)
{
	struct flight_recorder *flight = calloc(1, sizeof *flight);
	void *map = flight
		? mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
		: MAP_FAILED;
	if (map == MAP_FAILED) {
		free(flight);
		err_set(err, "flight recorder: out of memory");
		return NULL;
	}
	flight->map = map;
	put_header(flight->map, ident);
	flight_begin(flight, FLIGHT_START, 0, -1);
	return flight;
}

/* Writes all blocks, since on a full disk a store into a hole would kill the process. */
int flight_create_file(int dirfd, const char *name, const unsigned char bytes[FLIGHT_SIZE],
	struct err *err)
{
	char fresh[256];
	snprintf(fresh, sizeof fresh, ".%.200s.%d", name, (int)getpid());
	int fd = openat(dirfd, fresh, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_set(err, "flight recorder: couldn't create %s: %m", name);
	if (pwrite(fd, bytes, FLIGHT_SIZE, 0) == FLIGHT_SIZE
		&& renameat(dirfd, fresh, dirfd, name) == 0)
		return fd;
	err_set(err, "flight recorder: couldn't write %s: %m", name);
	unlinkat(dirfd, fresh, 0);
	close(fd);
	return -1;
}

int flight_keep(struct flight_recorder *flight, int dirfd, const char *name, struct err *err)
{
	unsigned char bytes[FLIGHT_SIZE];
	flight_copy(flight, bytes);
	AUTO_CLOSE int fd = flight_create_file(dirfd, name, bytes, err);
	if (fd < 0)
		return -1;
	if (mmap(flight->map, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0)
		== MAP_FAILED)
		return err_set(err, "flight recorder: couldn't map %s: %m", name);
	publish(flight, TRAINING, &flight->training_number, flight->training);
	return 0;
}

void flight_copy(const struct flight_recorder *flight, unsigned char out[FLIGHT_SIZE])
{
	_Alignas(uint64_t) unsigned char words[FLIGHT_SIZE];
	copy_words(words, flight->map, sizeof words);
	memcpy(out, words, sizeof words);
}

void flight_destroy(struct flight_recorder *flight)
{
	if (!flight)
		return;
	munmap(flight->map, MAPPED);
	free(flight);
}
