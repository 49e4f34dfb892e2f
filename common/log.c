/* SPDX-License-Identifier: Apache-2.0 */
/* One line a message, formatted under a lock so that threads never mix their words. */
#include "common/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/last_words.h"

#define LINE_MAX_BYTES 4096

static void write_stderr(void *arg, enum log_level level, const char *line);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum log_level threshold = LOG_LEVEL_INFO;
static char tag[300];
static log_writer *writer = write_stderr;
static void *writer_arg;
static struct last_words last_words = { .fd = -1 };

/* One write(2) for each line, so that lines of several ranks on one terminal stay whole. */
static void write_stderr(void *arg, enum log_level level, const char *line)
{
	char out[LINE_MAX_BYTES + 400];
	const char *mark = level == LOG_LEVEL_ERROR ? "error: "
		: level == LOG_LEVEL_WARN               ? "warning: "
												: "";
	int n = tag[0] ? snprintf(out, sizeof out, "muster: [%s] %s%s\n", tag, mark, line)
				   : snprintf(out, sizeof out, "muster: %s%s\n", mark, line);
	if (n > (int)sizeof out - 1)
		n = (int)sizeof out - 1;
	ssize_t ignored = write(STDERR_FILENO, out, (size_t)n);
	(void)ignored;
}

void log_set_level(enum log_level level)
{
	threshold = level;
}

void log_set_tag(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	pthread_mutex_lock(&lock);
	vsnprintf(tag, sizeof tag, format, args);
	pthread_mutex_unlock(&lock);
	va_end(args);
}

void log_set_writer(log_writer *new_writer, void *arg)
{
	pthread_mutex_lock(&lock);
	writer = new_writer ? new_writer : write_stderr;
	writer_arg = arg;
	pthread_mutex_unlock(&lock);
}

void log_keep_last(void)
{
	pthread_mutex_lock(&lock);
	last_words = last_words_open(getenv(LAST_WORDS_VARIABLE));
	pthread_mutex_unlock(&lock);
}

void log_remember(const char *line)
{
	pthread_mutex_lock(&lock);
	last_words_write(&last_words, line);
	pthread_mutex_unlock(&lock);
}

void log_status_is_result(void)
{
	pthread_mutex_lock(&lock);
	last_words_say_result(&last_words);
	pthread_mutex_unlock(&lock);
}

void log_progress(void)
{
	pthread_mutex_lock(&lock);
	last_words_say_progress(&last_words);
	pthread_mutex_unlock(&lock);
}

void log_leaving(void)
{
	pthread_mutex_lock(&lock);
	last_words_say_leaving(&last_words);
	pthread_mutex_unlock(&lock);
}

static void log_line(enum log_level level, const char *format, va_list args)
{
	if (level > threshold)
		return;
	char line[LINE_MAX_BYTES];
	vsnprintf(line, sizeof line, format, args);
	pthread_mutex_lock(&lock);
	last_words_write(&last_words, line);
	writer(writer_arg, level, line);
	pthread_mutex_unlock(&lock);
}

#define DEFINE_LEVEL(name, level) \
	void name(const char *format, ...) \
	{ \
		va_list args; \
		va_start(args, format); \
		log_line(level, format, args); \
		va_end(args); \
	}

DEFINE_LEVEL(log_error, LOG_LEVEL_ERROR)
DEFINE_LEVEL(log_warn, LOG_LEVEL_WARN)
DEFINE_LEVEL(log_info, LOG_LEVEL_INFO)
DEFINE_LEVEL(log_debug, LOG_LEVEL_DEBUG)
