/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a run's start that deal with GPUs. */
#include "config.h"
#include "trainer/run/device.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/log.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/comm/gpu_meet.h"
#include "trainer/ddp/ddp_plan.h"
#include "trainer/run/mfu.h"
#include "trainer/run/estimate.h"
#ifdef HAVE_CUBLAS
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/device_cuda.h"
#include "trainer/cuda/host/ops_cuda.h"
#endif
#if defined HAVE_CUBLAS && defined HAVE_NCCL
#define GPUS_TALK
#include "trainer/comm/comm_nccl.h"
#else
#define COMM_NCCL_BYTES 0
#endif

#define REMEDY_NCCL \
	"build it where NCCL is installed (--with-nccl=DIR), start one rank, " \
	"or use --device cpu"
#define TEXT_MAX (1u << 20) /* bytes of the GEMM plans as text */
#define TUNE_SECONDS \
	30.0 /* limit of --tune; at most half of the collective timeout too, since other ranks wait \
			meanwhile */

/* ---- what the checkpoint records ---- */

/* The text `name` of its numerics; NULL where there is none. */
static const char *recorded_text(const struct run *run, const char *name)
{
	struct ckpt *ckpt = run->folder ? folder_checkpoint(run->folder) : NULL;
	return ckpt ? json_string_value(json_object_get(ckpt_manifest(ckpt)->numerics, name)) : NULL;
}

/* ---- the choice ---- */

static int settle_precision(struct run *run, struct err *err)
{
	struct settings *settings = &run->settings;
	if (settings->precision == PRECISION_AUTO)
		settings->precision = run->on_gpu ? PRECISION_BF16 : PRECISION_FP32;
	if (!run->on_gpu && settings->precision != PRECISION_FP32)
		return err_fail(err, EXIT_USAGE,
			"device: the CPU computes with --precision fp32 only: leave it out, or give each rank "
			"a GPU by --gpus-per-task=1");
	return 0;
}

/* Checks what cuDNN's attention needs. */
static int check_attention(const struct run *run, struct err *err)
{
	if (run->settings.attention != ATTENTION_CUDNN)
		return 0;
	if (!run->on_gpu)
		return err_fail(err, EXIT_USAGE,
			"device: --attention cudnn needs a GPU: leave it out, or give each rank one by "
			"--gpus-per-task=1");
	if (run->settings.precision != PRECISION_BF16)
		return err_fail(err, EXIT_USAGE,
			"device: --attention cudnn computes in bf16 only: leave it or --precision out");
	return 0;
}

#ifdef HAVE_CUBLAS

/* NCCL lets ranks share a card only if they seem to be on different hosts, so each gets a host name
 * of its own. */
static int share(const struct ident *ident, struct err *err)
{
	char host[80];
	snprintf(host, sizeof host, "muster-%d", ident->rank);
	return setenv("NCCL_HOSTID", host, 1) == 0
		? 0
		: err_set(err, "device: couldn't set NCCL_HOSTID: %m");
}

static int choose_gpu(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	struct gpu_driver driver;
	int rc = gpu_driver_load(&driver, err);
	run->has_driver = rc == 0;
	if (rc == 0)
		rc = gpu_choose(&driver, &run->ident, device_cuda_runtime(), settings->share_gpu, &run->gpu,
			err);
	if (rc == 0)
		rc = device_cuda_begin(&run->gpu, &run->gpu_available, err);
	if (rc == 0 && settings->share_gpu)
		rc = share(&run->ident, err);
	run->on_gpu = rc == 0;
	if (rc == GPU_NONE && settings->device == DEVICE_AUTO)
		log_debug("%s", err->text);
	return rc == GPU_NONE && settings->device == DEVICE_CUDA ? -1 : rc;
}

int device_choose(struct run *run, struct err *err)
{
	int rc = run->settings.device == DEVICE_CPU ? GPU_NONE : choose_gpu(run, err);
	return rc < 0 || settle_precision(run, err) < 0 ? -1 : rc;
}

int device_agree(struct run *run, int rc, struct err *err)
{
	if (run->settings.device == DEVICE_CPU || run->ident.world_size == 1)
		return rc < 0 ? ERR_SHARED : 0; /* every rank finds the same */
	if (rc == GPU_NONE && !run->has_driver)
		return 0; /* a cluster without GPUs need not meet; ranks that have a driver name the silent
					 ones */
	return gpu_meet(run->rdzv, &run->ident, &run->gpu, rc, run->settings.share_gpu, err);
}

/* ---- memory ---- */

/* Early pieces of the ranks [first, end) but this one. */
static size_t early_pieces(const struct ddp_plan *plan, int first, int end)
{
	size_t early = 0;
	for (int rank = first; rank < end; rank++)
		for (int number = plan->piece_start[rank];
			 rank != plan->rank && ddp_plan_is_early(plan, rank, number); number++)
			early++;
	return early;
}

/* Bytes for what other ranks send this one of a bucket, where nodes have equal numbers of ranks:
 * their pieces of its segment; or, on a node with several ranks, twice theirs of what it carries,
 * and a piece of each other node of its segment. Their early pieces of all buckets and NCCL come in
 * addition. */
static size_t staging_of(const struct run *run, const struct ddp_plan *plan)
{
	const size_t world = (size_t)plan->world, bucket = (size_t)run->settings.bucket_mb << 20,
				 nodes = (size_t)run->ident.node_count, ranks = (size_t)run->ident.local_world_size,
				 gradients = model_tensors(run->model)->elements * sizeof(float);
	const int first = plan->rank - run->ident.local_rank;
	if (world == 1)
		return 0;
	if (nodes == 1 || nodes == world || first < 0 || first + (int)ranks > plan->world)
		return COMM_NCCL_BYTES + (world - 1) * bucket / world
			+ early_pieces(plan, 0, plan->world) * gradients / world;
	return COMM_NCCL_BYTES + 2 * (ranks - 1) * bucket / ranks + (nodes - 1) * bucket / world
		+ early_pieces(plan, first, first + (int)ranks) * gradients / ranks;
}

/* This rank's place in the order of slots, where nodes have equal numbers of ranks. */
static int place_of(const struct ident *ident)
{
	return ident->node_count * ident->local_world_size == ident->world_size
		? ident->node_rank * ident->local_world_size + ident->local_rank
		: ident->rank;
}

static int estimate(const struct run *run, size_t element, size_t scratch, struct estimate *out,
	struct err *err)
{
	const struct settings *settings = &run->settings;
	const struct tensor_table *table = model_tensors(run->model);
	struct ddp_plan plan;
	if (ddp_plan_make(&plan, (int)settings->slots, run->ident.world_size, place_of(&run->ident),
			settings->reduction == REDUCTION_NATIVE, err)
		< 0)
		return -1;
	const struct estimate_facts facts = { .elements = table->elements,
		.gradients = tensor_table_gradients(table),
		.arenas = plan.arenas,
		.own = settings->zero ? table->elements / (size_t)run->ident.world_size : table->elements,
		.staging = staging_of(run, &plan),
		.activations = model_activations(run->model, (int)settings->microbatch, true, element),
		.scratch = scratch + table->elements / ADAMW_CHUNK * sizeof(struct adamw_chunk),
		.element_size = element };
	ddp_plan_clear(&plan);
	*out = estimate_of(&facts);
	return 0;
}

static int check_memory(const struct run *run, enum gemm_mode mode, size_t more_scratch,
	struct err *err)
{
	struct ops_shapes shapes;
	struct estimate needed;
	char text[300];
	model_shapes(run->model, (int)run->settings.microbatch, &shapes);
	if (estimate(run, mode == GEMM_MODE_BF16 ? 2 : sizeof(float),
			ops_cuda_scratch(&shapes, mode) + more_scratch, &needed, err)
		< 0)
		return -1;
	if (run->ident.rank == 0)
		log_info("memory: this rank needs %.1f MB of its GPU, of which %.1f MB are free: %s",
			(double)needed.sum * 1e-6, (double)run->gpu_available * 1e-6,
			estimate_text(&needed, text, sizeof text));
	return estimate_check(&needed, run->gpu_available,
		run->settings.share_gpu ? run->ident.local_world_size : 1, err);
}

/* Makes the ops, with cuDNN's attention where it is asked for. That comes first, since its memory
 * is known only once its plans are made. */
static int make_ops(struct run *run, enum gemm_mode mode, struct err *err)
{
	struct attention_cudnn *cudnn = NULL;
	struct ops_shapes shapes;
	model_shapes(run->model, (int)run->settings.microbatch, &shapes);
	if (run->settings.attention == ATTENTION_CUDNN
		&& !(cudnn = attention_cudnn_create(shapes.batch, shapes.positions, shapes.width,
				 shapes.heads, err)))
		return -1;
	if (check_memory(run, mode, cudnn ? attention_cudnn_workspace(cudnn) : 0, err) == 0)
		run->ops = ops_cuda_create(&run->gpu, mode, err);
	if (run->ops)
		return cudnn ? ops_cuda_take_attention(run->ops, cudnn, err) : 0;
	attention_cudnn_destroy(cudnn);
	return -1;
}

int device_ops(struct run *run, struct err *err)
{
	static const enum gemm_mode modes[] = { [PRECISION_FP32] = GEMM_MODE_FP32,
		[PRECISION_TF32] = GEMM_MODE_TF32,
		[PRECISION_BF16] = GEMM_MODE_BF16 };
	enum gemm_mode mode = modes[run->settings.precision];
	if (check_attention(run, err) < 0)
		return -1;
	if (!run->on_gpu) {
		run->ops = ops_cpu_create(false, err);
		return run->ops ? 0 : -1;
	}
	return make_ops(run, mode, err) < 0 ? -1 : comm_attach(run->comm, run->ops->device, err);
}

/* ---- whose attention ---- */

/* Whether cuDNN's bits are those that the checkpoint's would go on with. */
static bool goes_on_with_cudnn(const struct run *run)
{
	const char *libraries = recorded_text(run, "libraries");
	bool starts = !run->folder || !folder_checkpoint(run->folder);
	return starts || (libraries && strstr(libraries, "cuDNN"));
}

/* Whether this rank can take it; it has then. */
static bool try_cudnn(struct run *run)
{
	struct ops_shapes shapes;
	struct err why;
	model_shapes(run->model, (int)run->settings.microbatch, &shapes);
	if (run->ident.rank == 0 && !goes_on_with_cudnn(run))
		return false;
	if (ops_cuda_try_attention(run->ops, shapes.batch, shapes.positions, shapes.width, shapes.heads,
			&why))
		return true;
	log_debug("attention: Muster's own: %s", why.text);
	return false;
}

int device_attention(struct run *run, struct err *err)
{
	const int world = run->ident.world_size;
	if (!run->on_gpu || run->settings.model != MODEL_GPT2
		|| run->settings.attention != ATTENTION_AUTO || run->settings.precision != PRECISION_BF16)
		return 0;
	AUTO_FREE int32_t *all = calloc((size_t)world, sizeof *all);
	if (!all)
		return err_set(err, "attention: out of memory");
	int32_t mine = try_cudnn(run);
	if (comm_wait(run->comm, comm_allgather(run->comm, "attention", &mine, all, sizeof mine), err)
		< 0)
		return -1;
	int without = 0;
	while (without < world && all[without])
		without++;
	if (without == world)
		return 0;
	if (mine)
		ops_cuda_drop_attention(run->ops);
	if (run->ident.rank == 0 && without > 0)
		log_info("attention: all ranks compute with Muster's own: rank %d can't with cuDNN's",
			without);
	return 0;
}

#else /* without CUDA */

int device_attention(struct run *run, struct err *err)
{
	return 0;
}

int device_choose(struct run *run, struct err *err)
{
	return settle_precision(run, err) < 0 ? -1 : GPU_NONE;
}

int device_agree(struct run *run, int rc, struct err *err)
{
	return rc < 0 ? ERR_SHARED : 0; /* every rank finds the same */
}

int device_ops(struct run *run, struct err *err)
{
	if (check_attention(run, err) < 0)
		return -1;
	run->ops = ops_cpu_create(false, err);
	return run->ops ? 0 : -1;
}

#endif

int device_comm(struct run *run, struct err *err)
{
	const double timeout = run->settings.collective_timeout;
	bool gpus = run->on_gpu && run->ident.world_size > 1;
#ifdef GPUS_TALK
	run->comm = gpus ? comm_open_over(&comm_nccl, &run->ident, run->rdzv, timeout, err)
					 : comm_open(&run->ident, run->rdzv, NULL, timeout, err);
#else
	if (gpus) {
		err_fail(err, EXIT_USAGE,
			"device: couldn't connect the GPUs of %d ranks: this build has no communicator for "
			"them: " REMEDY_NCCL,
			run->ident.world_size);
		return ERR_SHARED;
	}
	run->comm = comm_open(&run->ident, run->rdzv, NULL, timeout, err);
#endif
	return run->comm ? 0 : -1;
}

/* ---- GEMM plans ---- */

static double tune_seconds(const struct run *run)
{
	double patience = run->settings.collective_timeout / 2;
	return run->ident.world_size > 1 && patience < TUNE_SECONDS ? patience : TUNE_SECONDS;
}

/* On rank 0: adopts the plans of the checkpoint and chooses the missing ones. *text is
 * malloc'ed. */
static int choose_algorithms(const struct run *run, char **text, struct err *err)
{
	struct err why;
	const char *recorded = recorded_text(run, "products");
	if (run->ident.rank != 0)
		return 0;
	if (recorded && run->ops->adopt(run->ops, recorded, &why) < 0)
		log_warn("%s; they are chosen anew, so bits may differ from those of the attempts before",
			why.text);
	else if (recorded && run->settings.tune)
		log_info("tune: the checkpoint's algorithms are used again, so that bits stay the same; "
				 "only what has none is timed");
	if ((run->settings.tune ? run->ops->tune(run->ops, tune_seconds(run), err)
							: run->ops->choose(run->ops, err))
		< 0)
		return -1;
	*text = run->ops->algorithms(run->ops);
	return *text ? 0 : err_set(err, "GEMM plans: out of memory");
}

static int share_text(const struct run *run, char **text, struct err *err)
{
	uint64_t size = *text ? strlen(*text) : 0;
	if (comm_wait(run->comm,
			comm_broadcast(run->comm, "size of the algorithms", &size, sizeof size, 0), err)
		< 0)
		return -1;
	if (size == 0 || size > TEXT_MAX)
		return err_set(err,
			"GEMM plans: couldn't use the %llu bytes of algorithms that rank 0 sent",
			(unsigned long long)size);
	if (!*text)
		*text = calloc(size + 1, 1);
	if (!*text)
		return err_set(err, "GEMM plans: out of memory");
	return comm_wait(run->comm, comm_broadcast(run->comm, "algorithms", *text, size, 0), err);
}

int device_algorithms(struct run *run, struct err *err)
{
	AUTO_FREE char *text = NULL;
	int rc;
	if (!run->ops->choose && run->settings.tune && run->ident.rank == 0)
		log_warn("--tune has nothing to time on a CPU");
	if (!run->ops->choose)
		return 0;
	if ((rc = status_exchange(run->comm, "algorithms", run->ident.node,
			 choose_algorithms(run, &text, err), err))
			< 0
		|| run->ident.world_size == 1)
		return rc;
	if ((rc = share_text(run, &text, err)) < 0)
		return rc;
	return status_exchange(run->comm, "algorithms", run->ident.node,
		run->ident.rank ? run->ops->adopt(run->ops, text, err) : 0, err);
}

/* ---- MFU ---- */

double device_use(const struct run *run, double tokens_per_second)
{
	const struct settings *s = &run->settings;
	bool gpt2 = s->model == MODEL_GPT2;
	if (!run->on_gpu || s->share_gpu)
		return 0;
	double token_flops = model_flops(run->model) / (gpt2 ? (double)s->context : 1);
	return mfu_of(tokens_per_second, token_flops, mfu_peak_flops(run->gpu.name),
		run->ident.world_size);
}
