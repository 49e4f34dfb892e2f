/* SPDX-License-Identifier: Apache-2.0 */
/* Saving: a snapshot becomes a durable checkpoint, or nothing that a reader would take for one
 * (doc/checkpoint-format.md, section 5). */
#ifndef MUSTER_CKPT_SAVE_H
#define MUSTER_CKPT_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/snapshot.h"
#include "common/err.h"

struct ckpt_saved {
	uint64_t bytes; /* written, of all files */
	double seconds; /* from the first system call to the commit (of a part: until it is durable) */
	bool taken;     /* a valid checkpoint of this step was there already; ours was discarded */
};

/* How files are written; NULL or all zero: the defaults. */
struct ckpt_save_options {
	int threads;   /* that write; 0: the default (4); 1: all system calls come from the calling
					  thread, in a fixed order */
	bool buffered; /* through the page cache; else O_DIRECT where the file system can, which falls
					  back by itself */
	double spare;  /* so many seconds long only with processor time that nobody else wants */
	/* Called now and then from the thread that called, with the bytes written of `total`. May be
	 * NULL. */
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

/* Saves a snapshot of one part. Writes it in .saving-step-…-TOKEN/, makes it durable and commits it
 * by renaming the folder. On an error (the disk is full, an I/O error: EXIT_LOST; the directory has
 * another owner: EXIT_FAULT; the snapshot is wrong: EXIT_FAULT) nothing is renamed, the temporary
 * folder is removed, and the checkpoints that are there stay. The caller may go on and save again
 * later. `options` and `saved` may be NULL. */
int ckpt_save(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	const struct ckpt_save_options *options, struct ckpt_saved *saved, struct err *err);

/* Several writers: writes the files of snapshot->part and then, durably, part-IIIII-of-NNNNN.json.
 * *text (malloc'ed, the caller's) is that file's text. A part of the same step and token that is
 * there already is replaced. On an error (EXIT_LOST too when ckpt_discard came in between) the
 * files of this part are removed, and nothing of another's. */
int ckpt_save_part(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	const struct ckpt_save_options *options, char **text, size_t *size, struct ckpt_saved *saved,
	struct err *err);

/* Commits a save of which all parts are durable: writes the manifest from their texts, and goes on
 * as ckpt_save does; on an error up to the rename the save is over and its folder is removed with
 * all parts. Whoever does it writes the same bytes, and who comes second finds it done: 0. */
int ckpt_commit(const struct ckpt_dir *dir, int64_t step, const char *token, int parts,
	char *const *texts, const size_t *sizes, struct ckpt_saved *saved, struct err *err);

/* Gives a save up: removes .saving-step-…-TOKEN/ with all parts in it. One that is not there is no
 * error. */
int ckpt_discard(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err);

/* At the start of an attempt, by the owner only, before remove_leftovers: commits what earlier
 * owners left complete but uncommitted (a valid manifest, or all parts, with every file verified)
 * if it is newer than the newest step folder; of several the newest. What is not complete or not
 * valid is left to remove_leftovers. Returns how many were committed, -1 on error (an I/O error is
 * retried for `io_timeout` seconds and then EXIT_LOST). */
int ckpt_finish(const struct ckpt_dir *dir, const char *token, double io_timeout, struct err *err);

#endif
