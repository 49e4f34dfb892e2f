/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one job on this node, RUN/job-ID: root's, so that nobody else can put anything in
 * it, or in its place; in it, in a folder of root's too, the socket of the job's user at which his
 * checkpoint service listens, and root's notes: about that service, and for the requeue. A folder
 * of the user's own would let him fill /run.
 *
 * Whatever is there all the same: root opens nothing but folders to empty, and follows no link. */
#ifndef MUSTER_JOB_FOLDER_H
#define MUSTER_JOB_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/process.h"

#define JOB_FOLDER_RUN "/run/muster"
#define JOB_FOLDER_RUN_MAX 60 /* bytes: a socket's path has 107 at most */
#define JOB_FOLDER_SOCKET_SIZE 108

/* RUN/job-ID/ckptd/socket; returns `out`. */
char *job_folder_socket(const char *run, uint32_t job, char out[JOB_FOLDER_SOCKET_SIZE]);

/* For root: whether there is a socket of that name. */
bool job_folder_has_socket(const char *run, uint32_t job);

/* Makes RUN where it is missing, RUN/job-ID and RUN/job-ID/ckptd, all 0755. Refuses a RUN that is a
 * link, not the caller's, or writable by others, and a folder that is there. */
int job_folder_make(const char *run, uint32_t job, struct err *err);

/* Makes the socket (0600, of that user) in it. Returns its descriptor, on which nobody listens yet;
 * -1 on error. */
int job_folder_bind(const char *run, uint32_t job, uid_t uid, gid_t gid, struct err *err);

/* Returns 1 when the folder of the job is there, 0 when it is not, -1 when RUN can't be trusted. */
int job_folder_exists(const char *run, uint32_t job, struct err *err);

/* Removes it with all that is in it. One that is not there is no error. */
int job_folder_remove(const char *run, uint32_t job, struct err *err);

/* Removes a file or folder that may be a user's from the open folder `at`: no link is followed and
 * no mount entered. -1 with errno: something of it is still there. */
int job_folder_remove_users(int at, const char *name);

/* In srun, as the user: marks the socket, which is his: the job has had a step. Does nothing where
 * there is none. */
void job_folder_mark_step(const char *run, uint32_t job);

/* For root: whether it is marked so. 1: yes; 0: no; -1: the job has no socket. */
int job_folder_had_step(const char *run, uint32_t job);

/* Makes the folder of a job that has none, since it has no service. */
void job_folder_need(const char *run, uint32_t job);

/* For root: a file of root's in the folder, with which it goes at the end of the attempt. */
int job_folder_write(const char *run, uint32_t job, const char *name, const char *text,
	struct err *err);

/* At most size - 1 bytes of it. False, with "", where there is none. */
bool job_folder_read(const char *run, uint32_t job, const char *name, char *text, size_t size);

/* The same for a file in RUN itself, which all jobs of the node share. The write replaces the file
 * in one step, and makes RUN where it is missing; NULL removes the file. */
int job_folder_write_for_all(const char *run, const char *name, const char *text, struct err *err);
bool job_folder_read_for_all(const char *run, const char *name, char *text, size_t size);

/* The service that was started for attempt `attempt` of the job. */
struct job_note {
	struct process service;
	int attempt;
};

int job_folder_write_note(const char *run, uint32_t job, const struct job_note *note,
	struct err *err);

/* False when there is none, or it can't be read. */
bool job_folder_read_note(const char *run, uint32_t job, struct job_note *note);

#endif
