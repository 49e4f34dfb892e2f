/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines with a level and a rank and host tag, handed to one writer (standard error unless the
 * program sets another). */
#ifndef MUSTER_LOG_H
#define MUSTER_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Receives one line without its newline. Called from any thread, one call at a time. */
typedef void log_writer(void *arg, enum log_level level, const char *line);

/* Lines above `level` are dropped. Default LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);

/* The tag in front of each line, "rank 3 on node7" for instance; "" for none. Copied. */
void log_set_tag(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Replaces the writer; NULL brings the default back. */
void log_set_writer(log_writer *writer, void *arg);

/* From now on each line that is logged is also kept where slurmstepd finds it if this task is the
 * first to fail, if it was started by one that asks for that (common/last_words.h). */
void log_keep_last(void);

/* Keeps in that place a line that is not logged; for a library, whose errors its program may print.
 */
void log_remember(const char *line);

/* Says there, too, that the status that this process is about to end with is no failure
 * (common/last_words.h). */
void log_status_is_result(void);

/* Says there that the job has come further. */
void log_progress(void);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
