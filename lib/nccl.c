/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL communicator, where the build has NCCL. */
#include "config.h"

#include "launch/nccl_bootstrap.h"
#include "lib/muster_private.h"

#ifdef HAVE_NCCL
int muster_nccl_comm(struct muster *muster, double timeout, struct ncclComm **out)
{
	struct err err;
	void *comm = NULL;
	int rc = nccl_bootstrap(muster->rdzv, &muster->ident, NULL, muster->communicators++, muster_or(timeout, muster->timeout),
		&comm, &err);
	*out = comm;
	return rc < 0 ? muster_failed(&err) : MUSTER_OK;
}

int muster_nccl_end(struct muster *muster, struct ncclComm *comm, int orderly, double timeout)
{
	struct err err;
	int rc = nccl_bootstrap_end(NULL, comm, orderly, muster_or(timeout, muster->timeout), &err);
	return rc < 0 ? muster_failed(&err) : MUSTER_OK;
}
#else
static int without(void)
{
	struct err err;
	err_fail(&err, EXIT_USAGE, "nccl: couldn't make a communicator: this build of libmuster has no NCCL: build it with "
		"--with-nccl=DIR");
	return muster_failed(&err);
}

int muster_nccl_comm(struct muster *muster, double timeout, struct ncclComm **out)
{
	*out = NULL;
	return without();
}

int muster_nccl_end(struct muster *muster, struct ncclComm *comm, int orderly, double timeout)
{
	return without();
}
#endif
