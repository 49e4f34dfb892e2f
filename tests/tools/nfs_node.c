/* SPDX-License-Identifier: Apache-2.0 */
/* Names are forgotten as soon as the attributes of their folder, whenever they are asked for, say
 * that it was changed. */
#include "config.h"
#include "tests/tools/nfs_node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"

#define AGE \
	60.0 /* seconds that attributes and names are believed: actimeo's default for folders \
		  */

static struct node *nodes;

const char *node_path(const struct node *node)
{
	static char path[40];
	snprintf(path, sizeof path, "/proc/self/fd/%d", node->fd);
	return path;
}

void node_stamp(const struct node *node, struct timespec time)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, time };
	utimensat(AT_FDCWD, node_path(node), times, 0);
}

void node_put(struct node *node, uint64_t refs)
{
	struct node **at = &nodes;
	if (!node || (node->refs -= refs) > 0)
		return;
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	close(node->fd);
	free(node);
}

static void forget_list(struct node *node)
{
	for (int i = 0; i < node->listed; i++)
		free(node->list[i]);
	free(node->list);
	node->list = NULL;
	node->listed = -1;
}

/* Forgets the names in a folder, or of them those of `only`. */
static void forget_names(struct node *folder, const struct node *only)
{
	for (struct name **at = &folder->names; *at;) {
		struct name *name = *at;
		if (only && name->node != only) {
			at = &name->next;
			continue;
		}
		*at = name->next;
		node_put(name->node, 1);
		free(name);
	}
}

void node_changed(struct node *folder)
{
	int why = errno;
	forget_names(folder, NULL);
	forget_list(folder);
	folder->seen_at = -AGE;
	errno = why;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

int node_refresh(struct node *node)
{
	struct stat st;
	if (fstatat(node->fd, "", &st, AT_EMPTY_PATH) < 0)
		return -1;
	if (st.st_nlink == 0) {
		for (struct node *folder = nodes; folder; folder = folder->next)
			forget_names(folder, node);
		errno = ESTALE;
		return -1;
	}
	if (S_ISDIR(st.st_mode)
		&& !(
			same_time(st.st_mtim, node->seen.st_mtim) && same_time(st.st_ctim, node->seen.st_ctim)))
		node_changed(node);
	node->seen = st;
	node->seen_at = clock_now();
	return 0;
}

int node_look(struct node *node)
{
	return clock_now() - node->seen_at < AGE ? 0 : node_refresh(node);
}

struct node *node_of(int fd)
{
	struct stat st;
	if (fd < 0 || fstatat(fd, "", &st, AT_EMPTY_PATH) < 0)
		return NULL;
	for (struct node *node = nodes; node; node = node->next)
		if (node->seen.st_ino == st.st_ino && node->seen.st_dev == st.st_dev) {
			close(fd);
			return node;
		}
	struct node *node = calloc(1, sizeof *node);
	*node =
		(struct node) { .next = nodes, .fd = fd, .seen = st, .seen_at = clock_now(), .listed = -1 };
	return nodes = node;
}

struct node *node_at(const struct node *folder, const char *name)
{
	return node_of(openat(folder->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

static void remember(struct node *folder, const char *text, struct node *node)
{
	struct name *name = malloc(sizeof *name + strlen(text) + 1);
	*name = (struct name) { folder->names, node };
	strcpy(name->text, text);
	folder->names = name;
	if (node)
		node->refs++;
}

struct node *node_find(struct node *folder, const char *text)
{
	if (node_look(folder) < 0)
		return NULL;
	for (struct name *name = folder->names; name; name = name->next) {
		if (strcmp(name->text, text) != 0)
			continue;
		if (!name->node)
			errno = ENOENT;
		return name->node && node_look(name->node) < 0 ? node_find(folder, text) : name->node;
	}
	struct node *node = node_at(folder, text);
	if (node ? node_look(node) < 0 : errno != ENOENT || node_refresh(folder) < 0)
		return NULL;
	remember(folder, text, node);
	errno = ENOENT;
	return node;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int node_list(struct node *folder)
{
	int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	if (!stream)
		return -1;
	folder->listed = 0;
	while ((entry = readdir(stream))) {
		folder->list = realloc(folder->list, (size_t)(folder->listed + 1) * sizeof *folder->list);
		folder->list[folder->listed++] = strdup(entry->d_name);
	}
	closedir(stream);
	qsort(folder->list, (size_t)folder->listed, sizeof *folder->list, by_text);
	return 0;
}
