/* SPDX-License-Identifier: Apache-2.0 */
/* libmuster: for C and C++ programs that srun starts, one process per rank. It tells who this
 * process is and where the other ranks are, makes an NCCL communicator, gives notice before the
 * nodes are taken away, and keeps checkpoints that outlive the process. muster(3) is an overview.
 *
 * Errors: a function that can fail returns an int of enum muster_status, whose values are the exit
 * statuses that decide whether a job comes back; 0 is success. On failure, muster_error() is one
 * line with the reason and the remedy, and a pointer that the function returns through an argument
 * is NULL. Invalid arguments (NULL where it isn't allowed, a negative timeout) are MUSTER_USAGE. No
 * function exits or aborts the process, except muster_abort, which asks the launcher to. Log lines
 * go where muster_set_log says.
 *
 * Time: seconds, as double. Memory: arguments are borrowed during the call unless stated otherwise.
 * Threads: a struct muster and a struct muster_ckpt may be used by one thread at a time; different
 * ones may be used by different threads at once. muster_error is the calling thread's.
 * muster_notice, muster_notice_fd and muster_notice_name may be called by any thread at any time.
 *
 * ABI: a program that was built with an earlier libmuster of the same soname (libmuster.so.0) works
 * with a later one. Existing functions keep their meaning; new ones get a new symbol version; new
 * members go to the end of a struct that begins with its size. An incompatible change raises the
 * soname. */
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
	MUSTER_OK = 0,    /* success */
	MUSTER_FAULT = 1, /* a fault of the program or its machine */
	MUSTER_USAGE = 2, /* the program, or the way it was started, asks for something impossible */
	MUSTER_DATA = 65, /* bad data, or an unusable checkpoint */
	MUSTER_LOST = 69, /* lost peer, passed deadline, I/O error that may pass: the job comes back */
	MUSTER_REQUEUE = 75 /* as an exit status: checkpointed, the job comes back */
};

/* The error of the last function that failed in this thread, valid until the next one fails; "" if
 * none has failed. Never NULL; don't free it. */
MUSTER_API const char *muster_error(void);

/* The version of the library that runs, such as "0.2.0", not of this header. Don't free it. */
MUSTER_API const char *muster_version(void);

/* Where log lines about background events go (a lost checkpoint service, a checkpoint that is set
 * aside). `level` 0 is an error, 1 a warning, 2 information, 3 detail; `line` has no newline.
 * `write` is called from any thread, one call at a time; NULL: log nothing. Default: errors and
 * warnings, on standard error. May be called before anything else. */
MUSTER_API void muster_set_log(void (*write)(void *arg, int level, const char *line), void *arg);

/* ---- ranks and their rendezvous ---- */

/* This process as one rank of the job step. */
struct muster;

/* Collective over all ranks: finds out this process's identity (from PMIx, PMI2, Slurm or the
 * torchrun variables; otherwise a world of one) and meets the other ranks. `timeout` is the
 * deadline of this call and the default for later ones; 0: 60 s. muster_close frees *muster.
 * MUSTER_USAGE if the identity is contradictory or nothing says where the ranks meet (with the same
 * line on each rank). MUSTER_LOST if ranks did not come; the line names them and their nodes. Only
 * once in a process. */
MUSTER_API int muster_open(struct muster **muster, double timeout);

/* Leaves the rendezvous and frees `muster`. `orderly` 0: a rank is known to be lost, so don't wait
 * for any. Under Slurm's PMIx, if a rank leaves the step with a bad status or without this call,
 * Slurm kills the others: call muster_fence before leaving. NULL is allowed. */
MUSTER_API void muster_close(struct muster *muster, int orderly);

/* 0 ≤ rank < world size; 0 ≤ local rank < local world size (the ranks of this node); 0 ≤ node rank
 * < node count. -1 if `muster` is NULL. */
MUSTER_API int muster_rank(const struct muster *muster);
MUSTER_API int muster_world_size(const struct muster *muster);
MUSTER_API int muster_local_rank(const struct muster *muster);
MUSTER_API int muster_local_world_size(const struct muster *muster);
MUSTER_API int muster_node_rank(const struct muster *muster);
MUSTER_API int muster_node_count(const struct muster *muster);

/* How often the job was restarted: 0 in its first attempt (SLURM_RESTART_COUNT). -1 if `muster` is
 * NULL. */
MUSTER_API int muster_attempt(const struct muster *muster);

/* Slurm's job ID; 0 outside Slurm. */
MUSTER_API uint32_t muster_job(const struct muster *muster);

/* The name of the node that a rank runs on; it belongs to `muster`. NULL, with muster_error, if
 * there is no such rank. */
MUSTER_API const char *muster_node(struct muster *muster, int rank);

/* Publishes a value of this rank, which the others can read after the next fence. `key`: 1 to 60
 * characters of A-Z a-z 0-9 . _ -, each key used once by a rank. `size`: at most 64 KiB. */
MUSTER_API int muster_put(struct muster *muster, const char *key, const void *value, size_t size);

/* Collective: waits for all ranks. Afterwards every rank can read what each put before. `timeout`
 * 0: that of muster_open. MUSTER_LOST names the ranks that did not come; the rendezvous is unusable
 * then. */
MUSTER_API int muster_fence(struct muster *muster, double timeout);

/* Reads the value that `rank` put under `key` before the last fence. *value ends with a NUL that
 * *size does not count; free it with muster_free. */
MUSTER_API int muster_get(struct muster *muster, int rank, const char *key, void **value,
	size_t *size);

/* ---- small collectives of all ranks over the rendezvous ----
 * All ranks make the same calls in the same order with the same sizes. `timeout` is as in
 * muster_fence. These calls are for the control of a run, not for its data (`size` at most 65,000
 * bytes for each rank), and not for each of its steps: after a step a word does (below). With PMI2,
 * under mpirun and with more than 64 ranks the launcher keeps the data until the end, and each call
 * may take longer than the one before.
 *
 * A rank that can't go on reports it with muster_agree or muster_end, whichever of these calls the
 * others are in: all of them return its status then, and muster_error is the same line on all
 * ranks, with that rank and its node. So no rank waits for it. */

/* Collective: MUSTER_OK if all ranks give `status` 0. Otherwise the status of the first rank with
 * its own reason; if all have merely lost others (MUSTER_LOST) or stop (MUSTER_REQUEUE), that
 * status. `why`: this rank's reason, one line; NULL: muster_error(). */
MUSTER_API int muster_agree(struct muster *muster, int status, const char *why, double timeout);

/* Collective: `all` gets `size` bytes from each rank, in rank order; it holds world size × `size`
 * bytes. `mine` may be inside `all`. */
MUSTER_API int muster_allgather(struct muster *muster, const void *mine, void *all, size_t size,
	double timeout);

/* Collective: `data`, `size` bytes, becomes that of rank `root`. */
MUSTER_API int muster_broadcast(struct muster *muster, int root, void *data, size_t size,
	double timeout);

/* ---- a word after every step ----
 * What a rank notices by itself (a notice, an error, that it is time to save) has to be known to
 * all after the same step, and no rank should wait for it. Each rank says a word after each step
 * and hears what all of them said after the step before. So ranks are never more than a step apart,
 * and a flag that any rank sets after step k is known to all after step k + 1. The words travel
 * over TCP connections of their own, without the GPU, and nothing is kept of them. */

/* Collective: connects the ranks for their words. Only one at a time. */
MUSTER_API int muster_word_begin(struct muster *muster, double timeout);

/* Says this rank's `flags` after its next step; waits until all ranks have said theirs after the
 * step before, for which most often it needn't wait. *all: the flags of all ranks after that step,
 * OR-ed; *rank: the lowest rank that has set any, or -1. At the first call 0 and -1. All ranks get
 * the same at the same call. `timeout` 0: that of muster_open. MUSTER_LOST: a rank has left, or has
 * not said its word in time; the line names it and its node. */
MUSTER_API int muster_word(struct muster *muster, uint64_t flags, uint64_t *all, int *rank,
	double timeout);

/* Collective: waits for the last word of all ranks, which have all said as many, and ends the
 * connections. */
MUSTER_API int muster_word_end(struct muster *muster, uint64_t *all, int *rank, double timeout);

/* Collective, between muster_word_begin and muster_word_end, after the same number of words on all
 * ranks: rank 0 gets `size` bytes of each rank, each its own number, at most 16 MiB. All ranks wait
 * until it has them. There *all becomes the bytes of all ranks one after the other, for
 * muster_free, and sizes[r] the number of rank r's; on the others *all is NULL, and `sizes` may be.
 * Nothing is kept of them. MUSTER_LOST as above. Since 0.7. */
MUSTER_API int muster_word_gather(struct muster *muster, const void *mine, size_t size, void **all,
	size_t *sizes, double timeout);

/* Frees memory that this library allocated for you. NULL is allowed. */
MUSTER_API void muster_free(void *memory);

/* Asks the launcher to end the whole step with `status`; `why` may be NULL. Returns if the launcher
 * can't, or has not done so yet. */
MUSTER_API void muster_abort(struct muster *muster, int status, const char *why);

/* ---- an NCCL communicator of all ranks ---- */

/* As in nccl.h and cuda.h, which need not be included: ncclComm_t is struct ncclComm *,
 * cudaStream_t is struct CUstream_st *. */
struct ncclComm;
struct CUstream_st;

/* Collective: makes a communicator on the calling thread's current CUDA device, as
 * ncclCommInitRankConfig does with blocking = 0, so NCCL's calls on it may return ncclInProgress.
 * `timeout` (0: that of muster_open) applies to the exchange of the ID and to the connecting,
 * separately. After it, the incomplete communicator is aborted. If a rank can't take part (no NCCL,
 * no GPU, another version of NCCL, a GPU that another rank uses), all ranks fail at once with the
 * same line, which names that rank and its node: MUSTER_USAGE. MUSTER_LOST: not all ranks connected
 * in time. MUSTER_USAGE also if the library was built without NCCL. muster_nccl_end frees *comm. */
MUSTER_API int muster_nccl_comm(struct muster *muster, double timeout, struct ncclComm **comm);

/* Waits until the calls on `comm` have begun and everything queued on `stream` (NULL: the default
 * one) of the current device has finished, at most `timeout` (0: that of muster_open). `result` is
 * what NCCL's call returned: status = muster_nccl_wait(muster, comm, ncclAllReduce(…, comm,
 * stream), stream, 0). MUSTER_LOST: a rank is gone, or the time passed; cudaStreamSynchronize would
 * wait for ever. MUSTER_FAULT: another error of NCCL or the GPU. After either error, end the
 * communicator with `orderly` 0. */
MUSTER_API int muster_nccl_wait(struct muster *muster, struct ncclComm *comm, int result,
	struct CUstream_st *stream, double timeout);

/* Ends a communicator and frees it, even if it fails. `orderly`: all ranks call this; their work is
 * finished first, within `timeout` (0: that of muster_open). Otherwise, or after the timeout, the
 * communicator is aborted. NULL is allowed. */
MUSTER_API int muster_nccl_end(struct muster *muster, struct ncclComm *comm, int orderly,
	double timeout);

/* ---- notices: the nodes will be taken away ---- */

/* From now on SIGTERM (preemption), SIGUSR1, SIGUSR2 (sbatch --signal) and SIGINT only set a flag.
 * They are blocked in the calling thread and the threads that it starts, and a thread of the
 * library takes them: call this first in main. A thread that has not blocked them runs a handler
 * that sets the flag. Further calls block them in the calling thread, and do nothing else. */
MUSTER_API int muster_notice_begin(void);

/* The same without SIGINT, for a program in a language whose runtime handles signals. A handler
 * that the runtime installs afterwards may call muster_notice_record. Since 0.5, as the next two.
 */
MUSTER_API int muster_notice_begin_beside(void);

/* Gives notice as if this signal had come. */
MUSTER_API void muster_notice_record(int signal);

/* For a process that works for a rank, such as one that loads its data: Slurm sends the signals to
 * all processes of the step, and the rank needs its workers until it has stopped. SIGTERM from the
 * process `trainer` ends this one with status 0; from others it is ignored, as are SIGUSR1 and
 * SIGUSR2. */
MUSTER_API int muster_worker_begin(int64_t trainer);

/* Where rank 0 has checkpoints (muster_ckpt_resume), Slurm's time limit is a notice too, on rank 0:
 * when what is left is close to twice the time that a save takes to become durable (the longest of
 * the last four). */
#define MUSTER_NOTICE_TIME_LIMIT 1000
/* So is, on each rank of a node, the end of slurmstepd or of mpirun's daemon there. Then SIGPIPE is
 * ignored, and what the process prints goes nowhere, so that it can save. */
#define MUSTER_NOTICE_LAUNCHER 1001
/* And, on the first rank of a node, the word of a cloud that it is about to take the node away.
 * From muster_open on muster-notice listens to the cloud that this machine is in; the variable
 * MUSTER_NOTICE names another source, or off (muster-notice(1)). */
#define MUSTER_NOTICE_SPOT 1002

/* The number of the first signal that came, or one of these three; 0: none. */
MUSTER_API int muster_notice(void);

/* A descriptor that is readable for poll, select and epoll once a notice has come; -1 before
 * muster_notice_begin. Don't read or close it. */
MUSTER_API int muster_notice_fd(void);

/* "SIGTERM", …, "the time limit"; don't free it. */
MUSTER_API const char *muster_notice_name(int signal);

/* ---- progress: what lets a job come back again and again ---- */

/* Records that this attempt, on any rank, is further than the attempts before it. Call it as often
 * as you like. If the attempt fails afterwards, it does not count as one of the three in a row
 * after which the plugin lets the job end. A durable checkpoint of muster_ckpt_save does this by
 * itself. No effect without the plugin or before muster_open. */
MUSTER_API void muster_progress(void);

/* ---- where a rank stands ---- */

/* What a rank does in a step. */
enum muster_phase {
	MUSTER_PHASE_DATA = 2,   /* takes its share of the data */
	MUSTER_PHASE_UPDATE = 5, /* the optimizer */
	MUSTER_PHASE_VALIDATE = 6,
	MUSTER_PHASE_FORWARD = 9,
	MUSTER_PHASE_BACKWARD = 10,
	MUSTER_PHASE_STEP = 11 /* the rest of a step */
};

/* Notes in this rank's flight recorder what it begins in `step`, counted from 1. Once a checkpoint
 * directory is open, muster-where DIR shows it, also after the process was killed. Call it from one
 * thread at a time. It costs no system call. Saves, muster_word and muster_end are noted by
 * themselves. Other phases are ignored, and so is NULL. Since 0.6. */
MUSTER_API void muster_phase(struct muster *muster, enum muster_phase phase, int64_t step);

/* ---- the order of samples ---- */

/* Which sample is read when, as in muster-train: each epoch is a permutation of all samples that
 * depends on nothing but the seed and the epoch. So a run resumes exactly from its step alone, on
 * any number of ranks, and nothing is stored for it. Set all to zero, then fill in. */
struct muster_order {
	size_t size; /* sizeof(struct muster_order) */
	uint64_t seed;
	uint64_t count; /* samples, 1 to 2^63 - 1 */
	uint64_t batch; /* samples a step, of all ranks together */
	int shuffle;    /* 0: samples come in order in every epoch */
	int complete;   /* 0: an epoch's last samples are left out where they don't fill a batch */
};

#define MUSTER_NO_SAMPLE UINT64_MAX

/* The number of steps in an epoch. */
MUSTER_API int muster_order_steps(const struct muster_order *order, uint64_t *steps);

/* The samples at places [place, place + count) in the batch of `step`. Steps and places count from
 * 0. MUSTER_NO_SAMPLE: a place that a partial batch leaves empty. */
MUSTER_API int muster_order_samples(const struct muster_order *order, uint64_t step, uint64_t place,
	size_t count, uint64_t *samples);

/* ---- the summation tree ----
 * A step of a training has `slots` equal parts, 1 to 16384, whatever the number of ranks. Their
 * gradients are summed over one fixed binary tree, so that the sum has the same bits on any number
 * of ranks up to `slots`. Additions are told for a stack: push a sum, then add the two topmost
 * entries as many times as told, the lower one first. Since 0.7. */

/* The slots of a rank: *first, and *count of them. After the sum of slot *first + i is pushed,
 * additions[i] additions follow; `additions` has room for `slots` numbers. What is left on the
 * stack then, from the bottom up, are the rank's pieces. */
MUSTER_API int muster_tree_rank(int slots, int world_size, int rank, int *first, int *count,
	int *additions);

/* The additions of all pieces, those of rank 0 first: pieces[r] is the number of rank r's, and
 * additions[n] additions follow piece n. `pieces` has room for `world_size` numbers, `additions`
 * for `slots`. What is left on the stack is the sum of all slots. */
MUSTER_API int muster_tree_join(int slots, int world_size, int *pieces, int *additions);

/* ---- checkpoints ---- */

/* An array in host memory that is part of the program's state: row-major, without padding. */
struct muster_tensor {
	const char *name; /* copied */
	/* As in safetensors: "F32", "F64", "BF16", "F16", "I64", "I32", "U64", "U8", "BOOL", … */
	const char *dtype;
	int dims;         /* 0 (a scalar) to 8 */
	int64_t shape[8]; /* in elements; the first `dims` count */
	/* Yours until muster_ckpt_close; muster_ckpt_save reads it, muster_ckpt_load writes it. NULL
	 * only without elements. */
	void *data;
};

/* Which ranks save, for muster_ckpt_resume and muster_ckpt_resume_state: rank 0; the first rank of
 * each node as well; or all. Each hands its part of every save to the muster-ckptd of its node. */
enum muster_writers { MUSTER_WRITERS_RANK0, MUSTER_WRITERS_NODE, MUSTER_WRITERS_ALL };

/* Set all to zero, then fill in. */
struct muster_ckpt_plan {
	size_t size;     /* sizeof(struct muster_ckpt_plan) */
	const char *dir; /* the checkpoint directory, which all attempts see; made if missing */
	const struct muster_tensor *tensors; /* all that is saved; NULL: see muster_ckpt_save_state */
	size_t tensor_count;
	size_t keep_last;   /* keep this many newest checkpoints; 0: all */
	int64_t keep_every; /* also keep steps that are a multiple of this; 0: none */
	double timeout;     /* of retries after an I/O error, and of waits; 0: 60 s */
	/* also keep this many with the lowest validation loss; 0: none. Since 0.4, as the next. */
	size_t keep_best;
	/* What the results of the run depend on: a JSON object as text. A checkpoint that was saved
	 * with another one is refused (MUSTER_USAGE), with the first difference. NULL: not looked at */
	const char *identity;
	int writers; /* enum muster_writers. Since 0.7 */
};

/* A checkpoint directory that this rank owns, or has a part in the saves of. Other ranks have NULL.
 * Except muster_ckpt_open, the calls below allow that: they do nothing and return MUSTER_OK. */
struct muster_ckpt;

/* On one rank, usually rank 0: becomes the owner of the directory, finishes what the attempt before
 * left incomplete, records the start in attempts.jsonl, reserves memory for two snapshots (one if
 * memory is short), and finds the node's muster-ckptd or starts one. A later attempt of the same
 * job takes the directory over; another job is refused while this one lives: MUSTER_USAGE. After
 * three attempts in a row without progress: MUSTER_FAULT, "crash loop". muster_ckpt_close frees
 * *ckpt; `muster` stays open until the last save. */
MUSTER_API int muster_ckpt_open(struct muster *muster, const struct muster_ckpt_plan *plan,
	struct muster_ckpt **ckpt);

/* Fills the tensors from the newest intact checkpoint. *step becomes its step, or -1 if there is
 * none; then nothing is changed. A damaged checkpoint is set aside and the one before is tried.
 * MUSTER_DATA if it has other tensors than the plan. After an error the tensors' content is
 * undefined. Only once, and before the first save. */
MUSTER_API int muster_ckpt_load(struct muster_ckpt *ckpt, int64_t *step);

/* Collective, for a state of which every rank has all: rank 0 opens the directory and loads the
 * newest checkpoint, as the two calls above do, and the others read the same one. *step becomes its
 * step on all ranks, or -1 if there is none; then nothing is changed. *ckpt is set on the ranks
 * that save, and NULL on the others. All ranks give the same directory and the same tensors, each
 * with its own data. `timeout` (0: that of muster_open) is how long they wait for each other, so
 * for the rank that reads longest. If a rank can't load, all fail at once with the same line, which
 * names it and its node: with the status of those two calls, or MUSTER_USAGE if the plans differ or
 * a node has another directory by that name. */
MUSTER_API int muster_ckpt_resume(struct muster *muster, const struct muster_ckpt_plan *plan,
	double timeout, struct muster_ckpt **ckpt, int64_t *step);

/* Copies the tensors as the state after `step` (≥ 0), hands the copy over to muster-ckptd, which
 * writes it even if this process dies, and returns before it is durable. `loss` is recorded; NAN:
 * none. Waits for a free buffer while two saves are being written. If `step` is not above the
 * newest one saved, nothing is saved: MUSTER_OK. If a save fails later, a log line and
 * muster_ckpt_wait report it, and it may be repeated; the earlier checkpoints stay. MUSTER_FAULT:
 * another attempt owns the directory now. MUSTER_USAGE: it holds a checkpoint that was not loaded.
 * MUSTER_LOST: no buffer became free within the plan's timeout. */
MUSTER_API int muster_ckpt_save(struct muster_ckpt *ckpt, int64_t step, double loss);

#define MUSTER_ALL_RANKS (-1)

/* Which rank has a tensor of a state, and whether it has all of it. All zeros: rank 0 has all. */
struct muster_placement {
	/* MUSTER_ALL_RANKS: each has the same, so any of those that save may write it. Otherwise that
	 * rank writes it, and the others need no data of it. */
	int rank;
	/* Not 0, and not of the model: the rank has a box, all elements whose index in each dimension d
	 * is at least offset[d] and below offset[d] plus the length that struct muster_tensor has for
	 * it. The boxes of a tensor have its name, and cover it exactly once. */
	int is_box;
	int64_t shape[8];  /* of the whole tensor */
	int64_t offset[8]; /* of the box */
};

/* A state whose tensors differ from save to save, or that is not all tensors. Set all to zero, then
 * fill in. Borrowed during the call. */
struct muster_state {
	size_t size; /* sizeof(struct muster_state) */
	/* The model's tensors, under the names that other programs which read model.safetensors expect;
	 * and all others, such as an optimizer's. No name may occur twice. */
	const struct muster_tensor *model;
	size_t model_count;
	const struct muster_tensor *state;
	size_t state_count;
	const char *config; /* the text of config.json, a JSON object; NULL: no such file */
	/* What is no tensor: a JSON object as text, as in section 2.5 of doc/checkpoint-format.md;
	 * NULL: nothing */
	const char *values;
	uint64_t cursor;        /* position in the data, below 2^63, for the manifest */
	double loss;            /* NAN: none */
	double validation_loss; /* measured at this step; NAN: none */
	/* Which rank has each of `model` and of `state`; NULL: all ranks have all of them. Since 0.7 */
	const struct muster_placement *model_placements;
	const struct muster_placement *state_placements;
};

/* As muster_ckpt_save, for a plan without tensors: saves `state`, whose tensors may be others in
 * each save. MUSTER_FAULT also if memory is short of its size. With several writers all of them
 * make the same calls of this kind, with the same tensors in the same order: the save is durable
 * once all parts are. Rank 0 gives what is no tensor. */
MUSTER_API int muster_ckpt_save_state(struct muster_ckpt *ckpt, int64_t step,
	const struct muster_state *state);

/* Sets own[i] to 1 where this rank writes tensor i of the state, and to 0 where it needs no data
 * here: first for the model's tensors, then for the others. `data` is not looked at. Since 0.7. */
MUSTER_API int muster_ckpt_own(const struct muster_ckpt *ckpt, const struct muster_state *state,
	unsigned char *own);

/* Bytes of memory that this process's cgroup still allows, or that the machine has available,
 * whichever is less: for a program that copies its state from GPUs before it saves. 0: not known.
 * Since 0.7. */
MUSTER_API size_t muster_memory(void);

/* Waits until the save of `step` is durable, at most `timeout` (0: the plan's). Otherwise returns
 * the save's error; MUSTER_LOST if it still runs. On a rank that writes another part than rank 0's:
 * until that part is durable. A failed save keeps its error, even if later ones
 * become durable, until that step is saved again. */
MUSTER_API int muster_ckpt_wait(struct muster_ckpt *ckpt, int64_t step, double timeout);

/* Waits for the last save that was handed over, as muster_ckpt_wait does, and returns its error.
 * Records why this attempt ends (`why`: "finished", "preempted") and its exit `status`, gives the
 * directory back and frees `ckpt`, even if it fails. If `status` is MUSTER_REQUEUE or MUSTER_LOST,
 * and the job has no plugin, it also asks Slurm to put the job back into the queue; with the plugin
 * the exit status does that. */
MUSTER_API int muster_ckpt_close(struct muster_ckpt *ckpt, int status, const char *why);

/* ---- reading a checkpoint ---- */

/* A checkpoint that is open. No process removes it until muster_saved_close. */
struct muster_saved;

/* Opens the checkpoint of `step` and verifies all of it. `step` -1: the newest one that is intact.
 * The directory may belong to another job, and nothing in it is changed. `timeout`: of retries
 * after an I/O error; 0: 60 s. MUSTER_DATA: the checkpoint is damaged, or there is none.
 * muster_saved_close frees *saved. */
MUSTER_API int muster_saved_open(const char *dir, int64_t step, double timeout,
	struct muster_saved **saved);

/* As muster_ckpt_load, for a plan without tensors: opens the newest intact checkpoint. *saved is
 * NULL if there is none. */
MUSTER_API int muster_ckpt_load_state(struct muster_ckpt *ckpt, struct muster_saved **saved);

/* As muster_ckpt_resume, for a plan without tensors: the same checkpoint is open on all ranks
 * then. *saved is NULL if there is none. */
MUSTER_API int muster_ckpt_resume_state(struct muster *muster, const struct muster_ckpt_plan *plan,
	double timeout, struct muster_ckpt **ckpt, struct muster_saved **saved);

/* The number of this attempt among all attempts in the directory, from 0, as in the names of
 * metrics files; -1 if `ckpt` is NULL. Since 0.5. */
MUSTER_API int muster_ckpt_attempt(const struct muster_ckpt *ckpt);

/* Its step; -1 if `saved` is NULL. */
MUSTER_API int64_t muster_saved_step(const struct muster_saved *saved);

/* The text of manifest.json (section 3 of doc/checkpoint-format.md); it belongs to `saved`. */
MUSTER_API const char *muster_saved_manifest(const struct muster_saved *saved);

/* The text of values.json, which belongs to `saved`; *text is NULL if there is none. */
MUSTER_API int muster_saved_values(struct muster_saved *saved, const char **text);

/* The number of its tensors: with `state` 0 of the model, else of all others. */
MUSTER_API size_t muster_saved_count(const struct muster_saved *saved, int state);

/* Describes one of them, by its index in the order of the names; `data` becomes NULL, and the texts
 * belong to `saved`. */
MUSTER_API int muster_saved_tensor(const struct muster_saved *saved, int state, size_t index,
	struct muster_tensor *tensor);

/* Reads elements [first, first + count) of a tensor, in row-major order, in its own type. Each byte
 * is verified; MUSTER_DATA: it is not what was saved. */
MUSTER_API int muster_saved_read(struct muster_saved *saved, const char *name, uint64_t first,
	uint64_t count, void *data);

/* Reads the elements of a tensor whose index in each dimension d is in [offset[d], offset[d] +
 * shape[d]), likewise, however many boxes they were saved in. Since 0.7. */
MUSTER_API int muster_saved_read_box(struct muster_saved *saved, const char *name,
	const int64_t *offset, const int64_t *shape, void *data);

/* NULL is allowed. */
MUSTER_API void muster_saved_close(struct muster_saved *saved);

/* ---- the end ---- */

/* Collective, a program's last call: replaces muster_nccl_end, muster_ckpt_close and muster_close,
 * and returns the status to exit with, the same on all ranks. `status` is this rank's own:
 * MUSTER_OK if it has finished its work; MUSTER_REQUEUE if it stopped for a notice and has handed
 * over its last save; otherwise the status of the call that failed. The stages:
 *
 * - all ranks wait until the last save is durable; if it fails, MUSTER_OK and MUSTER_REQUEUE
 *   become its error
 * - the ranks agree, as in muster_agree: if a rank has a status other than MUSTER_OK, all get that
 *   status and, in muster_error, its reason
 * - the communicator is ended, orderly if nothing failed
 * - the end is recorded in attempts.jsonl
 * - without the plugin, Slurm is asked for another attempt if there is to be one
 * - the ranks wait for each other, since the first bad exit status ends the whole job step
 *
 * `timeout` (0: that of muster_open) is how long the last save may take, and how long each later
 * stage may take. If a rank does not come, the others return MUSTER_LOST. A status that is not an
 * exit status (0 to 255) becomes MUSTER_FAULT. `ckpt` and `comm` may be NULL, and so may `muster`
 * if it was never opened: then `status` is returned. All three are freed in any case. */
MUSTER_API int muster_end(struct muster *muster, struct muster_ckpt *ckpt, struct ncclComm *comm,
	int status, double timeout);

#ifdef __cplusplus
}
#endif

#endif
