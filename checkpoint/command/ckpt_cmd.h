/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of muster-ckpt, and the helpers that they share. */
#ifndef MUSTER_CKPT_CMD_H
#define MUSTER_CKPT_CMD_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/load/ckpt_place.h"
#include "common/err.h"

/* Runs with argv[0] "muster-ckpt NAME" and returns the exit status. --help and usage errors exit
 * (argp). */
typedef int ckpt_cmd_run(int argc, char **argv);

ckpt_cmd_run ckpt_cmd_ls, ckpt_cmd_show, ckpt_cmd_verify, ckpt_cmd_diff, ckpt_cmd_prune,
	ckpt_cmd_pin, ckpt_cmd_unpin, ckpt_cmd_history, ckpt_cmd_import, ckpt_cmd_export;

/* Seconds for which an I/O error is retried while a person waits for the answer. */
#define CKPT_CMD_IO_TIMEOUT 10.0

/* Reads the checkpoint's values; *values is the caller's, NULL when it has none. */
int ckpt_cmd_values(struct ckpt *ckpt, json_t **values, struct err *err);

/* ---- output ---- */

/* Prints the error on one line and returns its exit status. */
int ckpt_cmd_fail(const struct err *err);

/* Prints a JSON document, releases it, and flushes. Returns the exit status. */
int ckpt_cmd_print_json(json_t *object);

/* Flushes standard output. Returns EXIT_OK, or EXIT_FAULT after printing an error line. */
int ckpt_cmd_flush(void);

/* The number as JSON; JSON null if it is not finite. */
json_t *ckpt_cmd_number(double value);

/* Formats a number for people, NAN as "-". `out` holds 24 bytes; returns it. */
char *ckpt_cmd_loss(double value, char out[24]);

/* Formats a time as "2026-01-31 12:34:56" in local time, 0 as "-". `out` holds 32 bytes; returns
 * it. */
char *ckpt_cmd_time(double wall, char out[32]);

/* ---- table ---- */

#define CKPT_TABLE_COLUMNS 16

/* A text table with aligned columns. A value; zeroed means empty. */
struct ckpt_table {
	int columns;    /* at most CKPT_TABLE_COLUMNS */
	unsigned right; /* bit c set: column c is aligned to the right */
	char **cells;
	size_t count; /* of cells */
	bool failed;  /* out of memory */
};

/* Appends the next cell; each `columns` cells make a row. */
void ckpt_table_add(struct ckpt_table *table, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Appends a text that malloc made, and frees it. NULL: there was no memory for it. */
void ckpt_table_take(struct ckpt_table *table, char *text);

/* Prints all rows. A table that lacks memory is not printed, and ckpt_cmd_flush fails. */
void ckpt_table_print(const struct ckpt_table *table);
void ckpt_table_clear(struct ckpt_table *table);

#endif
