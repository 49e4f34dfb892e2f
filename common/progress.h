/* SPDX-License-Identifier: Apache-2.0 */
/* What people see on a terminal during a long operation, a bar, and after it, what comes next.
 * Elsewhere, where programs read the output, nothing is printed. */
#ifndef MUSTER_PROGRESS_H
#define MUSTER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	const char *what;     /* such as "verify" */
	const char *unit;     /* what is counted, such as "tokens"; NULL: bytes */
	uint64_t total, done; /* total 0: unknown */
	double began, shown;  /* clock_now() */
	bool visible;
};

/* Draws on standard error if that is a terminal and `quiet` is false. `what` is borrowed until
 * progress_end. `unit` may be set afterwards. */
void progress_begin(struct progress *progress, const char *what, uint64_t total, bool quiet);
void progress_add(struct progress *progress, uint64_t count);
void progress_end(struct progress *progress);

/* Wipes the bar so that a line of output can be printed. */
void progress_wipe(const struct progress *progress);

/* After the end of the work: prints "next: …", what a person does next, on standard error if that
 * and standard output are terminals. */
void progress_next(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The bar as text of at most `size` bytes, `seconds` after the start. A pure function. Returns
 * `out`. */
char *progress_text(const struct progress *progress, double seconds, char *out, size_t size);

/* A time in readable form: "59 s", "1 min 02 s", "2 h 03 min", "4 d 5 h"; NAN: "?". Returns `out`.
 */
#define PROGRESS_TIME_SIZE 32
char *progress_time(double seconds, char out[PROGRESS_TIME_SIZE]);

/* Bytes in readable form: "512 B", "1.5 kB", "12.3 GB" (powers of 1000). Returns `out`. */
char *progress_bytes(double bytes, char out[16]);

#endif
