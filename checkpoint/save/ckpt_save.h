/* SPDX-License-Identifier: Apache-2.0 */
/* Saving: a snapshot becomes a durable checkpoint, or nothing that a reader could take for one
 * (doc/checkpoint-format.md, section 5). */
#ifndef MUSTER_CKPT_SAVE_H
#define MUSTER_CKPT_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/snapshot.h"
#include "common/err.h"

/* How to write the files; NULL or all zero: the defaults. */
struct ckpt_save_options {
	int threads; /* that write; 0: the default (4); 1: the calling thread makes all system calls, in
					a fixed order */
	bool buffered; /* use the page cache; otherwise O_DIRECT, where the file system supports it */
	double spare;  /* seconds for which only processor time that no other program wants is used */
	/* Called now and then on the calling thread, with the bytes written of `total`. May be NULL. */
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

/* Saves a snapshot of one part: writes it in .saving-step-…-TOKEN/, makes it durable, and commits
 * it by renaming that folder. On an error (a full disk or an I/O error: EXIT_LOST; another owner of
 * the directory, or a wrong snapshot: EXIT_FAULT) nothing is renamed, the temporary folder is
 * removed, and existing checkpoints stay. The caller may go on and save again later. `options` and
 * `result` may be NULL. */
int ckpt_save(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	const struct ckpt_save_options *options, struct save_result *result, struct err *err);

/* One of several writers: writes the files of snapshot->part and then, durably,
 * part-IIIII-of-NNNNN.json. *text is that file's text, malloc'ed and the caller's. An existing part
 * of the same step and token is replaced. On an error (also EXIT_LOST when ckpt_discard came in
 * between) the files of this part are removed, and no others. */
int ckpt_save_part(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	const struct ckpt_save_options *options, char **text, size_t *size, struct save_result *result,
	struct err *err);

/* Commits a save whose parts are all durable: writes the manifest made from their texts, and goes
 * on as ckpt_save does. On an error before the rename, the save is over and its folder is removed
 * with all parts. Any process that does this writes the same bytes; one that comes second finds it
 * done and returns 0. */
int ckpt_commit(const struct ckpt_dir *dir, int64_t step, const char *token, int parts,
	char *const *texts, const size_t *sizes, struct save_result *result, struct err *err);

/* Gives a save up: removes .saving-step-…-TOKEN/ with all parts in it. No error if it does not
 * exist. */
int ckpt_discard(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err);

/* For the owner at the start of an attempt, before remove_leftovers: commits a save that earlier
 * owners completed but did not commit (it has a valid manifest, or all parts, and every file
 * verifies), if it is newer than the newest step folder; of several, the newest. Saves that are not
 * complete or not valid are left to remove_leftovers. Returns how many were committed, -1 on error
 * (an I/O error is retried for `io_timeout` seconds and is then EXIT_LOST). */
int ckpt_finish(const struct ckpt_dir *dir, const char *token, double io_timeout, struct err *err);

#endif
