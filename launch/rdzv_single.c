/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of a world of one: a list in memory. */
#include <stdlib.h>
#include <string.h>

#include "launch/rdzv_provider.h"

struct entry {
	struct entry *next;
	char key[65];
	enum rdzv_life life;
	int fence; /* before which it was put */
	size_t size;
	unsigned char value[];
};

struct single {
	struct entry *first;
	int fences;
};

static void *single_open(const struct ident *ident, double timeout, struct err *err)
{
	struct single *single = calloc(1, sizeof *single);
	if (!single)
		err_set(err, "rendezvous: no memory");
	return single;
}

static const struct entry *find(const struct single *single, const char *key)
{
	for (const struct entry *entry = single->first; entry; entry = entry->next)
		if (strcmp(entry->key, key) == 0)
			return entry;
	return NULL;
}

static int single_put(void *state, enum rdzv_life life, const char *key, const void *value,
	size_t size, struct err *err)
{
	struct single *single = state;
	if (find(single, key))
		return err_set(err, "rendezvous: couldn't put %s: it was put before", key);
	struct entry *entry = malloc(sizeof *entry + size);
	if (!entry)
		return err_set(err, "rendezvous: no memory for %zu bytes", size);
	memcpy(entry->key, key, strlen(key) + 1);
	entry->life = life;
	entry->fence = single->fences;
	entry->size = size;
	if (size)
		memcpy(entry->value, value, size);
	entry->next = single->first;
	single->first = entry;
	return 0;
}

/* Passing values of the fence before are forgotten. */
static int single_fence(void *state, double timeout, struct err *err)
{
	struct single *single = state;
	for (struct entry **at = &single->first; *at;) {
		struct entry *entry = *at;
		if (entry->life == RDZV_PASSING && entry->fence < single->fences) {
			*at = entry->next;
			free(entry);
		} else
			at = &entry->next;
	}
	single->fences++;
	return 0;
}

static int single_get(void *state, enum rdzv_life life, int rank, const char *key, void **value,
	size_t *size, double timeout, struct err *err)
{
	const struct entry *entry = find(state, key);
	if (!entry)
		return err_set(err, "rendezvous: couldn't get %s of rank %d: it was never put", key, rank);
	*value = malloc(entry->size + 1);
	if (!*value)
		return err_set(err, "rendezvous: no memory for %zu bytes", entry->size);
	memcpy(*value, entry->value, entry->size);
	((char *)*value)[entry->size] = '\0';
	*size = entry->size;
	return 0;
}

static void single_abort(void *state, int status, const char *why) {}

static void single_close(void *state, int orderly)
{
	struct single *single = state;
	while (single->first) {
		struct entry *entry = single->first;
		single->first = entry->next;
		free(entry);
	}
	free(single);
}

const struct rdzv_provider rdzv_single = {
	.name = "single",
	.open = single_open,
	.put = single_put,
	.fence = single_fence,
	.get = single_get,
	.abort = single_abort,
	.close = single_close,
};
