/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.json: lists what a checkpoint holds and the hashes of all its bytes
 * (doc/checkpoint-format.md, section 3). Encode and parse are pure functions over bytes. */
#ifndef MUSTER_MANIFEST_H
#define MUSTER_MANIFEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/hash.h"

#define MANIFEST_NAME "manifest.json"
#define MANIFEST_VERSION 2 /* the newest; a manifest gets the lowest that knows all its roles */
/* Bytes that one chunk hash covers; a file's last chunk may be shorter. */
#define MANIFEST_CHUNK (16u << 20)
#define MANIFEST_SIZE_MAX (256u << 20) /* bytes; no manifest is larger */
#define MANIFEST_TOKEN_SIZE 33         /* 32 hexadecimal digits and the final NUL */

enum manifest_role {
	MANIFEST_MODEL,
	MANIFEST_OPTIMIZER,
	MANIFEST_INDEX,
	MANIFEST_CONFIG,
	MANIFEST_OTHER,
	MANIFEST_STATE, /* from version 2 on, as the next */
	MANIFEST_VALUES
};

/* "model" and so on. */
const char *manifest_role_name(enum manifest_role role);

struct manifest_file {
	char name[256]; /* a plain name in the checkpoint's folder */
	enum manifest_role role;
	uint64_t size;
	struct hash128 hash;    /* of the whole file */
	struct hash128 *chunks; /* of each chunk of MANIFEST_CHUNK bytes */
	size_t chunk_count;     /* size / MANIFEST_CHUNK, rounded up */
};

struct manifest {
	int version;  /* of the format, of a parsed text; manifest_encode chooses its own */
	int64_t step; /* steps done; a resume starts at step + 1 */
	int attempt;  /* the attempt that saved it */
	char token[MANIFEST_TOKEN_SIZE]; /* the token in that attempt's owner.json */
	int world_size;
	double time; /* seconds since the epoch */
	uint64_t seed;
	uint64_t cursor;        /* the sampler's position, below 2^63 */
	double loss;            /* of this step; NAN: not known, null in the file */
	double validation_loss; /* measured at this step; NAN: not known, in the file null or missing */
	json_t *config;         /* an object of three objects: identity, schedule, operation */
	json_t *numerics; /* an object: what the bits of a run depend on besides its configuration */
	struct manifest_file *files;
	size_t file_count;
	int part, parts; /* parts > 0: this is the manifest of part `part`, from 0, of a save by several
						writers */
	char plan[HASH_HEX_SIZE]; /* of a part: what its writer planned the files of all from; "": not
								 known */
};

/* Encodes the manifest with a trailing "self" hash, so that any change of the text is detected.
 * *text is malloc'ed and the caller's, with a NUL after its *size bytes. The same manifest always
 * gives the same bytes. */
int manifest_encode(const struct manifest *manifest, char **text, size_t *size, struct err *err);

/* Parses and validates a whole checkpoint's manifest, not that of a part. NULL on error, status
 * EXIT_DATA. *newer (may be NULL) is set to true when the text is intact but has a format version
 * that this program does not know: then the checkpoint is not damaged and must not be set aside. */
struct manifest *manifest_parse(const void *text, size_t size, bool *newer, struct err *err);
void manifest_destroy(struct manifest *manifest);

/* Parses the manifest of a part (doc/checkpoint-format.md, section 5.2). */
struct manifest *manifest_parse_part(const void *text, size_t size, struct err *err);

/* An empty manifest whose losses are NAN; NULL when out of memory. */
struct manifest *manifest_create(void);

/* Appends a file of `size` bytes with room for its chunk hashes. The result belongs to the
 * manifest, and is valid until the next call. NULL when out of memory. */
struct manifest_file *manifest_add_file(struct manifest *manifest, const char *name,
	enum manifest_role role, uint64_t size);

/* NULL when no file has that name. */
const struct manifest_file *manifest_find(const struct manifest *manifest, const char *name);

#endif
