/* SPDX-License-Identifier: Apache-2.0 */
/* A C program with all that libmuster gives. Each rank has a number, and in a step adds that of its left neighbour. It stops
 * when its nodes are taken away, and goes on where it stood when it has them again. slurm-examples/ring.sbatch starts it.
 *
 *     cc -std=c99 ring.c $(pkg-config --cflags --libs muster) -o ring
 *     cc -std=c99 -DRING_NCCL ring.c $(pkg-config --cflags --libs muster) -lnccl -lcudart -o ring      where there are GPUs */
#include <math.h>
#include <muster.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef RING_NCCL
#include <cuda_runtime.h>
#include <nccl.h>
#endif

#define MODULUS 1000003
#define SAVE_EVERY 20
#define PAUSE_MS 50     /* a step's work */
#define SAVE_SECONDS 60 /* the longest save */

struct word {
	int64_t number, notice; /* what a rank tells the others in a step */
};

static struct muster *muster;
static struct muster_ckpt *ckpt; /* of rank 0, which saves for all */
static struct ncclComm *comm;
static int rank, size;
static struct word *words;       /* one a rank */
static int64_t *state;           /* the step, and behind it each rank's number: what is saved */

/* Every rank gets every rank's word: GPU to GPU, or over the rendezvous, which does for little. */
static int exchange(struct word mine)
{
#ifdef RING_NCCL
	static struct word *gpu; /* all words, and behind them this rank's */
	size_t bytes = (size_t)size * sizeof mine;
	int status;
	if (!comm && ((status = muster_nccl_comm(muster, 0, &comm)) || (status = muster_agree(muster,
			cudaMalloc((void **)&gpu, bytes + sizeof mine) ? MUSTER_FAULT : MUSTER_OK, "no memory on the GPU", 0))))
		return status;
	cudaMemcpy(gpu + size, &mine, sizeof mine, cudaMemcpyHostToDevice);
	status = muster_nccl_wait(muster, comm, ncclAllGather(gpu + size, gpu, 2, ncclInt64, comm, NULL), NULL, 0);
	if (status == MUSTER_OK && cudaMemcpy(words, gpu, bytes, cudaMemcpyDeviceToHost))
		return muster_agree(muster, MUSTER_FAULT, "couldn't read from the GPU", 0);
	return status;
#else
	return muster_allgather(muster, &mine, words, sizeof mine, 0);
#endif
}

/* Where the newest checkpoint stands, or at step 0. */
static int begin(const char *dir)
{
	struct muster_tensor tensor = { "ring.state", "I64", 1, { 0 }, NULL };
	struct muster_ckpt_plan plan = { sizeof plan, dir, &tensor, 1, 2, 0, SAVE_SECONDS };
	int i, status = MUSTER_OK;
	int64_t step;
	rank = muster_rank(muster);
	size = muster_world_size(muster);
	words = calloc((size_t)size, sizeof *words);
	tensor.shape[0] = size + 1;
	tensor.data = state = calloc((size_t)size + 1, sizeof *state);
	if (!words || !state)
		return muster_agree(muster, MUSTER_FAULT, "no memory", 0); /* which all ranks hear, and return */
	for (i = 1; i <= size; i++)
		state[i] = i;
	if (rank == 0 && (status = muster_ckpt_open(muster, &plan, &ckpt)) == MUSTER_OK)
		status = muster_ckpt_load(ckpt, &step);
	if ((status = muster_agree(muster, status, NULL, 0)) == MUSTER_OK)
		status = muster_broadcast(muster, 0, state, (size_t)tensor.shape[0] * sizeof *state, 0);
	if (rank == 0 && status == MUSTER_OK)
		printf("ring: attempt %d: %d ranks begin behind step %lld\n", muster_attempt(muster), size, (long long)state[0]);
	return status;
}

/* Until the last step, or the one in which the first rank has heard of a notice: all stop behind the same one. */
static int run(int64_t steps, int *notice)
{
	int i, status;
	while (state[0] < steps && !*notice) {
		struct pollfd work = { muster_notice_fd(), POLLIN, 0 }; /* a notice cuts the pause short */
		struct word mine = { state[1 + rank], 0 };
		poll(&work, 1, PAUSE_MS);
		mine.notice = muster_notice();
		if ((status = exchange(mine)))
			return status;
		for (i = 0; i < size; i++) {
			state[1 + i] = (words[i].number + words[(i + size - 1) % size].number) % MODULUS;
			*notice = *notice ? *notice : (int)words[i].notice;
		}
		if (++state[0] % SAVE_EVERY == 0 && muster_ckpt_save(ckpt, state[0], NAN))
			fprintf(stderr, "ring: %s\n", muster_error()); /* the next one may succeed */
	}
	if (rank == 0)
		printf("ring: after step %lld:", (long long)state[0]);
	for (i = 0; i < size && rank == 0; i++)
		printf(i + 1 < size ? " %lld" : " %lld\n", (long long)state[1 + i]);
	if ((status = muster_ckpt_save(ckpt, state[0], NAN)) || (status = muster_ckpt_wait(ckpt, state[0], 0)))
		return status;
	return *notice ? MUSTER_REQUEUE : MUSTER_OK;
}

int main(int argc, char **argv)
{
	int status, notice = 0;
	if (argc != 3) {
		fprintf(stderr, "usage: ring STEPS CHECKPOINT-DIRECTORY\n");
		return MUSTER_USAGE;
	}
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	if ((status = muster_notice_begin()) == MUSTER_OK && (status = muster_open(&muster, 60)) == MUSTER_OK
		&& (status = begin(argv[2])) == MUSTER_OK)
		status = run(atoll(argv[1]), &notice);
	if (status != MUSTER_OK && status != MUSTER_REQUEUE)
		fprintf(stderr, "ring: %s\n", muster_error());
	muster_ckpt_close(ckpt, status, notice ? muster_notice_name(notice) : status ? muster_error() : "finished");
	/* Nobody leaves before, since the first bad exit status ends the whole job step. */
	if (muster && status != MUSTER_LOST)
		status = muster_agree(muster, status, NULL, 2 * SAVE_SECONDS);
	muster_nccl_end(muster, comm, status == MUSTER_OK || status == MUSTER_REQUEUE, 0);
	muster_close(muster, status != MUSTER_LOST);
	return status;
}
