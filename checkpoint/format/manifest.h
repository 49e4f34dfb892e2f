/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.json: what a checkpoint holds and the hashes of all its bytes (doc/checkpoint-format.md,
 * section 3). Encode and parse are pure functions over bytes. */
#ifndef MUSTER_MANIFEST_H
#define MUSTER_MANIFEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/hash.h"

#define MANIFEST_NAME "manifest.json"
#define MANIFEST_VERSION 1
#define MANIFEST_CHUNK \
	(16u << 20) /* bytes that one chunk hash covers; the last chunk of a file may be shorter */
#define MANIFEST_SIZE_MAX (256u << 20) /* no manifest is larger */
#define MANIFEST_TOKEN_SIZE 33         /* 32 hexadecimal digits and the final NUL */

enum manifest_role {
	MANIFEST_MODEL,
	MANIFEST_OPTIMIZER,
	MANIFEST_INDEX,
	MANIFEST_CONFIG,
	MANIFEST_OTHER
};

struct manifest_file {
	char name[256]; /* in the checkpoint's folder */
	enum manifest_role role;
	uint64_t size;
	struct hash128 hash;    /* of the whole file */
	struct hash128 *chunks; /* of each MANIFEST_CHUNK bytes */
	size_t chunk_count;     /* size / MANIFEST_CHUNK, rounded up */
};

struct manifest {
	int64_t step;                    /* steps done; a resume starts at step + 1 */
	int attempt;                     /* that saved it */
	char token[MANIFEST_TOKEN_SIZE]; /* of that attempt's owner.json */
	int world_size;
	double time; /* seconds since the epoch */
	uint64_t seed;
	uint64_t cursor; /* the sampler's position, below 2^63 */
	double loss;     /* of the step; NAN: not known, null in the file */
	double
		validation_loss; /* measured at this step; NAN: not known, null in the file or not there */
	json_t *config;      /* object of three objects: identity, schedule, operation */
	json_t *numerics;    /* object: what the bits depend on */
	struct manifest_file *files;
	size_t file_count;
	int part, parts; /* parts > 0: the text is that of part `part`, from 0, of a save by several
						writers */
};

/* Encodes with the trailing "self" hash, so that any change of the text is found. *text is
 * malloc'ed, the caller's, and has a NUL behind its *size bytes. The same manifest gives the same
 * bytes. */
int manifest_encode(const struct manifest *manifest, char **text, size_t *size, struct err *err);

/* Parses and validates a manifest, not a part. NULL on error, status EXIT_DATA. *newer (may be
 * NULL) becomes true when the text is whole but of a format version that this program does not
 * know: then nothing is damaged and nothing may be set aside. */
struct manifest *manifest_parse(const void *text, size_t size, bool *newer, struct err *err);
void manifest_destroy(struct manifest *manifest);

/* The same for the text of a part (doc/checkpoint-format.md, section 5.2). */
struct manifest *manifest_parse_part(const void *text, size_t size, struct err *err);

/* An empty manifest with losses NAN; NULL when out of memory. */
struct manifest *manifest_create(void);

/* Appends a file that has `size` bytes and makes room for its chunk hashes. NULL when out of
 * memory. */
struct manifest_file *manifest_add_file(struct manifest *manifest, const char *name,
	enum manifest_role role, uint64_t size);

/* NULL when there is none of that name. */
const struct manifest_file *manifest_find(const struct manifest *manifest, const char *name);

#endif
