/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the metrics of several attempts into one curve. */
#include "config.h"

#include "runs/curve.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/bytes.h"
#include "runs/gnuplot.h"

static int add_attempt(int dirfd, int attempt, struct run_table *curve, struct err *err)
{
	struct run_table table;
	int rc = run_table_read(dirfd, attempt, &table, err);
	if (rc == 0 && table.bad_line)
		rc = err_fail(err, EXIT_DATA,
			"curve: couldn't read line %zu of metrics-%d.jsonl: it is no record of a step",
			table.bad_line, attempt);
	if (rc == 0)
		rc = run_table_merge(curve, &table, err);
	run_table_clear(&table);
	return rc;
}

int curve_read(int dirfd, struct run_table *curve, size_t *attempts, struct err *err)
{
	AUTO_FREE int *numbers = NULL;
	*curve = (struct run_table) { 0 };
	if (run_table_list(dirfd, &numbers, attempts, err) < 0)
		return -1;
	for (size_t i = 0; i < *attempts; i++) {
		if (add_attempt(dirfd, numbers[i], curve, err) < 0) {
			run_table_clear(curve);
			return -1;
		}
	}
	return 0;
}

/* Prints the bits and the number that they stand for. */
static void print_bits(double bits, FILE *out)
{
	fprintf(out, " %08x %.9g", (uint32_t)bits, (double)bytes_to_float((uint32_t)bits));
}

void curve_print(const struct run_table *curve, FILE *out)
{
	for (size_t i = 0; i < curve->count; i++) {
		const double loss = run_table_value(curve, "loss_bits", i);
		const double norm = run_table_value(curve, "norm_bits", i);
		const double validation = run_table_value(curve, "validation_loss_bits", i);
		if (isnan(loss))
			continue;
		fprintf(out, "%llu", (unsigned long long)curve->steps[i]);
		print_bits(loss, out);
		if (isnan(norm))
			fputs(" - -", out);
		else
			print_bits(norm, out);
		if (!isnan(validation))
			print_bits(validation, out);
		fputc('\n', out);
	}
}

/* ---- for other programs ---- */

/* A name of a program's own may have anything in it. */
static void print_name(const char *name, FILE *out)
{
	fputs(",\"", out);
	for (; *name; name++) {
		if (*name == '"')
			fputc('"', out);
		fputc(*name, out);
	}
	fputc('"', out);
}

static void export_csv(const struct run_table *curve, FILE *out)
{
	fputs("\"step\"", out);
	for (int c = 0; c < curve->width; c++)
		print_name(curve->columns[c].name, out);
	fputc('\n', out);
	for (size_t row = 0; row < curve->count; row++) {
		fprintf(out, "%llu", (unsigned long long)curve->steps[row]);
		for (int c = 0; c < curve->width; c++) {
			const double value = curve->columns[c].values[row];
			if (isnan(value))
				fputc(',', out);
			else if (run_table_is_bits(curve->columns[c].name))
				fprintf(out, ",%08x", (uint32_t)value);
			else
				fprintf(out, ",%.15g", value);
		}
		fputc('\n', out);
	}
}

static json_t *row_json(const struct run_table *curve, size_t row)
{
	json_t *object = json_pack("{s:I}", "step", (json_int_t)curve->steps[row]);
	for (int c = 0; c < curve->width; c++) {
		const char *name = curve->columns[c].name;
		const double value = curve->columns[c].values[row];
		char bits[16];
		if (isnan(value))
			continue;
		snprintf(bits, sizeof bits, "%08x", (uint32_t)value);
		object = record_set(object, name,
			run_table_is_bits(name) ? json_string(bits) : json_real(value));
	}
	return object;
}

int curve_export(const struct run_table *curve, enum curve_format format, FILE *out,
	struct err *err)
{
	if (format == CURVE_CSV)
		export_csv(curve, out);
	for (size_t row = 0; format == CURVE_JSONL && row < curve->count; row++) {
		json_t *object = row_json(curve, row);
		AUTO_FREE char *text = record_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(15));
		json_decref(object);
		if (!text)
			return err_set(err, "curve: out of memory");
		fprintf(out, "%s\n", text);
	}
	return 0;
}

/* ---- on the terminal ---- */

static size_t print_points(const struct run_table *curve, const char *name, FILE *out)
{
	size_t count = 0;
	fprintf(out, "$%s <<END\n", name);
	for (size_t row = 0; row < curve->count; row++) {
		const double value = run_table_value(curve, name, row);
		if (!isfinite(value))
			continue;
		fprintf(out, "%llu %.9g\n", (unsigned long long)curve->steps[row], value);
		count++;
	}
	fputs("END\n", out);
	return count;
}

int curve_plot(const struct run_table *curve, struct err *err)
{
	AUTO_FREE char *script = NULL;
	size_t size;
	struct winsize window = { .ws_row = 24, .ws_col = 80 };
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) < 0 || window.ws_row < 10 || window.ws_col < 40)
		window = (struct winsize) { .ws_row = 24, .ws_col = 80 };
	FILE *out = open_memstream(&script, &size);
	if (!out)
		return err_set(err, "curve: out of memory");
	fprintf(out, "set terminal dumb %d %d\nset xlabel 'step'\nset border 3\nset tics nomirror\n",
		window.ws_col, window.ws_row - 2);
	const size_t losses = print_points(curve, "loss", out);
	const size_t validations = print_points(curve, "validation_loss", out);
	fprintf(out, "plot $loss using 1:2 with lines title 'loss'%s\n",
		validations ? ", $validation_loss using 1:2 with points title 'validation'" : "");
	if (fclose(out))
		return err_set(err, "curve: out of memory");
	return losses ? gnuplot_draw(script, NULL, err)
				  : err_fail(err, EXIT_DATA, "curve: there is no step with a loss to draw");
}
