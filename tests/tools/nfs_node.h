/* SPDX-License-Identifier: Apache-2.0 */
/* What an NFS client remembers of files and folders of its server, for nfs_like.c: attributes and
 * names that are believed for a minute, and under what name a file lies that was removed while it
 * is open. */
#ifndef MUSTER_TEST_NFS_NODE_H
#define MUSTER_TEST_NFS_NODE_H

#include <stdint.h>
#include <sys/stat.h>

/* What a name in a folder stood for when it was looked up. */
struct name {
	struct name *next;
	struct node *node; /* NULL: for nothing */
	char text[];
};

/* A file or folder that is known here. */
struct node {
	struct node *next;
	int fd;        /* O_PATH */
	uint64_t refs; /* of the kernel, of names, of open files */
	int opened;
	struct stat seen; /* its attributes, and when they were */
	double seen_at;
	struct name *names; /* of a folder */
	char **list;
	int listed; /* -1: not listed */
	struct node
		*silly_in; /* where it lies under the name `silly` until it is closed; NULL: it does not */
	char silly[32];
};

/* The node of an O_PATH descriptor, which it takes over. NULL with errno. */
struct node *node_of(int fd);

/* The one of a name on the server now. NULL with errno. */
struct node *node_at(const struct node *folder, const char *name);

/* What a name refers to, as far as is known here. NULL with errno. */
struct node *node_find(struct node *folder, const char *name);

/* A path to it that is valid until the next call. */
const char *node_path(const struct node *node);

/* Sets when it was changed. */
void node_stamp(const struct node *node, struct timespec time);

/* Drops references; a node without any is gone. NULL is allowed. */
void node_put(struct node *node, uint64_t refs);

/* Asks the server for the attributes; node_look only where they are older than a minute. -1 with
 * errno: ESTALE where it was removed. */
int node_refresh(struct node *node);
int node_look(struct node *node);

/* The folder was changed, here or elsewhere: forgets its names. Leaves errno. */
void node_changed(struct node *folder);

/* Fills in the list of names, sorted. -1 with errno. */
int node_list(struct node *folder);

#endif
