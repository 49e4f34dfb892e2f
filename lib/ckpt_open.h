/* SPDX-License-Identifier: Apache-2.0 */
/* An open checkpoint directory, and the part that this rank has in its saves. */
#ifndef MUSTER_CKPT_OPEN_H
#define MUSTER_CKPT_OPEN_H

#include <stdbool.h>

#include "checkpoint/attempt/folder.h"
#include "checkpoint/client/ckptd_client.h"
#include "checkpoint/protocol/ckptd_tcp.h"
#include "lib/content.h"
#include "lib/muster_private.h"
#include "lib/outcomes.h"
#include "lib/plan.h"
#include "lib/writers.h"

#define CKPT_SLOTS 2 /* snapshot buffers: a save is copied while the one before is written */

/* What rank 0, which owns the directory, tells the ranks that save other parts. */
struct told {
	char token[MANIFEST_TOKEN_SIZE]; /* the owner's */
	char first[CKPTD_ADDRESS_SIZE];  /* where their services report to */
	char program[256];               /* its name */
	int attempt;                     /* of the directory */
	int64_t step;                    /* of the checkpoint that all have loaded; -1: none */
};

struct muster_ckpt {
	struct muster *muster; /* outlives this */
	struct ident ident;
	struct writers writers;
	struct folder *folder; /* of part 0; else NULL */
	struct ckpt_dir dir;   /* of the other parts */
	bool dir_opened;
	struct told told; /* what rank 0 tells, and knows itself */
	struct plan plan;
	char *config_json;
	struct snapshot snapshot;
	struct snapshot_memory memory;
	struct content contents[CKPT_SLOTS]; /* of the save that has the buffer, or had it last */
	size_t used[CKPT_SLOTS];             /* bytes of each buffer that were ever written */
	struct ckptd_client *client;
	bool begun_here; /* the start is settled: something was loaded or saved */
	int64_t handed;  /* the last save handed over, whatever became of it; -1: none */
	struct outcomes outcomes;
};

static inline const struct ckpt_dir *muster_ckpt_dir(const struct muster_ckpt *ckpt)
{
	return ckpt->folder ? folder_dir(ckpt->folder) : &ckpt->dir;
}

/* Opens the directory for this rank, which has a part in the saves. Takes ownership of *writers,
 * even on an error. `told`: by rank 0; NULL: this rank becomes the owner. Otherwise as
 * muster_ckpt_open. */
int muster_ckpt_open_part(struct muster *muster, const struct muster_ckpt_plan *given,
	struct writers *writers, const struct told *told, struct muster_ckpt **out);

/* Whether the plan is one for saves of states, or one of tensors, as the call needs. */
int muster_ckpt_check_kind(const struct muster_ckpt *ckpt, bool states, struct err *err);

/* Records a notice of this rank in the directory: the folder's own thread looks only a few times a
 * second, so a program that stops at once would leave no record of the reason. */
void muster_ckpt_record_notice(struct muster_ckpt *ckpt);

/* Memory that this rank may still take, which it shares with others of its node; 0: not known. */
size_t muster_ckpt_memory(const struct muster_ckpt *ckpt);

#endif
