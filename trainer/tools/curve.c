/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the metrics of several attempts into one curve. */
#include "trainer/tools/curve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "common/io.h"

#define METRICS_LIMIT ((size_t)4 << 30)

/* The point of `step`, inserted at its place if it is new; NULL when out of memory. */
static struct curve_point *point_of(struct curve *curve, uint64_t step)
{
	size_t at = curve->count;
	while (at > 0 && curve->points[at - 1].step > step)
		at--;
	if (at > 0 && curve->points[at - 1].step == step)
		return &curve->points[at - 1];
	if (curve->count == curve->room) {
		size_t room = curve->room ? curve->room * 2 : 64;
		struct curve_point *grown = realloc(curve->points, room * sizeof *grown);
		if (!grown)
			return NULL;
		curve->points = grown;
		curve->room = room;
	}
	memmove(&curve->points[at + 1], &curve->points[at],
		(curve->count - at) * sizeof *curve->points);
	curve->count++;
	curve->points[at] = (struct curve_point) { .step = step };
	return &curve->points[at];
}

/* Drops the steps from `step` on, which this attempt does again. The validation of the step before
 * stays. */
static void drop_from(struct curve *curve, uint64_t step)
{
	while (curve->count > 0 && curve->points[curve->count - 1].step >= step)
		curve->count--;
}

static int bits_of(const json_t *line, const char *key, uint32_t *bits)
{
	const char *text = json_string_value(json_object_get(line, key));
	char *end;
	if (!text || strlen(text) != 8)
		return -1;
	*bits = (uint32_t)strtoul(text, &end, 16);
	return *end ? -1 : 0;
}

static int is_given(const json_t *line, const char *key, uint32_t *bits)
{
	*bits = 0;
	return bits_of(line, key, bits) == 0;
}

/* Takes in one line; -1 when it is not a line of the metrics. `*first` is true until the attempt's
 * first step. */
static int take_line(struct curve *curve, const json_t *line, bool *first)
{
	const json_t *number = json_object_get(line, "step");
	uint32_t loss, norm, validation;
	if (json_is_object(line) && !number)
		return 0; /* of a kind that a later version writes */
	if (!json_is_integer(number) || json_integer_value(number) < 0)
		return -1;
	uint64_t step = (uint64_t)json_integer_value(number);
	int is_step = is_given(line, "loss_bits", &loss), has_norm = is_given(line, "norm_bits", &norm);
	int is_validation = is_given(line, "validation_loss_bits", &validation);
	if (!is_step && !is_validation)
		return 0; /* a save is no point of the curve, nor is what a program logs beside it */
	if (is_step && *first) {
		drop_from(curve, step);
		*first = false;
	}
	struct curve_point *point = point_of(curve, step);
	if (!point)
		return -1;
	if (is_step) {
		point->has_step = 1;
		point->loss = loss;
		point->norm = norm;
		point->has_norm = has_norm;
	}
	if (is_validation) {
		point->has_validation = 1;
		point->validation = validation;
	}
	return 0;
}

static int read_attempt(int dirfd, int attempt, struct curve *curve, struct err *err)
{
	AUTO_FREE char *data = NULL;
	size_t size, number = 0;
	char name[64];
	bool first = true;
	snprintf(name, sizeof name, "metrics-%d.jsonl", attempt);
	if (io_read_file(dirfd, name, METRICS_LIMIT, &data, &size, err) < 0)
		return -1;
	for (char *line = data, *end; (end = memchr(line, '\n', size - (size_t)(line - data)));
		 line = end + 1) {
		number++;
		json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
		int rc = json ? take_line(curve, json, &first) : -1;
		json_decref(json);
		/* A crash of the machine may leave a last line of zeros that even ends in a newline. */
		if (rc < 0 && end + 1 < data + size)
			return err_fail(err, EXIT_DATA, "curve: couldn't read line %zu of %s", number, name);
	}
	curve->attempts++;
	return 0;
}

static int compare_ints(const void *a, const void *b)
{
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

int curve_attempts(int dirfd, int **attempts, size_t *count, struct err *err)
{
	DIR *dir = io_open_list(dirfd);
	if (!dir)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "curve: couldn't list the folder: %m");
	*attempts = NULL;
	*count = 0;
	for (struct dirent *entry; errno = 0, (entry = readdir(dir));) {
		int attempt, used = 0;
		if (sscanf(entry->d_name, "metrics-%9d.jsonl%n", &attempt, &used) != 1 || !used
			|| entry->d_name[used])
			continue;
		int *grown = realloc(*attempts, (*count + 1) * sizeof **attempts);
		if (!grown) {
			closedir(dir);
			return err_set(err, "curve: out of memory");
		}
		*attempts = grown;
		(*attempts)[(*count)++] = attempt;
	}
	int why = errno;
	closedir(dir);
	if (why)
		return err_fail(err, io_status(why), "curve: couldn't list the folder: %s", strerror(why));
	if (*count)
		qsort(*attempts, *count, sizeof **attempts, compare_ints);
	return 0;
}

int curve_read(int dirfd, struct curve *curve, struct err *err)
{
	AUTO_FREE int *attempts = NULL;
	size_t count;
	*curve = (struct curve) { 0 };
	if (curve_attempts(dirfd, &attempts, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		if (read_attempt(dirfd, attempts[i], curve, err) < 0) {
			curve_clear(curve);
			return -1;
		}
	}
	return 0;
}

void curve_clear(struct curve *curve)
{
	free(curve->points);
	*curve = (struct curve) { 0 };
}

void curve_print(const struct curve *curve, FILE *out)
{
	for (size_t i = 0; i < curve->count; i++) {
		const struct curve_point *point = &curve->points[i];
		if (!point->has_step)
			continue;
		fprintf(out, "%llu %08x %.9g", (unsigned long long)point->step, point->loss,
			(double)bytes_to_float(point->loss));
		if (point->has_norm)
			fprintf(out, " %08x %.9g", point->norm, (double)bytes_to_float(point->norm));
		else
			fputs(" - -", out);
		if (point->has_validation)
			fprintf(out, " %08x %.9g", point->validation,
				(double)bytes_to_float(point->validation));
		fputc('\n', out);
	}
}
