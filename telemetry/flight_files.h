/* SPDX-License-Identifier: Apache-2.0 */
/* The files of flight records (doc/flight-recorder-format.md): keeps this rank's, and reads those
 * of all ranks. */
#ifndef MUSTER_FLIGHT_FILES_H
#define MUSTER_FLIGHT_FILES_H

#include "common/err.h"
#include "common/ident.h"
#include "telemetry/flight.h"
#include "telemetry/flight_follow.h"

#define FLIGHT_FOLDER "standing"
#define FLIGHT_BEFORE "standing-before"

/* One rank's file. */
struct flight_file {
	int dirfd; /* of the folder with the mapped file; 0: there is no file */
	char name[96];
	bool shared;    /* that folder is the checkpoint directory's */
	int copy_dirfd; /* the checkpoint directory's folder where that is on another file system */
	struct flight_follow *follow; /* writes the copy there; NULL: none */
};

/* Rank 0, once it owns the checkpoint directory: moves what an earlier attempt left aside, and
 * creates the folder. */
void flight_files_begin(int ckpt_dirfd);

/* Moves the record to a file: in the checkpoint directory `dir` (NULL: none), after rank 0's
 * flight_files_begin(); or on this node. Where the checkpoint directory is on a file server, the
 * file is on this node and a copy is there. On error the record stays in memory. */
int flight_file_open(struct flight_file *file, struct flight_recorder *flight,
	const struct ident *ident, const char *dir, struct err *err);
/* Removes the file, and the folder with the last file. */
void flight_file_remove(struct flight_file *file);
/* Lets go of the file, which stays. */
void flight_file_leave(struct flight_file *file);

struct flight_list {
	struct flight_view *views; /* sorted by run, then by rank */
	size_t count;
	char place[4200]; /* the folder */
	bool before;      /* the records are of an attempt before the last one */
	int damaged;      /* files that are no records */
};

/* Reads all records of a checkpoint directory, of the last attempt that left any; or with NULL,
 * those of this user on this node. Finding none is no error. Free it with flight_list_clear(). */
int flight_files_read(const char *dir, struct flight_list *list, struct err *err);
void flight_list_clear(struct flight_list *list);

/* Reads another rank's record from the same folder of a checkpoint directory. -1 where there is
 * none. */
int flight_file_peek(const struct flight_file *file, int rank, struct flight_view *view);

#endif
