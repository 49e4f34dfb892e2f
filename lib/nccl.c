/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL communicator, if the build has NCCL. */
#include "config.h"

#include "launch/nccl_bootstrap.h"
#include "lib/muster_private.h"

#ifdef HAVE_NCCL
int muster_nccl_comm(struct muster *muster, double timeout, struct ncclComm **out)
{
	struct err err;
	void *comm = NULL;
	if (muster_check_given(out, "the place for a communicator", &err) < 0)
		return muster_failed(&err);
	*out = NULL;
	if (muster_check(muster, timeout, &err) < 0
		|| nccl_bootstrap(muster->rdzv, &muster->ident, NULL, muster->communicators++,
			   muster_or(timeout, muster->timeout), &comm, &err)
			< 0)
		return muster_failed(&err);
	*out = comm;
	return MUSTER_OK;
}

int muster_nccl_wait(struct muster *muster, struct ncclComm *comm, int result,
	struct CUstream_st *stream, double timeout)
{
	struct err err;
	if (muster_check(muster, timeout, &err) < 0
		|| muster_check_given(comm, "the communicator", &err) < 0
		|| nccl_bootstrap_wait(NULL, comm, result, stream, muster_or(timeout, muster->timeout),
			   &err)
			< 0)
		return muster_failed(&err);
	return MUSTER_OK;
}

int muster_nccl_end(struct muster *muster, struct ncclComm *comm, int orderly, double timeout)
{
	struct err err;
	if (!comm)
		return MUSTER_OK;
	if (muster_check(muster, timeout, &err) < 0
		|| nccl_bootstrap_end(NULL, comm, orderly, muster_or(timeout, muster->timeout), &err) < 0)
		return muster_failed(&err);
	return MUSTER_OK;
}
#else
static int without(void)
{
	struct err err;
	err_fail(&err, EXIT_USAGE,
		"nccl: couldn't make a communicator: this build of libmuster has no NCCL: build it with "
		"--with-nccl=DIR");
	return muster_failed(&err);
}

int muster_nccl_comm(struct muster *muster, double timeout, struct ncclComm **out)
{
	if (out)
		*out = NULL;
	return without();
}

int muster_nccl_wait(struct muster *muster, struct ncclComm *comm, int result,
	struct CUstream_st *stream, double timeout)
{
	return without();
}

int muster_nccl_end(struct muster *muster, struct ncclComm *comm, int orderly, double timeout)
{
	return comm ? without() : MUSTER_OK;
}
#endif
