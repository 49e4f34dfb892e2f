/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines with a level and a tag of rank and host, passed to one writer (standard error unless
 * the program sets another). */
#ifndef MUSTER_LOG_H
#define MUSTER_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Receives one line without its newline. Called from any thread, one call at a time. */
typedef void log_writer(void *arg, enum log_level level, const char *line);

/* Lines above `level` are dropped. Default LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);

/* The tag before each line, such as "rank 3 on node7"; "" for none. Copied. */
void log_set_tag(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Replaces the writer; NULL brings the default back. */
void log_set_writer(log_writer *writer, void *arg);

/* From now on, also keeps each logged line where slurmstepd finds it if this task is the first to
 * fail (common/last_words.h). No effect if slurmstepd did not ask for it. */
void log_keep_last(void);

/* Keeps a line there without logging it, for a library whose program may print its errors
 * itself. */
void log_remember(const char *line);

/* Records there that this process's exit status will be a result, not a failure
 * (common/last_words.h). */
void log_status_is_result(void);

/* Records there that the job has made progress. */
void log_progress(void);

/* Records there that this node is about to be taken away. */
void log_leaving(void);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
