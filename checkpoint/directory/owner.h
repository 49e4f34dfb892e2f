/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write to a checkpoint directory: owner.json (doc/checkpoint-format.md, section 6). */
#ifndef MUSTER_OWNER_H
#define MUSTER_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/manifest.h"
#include "common/err.h"

#define OWNER_NAME "owner.json"
#define OWNER_HEARTBEAT \
	60.0 /* seconds after which a silent owner counts as gone; beat at a third of that or faster \
		  */
#define OWNER_WATCH \
	30.0 /* seconds for which the heartbeat of such an owner must be seen to stand still */

struct owner {
	char cluster[64]; /* "" outside Slurm */
	uint32_t job;     /* 0 outside Slurm */
	int attempt;
	char token[MANIFEST_TOKEN_SIZE]; /* random, made by owner_claim */
	char host[256];
	int64_t pid;
	char process[128]; /* what makes pid unique: boot id, pid namespace, start time */
	double time;       /* of the claim, seconds since the epoch */
	bool ended;        /* left in order by owner_release */
	bool brief;        /* a tool's, over in a moment: others wait for it instead of being refused */
};

enum owner_life { OWNER_UNKNOWN, OWNER_RUNS, OWNER_ENDED };

/* Whether Slurm says that the job of `other` runs. OWNER_UNKNOWN where Slurm can't be asked: then
 * the heartbeat counts. */
typedef enum owner_life owner_check(void *arg, const struct owner *other);

/* Makes the caller the owner of `dir`, durably. He fills in cluster, job, attempt and brief; the
 * rest of `self` is filled in here. A higher attempt of the same job takes over at once; anybody
 * else is refused (EXIT_USAGE, the line names the owner) while the owner lives. Of two that start
 * at the same moment exactly one wins. `check` may be NULL. `timeout` in seconds bounds the wait
 * for the lock, and that for a brief owner to leave (then EXIT_LOST). Where the heartbeat alone can
 * tell that the owner is gone, watching it takes OWNER_WATCH more. */
int owner_claim(const struct ckpt_dir *dir, struct owner *self, owner_check *check, void *arg,
	double timeout, struct err *err);

/* Reads owner.json. Returns 1 with *owner, 0 when there is none, -1 on error. */
int owner_read(const struct ckpt_dir *dir, struct owner *owner, struct err *err);

/* Whether the heartbeat of an owner who has not left in order is young. Not for who claims: nobody
 * is asked whether he lives. */
bool owner_beats(const struct ckpt_dir *dir);

/* 0 while the owner's token is `token`; else -1, EXIT_FAULT, "another attempt owns …" (or
 * EXIT_LOST: couldn't read). */
int owner_verify(const struct ckpt_dir *dir, const char *token, struct err *err);

/* Shows that the owner lives; the same result as owner_verify. Any thread may call it. */
int owner_heartbeat(const struct ckpt_dir *dir, const char *token, struct err *err);

/* Leaves in order, so that the next job need not wait for the heartbeat to grow old. */
int owner_release(const struct ckpt_dir *dir, const char *token, struct err *err);

#endif
