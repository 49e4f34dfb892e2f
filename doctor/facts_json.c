/* SPDX-License-Identifier: Apache-2.0 */
/* One table of fields serves both directions. */
#include "doctor/facts_json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/record.h"

enum kind { INT, BOOL, LONG, REAL, TEXT, CPUS };

struct field {
	const char *name;
	enum kind kind;
	size_t offset, size;
};

#define FIELD(kind, name) \
	{ \
#name, kind, offsetof(struct facts, name), sizeof(((struct facts *)0)->name) \
	}

static const struct field fields[] = {
	FIELD(INT, rank),
	FIELD(INT, world_size),
	FIELD(INT, local_rank),
	FIELD(INT, local_world_size),
	FIELD(INT, node_rank),
	FIELD(INT, node_count),
	FIELD(TEXT, node),
	FIELD(BOOL, in_step),
	FIELD(TEXT, alone),
	FIELD(BOOL, can_meet),
	FIELD(INT, job_nodes),
	FIELD(INT, job_tasks),
	FIELD(BOOL, service),
	FIELD(INT, gpus),
	FIELD(BOOL, gpus_asked),
	FIELD(BOOL, gpus_hidden),
	FIELD(BOOL, gpus_may_share),
	FIELD(TEXT, visible),
	FIELD(TEXT, device_told),
	FIELD(TEXT, jax_devices),
	FIELD(LONG, devices_present),
	FIELD(LONG, devices_open),
	FIELD(INT, cpus_per_task),
	FIELD(INT, cpus_on_node),
	FIELD(INT, cpus_online),
	FIELD(CPUS, cpus),
	FIELD(LONG, locked_memory),
	FIELD(BOOL, rdma),
	FIELD(TEXT, driver),
	FIELD(TEXT, cuda),
	FIELD(TEXT, nccl),
	FIELD(TEXT, muster),
	FIELD(TEXT, master),
	FIELD(INT, port),
	FIELD(TEXT, port_error),
	FIELD(TEXT, master_error),
	FIELD(TEXT, nccl_wanted),
	FIELD(TEXT, gloo_wanted),
	FIELD(TEXT, interfaces),
	FIELD(TEXT, nccl_ways),
	FIELD(TEXT, gloo_ways),
	FIELD(TEXT, interface),
	FIELD(TEXT, nccl_error),
	FIELD(TEXT, gloo_error),
	FIELD(TEXT, dir_error),
	FIELD(BOOL, dir_full),
	FIELD(BOOL, dir_differs),
	FIELD(LONG, dir_free),
	FIELD(REAL, met_before),
	FIELD(REAL, met_after),
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])

/* json_string needs UTF-8. */
static json_t *encode_text(const char *text)
{
	char copy[2048];
	json_t *string = json_string(text);
	if (string)
		return string;
	snprintf(copy, sizeof copy, "%s", text);
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	return json_string(copy);
}

static json_t *encode_cpus(const uint8_t *cpus)
{
	char hex[2 * FACTS_CPU_BYTES + 1];
	for (int i = 0; i < FACTS_CPU_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", cpus[i]);
	return json_string(hex);
}

static json_t *encode(const struct field *field, const struct facts *facts)
{
	const void *at = (const char *)facts + field->offset;
	switch (field->kind) {
	case INT: return json_integer(*(const int *)at);
	case BOOL: return json_boolean(*(const bool *)at);
	case LONG: return json_integer(*(const int64_t *)at);
	case REAL: return json_real(*(const double *)at);
	case TEXT: return encode_text(at);
	case CPUS: return encode_cpus(at);
	}
	return NULL;
}

char *facts_encode(const struct facts *facts, struct err *err)
{
	json_t *object = json_object();
	bool good = object != NULL;
	for (size_t i = 0; good && i < FIELD_COUNT; i++)
		good = json_object_set_new(object, fields[i].name, encode(&fields[i], facts)) == 0;
	char *text = good ? record_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	json_decref(object);
	if (!text)
		err_set(err, "facts: no memory");
	return text;
}

static bool decode_cpus(const json_t *value, uint8_t *cpus)
{
	if (!json_is_string(value) || json_string_length(value) != 2 * FACTS_CPU_BYTES)
		return false;
	for (int i = 0; i < FACTS_CPU_BYTES; i++) {
		unsigned byte;
		if (sscanf(json_string_value(value) + 2 * i, "%2x", &byte) != 1)
			return false;
		cpus[i] = (uint8_t)byte;
	}
	return true;
}

static bool decode(const struct field *field, const json_t *value, struct facts *facts)
{
	void *at = (char *)facts + field->offset;
	switch (field->kind) {
	case INT:
		*(int *)at = (int)json_integer_value(value);
		return json_is_integer(value) && json_integer_value(value) == *(int *)at;
	case BOOL: *(bool *)at = json_is_true(value); return json_is_boolean(value);
	case LONG: *(int64_t *)at = json_integer_value(value); return json_is_integer(value);
	case REAL: *(double *)at = json_number_value(value); return json_is_number(value);
	case TEXT:
		if (json_is_string(value))
			snprintf(at, field->size, "%s", json_string_value(value));
		return json_is_string(value);
	case CPUS: return decode_cpus(value, at);
	}
	return false;
}

int facts_decode(const char *text, size_t size, struct facts *facts, struct err *err)
{
	int rc = 0;
	json_t *object = record_parse(text, size, 0, "facts: a rank's report", err);
	if (!object)
		return -1;
	if (!json_is_object(object))
		rc = err_set(err, "facts: couldn't read a rank's report: not a JSON object");
	for (size_t i = 0; rc == 0 && i < FIELD_COUNT; i++) {
		const json_t *value = json_object_get(object, fields[i].name);
		if (value && !decode(&fields[i], value, facts))
			rc = err_set(err, "facts: couldn't read %s in a rank's report", fields[i].name);
	}
	json_decref(object);
	return rc;
}
