/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands of muster-ckpt share: reading values, and printing. */
#include "config.h"
#include "checkpoint/command/ckpt_cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/format/manifest.h"
#include "common/record.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/number.h"

int ckpt_cmd_values(struct ckpt *ckpt, json_t **values, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	*values = NULL;
	if (ckpt_read_values(ckpt, &text, &size, err) < 0)
		return -1;
	if (!text)
		return 0;
	*values = record_parse(text, size, JSON_REJECT_DUPLICATES, "checkpoint: the values", err);
	return *values ? 0 : -1;
}

/* ---- output ---- */

int ckpt_cmd_fail(const struct err *err)
{
	fprintf(stderr, "muster-ckpt: %s\n", err->text);
	return err->status;
}

/* A table lacks memory. */
static bool lacks_table;

int ckpt_cmd_flush(void)
{
	struct err err;
	if (lacks_table) {
		err_set(&err, "output: no memory for a table");
		return ckpt_cmd_fail(&err);
	}
	return io_flush_output(&err) == 0 ? EXIT_OK : ckpt_cmd_fail(&err);
}

int ckpt_cmd_print_json(json_t *object)
{
	struct err err;
	AUTO_FREE char *text = record_dump(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	bool printed = text && puts(text) >= 0;
	json_decref(object);
	if (printed || ferror(stdout))
		return ckpt_cmd_flush();
	err_set(&err, "output: couldn't print JSON: no memory, or a text is not UTF-8");
	return ckpt_cmd_fail(&err);
}

json_t *ckpt_cmd_number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

char *ckpt_cmd_loss(double value, char out[24])
{
	snprintf(out, 24, isnan(value) ? "-" : "%.6g", value);
	return out;
}

char *ckpt_cmd_time(double wall, char out[32])
{
	/* A manifest from elsewhere may hold any number. */
	time_t seconds = wall > 0 && wall < 1e15 ? (time_t)wall : 0;
	struct tm tm;
	if (seconds == 0 || !localtime_r(&seconds, &tm)
		|| strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		snprintf(out, 32, "-");
	return out;
}

/* ---- table ---- */

void ckpt_table_add(struct ckpt_table *table, const char *format, ...)
{
	char *text = NULL;
	va_list args;
	va_start(args, format);
	int n = vasprintf(&text, format, args);
	va_end(args);
	char **cells = n < 0 ? NULL : realloc(table->cells, (table->count + 1) * sizeof *cells);
	if (!cells) {
		free(n < 0 ? NULL : text);
		table->failed = true;
		return;
	}
	/* Text from files must not move the terminal's cursor. */
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	table->cells = cells;
	cells[table->count++] = text;
}

void ckpt_table_take(struct ckpt_table *table, char *text)
{
	if (text)
		ckpt_table_add(table, "%s", text);
	table->failed |= !text;
	free(text);
}

/* The widest cell of a column, in bytes. */
static int width_of(const struct ckpt_table *table, int column)
{
	int width = 0;
	for (size_t i = (size_t)column; i < table->count; i += (size_t)table->columns)
		if ((int)strlen(table->cells[i]) > width)
			width = (int)strlen(table->cells[i]);
	return width;
}

void ckpt_table_print(const struct ckpt_table *table)
{
	int widths[CKPT_TABLE_COLUMNS] = { 0 };
	lacks_table |= table->failed;
	if (table->failed)
		return;
	for (int c = 0; c < table->columns; c++)
		widths[c] = width_of(table, c);
	for (size_t i = 0; i < table->count; i++) {
		int column = (int)(i % (size_t)table->columns);
		bool last = column == table->columns - 1;
		if (table->right & 1u << column)
			printf("%*s%s", widths[column], table->cells[i], last ? "\n" : "  ");
		else if (last)
			printf("%s\n", table->cells[i]);
		else
			printf("%-*s  ", widths[column], table->cells[i]);
	}
}

void ckpt_table_clear(struct ckpt_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	*table = (struct ckpt_table) { 0 };
}
