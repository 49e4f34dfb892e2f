/* SPDX-License-Identifier: Apache-2.0 */
/* libmuster: for C and C++ programs that srun starts, one process a rank: who am I, where are the
 * others, an NCCL communicator, notices that the nodes are taken away, and checkpoints that outlive
 * the process. See muster(3) for an overview.
 *
 * Errors: a function of type int returns one of enum muster_status, whose numbers are the exit
 * statuses that bring a job back or not (0: it worked); muster_error() then has the reason and the
 * remedy, in one line. What a function hands out through a pointer is NULL when it fails. Arguments
 * that can't be (NULL where it isn't allowed, a negative timeout) are MUSTER_USAGE. No function
 * exits or aborts the process; what is said unasked goes where muster_set_log says.
 *
 * Time: seconds, as double. Memory: what you give is borrowed during the call unless it says
 * otherwise. Threads: a struct muster and a struct muster_ckpt are used by one thread at a time;
 * different ones by different threads at once. muster_error is the calling thread's. muster_notice,
 * muster_notice_fd and muster_notice_name may be called by any thread at any time.
 *
 * ABI: programs that were built with an earlier libmuster of the same soname (libmuster.so.0) go on
 * working with a later one. What exists keeps its meaning; functions are added under a new symbol
 * version, members behind those of a struct that begins with its size. An incompatible change
 * raises the soname. */
#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MUSTER_API __attribute__((visibility("default")))
#else
#define MUSTER_API
#endif

enum muster_status {
	MUSTER_OK = 0,    /* ended well */
	MUSTER_FAULT = 1, /* a fault of the program or its machine */
	MUSTER_USAGE = 2, /* the program, or the way it was started, asks for what can't be */
	MUSTER_DATA = 65, /* bad data, or a checkpoint that can't be used */
	MUSTER_LOST =
		69, /* a peer was lost, a deadline passed, an I/O error that may pass: the job comes back */
	MUSTER_REQUEUE = 75 /* as exit status: checkpointed, the job comes back */
};

/* Why the last function that failed in this thread did: valid until the next one fails. "" if none
 * has. */
MUSTER_API const char *muster_error(void);

/* "0.2.0": of the library that runs, not of this header. Never to be freed. */
MUSTER_API const char *muster_version(void);

/* Where lines about what goes on behind the calls go (a checkpoint service that was lost, a
 * checkpoint that is set aside): level 0 is an error, 1 a warning, 2 information, 3 detail; no
 * newline. `write` is called from any thread, one call at a time. Default: errors and warnings on
 * standard error. `write` NULL: nowhere. May be called before anything else. */
MUSTER_API void muster_set_log(void (*write)(void *arg, int level, const char *line), void *arg);

/* ---- ranks and their rendezvous ---- */

/* This process as one rank of the job step. */
struct muster;

/* Collective over all ranks: finds out who this process is (PMIx, PMI2, Slurm, the torchrun
 * variables, else a world of one) and meets the others. `timeout`: the deadline of this call and
 * the default for later ones; 0: 60 s. *muster is ended by muster_close. MUSTER_USAGE where the
 * identity is contradictory or nothing says where the ranks meet (the same line on each of them),
 * MUSTER_LOST when ranks did not come: they are named with their nodes. Once a process. */
MUSTER_API int muster_open(struct muster **muster, double timeout);

/* Leaves. `orderly` 0 where a rank is known to be lost: then nobody is waited for. Under Slurm's
 * PMIx a rank that leaves the step with a bad status, or without this call, has the others killed:
 * meet (muster_fence) before leaving. NULL is allowed. */
MUSTER_API void muster_close(struct muster *muster, int orderly);

/* 0 ≤ rank < world size, 0 ≤ local rank < local world size (the ranks of this node), 0 ≤ node rank
 * < number of nodes. */
MUSTER_API int muster_rank(const struct muster *muster);
MUSTER_API int muster_world_size(const struct muster *muster);
MUSTER_API int muster_local_rank(const struct muster *muster);
MUSTER_API int muster_local_world_size(const struct muster *muster);
MUSTER_API int muster_node_rank(const struct muster *muster);
MUSTER_API int muster_node_count(const struct muster *muster);

/* How often the job was started before: 0 for the first time (SLURM_RESTART_COUNT). */
MUSTER_API int muster_attempt(const struct muster *muster);

/* Slurm's job id, 0 outside Slurm. */
MUSTER_API uint32_t muster_job(const struct muster *muster);

/* Name of the node that a rank runs on; it belongs to `muster`. NULL with muster_error where there
 * is no such rank. */
MUSTER_API const char *muster_node(struct muster *muster, int rank);

/* Publishes a value of this rank, for the others after the next fence. `key`: 1 to 60 characters of
 * A-Z a-z 0-9 . _ -, each used once by a rank; `size` up to 64 KiB. */
MUSTER_API int muster_put(struct muster *muster, const char *key, const void *value, size_t size);

/* Collective: waits for all ranks; what each put before it can be read behind it. `timeout` 0: that
 * of muster_open. MUSTER_LOST names the ranks that did not come; the rendezvous is of no use then.
 */
MUSTER_API int muster_fence(struct muster *muster, double timeout);

/* What `rank` put under `key` before the last fence. *value ends with a NUL that *size does not
 * count; freed by muster_free. */
MUSTER_API int muster_get(struct muster *muster, int rank, const char *key, void **value,
	size_t *size);

/* ---- small collectives of all ranks over the rendezvous ----
 * All ranks make the same calls in the same order, with the same sizes; `timeout` as that of
 * muster_fence. They are for the control of a run: what is shared (`size` up to 65,000 bytes a
 * rank) is kept by the rendezvous until its end.
 *
 * A rank that can't go on says so by muster_agree or muster_end, in whichever of these calls the
 * others stand: all of them return its status then, and muster_error is the same line on all, with
 * its rank and node. So nobody waits for it. */

/* Collective: MUSTER_OK when all ranks give `status` 0. Else the status of the first rank with a
 * reason of its own, and where all have merely lost others (MUSTER_LOST) or stop (MUSTER_REQUEUE),
 * theirs. `why`: this rank's reason, one line; NULL: muster_error's. */
MUSTER_API int muster_agree(struct muster *muster, int status, const char *why, double timeout);

/* Collective: `all` gets the `size` bytes of each rank, in rank order. `mine` may be within it. */
MUSTER_API int muster_allgather(struct muster *muster, const void *mine, void *all, size_t size,
	double timeout);

/* Collective: `data` becomes that of `root`. */
MUSTER_API int muster_broadcast(struct muster *muster, int root, void *data, size_t size,
	double timeout);

/* Frees what this library allocated for you. NULL is allowed. */
MUSTER_API void muster_free(void *memory);

/* Asks the launcher to end the whole step with `status`. Returns where it can't, or has yet to do
 * so. */
MUSTER_API void muster_abort(struct muster *muster, int status, const char *why);

/* ---- an NCCL communicator of all ranks ---- */

/* As in nccl.h and cuda.h, which are not needed here: ncclComm_t is struct ncclComm *, cudaStream_t
 * is struct CUstream_st *. */
struct ncclComm;
struct CUstream_st;

/* Collective: makes a communicator on the calling thread's current CUDA device, as
 * ncclCommInitRankConfig does with blocking = 0 (so NCCL's calls on it may return ncclInProgress).
 * `timeout` (0: that of muster_open) bounds the exchange of the id and the connecting, each; behind
 * it the half-made communicator is aborted. When a rank can't take part (no NCCL, no GPU, another
 * version of NCCL, a GPU that another rank uses) all ranks fail at once with the same line, which
 * names it and its node: MUSTER_USAGE. MUSTER_LOST: not all connected in time. MUSTER_USAGE too
 * where the library was built without NCCL. */
MUSTER_API int muster_nccl_comm(struct muster *muster, double timeout, struct ncclComm **comm);

/* Waits until the calls on `comm` have begun and all that is queued on `stream` (NULL: the default
 * one) of the current device has ended, at most `timeout` (0: that of muster_open). `result` is
 * what NCCL's call returned: status = muster_nccl_wait(muster, comm, ncclAllReduce(…, comm,
 * stream), stream, 0); MUSTER_LOST: a rank is gone, or that took longer; cudaStreamSynchronize
 * would wait for ever. MUSTER_FAULT: another error of NCCL or of the GPU. After either of them the
 * communicator is to be ended with `orderly` 0. */
MUSTER_API int muster_nccl_wait(struct muster *muster, struct ncclComm *comm, int result,
	struct CUstream_st *stream, double timeout);

/* Ends a communicator. `orderly`: by all ranks, once what they have begun is done, at most
 * `timeout` (0: that of muster_open) later; else, or behind that, it is aborted. It is gone in any
 * case. NULL is allowed: nothing is done. */
MUSTER_API int muster_nccl_end(struct muster *muster, struct ncclComm *comm, int orderly,
	double timeout);

/* ---- notices: the nodes will be taken away ---- */

/* From now on SIGTERM (preemption), SIGUSR1, SIGUSR2 (sbatch --signal) and SIGINT only set a flag.
 * They are blocked in the calling thread and in those it starts and taken by a thread of the
 * library: call this first in main. Again: no effect. */
MUSTER_API int muster_notice_begin(void);

/* The number of the first signal that came, 0 for none. */
MUSTER_API int muster_notice(void);

/* Readable for poll, select and epoll once a notice came; -1 before muster_notice_begin. Not to be
 * read or closed. */
MUSTER_API int muster_notice_fd(void);

/* "SIGTERM", …; not to be freed. */
MUSTER_API const char *muster_notice_name(int signal);

/* ---- progress: what keeps a job coming back ---- */

/* Says that this attempt has come further than those before it, on any rank, as often as you like:
 * if it fails now, it does not count as one of the three in a row after which the plugin lets the
 * job end. A checkpoint of muster_ckpt_save that is durable says so by itself. Without the plugin,
 * and before muster_open, nothing is done. */
MUSTER_API void muster_progress(void);

/* ---- checkpoints ---- */

/* An array in host memory that belongs to the program's state: row-major, without padding. */
struct muster_tensor {
	const char *name;  /* copied */
	const char *dtype; /* as in safetensors: "F32", "F64", "BF16", "F16", "I64", "I32", "U64", "U8",
						  "BOOL", … */
	int dims;          /* 0 (a scalar) to 8 */
	int64_t shape[8];  /* elements */
	void *data;        /* yours, until muster_ckpt_close: read by muster_ckpt_save, written by
						  muster_ckpt_load */
};

/* Zeroed, then filled in. */
struct muster_ckpt_plan {
	size_t size; /* sizeof(struct muster_ckpt_plan) */
	const char
		*dir; /* the checkpoint directory, on storage that every attempt sees; made if missing */
	const struct muster_tensor *tensors; /* all that is saved */
	size_t tensor_count;
	size_t keep_last;   /* so many newest checkpoints stay; 0: all */
	int64_t keep_every; /* so do steps that are a multiple of this; 0: none for that */
	double timeout;     /* of the retries of an I/O error, and of waits; 0: 60 s */
};

/* A checkpoint directory that this rank owns. A rank that owns none has NULL, which the calls below
 * but muster_ckpt_open allow: they do nothing, and return MUSTER_OK. */
struct muster_ckpt;

/* On one rank, commonly rank 0: takes the directory as its owner (a later attempt of the same job
 * takes it over; another job is refused while this one lives: MUSTER_USAGE), finishes what the
 * attempt before left complete, records the start in attempts.jsonl, keeps room for two snapshots
 * where the memory allows it, and finds the node's muster-ckptd or starts one. After three attempts
 * in a row without progress: MUSTER_FAULT, "crash loop". */
MUSTER_API int muster_ckpt_open(struct muster *muster, const struct muster_ckpt_plan *plan,
	struct muster_ckpt **ckpt);

/* Fills the tensors from the newest checkpoint that verifies; *step becomes its step, or -1 where
 * there is none and nothing was changed. What is damaged is set aside, and the one before is taken.
 * MUSTER_DATA where it has other tensors than the plan. After an error the tensors hold anything.
 * Once, before the first save. */
MUSTER_API int muster_ckpt_load(struct muster_ckpt *ckpt, int64_t *step);

/* Collective, for a state of which every rank has all: rank 0 opens the directory and loads the
 * newest checkpoint, as the two calls above do, and the others read the same one. *step becomes its
 * step on all ranks, or -1 where there is none and nothing was changed; *ckpt is rank 0's, and NULL
 * on the others. All ranks give the same directory and the same tensors, each its own data.
 * `timeout` (0: that of muster_open) is how long they wait for each other, so for whoever reads
 * longest. When a rank can't, all fail at once with the same line, which names it and its node:
 * with the status of those calls, and MUSTER_USAGE where the plans differ or a node has another
 * directory by that name. */
MUSTER_API int muster_ckpt_resume(struct muster *muster, const struct muster_ckpt_plan *plan,
	double timeout, struct muster_ckpt **ckpt, int64_t *step);

/* Copies the tensors as the state after `step` (≥ 0) and hands them over to muster-ckptd, which
 * writes them though this process should die; returns then, before they are durable. `loss` is
 * recorded: NAN where there is none. Waits for room while two saves are being written. A step that
 * is not above the newest one saved is not saved again: MUSTER_OK. A save that fails later says so
 * by a log line and to muster_ckpt_wait, and may be repeated; the earlier checkpoints stay.
 * MUSTER_FAULT: another attempt owns the directory now. MUSTER_USAGE: it holds a checkpoint that
 * was not loaded. */
MUSTER_API int muster_ckpt_save(struct muster_ckpt *ckpt, int64_t step, double loss);

/* Waits until the save of `step` is durable, at most `timeout` (0: the plan's); else its error,
 * MUSTER_LOST when it still runs. A save that has failed keeps its error, though later ones become
 * durable, until that step is saved again. */
MUSTER_API int muster_ckpt_wait(struct muster_ckpt *ckpt, int64_t step, double timeout);

/* Waits for the last save that was handed over as muster_ckpt_wait does, and returns its error.
 * Records `why` this attempt ends
 * ("finished", "preempted") and with which exit `status`, and gives the directory back. With
 * MUSTER_REQUEUE or MUSTER_LOST, in a job without the plugin, it also asks Slurm to put the job
 * back in the queue; with the plugin it is the exit status that does so. *ckpt is gone in any case.
 */
MUSTER_API int muster_ckpt_close(struct muster_ckpt *ckpt, int status, const char *why);

/* ---- the end ---- */

/* Collective, a program's last call: ends what it has in place of muster_nccl_end,
 * muster_ckpt_close and muster_close, and returns the status to exit with, the same on all ranks.
 * `status` is what this rank came to: MUSTER_OK, it has done all; MUSTER_REQUEUE, it stopped for a
 * notice and has handed over its last save; else that of the call that failed. Then all ranks wait
 * until the last save is durable; where it is not, MUSTER_OK and MUSTER_REQUEUE become its error;
 *     the first rank with a status other than MUSTER_OK gives that of all, by the order of
 * muster_agree, and its reason is muster_error's on all; the communicator is ended, orderly if
 * nothing failed; the end is recorded in attempts.jsonl; without the plugin Slurm is asked for
 * another attempt, if it is to come; nobody leaves before the others may, since the first bad exit
 * status ends the whole job step. `timeout` (0: that of muster_open) is how long the last save may
 * take, and then how long each of the other stages. Where a rank does not come, the others return
 * MUSTER_LOST. A status that is none of an exit (0 to 255) is MUSTER_FAULT. `ckpt` and `comm` may
 * be NULL, and so may `muster`, where it was never opened: then `status` is returned. All three are
 * gone in any case. */
MUSTER_API int muster_end(struct muster *muster, struct muster_ckpt *ckpt, struct ncclComm *comm,
	int status, double timeout);

#ifdef __cplusplus
}
#endif

#endif
