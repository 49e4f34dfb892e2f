/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are mostly zero, made short: again and again one byte, how many zeros; one byte, how many other bytes; these. Each
 * count is 0 to 255, and the last pair ends the bytes. */
#ifndef MUSTER_ZERO_RUNS_H
#define MUSTER_ZERO_RUNS_H

#include <stddef.h>

/* The most that `size` bytes become. */
size_t zero_runs_bound(size_t size);

/* Writes into `out`, of zero_runs_bound(size) bytes; returns how many it took. */
size_t zero_runs_pack(const unsigned char *bytes, size_t size, unsigned char *out);

/* How many bytes `packed` stands for; -1 where it is cut off. */
long zero_runs_size(const unsigned char *packed, size_t size);

/* Writes these, for which zero_runs_size() was not -1. */
void zero_runs_unpack(const unsigned char *packed, size_t size, unsigned char *out);

#endif
