/* SPDX-License-Identifier: Apache-2.0 */
/* All of libmuster in a C program: each rank has a number, and in a step adds its left neighbour's.
 * It stops when its nodes are taken away, and goes on when it has them again (ring.sbatch).
 *   cc -std=c99 ring.c $(pkg-config --cflags --libs muster) -o ring
 *   cc -std=c99 -DRING_NCCL ring.c $(pkg-config --cflags --libs muster) -lnccl -lcudart -o ring */
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
#define RANKS 1024 /* at most */
#define SAVE_EVERY 20

static struct muster *muster;
static struct muster_ckpt *ckpt; /* of rank 0, which saves for all */
static struct ncclComm *comm;
static int rank, size;
static int64_t state[1 + RANKS]; /* what is saved: the step, then each rank's number */
static struct word { int64_t number, notice; } words[RANKS]; /* what each rank sends in a step */

/* Every rank gets every rank's word: GPU to GPU, or over the rendezvous, which does for little. */
static int exchange(const struct word *mine)
{
#ifdef RING_NCCL
	static struct word *gpu; /* all words, then this rank's */
	int status;
	if (!comm && ((status = muster_nccl_comm(muster, 0, &comm)) || (status = muster_agree(muster,
			cudaMalloc((void **)&gpu, sizeof words + sizeof *mine) ? MUSTER_FAULT : MUSTER_OK,
			"no memory on the GPU", 0))))
		return status; /* of the first rank that failed, whose reason all have */
	cudaMemcpy(gpu + RANKS, mine, sizeof *mine, cudaMemcpyHostToDevice);
	status = muster_nccl_wait(muster, comm,
		ncclAllGather(gpu + RANKS, gpu, 2, ncclInt64, comm, NULL), NULL, 0);
	if (!status && cudaMemcpy(words, gpu, (size_t)size * sizeof *mine, cudaMemcpyDeviceToHost))
		return muster_agree(muster, MUSTER_FAULT, "couldn't read from the GPU", 0);
	return status;
#else
	return muster_allgather(muster, mine, words, sizeof *mine, 0);
#endif
}

/* All ranks stand where the newest checkpoint does, or at step 0. */
static int begin(const char *dir)
{
	struct muster_tensor tensor = { "ring.state", "I64", 1, { 0 }, state };
	struct muster_ckpt_plan plan = { sizeof plan, dir, &tensor, 1, .keep_last = 2 };
	int64_t step;
	rank = muster_rank(muster);
	tensor.shape[0] = 1 + (size = muster_world_size(muster));
	if (size > RANKS)
		return muster_agree(muster, MUSTER_USAGE, "too many ranks", 0);
	for (int i = 1; i <= size; i++)
		state[i] = i;
	return muster_ckpt_resume(muster, &plan, 0, &ckpt, &step);
}

/* Until the last step, or the first rank's notice: all stop after the same one. */
static int run(int64_t steps)
{
	int i, status, stop = 0;
	if (rank == 0)
		printf("ring: attempt %d: %d ranks begin after step %lld\n", muster_attempt(muster), size,
			(long long)state[0]);
	while (state[0] < steps && !stop) {
		struct pollfd notice = { muster_notice_fd(), POLLIN, 0 };
		poll(&notice, 1, 50); /* ms: a step's work, which a notice cuts short */
		const struct word mine = { state[1 + rank], muster_notice() };
		if ((status = exchange(&mine)))
			return status;
		for (i = 0; i < size; i++) {
			state[1 + i] = (words[i].number + words[(i + size - 1) % size].number) % MODULUS;
			stop |= words[i].notice != 0;
		}
		if (++state[0] % SAVE_EVERY == 0 && muster_ckpt_save(ckpt, state[0], NAN))
			fprintf(stderr, "ring: %s\n", muster_error()); /* the next one may succeed */
	}
	for (i = 0; i <= size && rank == 0; i++)
		printf(i == 0 ? "ring: after step %lld:" : i < size ? " %lld" : " %lld\n", (long long)state[i]);
	status = muster_ckpt_save(ckpt, state[0], NAN);
	return status || state[0] >= steps ? status : MUSTER_REQUEUE;
}

int main(int argc, char **argv)
{
	int status = MUSTER_USAGE;
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	if (argc == 3 && !(status = muster_notice_begin()) && !(status = muster_open(&muster, 60))
		&& !(status = begin(argv[2])))
		status = run(atoll(argv[1]));
	status = muster_end(muster, ckpt, comm, status, 60); /* waits for the last save and all ranks */
	if (status != MUSTER_OK && status != MUSTER_REQUEUE)
		fprintf(stderr, "ring: %s\n", argc == 3 ? muster_error() : "usage: ring STEPS DIRECTORY");
	return status;
}
