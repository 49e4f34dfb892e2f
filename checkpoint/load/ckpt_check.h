/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a checkpoint without changing anything, and reports every fault with its file and
 * bytes. */
#ifndef MUSTER_CKPT_CHECK_H
#define MUSTER_CKPT_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

/* Reports one fault: `size` bytes of `file` from `first` on; size 0: the file as a whole. */
typedef void ckpt_check_fault(void *arg, const char *file, uint64_t first, uint64_t size,
	const char *what);

struct ckpt_check {
	bool deep;               /* read every byte; else only the manifest, sizes and headers */
	ckpt_check_fault *fault; /* may be NULL */
	void (*progress)(void *arg, uint64_t bytes); /* called after each block read; may be NULL */
	void *arg;
};

enum ckpt_verdict { CKPT_VALID, CKPT_FAULTY, CKPT_UNKNOWN, CKPT_GONE };

/* Checks the folder `name` of `dir`; if its name is that of a step, its contents must be of that
 * step. FAULTY: `err` (EXIT_DATA) holds the first fault. UNKNOWN: the check could not be finished;
 * `err` says why (EXIT_LOST: an I/O error; else no access, no memory, or a newer format). GONE: the
 * folder's name vanished meanwhile, as when retention removes it. A chunk that has its hash when
 * read a second time is no fault. */
enum ckpt_verdict ckpt_check(const struct ckpt_dir *dir, const char *name,
	const struct ckpt_check *check, struct err *err);

/* The bytes that a deep check of the folder reads; 0 when it has no valid manifest. */
uint64_t ckpt_check_bytes(const struct ckpt_dir *dir, const char *name);

#endif
