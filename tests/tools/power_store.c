/* SPDX-License-Identifier: Apache-2.0 */
/* The store of what is durable. */
#include "config.h"
#include "tests/tools/power_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"

int power_id(int dirfd, const char *name, char id[POWER_ID_SIZE])
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} found = { .handle.handle_bytes = MAX_HANDLE_SZ };
	int mount;
	if (name_to_handle_at(dirfd, name, &found.handle, &mount, name[0] ? 0 : AT_EMPTY_PATH) < 0)
		return -1;
	int at = sprintf(id, "%d-", found.handle.handle_type);
	for (unsigned i = 0; i < found.handle.handle_bytes; i++)
		at += sprintf(id + at, "%02x", found.handle.f_handle[i]);
	return 0;
}

/* ---- listings ---- */

void power_listing_free(struct power_listing *listing)
{
	free(listing->entries);
	*listing = (struct power_listing) { 0 };
}

const struct power_entry *power_find(const struct power_listing *listing, const char *name)
{
	for (size_t i = 0; i < listing->count; i++)
		if (strcmp(listing->entries[i].name, name) == 0)
			return &listing->entries[i];
	return NULL;
}

static struct power_entry *append(struct power_listing *listing)
{
	struct power_entry *more = realloc(listing->entries, (listing->count + 1) * sizeof *more);
	if (!more)
		abort();
	listing->entries = more;
	return &more[listing->count++];
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct power_entry *)a)->name, ((const struct power_entry *)b)->name);
}

int power_list(int fd, struct power_listing *listing)
{
	*listing = (struct power_listing) { 0 };
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = own < 0 ? NULL : fdopendir(own);
	if (!stream) {
		if (own >= 0)
			close(own);
		return -1;
	}
	struct dirent *found;
	while ((found = readdir(stream))) {
		struct power_entry entry = { 0 };
		struct stat st;
		if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
			continue;
		/* What another thread removes meanwhile was not there. */
		if (power_id(fd, found->d_name, entry.id) < 0
			|| fstatat(fd, found->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		entry.type = S_ISDIR(st.st_mode) ? 'd' : 'f';
		strcpy(entry.name, found->d_name);
		*append(listing) = entry;
	}
	closedir(stream);
	if (listing->count)
		qsort(listing->entries, listing->count, sizeof *listing->entries, by_name);
	return 0;
}

int power_stored_listing(int store, const char *id, struct power_listing *listing)
{
	*listing = (struct power_listing) { 0 };
	int fd = openat(store, id, O_RDONLY | O_CLOEXEC);
	AUTO_FCLOSE FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	struct power_entry entry;
	if (!file)
		return errno == ENOENT ? 0 : -1;
	while (fscanf(file, "%c %299s %255[^\n]\n", &entry.type, entry.id, entry.name) == 3)
		*append(listing) = entry;
	return ferror(file) ? -1 : 0;
}

/* ---- recording ---- */

/* A name that no other thread or process uses. */
static void temporary_name(char name[64])
{
	snprintf(name, 64, "tmp.%d.%ld", (int)getpid(), (long)syscall(SYS_gettid));
}

static int copy_into(int from, int to)
{
	char buffer[65536];
	ssize_t n;
	while ((n = io_read_full(from, buffer, sizeof buffer)) > 0)
		if (io_write_full(to, buffer, (size_t)n) < 0)
			return -1;
	return (int)n;
}

int power_record_file(int store, int fd)
{
	char path[64], id[POWER_ID_SIZE], temporary[64];
	temporary_name(temporary);
	/* The descriptor may be for writing only, or for O_DIRECT. */
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	AUTO_CLOSE int from = open(path, O_RDONLY | O_CLOEXEC);
	AUTO_CLOSE int to = openat(store, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (from < 0 || to < 0 || power_id(fd, "", id) < 0 || copy_into(from, to) < 0)
		return -1;
	return renameat(store, temporary, store, id);
}

int power_record_folder(int store, int fd)
{
	char id[POWER_ID_SIZE], temporary[64];
	struct power_listing listing;
	temporary_name(temporary);
	if (power_id(fd, "", id) < 0 || power_list(fd, &listing) < 0)
		return -1;
	int to = openat(store, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	FILE *file = to < 0 ? NULL : fdopen(to, "w");
	for (size_t i = 0; file && i < listing.count; i++)
		fprintf(file, "%c %s %s\n", listing.entries[i].type, listing.entries[i].id,
			listing.entries[i].name);
	power_listing_free(&listing);
	if (!file || fclose(file) != 0)
		return -1;
	return renameat(store, temporary, store, id);
}
