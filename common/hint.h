/* SPDX-License-Identifier: Apache-2.0 */
/* What a person does next: a program's last line on a terminal, and nothing elsewhere, where
 * programs read the output. */
#ifndef MUSTER_HINT_H
#define MUSTER_HINT_H

/* Prints "next: …" on standard error if that is a terminal. */
void hint_next(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
