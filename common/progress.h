/* SPDX-License-Identifier: Apache-2.0 */
/* The bar that people see on a terminal while something long goes on. Nothing is drawn elsewhere.
 */
#ifndef MUSTER_PROGRESS_H
#define MUSTER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	const char *what;     /* "verify" */
	uint64_t total, done; /* bytes; total 0: not known */
	double began, shown;  /* clock_now() */
	bool visible;
};

/* Draws on standard error if that is a terminal and `quiet` is false. */
void progress_begin(struct progress *progress, const char *what, uint64_t total, bool quiet);
void progress_add(struct progress *progress, uint64_t bytes);
void progress_end(struct progress *progress);

/* Makes room for a line of output in between. */
void progress_wipe(const struct progress *progress);

/* The bar as text of at most `size` bytes after `seconds`: a pure function. Returns `out`. */
char *progress_text(const struct progress *progress, double seconds, char *out, size_t size);

/* Bytes as people read them: "512 B", "1.5 kB", "12.3 GB" (powers of 1000). `out` holds 16 bytes;
 * returns it. */
char *progress_bytes(double bytes, char out[16]);

#endif
