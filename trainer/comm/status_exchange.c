/* SPDX-License-Identifier: Apache-2.0 */
/* One all-gather of every rank's outcome, from which all derive the same error. */
#include "trainer/comm/status_exchange.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/log.h"

struct outcome {
	int32_t failed, status;
	char node[64];
	char text[sizeof((struct err *)0)->text];
};

/* Whether a rank before this one failed with the same words. */
static bool told_already(const struct outcome *all, int rank)
{
	for (int i = 0; i < rank; i++)
		if (all[i].failed && strcmp(all[i].text, all[rank].text) == 0)
			return true;
	return false;
}

/* "rank 3 on n2", and the number of later ranks that failed with the same words. */
static const char *who(const struct outcome *all, int size, int rank, char out[200])
{
	int same = 0;
	for (int i = rank + 1; i < size; i++)
		same += all[i].failed && strcmp(all[i].text, all[rank].text) == 0;
	if (same)
		snprintf(out, 200, "rank %d on %s and %d other%s", rank, all[rank].node, same,
			same > 1 ? "s" : "");
	else
		snprintf(out, 200, "rank %d on %s", rank, all[rank].node);
	return out;
}

static int share_failure(const struct outcome *all, int size, int first, bool speaks,
	struct err *err)
{
	char name[200];
	for (int i = first + 1; speaks && i < size; i++)
		if (all[i].failed && !told_already(all, i))
			log_error("%s: %s", who(all, size, i, name), all[i].text);
	if (size == 1)
		err_fail(err, (enum exit_status)all[first].status, "%s", all[first].text);
	else
		err_fail(err, (enum exit_status)all[first].status, "%s: %s", who(all, size, first, name),
			all[first].text);
	return ERR_SHARED;
}

int status_exchange(struct comm *comm, const char *stage, const char *node, int rc, struct err *err)
{
	int size = comm_size(comm);
	struct outcome mine = { .failed = rc < 0, .status = rc < 0 ? (int)err->status : 0 };
	AUTO_FREE struct outcome *all = calloc((size_t)size, sizeof *all);
	if (!all)
		return err_set(err, "%s: out of memory", stage);
	snprintf(mine.node, sizeof mine.node, "%.63s", node);
	if (rc < 0)
		memcpy(mine.text, err->text, sizeof mine.text);
	if (comm_wait(comm, comm_allgather(comm, stage, &mine, all, sizeof mine), err) < 0)
		return -1;
	for (int i = 0; i < size; i++)
		if (all[i].failed)
			return share_failure(all, size, i, comm_rank(comm) == 0, err);
	return 0;
}
