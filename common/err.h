/* SPDX-License-Identifier: Apache-2.0 */
/* An error: one line of text and the exit status that it leads to, in a buffer that the caller
 * owns. Libraries fill it in; main() prints it. */
#ifndef MUSTER_ERR_H
#define MUSTER_ERR_H

/* The exit statuses of every Muster program (doc/exit-status.md; 65, 69 and 75 are sysexits.h's).
 */
enum exit_status {
	EXIT_OK = 0,       /* finished */
	EXIT_FAULT = 1,    /* a fault of the program or its machine */
	EXIT_USAGE = 2,    /* wrong option or combination of options */
	EXIT_DATA = 65,    /* bad data, or a checkpoint that can't be used */
	EXIT_LOST = 69,    /* a peer was lost, a deadline passed, an I/O error that may pass: requeue */
	EXIT_REQUEUE = 75, /* checkpointed: requeue */
};

struct err {
	enum exit_status status;
	char text[1000];
};

/* Sets the text (truncated if too long, control characters replaced: it is one line) and status
 * EXIT_FAULT. Returns -1, so that `return err_set(…)` reads well. `err` may be NULL: then only -1
 * is returned. */
int err_set(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with a given status. */
int err_fail(struct err *err, enum exit_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "TEXT: " in front of the error's text and keeps its status. Returns -1. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
