/* SPDX-License-Identifier: Apache-2.0 */
/* Redrawn in place at most five times a second, and wiped at the end. */
#include "common/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "common/clock.h"

#define BAR 30
#define INTERVAL 0.2

/* A count with three digits: "12.3 M", or "512 ". */
static int scaled(double count, char *out, size_t size)
{
	static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
	int thousands = 0;
	for (; count >= 999.5 && thousands < 5; thousands++)
		count /= 1000;
	return snprintf(out, size, thousands > 0 && count < 99.95 ? "%.1f %s" : "%.0f %s", count,
		prefixes[thousands]);
}

char *progress_bytes(double bytes, char out[16])
{
	const int n = scaled(bytes, out, 16);
	snprintf(out + n, (size_t)(16 - n), "B");
	return out;
}

#define COUNT_SIZE 32

static char *count_text(const struct progress *progress, double count, char out[COUNT_SIZE])
{
	if (!progress->unit)
		return progress_bytes(count, out);
	const int n = scaled(count, out, COUNT_SIZE);
	const bool is_apart = out[n - 1] != ' ';
	snprintf(out + n, (size_t)(COUNT_SIZE - n), is_apart ? " %s" : "%s", progress->unit);
	return out;
}

char *progress_time(double seconds, char out[PROGRESS_TIME_SIZE])
{
	const int64_t whole = isnan(seconds) ? 0 : (int64_t)fmin(fmax(seconds, 0), 1e12);
	const int64_t minutes = whole / 60, hours = minutes / 60, days = hours / 24;
	if (isnan(seconds))
		snprintf(out, PROGRESS_TIME_SIZE, "?");
	else if (days > 0)
		snprintf(out, PROGRESS_TIME_SIZE, "%" PRId64 " d %" PRId64 " h", days, hours % 24);
	else if (hours > 0)
		snprintf(out, PROGRESS_TIME_SIZE, "%" PRId64 " h %02" PRId64 " min", hours, minutes % 60);
	else if (minutes > 0)
		snprintf(out, PROGRESS_TIME_SIZE, "%" PRId64 " min %02" PRId64 " s", minutes, whole % 60);
	else
		snprintf(out, PROGRESS_TIME_SIZE, "%" PRId64 " s", whole);
	return out;
}

char *progress_text(const struct progress *progress, double seconds, char *out, size_t size)
{
	char bar[BAR + 1], done[COUNT_SIZE], total[COUNT_SIZE], rate[COUNT_SIZE],
		left[PROGRESS_TIME_SIZE];
	double part = progress->total ? (double)progress->done / (double)progress->total : 0;
	part = part > 1 ? 1 : part;
	for (int i = 0; i < BAR; i++)
		bar[i] = (i + 1) <= part * BAR ? '#' : '.';
	bar[BAR] = '\0';
	count_text(progress, (double)progress->done, done);
	count_text(progress, (double)progress->total, total);
	count_text(progress, seconds > 0 ? (double)progress->done / seconds : 0, rate);
	if (!progress->total)
		snprintf(out, size, "%s %s, %s/s", progress->what, done, rate);
	else if (part > 0 && seconds > 0)
		snprintf(out, size, "%s [%s] %3.0f %% of %s, %s/s, %s left", progress->what, bar,
			part * 100, total, rate, progress_time(seconds / part * (1 - part), left));
	else
		snprintf(out, size, "%s [%s]   0 %% of %s", progress->what, bar, total);
	return out;
}

void progress_begin(struct progress *progress, const char *what, uint64_t total, bool quiet)
{
	*progress = (struct progress) { .what = what,
		.total = total,
		.began = clock_now(),
		.visible = !quiet && isatty(STDERR_FILENO) };
	progress->shown = progress->began;
}

void progress_add(struct progress *progress, uint64_t count)
{
	char text[160];
	progress->done += count;
	if (!progress->visible || clock_now() - progress->shown < INTERVAL)
		return;
	progress->shown = clock_now();
	fprintf(stderr, "\r%s\x1b[K",
		progress_text(progress, progress->shown - progress->began, text, sizeof text));
}

void progress_wipe(const struct progress *progress)
{
	if (progress->visible)
		fputs("\r\x1b[K", stderr);
}

void progress_end(struct progress *progress)
{
	progress_wipe(progress);
	progress->visible = false;
}

void progress_next(const char *format, ...)
{
	va_list arguments;
	if (!isatty(STDERR_FILENO) || !isatty(STDOUT_FILENO))
		return;
	fputs("next: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}
