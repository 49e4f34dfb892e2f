/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest's text. Its last line is the hash of all text before that line, so the text alone
 * shows whether it is the one that was written. */
#include "checkpoint/format/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/number.h"

#define FORMAT "muster-checkpoint"
#define PART_FORMAT "muster-checkpoint-part"

/* The text ends with SELF_OPEN, 32 digits, and SELF_CLOSE; the hash covers all bytes before
 * SELF_OPEN. */
#define SELF_OPEN ",\n \"self\": \""
#define SELF_CLOSE "\"\n}\n"
#define SELF_SIZE (sizeof SELF_OPEN - 1 + HASH_HEX_SIZE - 1 + sizeof SELF_CLOSE - 1)

static const char *const roles[] = {
	[MANIFEST_MODEL] = "model",
	[MANIFEST_OPTIMIZER] = "optimizer",
	[MANIFEST_INDEX] = "index",
	[MANIFEST_CONFIG] = "config",
	[MANIFEST_OTHER] = "other",
	[MANIFEST_STATE] = "state",
	[MANIFEST_VALUES] = "values",
};

#define ROLES (sizeof roles / sizeof roles[0])

const char *manifest_role_name(enum manifest_role role)
{
	return roles[role];
}

struct manifest *manifest_create(void)
{
	struct manifest *manifest = calloc(1, sizeof *manifest);
	if (manifest)
		manifest->loss = manifest->validation_loss = NAN;
	return manifest;
}

void manifest_destroy(struct manifest *manifest)
{
	if (!manifest)
		return;
	for (size_t i = 0; i < manifest->file_count; i++)
		free(manifest->files[i].chunks);
	free(manifest->files);
	json_decref(manifest->config);
	json_decref(manifest->numerics);
	free(manifest);
}

struct manifest_file *manifest_add_file(struct manifest *manifest, const char *name,
	enum manifest_role role, uint64_t size)
{
	size_t chunks = (size_t)(size / MANIFEST_CHUNK + (size % MANIFEST_CHUNK != 0));
	struct hash128 *hashes = calloc(chunks + 1, sizeof *hashes);
	struct manifest_file *files =
		realloc(manifest->files, (manifest->file_count + 1) * sizeof *files);
	if (files)
		manifest->files = files;
	if (!hashes || !files) {
		free(hashes);
		return NULL;
	}
	struct manifest_file *file = &files[manifest->file_count++];
	*file = (struct manifest_file) { .role = role,
		.size = size,
		.chunks = hashes,
		.chunk_count = chunks };
	snprintf(file->name, sizeof file->name, "%s", name);
	return file;
}

const struct manifest_file *manifest_find(const struct manifest *manifest, const char *name)
{
	for (size_t i = 0; i < manifest->file_count; i++)
		if (strcmp(manifest->files[i].name, name) == 0)
			return &manifest->files[i];
	return NULL;
}

/* ---- rules for both encode and parse ---- */

/* A valid name is a plain name in the checkpoint's folder: no path, not hidden, not the manifest
 * itself. */
static int valid_name(const char *name)
{
	size_t length = strlen(name);
	return length > 0 && length < sizeof((struct manifest_file *)0)->name && name[0] != '.'
		&& !strchr(name, '/') && strcmp(name, MANIFEST_NAME) != 0;
}

static int valid_config(const json_t *config)
{
	return json_is_object(config) && json_is_object(json_object_get(config, "identity"))
		&& json_is_object(json_object_get(config, "schedule"))
		&& json_is_object(json_object_get(config, "operation"));
}

static int valid_token(const char *token)
{
	struct hash128 ignored;
	return hash_parse(token, &ignored) == 0;
}

/* Names the first thing that is wrong with the manifest; NULL if nothing is. */
static const char *fault_of(const struct manifest *manifest)
{
	if (manifest->step < 0)
		return "step";
	if (manifest->attempt < 0)
		return "attempt";
	if (!valid_token(manifest->token))
		return "token";
	if (manifest->world_size < 1)
		return "world_size";
	if (!isfinite(manifest->time) || manifest->time < 0)
		return "time";
	if (manifest->cursor > INT64_MAX)
		return "cursor";
	if (isinf(manifest->loss))
		return "loss";
	if (isinf(manifest->validation_loss))
		return "validation_loss";
	if (manifest->parts < 0
		|| (manifest->parts > 0 && (manifest->part < 0 || manifest->part >= manifest->parts)))
		return "part";
	if (!valid_config(manifest->config))
		return "config";
	if (!json_is_object(manifest->numerics))
		return "numerics";
	int values = 0;
	for (size_t i = 0; i < manifest->file_count; i++) {
		const struct manifest_file *file = &manifest->files[i];
		values += file->role == MANIFEST_VALUES;
		if (values > 1)
			return "role of a file";
		if (!valid_name(file->name) || manifest_find(manifest, file->name) != file)
			return "name of a file";
		if (file->size > INT64_MAX)
			return "size of a file";
	}
	return NULL;
}

/* ---- encode ---- */

static json_t *encode_hash(struct hash128 hash)
{
	char hex[HASH_HEX_SIZE];
	return json_string(hash_hex(hash, hex));
}

static json_t *encode_file(const struct manifest_file *file)
{
	json_t *chunks = json_array();
	for (size_t i = 0; i < file->chunk_count; i++)
		chunks = record_append(chunks, encode_hash(file->chunks[i]));
	return json_pack("{s:s, s:s, s:I, s:o, s:o}", "name", file->name, "role", roles[file->role],
		"size", (json_int_t)file->size, "xxh3_128", encode_hash(file->hash), "chunks", chunks);
}

static json_t *encode_loss(double loss)
{
	return isnan(loss) ? json_null() : json_real(loss);
}

/* The version from which on there is the role. */
static int version_of(enum manifest_role role)
{
	return role == MANIFEST_STATE || role == MANIFEST_VALUES ? 2 : 1;
}

/* The members before "step". */
static json_t *encode_format(const struct manifest *manifest)
{
	int version = 1;
	for (size_t i = 0; i < manifest->file_count; i++)
		if (version_of(manifest->files[i].role) > version)
			version = version_of(manifest->files[i].role);
	if (manifest->parts == 0)
		return json_pack("{s:s, s:i}", "format", FORMAT, "version", version);
	return json_pack("{s:s, s:i, s:i, s:i, s:s*}", "format", PART_FORMAT, "version", version,
		"part", manifest->part + 1, "parts", manifest->parts, "plan",
		manifest->plan[0] ? manifest->plan : NULL);
}

/* NULL when out of memory, or when a text is not UTF-8. */
static json_t *encode_object(const struct manifest *manifest)
{
	char seed[24];
	snprintf(seed, sizeof seed, "%" PRIu64, manifest->seed);
	json_t *files = json_array();
	for (size_t i = 0; i < manifest->file_count; i++)
		files = record_append(files, encode_file(&manifest->files[i]));
	json_t *object = encode_format(manifest);
	json_t *rest = json_pack("{s:I, s:i, s:s, s:i, s:f, s:s, s:I, s:o, s:o, s:O, s:O, s:i, s:o}",
		"step", (json_int_t)manifest->step, "attempt", manifest->attempt, "token", manifest->token,
		"world_size", manifest->world_size, "time", manifest->time, "seed", seed, "cursor",
		(json_int_t)manifest->cursor, "loss", encode_loss(manifest->loss), "validation_loss",
		encode_loss(manifest->validation_loss), "config", manifest->config, "numerics",
		manifest->numerics, "chunk_size", (int)MANIFEST_CHUNK, "files", files);
	if (!object || !rest || json_object_update(object, rest) < 0) {
		json_decref(object);
		object = NULL;
	}
	json_decref(rest);
	return object;
}

/* Replaces the closing "\n}" of `body` by the line with the hash of the text before it. */
static int add_self(char *body, char **text, size_t *size, struct err *err)
{
	size_t length = strlen(body) - 2;
	char hex[HASH_HEX_SIZE];
	char *out = malloc(length + SELF_SIZE + 1);
	if (!out)
		return err_set(err, "manifest: no memory for its text");
	memcpy(out, body, length);
	sprintf(out + length, SELF_OPEN "%s" SELF_CLOSE, hash_hex(hash_bytes(body, length), hex));
	*text = out;
	*size = length + SELF_SIZE;
	return 0;
}

int manifest_encode(const struct manifest *manifest, char **text, size_t *size, struct err *err)
{
	const char *fault = fault_of(manifest);
	if (fault)
		return err_set(err, "manifest: couldn't encode it: the %s is not valid", fault);
	json_t *object = encode_object(manifest);
	AUTO_FREE char *body = record_dump(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	json_decref(object);
	if (!body)
		return err_set(err, "manifest: couldn't encode it: no memory");
	return add_self(body, text, size, err);
}

/* ---- parse ---- */

/* Checks that the bytes are what manifest_encode wrote. */
static int check_self(const char *text, size_t size, struct err *err)
{
	char hex[HASH_HEX_SIZE];
	struct hash128 self;
	if (size < SELF_SIZE)
		return err_fail(err, EXIT_DATA, "manifest: %zu bytes are too few", size);
	const char *tail = text + size - SELF_SIZE;
	const char *digits = tail + sizeof SELF_OPEN - 1;
	memcpy(hex, digits, HASH_HEX_SIZE - 1);
	hex[HASH_HEX_SIZE - 1] = '\0';
	if (memcmp(tail, SELF_OPEN, sizeof SELF_OPEN - 1) != 0 || hash_parse(hex, &self) < 0
		|| memcmp(digits + HASH_HEX_SIZE - 1, SELF_CLOSE, sizeof SELF_CLOSE - 1) != 0)
		return err_fail(err, EXIT_DATA, "manifest: it does not end with its own hash");
	if (!hash_equal(self, hash_bytes(text, size - SELF_SIZE)))
		return err_fail(err, EXIT_DATA, "manifest: its text does not have the hash that it names");
	return 0;
}

static int get_integer(const json_t *object, const char *key, int64_t low, int64_t high,
	int64_t *value, struct err *err)
{
	const json_t *json = json_object_get(object, key);
	if (!json_is_integer(json) || json_integer_value(json) < low || json_integer_value(json) > high)
		return err_fail(err, EXIT_DATA, "manifest: %s is missing or out of range", key);
	*value = json_integer_value(json);
	return 0;
}

static int get_hash(const json_t *json, struct hash128 *hash, struct err *err)
{
	if (!json_is_string(json) || hash_parse(json_string_value(json), hash) < 0)
		return err_fail(err, EXIT_DATA, "manifest: a hash is missing or malformed");
	return 0;
}

static int get_role(const json_t *json, int version, enum manifest_role *role, struct err *err)
{
	for (size_t i = 0; json_is_string(json) && i < ROLES; i++)
		if (strcmp(roles[i], json_string_value(json)) == 0
			&& version_of((enum manifest_role)i) <= version) {
			*role = (enum manifest_role)i;
			return 0;
		}
	return err_fail(err, EXIT_DATA, "manifest: a file has no known role");
}

static int parse_file(struct manifest *manifest, const json_t *json, struct err *err)
{
	const char *name = json_string_value(json_object_get(json, "name"));
	const json_t *chunks = json_object_get(json, "chunks");
	enum manifest_role role = MANIFEST_OTHER;
	int64_t size;
	if (!name || !valid_name(name))
		return err_fail(err, EXIT_DATA, "manifest: a file has no valid name");
	if (get_role(json_object_get(json, "role"), manifest->version, &role, err) < 0
		|| get_integer(json, "size", 0, INT64_MAX, &size, err) < 0)
		return -1;
	/* Check before allocating: the size is believed only if there are as many hashes as it
	 * needs. */
	uint64_t needed = (uint64_t)size / MANIFEST_CHUNK + ((uint64_t)size % MANIFEST_CHUNK != 0);
	if (!json_is_array(chunks) || json_array_size(chunks) != needed)
		return err_fail(err, EXIT_DATA, "manifest: %s does not have one hash a chunk", name);
	struct manifest_file *file = manifest_add_file(manifest, name, role, (uint64_t)size);
	if (!file)
		return err_set(err, "manifest: no memory");
	if (get_hash(json_object_get(json, "xxh3_128"), &file->hash, err) < 0)
		return -1;
	for (size_t i = 0; i < file->chunk_count; i++)
		if (get_hash(json_array_get(chunks, i), &file->chunks[i], err) < 0)
			return -1;
	return 0;
}

static int parse_seed(const json_t *json, uint64_t *seed, struct err *err)
{
	const char *text = json_string_value(json);
	if (!text || !number_u64(text, seed))
		return err_fail(err, EXIT_DATA, "manifest: seed is missing or malformed");
	return 0;
}

static int parse_numbers(struct manifest *manifest, const json_t *object, struct err *err)
{
	int64_t attempt, world_size, cursor, chunk_size;
	const json_t *time = json_object_get(object, "time"), *loss = json_object_get(object, "loss");
	const json_t *validation_loss = json_object_get(object, "validation_loss");
	if (get_integer(object, "step", 0, INT64_MAX, &manifest->step, err) < 0
		|| get_integer(object, "attempt", 0, INT32_MAX, &attempt, err) < 0
		|| get_integer(object, "world_size", 1, INT32_MAX, &world_size, err) < 0
		|| get_integer(object, "cursor", 0, INT64_MAX, &cursor, err) < 0
		|| get_integer(object, "chunk_size", MANIFEST_CHUNK, MANIFEST_CHUNK, &chunk_size, err) < 0
		|| parse_seed(json_object_get(object, "seed"), &manifest->seed, err) < 0)
		return -1;
	if (!json_is_number(time) || !(json_is_number(loss) || json_is_null(loss)))
		return err_fail(err, EXIT_DATA, "manifest: time or loss is missing");
	if (validation_loss && !json_is_number(validation_loss) && !json_is_null(validation_loss))
		return err_fail(err, EXIT_DATA, "manifest: validation_loss is malformed");
	manifest->attempt = (int)attempt;
	manifest->world_size = (int)world_size;
	manifest->cursor = (uint64_t)cursor;
	manifest->time = json_number_value(time);
	manifest->loss = json_is_null(loss) ? NAN : json_number_value(loss);
	manifest->validation_loss =
		json_is_number(validation_loss) ? json_number_value(validation_loss) : NAN;
	return 0;
}

static int parse_members(struct manifest *manifest, json_t *object, struct err *err)
{
	const char *token = json_string_value(json_object_get(object, "token"));
	const json_t *files = json_object_get(object, "files");
	if (!token || !valid_token(token))
		return err_fail(err, EXIT_DATA, "manifest: token is missing or malformed");
	memcpy(manifest->token, token, sizeof manifest->token);
	if (parse_numbers(manifest, object, err) < 0)
		return -1;
	manifest->config = json_incref(json_object_get(object, "config"));
	manifest->numerics = json_incref(json_object_get(object, "numerics"));
	if (!json_is_array(files))
		return err_fail(err, EXIT_DATA, "manifest: files is missing");
	for (size_t i = 0; i < json_array_size(files); i++)
		if (parse_file(manifest, json_array_get(files, i), err) < 0)
			return -1;
	const char *fault = fault_of(manifest);
	if (fault)
		return err_fail(err, EXIT_DATA, "manifest: the %s is missing or not valid", fault);
	return 0;
}

static int check_version(struct manifest *manifest, const json_t *object, const char *format,
	bool *newer, struct err *err)
{
	int64_t version;
	const char *found = json_string_value(json_object_get(object, "format"));
	if (!found || strcmp(found, format) != 0)
		return err_fail(err, EXIT_DATA, "manifest: it is not one of a checkpoint");
	if (get_integer(object, "version", 1, INT64_MAX, &version, err) < 0)
		return -1;
	if (version > MANIFEST_VERSION) {
		*newer = true;
		return err_fail(err, EXIT_DATA,
			"manifest: its format version is %" PRId64
			", the newest this program knows is %d; use a newer Muster",
			version, MANIFEST_VERSION);
	}
	manifest->version = (int)version;
	return 0;
}

static int parse_part(struct manifest *manifest, const json_t *object, struct err *err)
{
	int64_t part, parts;
	if (get_integer(object, "parts", 1, INT32_MAX, &parts, err) < 0
		|| get_integer(object, "part", 1, parts, &part, err) < 0)
		return -1;
	const char *plan = json_string_value(json_object_get(object, "plan"));
	struct hash128 ignored;
	if (plan && hash_parse(plan, &ignored) < 0)
		return err_fail(err, EXIT_DATA, "manifest: the plan is not valid");
	manifest->part = (int)part - 1;
	manifest->parts = (int)parts;
	snprintf(manifest->plan, sizeof manifest->plan, "%s", plan ? plan : "");
	return 0;
}

static struct manifest *parse_text(const void *text, size_t size, const char *format, bool *newer,
	struct err *err)
{
	*newer = false;
	if (check_self(text, size, err) < 0)
		return NULL;
	json_t *object = record_parse(text, size, JSON_REJECT_DUPLICATES, "manifest: it", err);
	if (!object)
		return NULL;
	struct manifest *manifest = manifest_create();
	int result = manifest ? 0 : err_set(err, "manifest: no memory");
	if (result == 0)
		result = check_version(manifest, object, format, newer, err);
	if (result == 0 && strcmp(format, PART_FORMAT) == 0)
		result = parse_part(manifest, object, err);
	if (result == 0)
		result = parse_members(manifest, object, err);
	json_decref(object);
	if (result == 0)
		return manifest;
	manifest_destroy(manifest);
	return NULL;
}

struct manifest *manifest_parse(const void *text, size_t size, bool *newer, struct err *err)
{
	bool ignored;
	return parse_text(text, size, FORMAT, newer ? newer : &ignored, err);
}

struct manifest *manifest_parse_part(const void *text, size_t size, struct err *err)
{
	bool ignored;
	return parse_text(text, size, PART_FORMAT, &ignored, err);
}
