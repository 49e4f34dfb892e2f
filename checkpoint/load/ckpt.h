/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint opened for reading. What is read is (tensor, element range); every byte is hashed
 * before it is used. */
#ifndef MUSTER_CKPT_H
#define MUSTER_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/snapshot.h"
#include "common/err.h"

struct ckpt; /* used by one thread at a time */

/* What the functions below return besides 0 and -1: the bytes are not those that were saved. err is
 * set (EXIT_DATA). */
#define CKPT_DAMAGED (-2)

/* Opens the checkpoint of `step`: manifest, sizes, headers of all shards, and that the slices of
 * the optimizer cover each tensor they name exactly once. `io_timeout` (seconds) is how long an I/O
 * error is retried, by opening anew, before it ends as EXIT_LOST; also in the functions below.
 * Until it is closed nobody removes it, where the file system has locks. */
int ckpt_open(const struct ckpt_dir *dir, int64_t step, double io_timeout, struct ckpt **ckpt,
	struct err *err);

/* The same for a folder of any name: a save that is not committed, or what people have copied.
 * `step` -1: of any step. */
int ckpt_open_folder(const struct ckpt_dir *dir, const char *folder, int64_t step,
	double io_timeout, struct ckpt **ckpt, struct err *err);
void ckpt_close(struct ckpt *ckpt);

/* Reads every file whole and compares all hashes. */
int ckpt_verify(struct ckpt *ckpt, struct err *err);

/* Elements [first, first + count) of the optimizer's state of a tensor, and where they go. */
struct ckpt_want {
	enum snapshot_state state;
	const char *tensor;
	uint64_t first, count;
	float *out;
};

/* The same as ckpt_verify, and what is wanted goes where it is wanted on the way: each byte is read
 * once. Other than 0: what was delivered until then is worth nothing. */
int ckpt_load(struct ckpt *ckpt, const struct ckpt_want *wants, size_t count, struct err *err);

/* The same for what is wanted alone: only the chunks that hold some of it are read and compared,
 * each once. */
int ckpt_fetch(struct ckpt *ckpt, const struct ckpt_want *wants, size_t count, struct err *err);

/* Opens the newest checkpoint that verifies. Returns 1 with *ckpt, 0 when there is none (a fresh
 * start), -1 on error. Walks from the newest step down. What does not verify, twice and on fresh
 * opens, is set aside with a logged error and the one before is tried. An I/O error that does not
 * pass is EXIT_LOST, and a checkpoint of a newer format version EXIT_DATA: neither sets anything
 * aside. Only the directory's owner may call it. */
int ckpt_open_newest(const struct ckpt_dir *dir, double io_timeout, struct ckpt **ckpt,
	struct err *err);

/* The first half of that: opens the newest checkpoint below step `below` that ckpt_open takes, and
 * sets aside what it does not. Whose ckpt_load finds damage then calls ckpt_dir_set_aside and goes
 * on below. */
int ckpt_open_below(const struct ckpt_dir *dir, int64_t below, double io_timeout,
	struct ckpt **ckpt, struct err *err);

const struct manifest *ckpt_manifest(const struct ckpt *ckpt);

/* Name, dtype and shape of a tensor of the model, or NULL; ckpt_tensor_at for 0 ≤ index <
 * ckpt_tensor_count. */
const struct safetensors_tensor *ckpt_tensor_find(const struct ckpt *ckpt, const char *name);
size_t ckpt_tensor_count(const struct ckpt *ckpt);
const struct safetensors_tensor *ckpt_tensor_at(const struct ckpt *ckpt, size_t index);

/* Reads elements [first, first + count) of a model tensor, in its dtype (whole bytes only: not F4
 * or F6). */
int ckpt_read_tensor(struct ckpt *ckpt, const char *name, uint64_t first, uint64_t count, void *out,
	struct err *err);

/* Whether there is optimizer state of a tensor. */
bool ckpt_has_state(const struct ckpt *ckpt, const char *tensor);

/* Reads elements [first, first + count) of the optimizer's state of a tensor, whichever slices and
 * shards hold them. */
int ckpt_read_state(struct ckpt *ckpt, enum snapshot_state state, const char *tensor,
	uint64_t first, uint64_t count, float *out, struct err *err);

#endif
