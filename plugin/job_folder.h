/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one job on this node, RUN/job-ID. It is root's, so that nobody else can put
 * anything into it or replace it. It contains root's notes, about the checkpoint service and for
 * the requeue, and, in another folder of root's, the socket at which the checkpoint service
 * listens, which is the job user's. If the user owned a folder here, the user could fill /run.
 *
 * Still, root trusts nothing in it: root opens only folders, to empty them, and follows no
 * links. */
#ifndef MUSTER_JOB_FOLDER_H
#define MUSTER_JOB_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/process.h"

#define JOB_FOLDER_RUN "/run/muster"
#define JOB_FOLDER_RUN_MAX 60 /* bytes, since a socket's path has at most 107 */
#define JOB_FOLDER_SOCKET_SIZE 108

/* RUN/job-ID/ckptd/socket; returns `out`. */
char *job_folder_socket(const char *run, uint32_t job, char out[JOB_FOLDER_SOCKET_SIZE]);

/* As root: whether the socket exists. */
bool job_folder_has_socket(const char *run, uint32_t job);

/* Makes RUN if it is missing, RUN/job-ID and RUN/job-ID/ckptd, all with mode 0755. Refuses a RUN
 * that is a link, not the caller's, or writable by others, and a job folder that exists. */
int job_folder_make(const char *run, uint32_t job, struct err *err);

/* Makes the socket in it (mode 0600, the user's). Returns its descriptor, which does not listen
 * yet; -1 on error. */
int job_folder_bind(const char *run, uint32_t job, uid_t uid, gid_t gid, struct err *err);

/* Returns 1 if the job's folder exists, 0 if not, -1 if RUN can't be trusted. */
int job_folder_exists(const char *run, uint32_t job, struct err *err);

/* Removes it with its content. A missing folder is no error. */
int job_folder_remove(const char *run, uint32_t job, struct err *err);

/* Removes a file or folder that may be a user's from the open folder `at`, without following links
 * or entering mounts. -1 with errno if something of it is left. */
int job_folder_remove_users(int at, const char *name);

/* In srun, as the user: marks the socket to record that the job has had a step. Does nothing if
 * there is no socket. Returns whether it was marked before. */
bool job_folder_mark_step(const char *run, uint32_t job);

/* As root: whether that mark is set. 1: yes; 0: no; -1: the job has no socket. */
int job_folder_had_step(const char *run, uint32_t job);

/* Makes the folder of a job that has none because it has no service. */
void job_folder_need(const char *run, uint32_t job);

/* As root: writes a file of root's in the folder; it is removed with the folder at the end of the
 * attempt. */
int job_folder_write(const char *run, uint32_t job, const char *name, const char *text,
	struct err *err);

/* Reads at most size - 1 bytes of it. False, with "", if there is none. */
bool job_folder_read(const char *run, uint32_t job, const char *name, char *text, size_t size);

/* The same for a file in RUN itself, which all jobs of the node share. The write replaces the file
 * atomically, and makes RUN if it is missing; NULL removes the file. */
int job_folder_write_for_all(const char *run, const char *name, const char *text, struct err *err);
bool job_folder_read_for_all(const char *run, const char *name, char *text, size_t size);

/* The service that was started for attempt `attempt` of the job. */
struct job_note {
	struct process service;
	int attempt;
};

int job_folder_write_note(const char *run, uint32_t job, const struct job_note *note,
	struct err *err);

/* False if there is none, or it can't be read. */
bool job_folder_read_note(const char *run, uint32_t job, struct job_note *note);

#endif
