/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the numerics record, and compares it with a checkpoint's and across ranks. */
#include "config.h"

#include "trainer/run/numerics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/build_id.h"
#include "common/hash.h"
#include "common/log.h"
#include "trainer/comm/status_exchange.h"

#define TEXT_BYTES 2048 /* of a record that ranks exchange */
#define TEXT_TOLD 190   /* longest text of a value that ranks exchange whole */

json_t *numerics_record(const struct settings *settings, struct ops *ops, const struct comm *comm)
{
	bool native = settings->reduction == REDUCTION_NATIVE;
	const char *communicator = comm_library(comm) ? comm_library(comm) : comm_provider(comm);
	json_t *record = json_pack("{s:s, s:I, s:I, s:s, s:s, s:s, s:s}", "reduction",
		native ? "native" : "canonical", "slots", (json_int_t)settings->slots, "microbatch",
		(json_int_t)settings->microbatch, "device", ops->name, "isa", ops_cpu_isa(), "libraries",
		ops_cpu_versions(), "build", build_id());
	if (native) {
		record = record_set(record, "communicator", json_string(communicator));
		record = record_set(record, "world_size", json_integer(comm_size(comm)));
		record = record_set(record, "bucket_mb", json_integer(settings->bucket_mb));
	}
	if (native && settings->grad_dtype == GRAD_BF16)
		record = record_set(record, "grad_dtype", json_string("bf16"));
	if (ops->device->card)
		record = record_set(record, "card", json_string(ops->device->card));
	if (ops->libraries)
		record = record_set(record, "libraries", json_string(ops->libraries));
	if (ops->algorithms) {
		AUTO_FREE char *text = ops->algorithms(ops);
		record = record_set(record, "products", json_string(text));
	}
	if (settings->batchnorm)
		record = record_set(record, "world_size", json_integer(comm_size(comm)));
	return record;
}

/* Writes what replaces a text that is too long to be exchanged. */
static void hash_text(const json_t *value, char *out, size_t size)
{
	char hex[HASH_HEX_SIZE];
	snprintf(out, size, "a text with the hash %s",
		hash_hex(hash_bytes(json_string_value(value), json_string_length(value)), hex));
}

/* A copy of the record in which hashes replace long texts: this is what ranks exchange. */
static json_t *shorten(const json_t *record)
{
	json_t *copy = json_copy((json_t *)record), *value;
	const char *name;
	char text[200];
	json_object_foreach((json_t *)record, name,
		value) if (json_is_string(value) && json_string_length(value) > TEXT_TOLD)
	{
		hash_text(value, text, sizeof text);
		copy = record_set(copy, name, json_string(text));
	}
	return copy;
}

/* Words a value of a record for messages. */
static const char *value_text(const json_t *value, char out[200])
{
	if (json_is_string(value) && json_string_length(value) > TEXT_TOLD)
		hash_text(value, out, 200);
	else if (json_is_string(value))
		snprintf(out, 200, "%s", json_string_value(value));
	else if (json_is_integer(value))
		snprintf(out, 200, "%lld", (long long)json_integer_value(value));
	else
		snprintf(out, 200, "nothing");
	return out;
}

static int note_difference(const char *name, const json_t *old, const json_t *new, bool refuse,
	uint64_t step, json_t *changes, struct err *err)
{
	char from[200], to[200];
	if (refuse)
		return err_fail(err, EXIT_DATA,
			"resume: the numerics differ: %s was %s, now %s; --require-identical refuses that",
			name, value_text(old, from), value_text(new, to));
	log_warn("resume: the numerics differ, so bits may: %s was %s, now %s", name,
		value_text(old, from), value_text(new, to));
	json_t *change = json_pack("{s:I, s:s, s:s, s:s}", "step", (json_int_t)step, "name", name,
		"from", from, "to", to);
	if (!change || json_array_append_new(changes, change) < 0)
		return err_set(err, "resume: out of memory");
	return 0;
}

int numerics_compare(const json_t *recorded, const json_t *present, bool refuse, uint64_t step,
	json_t *changes, struct err *err)
{
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)present, name, value)
	{
		const json_t *old = json_object_get(recorded, name);
		if (!json_equal(old, value)
			&& note_difference(name, old, value, refuse, step, changes, err) < 0)
			return -1;
	}
	json_object_foreach((json_t *)recorded, name, value) if (!json_object_get(present, name)
		&& note_difference(name, value, NULL, refuse, step, changes, err) < 0) return -1;
	return 0;
}

int numerics_agree(struct comm *comm, const json_t *present, bool refuse, struct err *err)
{
	char mine[TEXT_BYTES] = "";
	int size = comm_size(comm);
	AUTO_FREE char *all = calloc((size_t)size, sizeof mine);
	json_t *told = shorten(present);
	AUTO_FREE char *text = record_dump(told, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(told);
	if (!all || !text)
		return err_set(err, "numerics: out of memory");
	snprintf(mine, sizeof mine, "%s", text);
	if (comm_wait(comm, comm_allgather(comm, "numerics", mine, all, sizeof mine), err) < 0)
		return -1;
	for (int rank = 1; rank < size; rank++) {
		const char *theirs = all + (size_t)rank * sizeof mine;
		if (memcmp(theirs, all, strnlen(all, sizeof mine - 1) + 1) == 0)
			continue;
		if (refuse) {
			err_fail(err, EXIT_DATA,
				"numerics: rank %d has %s, rank 0 has %s; --require-identical refuses that", rank,
				theirs, all);
			return ERR_SHARED;
		}
		if (comm_rank(comm) == 0)
			log_warn(
				"numerics: rank %d has %s, rank 0 has %s: bits depend on which rank computes what",
				rank, theirs, all);
	}
	return 0;
}
