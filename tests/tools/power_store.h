/* SPDX-License-Identifier: Apache-2.0 */
/* The store of what is durable: written by the layer that watches fsync (power_loss.c), read when
 * the power has gone (power_cut.c). A file or folder is known by its file handle, which tells an
 * inode number that is used again from the one before. The store has for each of them a file of
 * that name: the bytes of a file, or the entries of a folder. */
#ifndef MUSTER_TESTS_POWER_STORE_H
#define MUSTER_TESTS_POWER_STORE_H

#include <stddef.h>

#define POWER_ID_SIZE 300

/* Closed by the layer around its own work, so that nobody counts that as system calls of the
 * program under test. */
#define POWER_MARK_PAUSE 1000002
#define POWER_MARK_RESUME 1000003

struct power_entry {
	char type; /* 'f' or 'd' */
	char id[POWER_ID_SIZE];
	char name[256];
};

struct power_listing {
	struct power_entry *entries;
	size_t count;
};

/* The identity of `name` in `dirfd` ("": of dirfd itself); -1 and errno if it can't be had. */
int power_id(int dirfd, const char *name, char id[POWER_ID_SIZE]);

/* The entries of the open folder as they are now, by name. -1 and errno. */
int power_list(int fd, struct power_listing *listing);

/* The entries of the folder `id` as they are durable; none if it was never synced. */
int power_stored_listing(int store, const char *id, struct power_listing *listing);

/* Records what the open file or folder holds now as durable; whole or, when killed, not at all. */
int power_record_file(int store, int fd);
int power_record_folder(int store, int fd);

const struct power_entry *power_find(const struct power_listing *listing, const char *name);
void power_listing_free(struct power_listing *listing);

#endif
