/* SPDX-License-Identifier: Apache-2.0 */
/* Two status exchanges. In the first the number is the rank's version of NCCL, and the data is rank
 * 0's ID. */
#include "launch/nccl_exchange.h"

#include <stdio.h>
#include <string.h>

#include "launch/rank_status.h"

/* 2.28.9 is 22809; before 2.9 the form had four digits: 2.8.9 would be 2809. */
static void version_text(int version, char *out, size_t size)
{
	int major = version >= 10000 ? version / 10000 : version / 1000;
	int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
	snprintf(out, size, "%d.%d.%d", major, minor, version % 100);
}

static int check_versions(const struct rank_status *words, int count, struct err *err)
{
	char theirs[40], first[40];
	int rank = 0;
	while (rank < count && words[rank].number == words[0].number)
		rank++;
	if (rank == count)
		return 0;
	version_text(words[rank].number, theirs, sizeof theirs);
	version_text(words[0].number, first, sizeof first);
	return err_fail(err, EXIT_USAGE,
		"nccl: %s has NCCL %s, %s has %s: give all nodes the same (module, container, "
		"LD_LIBRARY_PATH)",
		rank_status_name(words, rank).text, theirs, rank_status_name(words, 0).text, first);
}

static int take_id(const struct rank_status *first, void *id, struct err *err)
{
	if (first->size != NCCL_EXCHANGE_ID)
		return err_set(err,
			"nccl: rank 0 published an id of %zu bytes, not %d: all ranks need the same build of "
			"Muster",
			first->size, NCCL_EXCHANGE_ID);
	memcpy(id, first->data, NCCL_EXCHANGE_ID);
	return 0;
}

int nccl_exchange(struct rdzv *rdzv, const struct ident *ident, int number,
	const struct nccl_offer *offer, double timeout, void *id, struct err *err)
{
	char key[48];
	const struct rank_status_own own = { .failure = offer->failure,
		.number = offer->version,
		.data = offer->id,
		.size = offer->id ? NCCL_EXCHANGE_ID : 0 };
	snprintf(key, sizeof key, "nccl-id.%d", number);
	struct rank_status *words = rank_status_exchange(rdzv, ident, key, &own, timeout, err);
	if (!words)
		return -1;
	int rc = rank_statuses_check(words, ident->world_size, err);
	if (rc == 0 && (rc = check_versions(words, ident->world_size, err)) == 0)
		rc = take_id(&words[0], id, err);
	rank_statuses_free(words, ident->world_size);
	return rc;
}

int nccl_settle(struct rdzv *rdzv, const struct ident *ident, int number, const struct err *failure,
	double timeout, struct err *err)
{
	char key[48];
	const struct rank_status_own own = { .failure = failure };
	snprintf(key, sizeof key, "nccl-up.%d", number);
	struct rank_status *words = rank_status_exchange(rdzv, ident, key, &own, timeout, err);
	if (!words)
		return -1;
	int rc = rank_statuses_check(words, ident->world_size, err);
	rank_statuses_free(words, ident->world_size);
	return rc;
}
