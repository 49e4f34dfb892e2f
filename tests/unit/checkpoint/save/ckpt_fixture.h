/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint directory that this process owns, and the sample state saved in it, in one part or
 * several. Include after cmocka.h. Whatever goes wrong here fails the test. */
#ifndef MUSTER_CKPT_FIXTURE_H
#define MUSTER_CKPT_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/directory/owner.h"

#define CKPT_FIXTURE_PARTS 5      /* at most */
#define CKPT_FIXTURE_PATIENCE 0.2 /* seconds that an I/O error is retried */

struct ckpt_fixture {
	struct ckpt_dir dir;
	struct owner owner;
	int parts; /* of the last save in parts; the texts and sizes of its part files */
	char *text[CKPT_FIXTURE_PARTS];
	size_t size[CKPT_FIXTURE_PARTS];
	int errors; /* lines of that level that were logged */
};

/* Makes the directory `path` and claims it. What is logged until it is closed is counted, and
 * dropped. */
void ckpt_fixture_open(struct ckpt_fixture *fixture, const char *path);
void ckpt_fixture_close(struct ckpt_fixture *fixture);

/* Saves the sample state after `step` steps. */
void ckpt_fixture_save(struct ckpt_fixture *fixture, int64_t step);

/* Saves one part of it, from 0; all parts, which are not committed. `shard_size` in bytes, 0: no
 * limit. */
void ckpt_fixture_save_part(struct ckpt_fixture *fixture, int64_t step, int part, int parts,
	uint64_t shard_size);
void ckpt_fixture_save_parts(struct ckpt_fixture *fixture, int64_t step, int parts,
	uint64_t shard_size);

/* The text of the manifest that follows from the last save's parts; malloc'ed, the caller's. */
char *ckpt_fixture_join(const struct ckpt_fixture *fixture, int64_t step, size_t *size);

/* The newest checkpoint is that of `step`, and holds its state; -1: there is none. */
void ckpt_fixture_newest_is(struct ckpt_fixture *fixture, int64_t step);

/* Whether the directory has the name. */
bool ckpt_fixture_has(const struct ckpt_fixture *fixture, const char *name);

/* The step folders are these, and no others. */
void ckpt_fixture_steps_are(const struct ckpt_fixture *fixture, const int64_t *want, size_t count);

/* The path of `name` in the folder of a step; valid until the next call. */
char *ckpt_fixture_in_step(int64_t step, const char *name);

/* Changes one bit of a file of the directory. */
void ckpt_fixture_flip_bit(const struct ckpt_fixture *fixture, const char *path, off_t byte,
	int bit);

#endif
