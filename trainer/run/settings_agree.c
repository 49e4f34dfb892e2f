/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks exchange a hash of their parameters, and the parameters only where a hash differs. */
#include "config.h"

#include "trainer/run/settings_agree.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/hash.h"
#include "common/record.h"
#include "trainer/comm/status_exchange.h"

#define TEXT_BYTES 4096 /* of the parameters that ranks exchange */

/* The options of the operation by which a rank decides what all do together. */
static const char *const together[] = { "ckpt-every", "ckpt-writers", "fresh", "require-identical",
	"validate-every", "validate-batches", "sample-every", "on-nonfinite", "check-replicas" };

static json_t *shared_settings(const struct settings *settings)
{
	json_t *record = settings_record(settings, (struct hash128) { 0 });
	/* json_copy() leaves out what there is no memory for. */
	json_t *shared = record_update(json_object(), json_incref(json_object_get(record, "identity")));
	const json_t *operation = json_object_get(record, "operation");
	shared = record_update(shared, json_incref(json_object_get(record, "schedule")));
	for (size_t i = 0; i < sizeof together / sizeof together[0]; i++)
		if (json_object_get(operation, together[i]))
			shared = record_set(shared, together[i],
				json_incref(json_object_get(operation, together[i])));
	json_decref(record);
	return shared;
}

/* A value as on the command line. NULL when out of memory. */
static char *written(const json_t *value)
{
	if (json_is_boolean(value))
		return strdup(json_is_true(value) ? "on" : "off");
	return json_is_string(value) ? strdup(json_string_value(value))
								 : record_dump(value, JSON_ENCODE_ANY);
}

/* The error of two ranks' parameters, which are not the same. */
static int differ(int rank, json_t *theirs, const json_t *first, struct err *err)
{
	const char *name;
	json_t *value;
	json_object_foreach(theirs, name, value)
	{
		const json_t *other = json_object_get(first, name);
		if (json_equal(value, other))
			continue;
		AUTO_FREE char *a = written(value);
		AUTO_FREE char *b = other ? written(other) : NULL;
		err_fail(err, EXIT_USAGE,
			"settings: --%s is %.100s on rank %d and %.100s on rank 0: start all ranks with the "
			"same options",
			name, a ? a : "?", rank, b ? b : "not there");
		return ERR_SHARED;
	}
	err_fail(err, EXIT_USAGE,
		"settings: rank %d has other options than rank 0: start all ranks with the same options",
		rank);
	return ERR_SHARED;
}

static int name_difference(struct comm *comm, int rank, const char *text, struct err *err)
{
	char mine[TEXT_BYTES] = "";
	AUTO_FREE char *all = malloc((size_t)comm_size(comm) * sizeof mine);
	if (!all)
		return err_set(err, "settings: out of memory");
	snprintf(mine, sizeof mine, "%s", text);
	if (comm_wait(comm, comm_allgather(comm, "options", mine, all, sizeof mine), err) < 0)
		return -1;
	const char *texts[] = { all, all + (size_t)rank * sizeof mine };
	json_t *first = record_parse(texts[0], strnlen(texts[0], sizeof mine), 0, "settings", err);
	json_t *theirs = record_parse(texts[1], strnlen(texts[1], sizeof mine), 0, "settings", err);
	int rc = differ(rank, theirs, first, err);
	json_decref(first);
	json_decref(theirs);
	return rc;
}

int settings_agree(const struct settings *settings, struct comm *comm, struct err *err)
{
	json_t *shared = shared_settings(settings);
	AUTO_FREE char *text = shared ? record_dump(shared, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	AUTO_FREE struct hash128 *all = calloc((size_t)comm_size(comm), sizeof *all);
	json_decref(shared);
	if (!text || !all)
		return err_set(err, "settings: out of memory");
	const struct hash128 mine = hash_bytes(text, strlen(text));
	if (comm_wait(comm, comm_allgather(comm, "settings", &mine, all, sizeof mine), err) < 0)
		return -1;
	for (int rank = 1; rank < comm_size(comm); rank++)
		if (!hash_equal(all[rank], all[0]))
			return name_difference(comm, rank, text, err);
	return 0;
}
