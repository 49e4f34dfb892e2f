/* SPDX-License-Identifier: Apache-2.0 */
/* Which attempt may write to a checkpoint directory: owner.json (doc/checkpoint-format.md, section
 * 6). */
#ifndef MUSTER_OWNER_H
#define MUSTER_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/manifest.h"
#include "common/err.h"

#define OWNER_NAME "owner.json"
/* Seconds after which an owner without a heartbeat may be gone; owners beat at a third of that or
 * faster. */
#define OWNER_HEARTBEAT 60.0
/* Seconds for which the heartbeat of such an owner must be seen to stand still. */
#define OWNER_WATCH 30.0

struct owner {
	char cluster[64];                /* "" outside Slurm */
	uint32_t job;                    /* 0 outside Slurm */
	int attempt, restart;            /* as in struct ident */
	char token[MANIFEST_TOKEN_SIZE]; /* random, from owner_claim */
	char host[256];
	int64_t pid;
	char process[128]; /* makes pid unique: boot id, pid namespace, start time */
	double time;       /* of the claim, seconds since the epoch */
	bool ended;        /* set by owner_release */
	bool brief; /* a tool that leaves in a moment: others wait for it instead of being refused */
};

enum owner_life { OWNER_UNKNOWN, OWNER_RUNS, OWNER_ENDED };

/* Returns whether Slurm still runs the job of `other`. OWNER_UNKNOWN where Slurm can't be asked:
 * then the heartbeat decides. */
typedef enum owner_life owner_check(void *arg, const struct owner *other);

/* Makes the caller the owner of `dir`, durably. The caller fills in cluster, job, attempt, restart
 * and brief of `self`; owner_claim fills in the rest. A higher attempt of the same job, and a
 * higher restart of the same attempt, take over at once; any other claim is refused while the owner
 * lives (EXIT_USAGE, the message names the owner). Of two claims at the same moment exactly one
 * wins. `check` may be NULL. `timeout` limits the seconds of waiting for the lock, and for a brief
 * owner to leave (then EXIT_LOST). Where only the heartbeat can tell that the owner is gone,
 * watching it takes another OWNER_WATCH seconds. */
int owner_claim(const struct ckpt_dir *dir, struct owner *self, owner_check *check, void *arg,
	double timeout, struct err *err);

/* Reads owner.json. Returns 1 with *owner set, 0 when there is none, -1 on error. */
int owner_read(const struct ckpt_dir *dir, struct owner *owner, struct err *err);

/* Whether there is an owner that has not left and whose heartbeat is recent. Not for a claim: it
 * asks neither Slurm nor the process table. */
bool owner_beats(const struct ckpt_dir *dir);

/* 0 while the owner's token is `token`; else -1 with EXIT_FAULT ("another attempt owns …"), or with
 * EXIT_LOST when owner.json can't be read. */
int owner_verify(const struct ckpt_dir *dir, const char *token, struct err *err);

/* Writes a heartbeat; returns as owner_verify does. Any thread may call it. */
int owner_heartbeat(const struct ckpt_dir *dir, const char *token, struct err *err);

/* Gives up ownership, so that the next job need not wait until the heartbeat is old. */
int owner_release(const struct ckpt_dir *dir, const char *token, struct err *err);

#endif
