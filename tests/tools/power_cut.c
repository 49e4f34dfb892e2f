/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the power of a folder that power_loss.c has watched: makes the folder that would be found
 * afterwards. power_cut strict UNDER OUT   what was synced and nothing else power_cut ahead UNDER
 * OUT    names and sizes as they are now, bytes as they were synced, else zeros power_cut SEED
 * UNDER OUT     each change that was not synced, of a name, a size or a page, kept or dropped
 *   power_cut none UNDER         all of UNDER is durable
 * OUT and OUT.store, the store of a folder of which all is durable, are made anew. Status 77 where
 * the file system has no file handles. */
#include "config.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"
#include "tests/tools/power_store.h"

#define PAGE 4096

enum mode { STRICT, AHEAD, RANDOM };

/* Where a file or folder is now. */
struct place {
	char id[POWER_ID_SIZE];
	char *path;
};

struct cut {
	enum mode mode;
	uint64_t random; /* its state */
	int store;
	struct place *places;
	size_t count;
};

static _Noreturn void give_up(const char *what, const char *name)
{
	int status = errno == EOPNOTSUPP ? 77 : 1;
	fprintf(stderr, "power_cut: couldn't %s %s: %m\n", what, name);
	exit(status);
}

/* splitmix64. */
static uint64_t draw(struct cut *cut)
{
	uint64_t z = cut->random += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* ---- what is there now ---- */

/* Calls `visit` for everything below `path` and, last of each folder, the folder. */
static void walk(struct cut *cut, const char *path,
	void (*visit)(struct cut *, const char *path, int fd, bool folder))
{
	char child[4096];
	struct power_listing listing;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY);
	if (fd < 0 || power_list(fd, &listing) < 0)
		give_up("look into", path);
	for (size_t i = 0; i < listing.count; i++) {
		snprintf(child, sizeof child, "%s/%s", path, listing.entries[i].name);
		AUTO_CLOSE int file = open(child, O_RDONLY);
		if (file < 0)
			give_up("open", child);
		if (listing.entries[i].type == 'd')
			walk(cut, child, visit);
		else
			visit(cut, child, file, false);
	}
	visit(cut, path, fd, true);
	power_listing_free(&listing);
}

static void note_place(struct cut *cut, const char *path, int fd, bool folder)
{
	struct place *more = realloc(cut->places, (cut->count + 1) * sizeof *more);
	(void)folder;
	if (!more || !(more[cut->count].path = strdup(path))
		|| power_id(fd, "", more[cut->count].id) < 0)
		give_up("look at", path);
	cut->places = more;
	cut->count++;
}

static void record(struct cut *cut, const char *path, int fd, bool folder)
{
	if ((folder ? power_record_folder(cut->store, fd) : power_record_file(cut->store, fd)) < 0)
		give_up("record", path);
}

static const char *place_of(const struct cut *cut, const char *id)
{
	for (size_t i = 0; i < cut->count; i++)
		if (strcmp(cut->places[i].id, id) == 0)
			return cut->places[i].path;
	return NULL;
}

/* ---- a file ---- */

struct bytes {
	char *data;
	size_t size;
	bool there;
};

static struct bytes read_bytes(int dirfd, const char *path)
{
	struct bytes bytes = { 0 };
	if (path && io_read_file(dirfd, path, SIZE_MAX / 2, &bytes.data, &bytes.size, NULL) == 0)
		bytes.there = true;
	else if (path && errno != ENOENT)
		give_up("read", path);
	return bytes;
}

/* A size between the two, and each page from either; what neither has is zero. */
static struct bytes mix(struct cut *cut, const struct bytes *synced, const struct bytes *now)
{
	size_t least = synced->size < now->size ? synced->size : now->size;
	size_t most = synced->size < now->size ? now->size : synced->size;
	struct bytes out = { calloc(1, most + 1), least + draw(cut) % (most - least + 1), true };
	for (size_t at = 0; out.data && at < out.size; at += PAGE) {
		const struct bytes *from = draw(cut) % 2 ? synced : now;
		size_t have = from->size > at ? from->size - at : 0, room = out.size - at;
		size_t n = have < PAGE ? have : PAGE;
		if (n > 0)
			memcpy(out.data + at, from->data + at, n < room ? n : room);
	}
	return out;
}

/* What is found of a file. Fresh memory. */
static struct bytes found_bytes(struct cut *cut, const struct bytes *synced,
	const struct bytes *now)
{
	struct bytes out = { NULL, synced->size, true };
	uint64_t choice = cut->mode == RANDOM ? draw(cut) % 4 : 0;
	if (cut->mode == RANDOM && now->there && choice == 3)
		return mix(cut, synced, now);
	if (cut->mode == RANDOM && now->there && choice == 2) {
		out.data = calloc(1, now->size + 1);
		out.size = now->size;
		memcpy(out.data, now->data, now->size);
		return out;
	}
	if (now->there && (cut->mode == AHEAD || choice == 1))
		out.size = now->size;
	out.data = calloc(1, out.size + 1);
	if (synced->size > 0)
		memcpy(out.data, synced->data, synced->size < out.size ? synced->size : out.size);
	return out;
}

static void make_file(struct cut *cut, const char *id, const char *out)
{
	struct bytes synced = read_bytes(cut->store, id), now = read_bytes(AT_FDCWD, place_of(cut, id));
	struct bytes found = found_bytes(cut, &synced, &now);
	AUTO_CLOSE int fd = open(out, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (!found.data || fd < 0 || io_write_full(fd, found.data, found.size) < 0)
		give_up("write", out);
	free(synced.data);
	free(now.data);
	free(found.data);
}

/* ---- a folder ---- */

static void make_folder(struct cut *cut, const char *id, const char *out);

static void make_entry(struct cut *cut, const struct power_entry *entry, const char *out)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", out, entry->name);
	if (entry->type == 'd')
		make_folder(cut, entry->id, path);
	else
		make_file(cut, entry->id, path);
}

static bool is_kept(struct cut *cut, bool durable)
{
	return cut->mode == RANDOM ? draw(cut) % 2 : (cut->mode == STRICT) == durable;
}

/* The entry of one name: as it was synced, or as it is now; either may be none. */
static void make_name(struct cut *cut, const struct power_entry *synced,
	const struct power_entry *now, const char *out)
{
	if (synced && now && strcmp(synced->id, now->id) == 0)
		make_entry(cut, synced, out);
	else if (is_kept(cut, true))
		synced ? make_entry(cut, synced, out) : (void)0;
	else if (now)
		make_entry(cut, now, out);
}

static void make_folder(struct cut *cut, const char *id, const char *out)
{
	struct power_listing synced, now = { 0 };
	const char *place = place_of(cut, id);
	AUTO_CLOSE int fd = place ? open(place, O_RDONLY | O_DIRECTORY) : -1;
	if (power_stored_listing(cut->store, id, &synced) < 0 || (fd >= 0 && power_list(fd, &now) < 0))
		give_up("list what becomes", out);
	if (mkdir(out, 0755) < 0)
		give_up("make", out);
	for (size_t i = 0; i < synced.count; i++)
		make_name(cut, &synced.entries[i], power_find(&now, synced.entries[i].name), out);
	for (size_t i = 0; i < now.count; i++)
		if (!power_find(&synced, now.entries[i].name))
			make_name(cut, NULL, &now.entries[i], out);
	power_listing_free(&synced);
	power_listing_free(&now);
}

/* ---- the program ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void remove_all(const char *path)
{
	if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
		give_up("remove", path);
}

static int open_store(const char *folder, bool afresh)
{
	char path[4096];
	snprintf(path, sizeof path, "%s.store", folder);
	if (afresh)
		remove_all(path);
	if (afresh && mkdir(path, 0755) < 0)
		give_up("make", path);
	int store = open(path, O_RDONLY | O_DIRECTORY);
	if (store < 0)
		give_up("open", path);
	return store;
}

static void sync_all(const char *folder)
{
	struct cut cut = { .store = open_store(folder, true) };
	walk(&cut, folder, record);
	close(cut.store);
}

static void cut_power(const char *how, const char *folder, const char *out)
{
	struct cut cut = { .store = open_store(folder, false),
		.random = strtoull(how, NULL, 10),
		.mode = strcmp(how, "strict") == 0 ? STRICT
			: strcmp(how, "ahead") == 0    ? AHEAD
										   : RANDOM };
	walk(&cut, folder, note_place);
	remove_all(out);
	make_folder(&cut, cut.places[cut.count - 1].id, out);
	sync_all(out);
	for (size_t i = 0; i < cut.count; i++)
		free(cut.places[i].path);
	free(cut.places);
	close(cut.store);
}

int main(int argc, char **argv)
{
	bool none = argc == 3 && strcmp(argv[1], "none") == 0;
	if (!none && argc != 4) {
		fprintf(stderr, "usage: power_cut strict|ahead|SEED UNDER OUT | power_cut none UNDER\n");
		return 2;
	}
	if (none)
		sync_all(argv[2]);
	else
		cut_power(argv[1], argv[2], argv[3]);
	return 0;
}
