/* SPDX-License-Identifier: Apache-2.0 */
/* Three stages, each with a deadline: exchange the ID, connect, settle. */
#include "launch/nccl_bootstrap.h"

#include <stdbool.h>

#include "common/clock.h"
#include "launch/nccl_exchange.h"
#include "launch/nccl_library.h"

#define FIRST_PAUSE 0.0005 /* seconds between two looks at a communicator that is being made */
#define LONGEST_PAUSE 0.02
#define FIRST_LOOK 0.00002 /* seconds between two looks at a collective, which a step waits for */
#define LONGEST_LOOK 0.001
#define SETTLE_SECONDS 10.0 /* for ranks that reach their deadline a little later */

_Static_assert(sizeof(ncclUniqueId) == NCCL_EXCHANGE_ID, "the size of NCCL's unique id");

/* What this rank contributes before it hears from the others. */
static int prepare(const struct nccl_library *nccl, int rank, int *version, ncclUniqueId *id,
	struct err *err)
{
	ncclResult_t result = nccl->get_version(version);
	if (result != ncclSuccess)
		return err_set(err, "nccl: couldn't read its version: %s", nccl->get_error_string(result));
	int gpus = nccl->count_gpus(err);
	if (gpus < 0)
		return -1;
	if (gpus == 0)
		return err_fail(err, EXIT_USAGE,
			"nccl: couldn't find a GPU: none is visible: ask for one, for instance by "
			"--gpus-per-task=1");
	if (rank != 0 || (result = nccl->get_unique_id(id)) == ncclSuccess)
		return 0;
	return err_set(err,
		"nccl: couldn't make a unique id: %s (%s): set NCCL_SOCKET_IFNAME to an interface that all "
		"nodes reach",
		nccl->get_error_string(result), nccl->get_last_error(NULL));
}

static int result_error(const struct nccl_library *nccl, ncclComm_t comm, ncclResult_t result,
	struct err *err)
{
	const char *remedy = result == ncclInvalidUsage
		? "give each rank a GPU of its own, for instance by --gpus-per-task=1"
		: "NCCL_DEBUG=INFO shows more";
	enum exit_status status = result == ncclInvalidUsage ? EXIT_USAGE
		: result == ncclRemoteError                      ? EXIT_LOST
														 : EXIT_FAULT;
	return err_fail(err, status, "nccl: couldn't connect to the other ranks: %s (%.300s): %s",
		nccl->get_error_string(result), nccl->get_last_error(comm), remedy);
}

/* Waits until no call on the communicator is in progress; ncclInProgress if the deadline passes
 * first. */
static ncclResult_t await(const struct nccl_library *nccl, ncclComm_t comm, ncclResult_t result,
	struct deadline deadline)
{
	double pause = FIRST_PAUSE;
	while (result == ncclInProgress) {
		ncclResult_t asked = nccl->get_async_error(comm, &result);
		if (asked != ncclSuccess)
			return asked;
		if (result == ncclInProgress && !deadline_sleep(deadline, pause))
			return result;
		pause = pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE;
	}
	return result;
}

static int connect_ranks(const struct nccl_library *nccl, const struct ident *ident,
	const ncclUniqueId *id, double timeout, ncclComm_t *comm, struct err *err)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 0;
	ncclResult_t result = nccl->init(comm, ident->world_size, *id, ident->rank, &config);
	result = await(nccl, *comm, result, deadline_in(timeout));
	if (result == ncclSuccess)
		return 0;
	if (result == ncclInProgress)
		return err_fail(err, EXIT_LOST,
			"nccl: couldn't connect all %d ranks within %g s: set NCCL_SOCKET_IFNAME to an "
			"interface by which all nodes reach each other, or give a longer timeout",
			ident->world_size, timeout);
	return result_error(nccl, *comm, result, err);
}

/* NCCL's last error belongs to the communicator: read it before this. */
static void drop(const struct nccl_library *nccl, ncclComm_t *comm)
{
	if (*comm)
		nccl->abort(*comm);
	*comm = NULL;
}

static int find_library(const struct nccl_library **nccl, struct err *err)
{
	if (!*nccl)
		*nccl = nccl_library_load(err);
	return *nccl ? 0 : -1;
}

int nccl_bootstrap(struct rdzv *rdzv, const struct ident *ident, const struct nccl_library *nccl,
	int number, double timeout, void **out, struct err *err)
{
	struct nccl_offer offer = { 0 };
	ncclUniqueId mine, id;
	ncclComm_t comm = NULL;
	struct err failure;
	*out = NULL;
	if (find_library(&nccl, &failure) < 0
		|| prepare(nccl, ident->rank, &offer.version, &mine, &failure) < 0)
		offer.failure = &failure;
	else if (ident->rank == 0)
		offer.id = &mine;
	if (nccl_exchange(rdzv, ident, number, &offer, timeout, &id, err) < 0)
		return -1;
	struct deadline deadline = deadline_in(timeout);
	int rc = connect_ranks(nccl, ident, &id, timeout, &comm, &failure);
	if (rc < 0)
		drop(nccl, &comm);
	/* A rank that failed early waits here until the others have noticed. Rank 0, through whose
	 * process the ranks connect, stays until all have connected. */
	if (nccl_settle(rdzv, ident, number, rc < 0 ? &failure : NULL,
			deadline_left(deadline) + SETTLE_SECONDS, err)
		< 0) {
		drop(nccl, &comm);
		return -1;
	}
	*out = comm;
	return 0;
}

/* The error of a communicator that worked before: unlike result_error(), it gives no advice about
 * GPUs. */
static int wait_error(const struct nccl_library *nccl, ncclComm_t comm, ncclResult_t result,
	double timeout, struct err *err)
{
	if (result == ncclInProgress)
		return err_fail(err, EXIT_LOST,
			"nccl: couldn't finish a collective within %g s: a rank is gone, stopped, or in "
			"another call",
			timeout);
	return err_fail(err, result == ncclRemoteError ? EXIT_LOST : EXIT_FAULT,
		"nccl: couldn't go on: %s (%.300s)", nccl->get_error_string(result),
		nccl->get_last_error(comm));
}

/* One look: 1 when everything has ended, 0 when not yet. NCCL is asked first, since a stream whose
 * collective failed never ends. */
static int look(const struct nccl_library *nccl, ncclComm_t comm, ncclResult_t *result,
	void *stream, struct err *err)
{
	ncclResult_t asked = nccl->get_async_error(comm, result);
	*result = asked == ncclSuccess ? *result : asked;
	if (*result == ncclInProgress)
		return 0;
	return *result == ncclSuccess ? nccl->stream_ended(stream, err)
								  : wait_error(nccl, comm, *result, 0, err);
}

int nccl_bootstrap_wait(const struct nccl_library *nccl, void *comm, int begun, void *stream,
	double timeout, struct err *err)
{
	ncclResult_t result = (ncclResult_t)begun;
	struct deadline deadline = deadline_in(timeout);
	double pause = FIRST_LOOK;
	if (find_library(&nccl, err) < 0)
		return -1;
	if (result != ncclSuccess && result != ncclInProgress)
		return wait_error(nccl, comm, result, timeout, err);
	for (;;) {
		int rc = look(nccl, comm, &result, stream, err);
		if (rc != 0)
			return rc < 0 ? -1 : 0;
		if (!deadline_sleep(deadline, pause))
			return wait_error(nccl, comm, ncclInProgress, timeout, err);
		pause = pause * 2 < LONGEST_LOOK ? pause * 2 : LONGEST_LOOK;
	}
}

int nccl_bootstrap_end(const struct nccl_library *nccl, void *comm, int orderly, double timeout,
	struct err *err)
{
	if (find_library(&nccl, err) < 0)
		return -1;
	if (!orderly) {
		nccl->abort(comm);
		return 0;
	}
	ncclResult_t result = await(nccl, comm, nccl->finalize(comm), deadline_in(timeout));
	if (result == ncclSuccess) {
		nccl->destroy(comm);
		return 0;
	}
	nccl->abort(comm);
	return err_fail(err, EXIT_LOST,
		"nccl: couldn't end the communicator in order within %g s: %s: it was aborted", timeout,
		nccl->get_error_string(result));
}
