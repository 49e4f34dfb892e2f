/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the messages, the header of a frame, and the checks that a table can't express. */
#include "checkpoint/protocol/ckptd_proto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/bytes.h"

#define AT(type, member) .offset = offsetof(struct type, member)
#define ANY .least = 0, .most = INT64_MAX

static const struct ckptd_field tensor_fields[] = {
	{ "name", FIELD_TEXT, AT(ckptd_tensor, name), .least = 1 },
	{ "dtype", FIELD_DTYPE, AT(ckptd_tensor, dtype) },
	{ "shape", FIELD_SHAPE, AT(ckptd_tensor, shape), .count = offsetof(struct ckptd_tensor, dims) },
	{ "writer", FIELD_INTEGER, AT(ckptd_tensor, writer), .most = CKPTD_PARTS_MAX - 1 },
	{ "offset", FIELD_INTEGER, AT(ckptd_tensor, offset), ANY, .null = true },
	{ "state", FIELD_BOOL, AT(ckptd_tensor, state) },
	{ "box_shape", FIELD_SHAPE, AT(ckptd_tensor, box.shape),
		.count = offsetof(struct ckptd_tensor, box_dims), .null = true },
	{ "box_offset", FIELD_SHAPE, AT(ckptd_tensor, box.offset),
		.count = offsetof(struct ckptd_tensor, box_offset_dims), .null = true },
	{ 0 },
};

static const struct ckptd_field slice_fields[] = {
	{ "tensor", FIELD_INTEGER, AT(ckptd_slice, tensor), ANY },
	{ "first", FIELD_INTEGER, AT(ckptd_slice, first), ANY },
	{ "count", FIELD_INTEGER, AT(ckptd_slice, count), ANY },
	{ "writer", FIELD_INTEGER, AT(ckptd_slice, writer), .most = CKPTD_PARTS_MAX - 1 },
	{ "offsets", FIELD_OFFSETS, AT(ckptd_slice, offset), .null = true },
	{ 0 },
};

static const struct ckptd_field attach_fields[] = {
	{ "token", FIELD_TOKEN, AT(ckptd_attach, token) },
	{ "path", FIELD_TEXT, AT(ckptd_attach, path) },
	{ "attempt", FIELD_INTEGER, AT(ckptd_attach, attempt), .most = INT32_MAX },
	{ "world_size", FIELD_INTEGER, AT(ckptd_attach, world_size), .least = 1, .most = INT32_MAX },
	{ "seed", FIELD_U64, AT(ckptd_attach, seed) },
	{ "part", FIELD_INTEGER, AT(ckptd_attach, part), .most = CKPTD_PARTS_MAX - 1 },
	{ "parts", FIELD_INTEGER, AT(ckptd_attach, parts), .least = 1, .most = CKPTD_PARTS_MAX },
	{ "shard_size", FIELD_INTEGER, AT(ckptd_attach, shard_size), ANY },
	{ "keep_last", FIELD_INTEGER, AT(ckptd_attach, keep_last), ANY },
	{ "keep_every", FIELD_INTEGER, AT(ckptd_attach, keep_every), ANY },
	{ "keep_best", FIELD_INTEGER, AT(ckptd_attach, keep_best), ANY },
	{ "slots", FIELD_INTEGER, AT(ckptd_attach, buffers), .least = 1, .most = SNAPSHOT_BUFFERS },
	{ "slot_bytes", FIELD_INTEGER, AT(ckptd_attach, buffer_bytes), .least = 1, .most = INT64_MAX },
	{ "umask", FIELD_INTEGER, AT(ckptd_attach, umask), .most = 0777 },
	{ "host", FIELD_TEXT, AT(ckptd_attach, host), .least = 1, .null = true },
	{ "port", FIELD_INTEGER, AT(ckptd_attach, port), .most = UINT16_MAX },
	{ "secret", FIELD_TOKEN, AT(ckptd_attach, secret), .null = true },
	{ "first", FIELD_TEXT, AT(ckptd_attach, first), .least = 1, .null = true },
	{ 0 },
};

static const struct ckptd_field attached_fields[] = {
	{ "pid", FIELD_INTEGER, AT(ckptd_attached, pid), .least = 1, .most = INT32_MAX },
	{ "port", FIELD_INTEGER, AT(ckptd_attached, port), .most = UINT16_MAX },
	{ 0 },
};

static const struct ckptd_field save_fields[] = {
	{ "slot", FIELD_INTEGER, AT(ckptd_save, buffer), .least = -1, .most = SNAPSHOT_BUFFERS - 1 },
	{ "step", FIELD_INTEGER, AT(ckptd_save, at.step), ANY },
	{ "cursor", FIELD_INTEGER, AT(ckptd_save, at.cursor), ANY },
	{ "loss", FIELD_REAL, AT(ckptd_save, at.loss) },
	{ "validation_loss", FIELD_REAL, AT(ckptd_save, at.validation_loss) },
	{ "config", FIELD_TEXT, AT(ckptd_save, config), .null = true },
	{ "numerics", FIELD_TEXT, AT(ckptd_save, numerics), .null = true },
	{ "model", FIELD_TEXT, AT(ckptd_save, model), .null = true },
	{ "values", FIELD_TEXT, AT(ckptd_save, values), .null = true },
	{ "tensors", FIELD_ROWS, AT(ckptd_save, tensors),
		.count = offsetof(struct ckptd_save, tensor_count), .rows = tensor_fields,
		.row_size = sizeof(struct ckptd_tensor) },
	{ "slices", FIELD_ROWS, AT(ckptd_save, slices),
		.count = offsetof(struct ckptd_save, slice_count), .rows = slice_fields,
		.row_size = sizeof(struct ckptd_slice) },
	{ 0 },
};

static const struct ckptd_field progress_fields[] = {
	{ "step", FIELD_INTEGER, AT(ckptd_progress, step), ANY },
	{ "bytes", FIELD_INTEGER, AT(ckptd_progress, bytes), ANY },
	{ "total", FIELD_INTEGER, AT(ckptd_progress, total), ANY },
	{ 0 },
};

static const struct ckptd_field written_fields[] = {
	{ "step", FIELD_INTEGER, AT(save_result, step), ANY },
	{ "bytes", FIELD_INTEGER, AT(save_result, bytes), ANY },
	{ "seconds", FIELD_REAL, AT(save_result, seconds) },
	{ 0 },
};

static const struct ckptd_field durable_fields[] = {
	{ "step", FIELD_INTEGER, AT(save_result, step), ANY },
	{ "bytes", FIELD_INTEGER, AT(save_result, bytes), ANY },
	{ "seconds", FIELD_REAL, AT(save_result, seconds) },
	{ "taken", FIELD_BOOL, AT(save_result, taken) },
	{ 0 },
};

static const struct ckptd_field failed_fields[] = {
	{ "step", FIELD_INTEGER, AT(save_result, step), ANY },
	{ "status", FIELD_STATUS, AT(save_result, err.status) },
	{ "text", FIELD_REASON, AT(save_result, err) },
	{ 0 },
};

static const struct ckptd_field no_fields[] = { { 0 } };

#define LINES \
	{ \
		"lines", FIELD_LINES, AT(ckptd_lines, lines), .count = offsetof(struct ckptd_lines, count) \
	}

static const struct ckptd_field state_fields[] = {
	{ "pid", FIELD_INTEGER, AT(ckptd_lines, pid), .least = 1, .most = INT32_MAX },
	{ "job", FIELD_TEXT, AT(ckptd_lines, job) },
	{ "clients", FIELD_INTEGER, AT(ckptd_lines, clients), .most = INT32_MAX },
	LINES,
	{ 0 },
};

static const struct ckptd_field finished_fields[] = { LINES, { 0 } };

static const struct ckptd_field finish_fields[] = {
	{ "seconds", FIELD_INTEGER, AT(ckptd_finish, seconds), .most = 86400 },
	{ 0 },
};

static const struct ckptd_field hello_fields[] = {
	{ "secret", FIELD_TOKEN, AT(ckptd_hello, secret) },
	{ "token", FIELD_TOKEN, AT(ckptd_hello, token) },
	{ "part", FIELD_INTEGER, AT(ckptd_hello, part), .least = 1, .most = CKPTD_PARTS_MAX - 1 },
	{ "parts", FIELD_INTEGER, AT(ckptd_hello, parts), .least = 2, .most = CKPTD_PARTS_MAX },
	{ 0 },
};

static const struct ckptd_field part_fields[] = {
	{ "step", FIELD_INTEGER, AT(ckptd_part, step), ANY },
	{ "text", FIELD_TEXT, AT(ckptd_part, text), .null = true },
	{ "status", FIELD_INTEGER, AT(ckptd_part, status), .most = EXIT_LOST },
	{ "fault", FIELD_TEXT, AT(ckptd_part, fault), .null = true },
	{ 0 },
};

static const struct ckptd_field part_taken_fields[] = {
	{ "step", FIELD_INTEGER, AT(ckptd_decided, step), ANY },
	{ 0 },
};

static const struct ckptd_field decided_fields[] = {
	{ "step", FIELD_INTEGER, AT(ckptd_decided, step), ANY },
	{ "committed", FIELD_BOOL, AT(ckptd_decided, committed) },
	{ 0 },
};

static const struct ckptd_field refused_fields[] = {
	{ "status", FIELD_STATUS, AT(ckptd_refused, status) },
	{ "text", FIELD_TEXT, AT(ckptd_refused, text) },
	{ 0 },
};

static const struct type {
	const char *name;
	const struct ckptd_field *fields;
	uint32_t limit; /* of the payload */
	int least_descriptors, most_descriptors;
} types[CKPTD_TYPES] = {
	[CKPTD_ATTACH] = { "ATTACH", attach_fields, CKPTD_PAYLOAD_MAX, 2, CKPTD_DESCRIPTORS },
	[CKPTD_ATTACHED] = { "ATTACHED", attached_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_SAVE] = { "SAVE", save_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_PROGRESS] = { "PROGRESS", progress_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_SAVE_WRITTEN] = { "WRITTEN", written_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_SAVE_DURABLE] = { "DURABLE", durable_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_SAVE_FAILED] = { "FAILED", failed_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_STATUS] = { "STATUS", no_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_STATE] = { "STATE", state_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_FINISH] = { "FINISH", finish_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_FINISHED] = { "FINISHED", finished_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_HELLO] = { "HELLO", hello_fields, CKPTD_HELLO_MAX, 0, 0 },
	[CKPTD_PART] = { "PART", part_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_PART_TAKEN] = { "PART_TAKEN", part_taken_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_DECIDED] = { "DECIDED", decided_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_REFUSED] = { "REFUSED", refused_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
	[CKPTD_LEFT] = { "LEFT", part_taken_fields, CKPTD_PAYLOAD_MAX, 0, 0 },
};

const char *ckptd_type_name(enum ckptd_type type)
{
	return types[type].name;
}

/* ---- the header ---- */

void ckptd_header_encode(const struct ckptd_header *header, unsigned char bytes[CKPTD_HEADER_SIZE])
{
	memcpy(bytes, "MCKD", 4);
	bytes_put_le16(bytes + 4, CKPTD_VERSION);
	bytes_put_le16(bytes + 6, (uint16_t)header->type);
	bytes_put_le32(bytes + 8, header->size);
	bytes_put_le16(bytes + 12, (uint16_t)header->descriptors);
	bytes_put_le16(bytes + 14, 0);
}

int ckptd_header_decode(const unsigned char bytes[CKPTD_HEADER_SIZE], struct ckptd_header *header,
	struct err *err)
{
	unsigned version = bytes_le16(bytes + 4), type = bytes_le16(bytes + 6);
	if (memcmp(bytes, "MCKD", 4) != 0)
		return err_fail(err, EXIT_DATA,
			"protocol: what came is no frame of the checkpoint service's protocol");
	if (version != CKPTD_VERSION)
		return err_fail(err, EXIT_DATA,
			"protocol: a frame of version %u came where version %d is spoken: use programs of one "
			"release",
			version, CKPTD_VERSION);
	if (type == 0 || type >= CKPTD_TYPES)
		return err_fail(err, EXIT_DATA, "protocol: there is no message of type %u", type);
	*header = (struct ckptd_header) { (enum ckptd_type)type, bytes_le32(bytes + 8),
		bytes_le16(bytes + 12) };
	const struct type *row = &types[type];
	if (header->size > row->limit)
		return err_fail(err, EXIT_DATA,
			"protocol: %s: %" PRIu32 " bytes are more than the %" PRIu32 " that are allowed",
			row->name, header->size, row->limit);
	if (header->descriptors < row->least_descriptors || header->descriptors > row->most_descriptors
		|| bytes_le16(bytes + 14))
		return err_fail(err, EXIT_DATA, "protocol: %s: %d descriptors, or bytes that are not 0",
			row->name, header->descriptors);
	return 0;
}

/* ---- payloads ---- */

int ckptd_encode(const struct ckptd_message *message, char **payload, size_t *size, struct err *err)
{
	const struct type *type = &types[message->type];
	json_t *object = ckptd_fields_encode(type->fields, &message->attach, err);
	if (!object)
		return -1;
	*payload = record_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(object);
	if (!*payload)
		return err_set(err, "protocol: no memory");
	*size = strlen(*payload);
	if (*size <= type->limit)
		return 0;
	free(*payload);
	return err_set(err,
		"protocol: a %s of %zu bytes is larger than the %" PRIu32 " that are allowed", type->name,
		*size, type->limit);
}

/* The types of results have the order of their outcomes. */
#define RESULT_OFFSET (CKPTD_SAVE_WRITTEN - (int)SAVE_WRITTEN)
_Static_assert(CKPTD_SAVE_DURABLE - RESULT_OFFSET == (int)SAVE_DURABLE
		&& CKPTD_SAVE_FAILED - RESULT_OFFSET == (int)SAVE_FAILED,
	"RESULT_OFFSET is that of all three");

struct ckptd_message ckptd_result_message(const struct save_result *result)
{
	return (struct ckptd_message) { .type = (enum ckptd_type)((int)result->outcome + RESULT_OFFSET),
		.result = *result };
}

static int check(const struct ckptd_message *message, struct err *err)
{
	const struct ckptd_part *part = &message->part;
	switch (message->type) {
	case CKPTD_ATTACH: return ckptd_attach_check(&message->attach, err);
	case CKPTD_HELLO:
		return message->hello.part < message->hello.parts
			? 0
			: err_fail(err, EXIT_DATA, "\"part\" is none of the parts");
	case CKPTD_PART:
		if (!part->text == !part->fault || (part->text != NULL) != (part->status == 0))
			return err_fail(err, EXIT_DATA, "it has not either a text or a fault");
		return 0;
	default: return 0;
	}
}

int ckptd_decode(enum ckptd_type type, const char *payload, size_t size,
	struct ckptd_message *message, struct err *err)
{
	*message = (struct ckptd_message) { .type = type,
		.json = record_parse(payload, size, JSON_REJECT_DUPLICATES, "the payload", err) };
	if (!message->json)
		return err_prefix(err, "protocol: %s", types[type].name);
	if (type >= CKPTD_SAVE_WRITTEN && type <= CKPTD_SAVE_FAILED)
		message->result.outcome = (enum save_outcome)((int)type - RESULT_OFFSET);
	if (ckptd_fields_decode(types[type].fields, message->json, &message->attach, err) == 0
		&& check(message, err) == 0)
		return 0;
	ckptd_message_release(message);
	return err_prefix(err, "protocol: %s", types[type].name);
}

void ckptd_message_release(struct ckptd_message *message)
{
	if (message->type == CKPTD_SAVE)
		ckptd_save_release(&message->save);
	else if (message->type == CKPTD_STATE || message->type == CKPTD_FINISHED)
		free(message->state.lines);
	json_decref(message->json);
	*message = (struct ckptd_message) { 0 };
}
