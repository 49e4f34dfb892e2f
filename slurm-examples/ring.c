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
#include <string.h>

#define MODULUS 1000003
#define SAVE_EVERY 20
#define PAUSE_MS 50     /* a step's work */
#define SAVE_SECONDS 60 /* the longest save */

struct word {
	int64_t number, notice; /* what a rank tells the others in a step */
};

static struct muster *muster;
static struct muster_ckpt *ckpt; /* rank 0 */
static struct word *words;       /* one a rank */
static int64_t *state;           /* the step, and behind it each rank's number: what is saved */

/* Publishes `mine` (NULL: it was before), and reads what `from` has published under that key. */
static int put_get(const char *key, int from, const void *mine, void *theirs, size_t size)
{
	void *value = NULL;
	size_t got = 0;
	int status = MUSTER_OK;
	if (mine && ((status = muster_put(muster, key, mine, size)) || (status = muster_fence(muster, 0))))
		return status;
	if ((status = muster_get(muster, from, key, &value, &got)))
		return status;
	memcpy(theirs, value, got < size ? got : size);
	muster_free(value);
	return MUSTER_OK;
}

#ifdef RING_NCCL
#include <cuda_runtime.h>
#include <nccl.h>

/* Every rank gets every rank's word, GPU to GPU. */
static int exchange(int64_t step, struct word mine)
{
	static ncclComm_t comm;
	static struct word *gpu; /* all words, and behind them this rank's */
	int status, size = muster_world_size(muster);
	ncclResult_t result;
	(void)step;
	if (!comm && (status = muster_nccl_comm(muster, 0, &comm)))
		return status;
	if (!gpu && cudaMalloc((void **)&gpu, (size_t)(size + 1) * sizeof *gpu) != cudaSuccess)
		return MUSTER_FAULT;
	cudaMemcpy(gpu + size, &mine, sizeof mine, cudaMemcpyHostToDevice);
	result = ncclAllGather(gpu + size, gpu, 2, ncclInt64, comm, 0);
	while (result == ncclInProgress && ncclCommGetAsyncError(comm, &result) != ncclSuccess)
		;
	if (result != ncclSuccess || cudaMemcpy(words, gpu, (size_t)size * sizeof *gpu, cudaMemcpyDeviceToHost) != cudaSuccess)
		return MUSTER_LOST;
	return MUSTER_OK;
}
#else
/* The same over the rendezvous: put, fence, get. */
static int exchange(int64_t step, struct word mine)
{
	char key[32];
	int rank, status = MUSTER_OK;
	snprintf(key, sizeof key, "step.%lld", (long long)step);
	for (rank = 0; rank < muster_world_size(muster) && !status; rank++)
		status = put_get(key, rank, rank == 0 ? &mine : NULL, &words[rank], sizeof mine);
	return status;
}
#endif

/* Until the last step, or the step in which the first rank has heard of a notice: all stop behind the same one. */
static int run(int64_t steps, int *noticed)
{
	int rank = muster_rank(muster), size = muster_world_size(muster), i, status;
	while (state[0] < steps && !*noticed) {
		struct pollfd work = { muster_notice_fd(), POLLIN, 0 }; /* a notice cuts the pause short */
		struct word mine = { state[1 + rank], 0 };
		poll(&work, 1, PAUSE_MS);
		mine.notice = muster_notice();
		if ((status = exchange(state[0], mine)))
			return status;
		for (i = 0; i < size; i++) {
			state[1 + i] = (words[i].number + words[(i + size - 1) % size].number) % MODULUS;
			*noticed = *noticed ? *noticed : (int)words[i].notice;
		}
		state[0]++;
		if (ckpt && state[0] % SAVE_EVERY == 0 && (status = muster_ckpt_save(ckpt, state[0], NAN)))
			fprintf(stderr, "ring: %s\n", muster_error()); /* the next one may succeed */
	}
	return MUSTER_OK;
}

/* Rank 0 holds the checkpoints; it tells the others where to begin, or that it can't. */
static int begin(const char *dir)
{
	int rank = muster_rank(muster), size = muster_world_size(muster), i, status;
	size_t bytes = ((size_t)size + 1) * sizeof *state;
	int32_t told = MUSTER_OK;
	int64_t step;
	words = calloc((size_t)size, sizeof *words);
	state = calloc((size_t)size + 1, sizeof *state);
	for (i = 0; i <= size; i++)
		state[i] = i; /* step 0, where rank r has r + 1 */
	if (rank == 0) {
		struct muster_tensor tensor = { "ring.state", "I64", 1, { size + 1 }, state };
		struct muster_ckpt_plan plan = { sizeof plan, dir, &tensor, 1, 2, 0, SAVE_SECONDS };
		if ((told = muster_ckpt_open(muster, &plan, &ckpt)) == MUSTER_OK)
			told = muster_ckpt_load(ckpt, &step);
	}
	if ((status = put_get("told", 0, &told, &told, sizeof told)) || (status = told))
		return status;
	if ((status = put_get("state", 0, state, state, bytes)) == MUSTER_OK && rank == 0)
		printf("ring: attempt %d: %d ranks begin behind step %lld\n", muster_attempt(muster), size, (long long)state[0]);
	fflush(stdout);
	return status;
}

/* Nobody leaves before the last step is durable, since the first bad exit status ends the whole job step. */
static int finish(int noticed)
{
	int32_t end = noticed ? MUSTER_REQUEUE : MUSTER_OK;
	int status, i;
	if (ckpt && ((status = muster_ckpt_save(ckpt, state[0], NAN)) || (status = muster_ckpt_wait(ckpt, state[0], 0))))
		end = status;
	if (ckpt) {
		printf("ring: after step %lld:", (long long)state[0]);
		for (i = 1; i <= muster_world_size(muster); i++)
			printf(" %lld", (long long)state[i]);
		printf("\n");
		muster_ckpt_close(ckpt, end, noticed ? muster_notice_name(noticed) : "finished");
	}
	ckpt = NULL;
	if ((status = muster_put(muster, "end", &end, sizeof end)) || (status = muster_fence(muster, 2 * SAVE_SECONDS)))
		return status;
	return (status = put_get("end", 0, NULL, &end, sizeof end)) ? status : end;
}

int main(int argc, char **argv)
{
	int status, noticed = 0;
	if (argc != 3) {
		fprintf(stderr, "usage: ring STEPS CHECKPOINT-DIRECTORY\n");
		return MUSTER_USAGE;
	}
	if ((status = muster_notice_begin()) == MUSTER_OK && (status = muster_open(&muster, 60)) == MUSTER_OK
		&& (status = begin(argv[2])) == MUSTER_OK && (status = run(atoll(argv[1]), &noticed)) == MUSTER_OK)
		status = finish(noticed);
	if (status != MUSTER_OK && status != MUSTER_REQUEUE && muster_error()[0])
		fprintf(stderr, "ring: %s\n", muster_error());
	muster_ckpt_close(ckpt, status, muster_error());
	muster_close(muster, status != MUSTER_LOST);
	return status;
}
