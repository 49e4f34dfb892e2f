/* SPDX-License-Identifier: Apache-2.0 */
/* The files of records (doc/flight-recorder-format.md): where a rank's is, and reading those of all
 * ranks. */
#ifndef MUSTER_FLIGHT_FILES_H
#define MUSTER_FLIGHT_FILES_H

#include "common/err.h"
#include "common/ident.h"
#include "trainer/telemetry/flight.h"
#include "trainer/telemetry/flight_follow.h"

#define FLIGHT_FOLDER "standing"
#define FLIGHT_BEFORE "standing-before"

/* The file of one rank. */
struct flight_file {
	int dirfd; /* of the folder of what is mapped; 0: it has none */
	char name[96];
	bool shared;    /* that folder is in the checkpoint directory */
	int copy_dirfd; /* of the checkpoint directory's folder where that is on another file system, */
	struct flight_follow *follow; /* and the copy there; NULL: none */
};

/* Rank 0, once the checkpoint directory is its own: what an attempt before has left is moved aside,
 * and the folder made. */
void flight_files_begin(int ckpt_dirfd);

/* Makes the record a file: in the checkpoint directory `dir` (NULL: there is none) behind rank 0's
 * flight_files_begin(), or on this node; and on this node with a copy there where that is on a file
 * server. On error it stays in memory. */
int flight_file_open(struct flight_file *file, struct flight_recorder *flight,
	const struct ident *ident, const char *dir, struct err *err);
/* Removes it, and the folder with the last one. */
void flight_file_remove(struct flight_file *file);

struct flight_list {
	struct flight_view *views; /* by run, then by rank */
	size_t count;
	char place[4200]; /* the folder */
	bool before;      /* they are of an attempt before the last one */
	int damaged;      /* files that are none */
};

/* Reads all records of a checkpoint directory, of the last attempt that left any; or, with NULL, of
 * this user on this node. Nothing found is no error. flight_list_clear() frees. */
int flight_files_read(const char *dir, struct flight_list *list, struct err *err);
void flight_list_clear(struct flight_list *list);

/* Reads the record of another rank in the same folder of a checkpoint directory. 0, or -1 where
 * there is none. */
int flight_file_peek(const struct flight_file *file, int rank, struct flight_view *view);

#endif
