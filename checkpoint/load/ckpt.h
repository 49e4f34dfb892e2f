/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint opened for reading. Callers read (tensor, element range); every byte is hashed
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

/* The third result of the functions below, besides 0 and -1: the bytes are not those that were
 * saved. err is set (EXIT_DATA). */
#define CKPT_DAMAGED (-2)

/* Opens the checkpoint of `step`. Checks the manifest, the sizes and headers of all shards, and
 * that the boxes of a tensor, and the optimizer's slices of one, cover it exactly once.
 * `io_timeout` limits the seconds for which an I/O error is retried, by opening anew, before it
 * becomes EXIT_LOST; this holds for the functions below too. Until ckpt_close no process removes
 * the checkpoint, where the file system has locks. */
int ckpt_open(const struct ckpt_dir *dir, int64_t step, double io_timeout, struct ckpt **ckpt,
	struct err *err);

/* Opens a folder of any name in the same way: a pending save, or a copy that a user made. `step`
 * -1: of any step. */
int ckpt_open_folder(const struct ckpt_dir *dir, const char *folder, int64_t step,
	double io_timeout, struct ckpt **ckpt, struct err *err);
void ckpt_close(struct ckpt *ckpt);

/* Reads every file whole and compares all hashes. */
int ckpt_verify(struct ckpt *ckpt, struct err *err);

/* A request for elements [first, first + count) of a tensor's optimizer state, and where to put
 * them. */
struct ckpt_want {
	enum snapshot_state state;
	const char *tensor;
	uint64_t first, count;
	float *out;
};

/* Does what ckpt_verify does, and delivers what `wants` requests on the way, so that each byte is
 * read once. If the result is not 0, nothing that was delivered may be used. */
int ckpt_load(struct ckpt *ckpt, const struct ckpt_want *wants, size_t count, struct err *err);

/* The same by `parts` processes, each of which knows as `part` what it takes: reads and compares
 * the chunks that hold requested bytes, each once, and a share of the files that hold no
 * optimizer's state. If together they request all of that, together they verify all. */
int ckpt_load_share(struct ckpt *ckpt, const struct ckpt_want *wants, size_t count, int part,
	int parts, struct err *err);

/* Opens the newest checkpoint that verifies. Returns 1 with *ckpt, 0 when there is none (a fresh
 * start), -1 on error. Walks from the newest step down. A checkpoint that fails twice, each time
 * opened anew, is set aside with a logged error, and the one before it is tried. A lasting I/O
 * error ends as EXIT_LOST, and a checkpoint of a newer format version as EXIT_DATA: neither sets
 * anything aside. Only the directory's owner may call it. */
int ckpt_open_newest(const struct ckpt_dir *dir, double io_timeout, struct ckpt **ckpt,
	struct err *err);

/* The first half of ckpt_open_newest: opens the newest checkpoint before step `below` that
 * ckpt_open accepts, and sets aside those that it does not. A caller whose ckpt_load finds damage
 * then calls ckpt_dir_set_aside, and this function again with that step. */
int ckpt_open_below(const struct ckpt_dir *dir, int64_t below, double io_timeout,
	struct ckpt **ckpt, struct err *err);

const struct manifest *ckpt_manifest(const struct ckpt *ckpt);

/* Name, dtype and shape of a tensor of the model or of the state, or NULL. */
const struct safetensors_tensor *ckpt_tensor_find(const struct ckpt *ckpt, const char *name);

/* The tensors of the model have the indices below ckpt_tensor_count, those of the state the indices
 * from there up to ckpt_tensor_total; each in the order of their names. */
size_t ckpt_tensor_count(const struct ckpt *ckpt);
size_t ckpt_tensor_total(const struct ckpt *ckpt);
const struct safetensors_tensor *ckpt_tensor_at(const struct ckpt *ckpt, size_t index);

/* In how many boxes it is stored; 1: whole. */
size_t ckpt_tensor_boxes(const struct ckpt *ckpt, size_t index);

/* Reads elements [first, first + count) of a tensor, from whichever boxes hold them, in its dtype
 * (which must have whole bytes: not F4 or F6). */
int ckpt_read_tensor(struct ckpt *ckpt, const char *name, uint64_t first, uint64_t count, void *out,
	struct err *err);

/* Reads the elements of a tensor whose index in each dimension d is in [offset[d], offset[d] +
 * size[d]), in row-major order, likewise. */
int ckpt_read_box(struct ckpt *ckpt, const char *name, const int64_t *offset, const int64_t *size,
	void *out, struct err *err);

/* Reads values.json. *text is malloc'ed and the caller's, with a NUL after its *size bytes; NULL
 * when the checkpoint has no such file. */
int ckpt_read_values(struct ckpt *ckpt, char **text, size_t *size, struct err *err);

/* Reads config.json in the same way. */
int ckpt_read_config(struct ckpt *ckpt, char **text, size_t *size, struct err *err);

/* Whether the checkpoint has optimizer state for `tensor`. */
bool ckpt_has_state(const struct ckpt *ckpt, const char *tensor);

/* Reads elements [first, first + count) of a tensor's optimizer state, from whichever slices and
 * shards hold them. */
int ckpt_read_state(struct ckpt *ckpt, enum snapshot_state state, const char *tensor,
	uint64_t first, uint64_t count, float *out, struct err *err);

#endif
