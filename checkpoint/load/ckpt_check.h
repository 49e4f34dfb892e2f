/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at a checkpoint without changing anything, and tells every fault: which file, which bytes.
 */
#ifndef MUSTER_CKPT_CHECK_H
#define MUSTER_CKPT_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

/* One fault. `first` and `size` are the bytes concerned of `file`; size 0: the file as a whole. */
typedef void ckpt_check_fault(void *arg, const char *file, uint64_t first, uint64_t size,
	const char *what);

struct ckpt_check {
	bool deep;               /* read every byte; else only the manifest, sizes and headers */
	ckpt_check_fault *fault; /* may be NULL */
	void (*progress)(void *arg, uint64_t bytes); /* after each block read; may be NULL */
	void *arg;
};

enum ckpt_verdict { CKPT_VALID, CKPT_FAULTY, CKPT_UNKNOWN, CKPT_GONE };

/* Checks the folder `name` of `dir`, which must be of its step if it has a step's name. FAULTY:
 * `err` (EXIT_DATA) holds the first fault. UNKNOWN: it can't be told; `err` says why (EXIT_LOST: an
 * I/O error; else no access, no memory, or a newer format). GONE: the folder lost its name
 * meanwhile, as when retention removes it. What is read twice and differs from its hash only the
 * first time is no fault. */
enum ckpt_verdict ckpt_check(const struct ckpt_dir *dir, const char *name,
	const struct ckpt_check *check, struct err *err);

/* Bytes that a deep check of the folder reads, 0 when it has no valid manifest. */
uint64_t ckpt_check_bytes(const struct ckpt_dir *dir, const char *name);

#endif
