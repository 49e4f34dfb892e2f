/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the start-up table and the aligned lines of the steps. */
#include "trainer/run/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/build_id.h"
#include "common/clock.h"
#include "common/progress.h"
#include "trainer/run/numerics.h"

static void line(const char *name, const char *value)
{
	printf("  %-20s %s\n", name, value);
}

/* Bytes of a rank's memory by their use. */
enum {
	MEMORY_WEIGHTS,
	MEMORY_MOMENTS,
	MEMORY_GRADIENTS,
	MEMORY_SNAPSHOTS,
	MEMORY_RESIDENT,
	MEMORY_PARTS
};

static const char *const memory_names[MEMORY_PARTS] = { "weights", "moments", "gradients",
	"snapshots", "resident now" };

struct memory {
	uint64_t bytes[MEMORY_PARTS];
};

static struct memory memory_of(const struct run *run)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (
		struct memory) { .bytes = {
							 [MEMORY_WEIGHTS] =
								 state_bytes(&run->state) - state_moment_bytes(&run->state),
							 [MEMORY_MOMENTS] = state_moment_bytes(&run->state),
							 [MEMORY_GRADIENTS] = ddp_memory(run->ddp),
							 [MEMORY_SNAPSHOTS] = run->saver ? async_saver_memory(run->saver) : 0,
							 [MEMORY_RESIDENT] = (uint64_t)usage.ru_maxrss * 1024,
						 } };
}

/* "12.6 MB", or the least and the most of all ranks: "6.3 to 6.7 MB". */
static int memory_text(const struct memory *all, int ranks, int part, char *out, size_t size)
{
	double least = (double)all[0].bytes[part] * 1e-6, most = least;
	for (int rank = 1; rank < ranks; rank++) {
		least = fmin(least, (double)all[rank].bytes[part] * 1e-6);
		most = fmax(most, (double)all[rank].bytes[part] * 1e-6);
	}
	if (most - least < 0.05)
		return snprintf(out, size, "%.1f MB %s", most, memory_names[part]);
	return snprintf(out, size, "%.1f to %.1f MB %s", least, most, memory_names[part]);
}

/* Collective, since each rank has its own shares of slots, moments and saves. */
static int compare_memory(const struct run *run, char *text, size_t size, struct err *err)
{
	const struct memory mine = memory_of(run);
	AUTO_FREE struct memory *all = calloc((size_t)run->ident.world_size, sizeof *all);
	size_t n = 0;
	if (!all)
		return err_set(err, "memory: couldn't compare the ranks: out of memory");
	if (comm_wait(run->comm,
			comm_allgather(run->comm, "memory of the ranks", &mine, all, sizeof mine), err)
		< 0)
		return -1;
	for (int part = 0; part < MEMORY_PARTS && n < size; part++) {
		n += (size_t)snprintf(text + n, size - n, "%s", part ? ", " : "");
		n += n < size ? (size_t)memory_text(all, run->ident.world_size, part, text + n, size - n)
					  : 0;
	}
	return 0;
}

/* The cost of this number of ranks; "" where there is none. */
static const char *cost_text(const struct ddp_cost *cost, char out[100])
{
	int n = 0;
	*out = '\0';
	if (cost->most > cost->least)
		n += snprintf(out, 100, "  uneven +%.3g%%", cost->uneven * 100);
	if (cost->sent > cost->ring)
		snprintf(out + n, (size_t)(100 - n), "  sent %.1f MB +%.3g%%", (double)cost->sent * 1e-6,
			((double)cost->sent / (double)cost->ring - 1) * 100);
	return out;
}

static void report_cost(const struct run *run)
{
	const struct ddp_cost cost = ddp_cost(run->ddp);
	char text[200];
	int n = 0;
	if (cost.most > cost.least)
		n = snprintf(text, sizeof text,
			"some ranks have %d slots, some %d: %.3g%% longer than an even share; ", cost.most,
			cost.least, cost.uneven * 100);
	snprintf(text + n, sizeof text - (size_t)n,
		"a rank sends up to %.1f MB a step, %.1f MB in a ring", (double)cost.sent * 1e-6,
		(double)cost.ring * 1e-6);
	line("shares", text);
}

int report_start(const struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	char text[300], memory[400], hex[HASH_HEX_SIZE], files[40] = "";
	if (compare_memory(run, memory, sizeof memory, err) < 0)
		return -1;
	if (run->ident.rank != 0)
		return 0;
	printf("Parameters in force\n");
	settings_print(settings, stdout);
	printf("This run\n");
	snprintf(text, sizeof text,
		"%d rank%s on %d node%s (from %s), attempt %d, rendezvous %s, communicator %s, %d thread%s "
		"a rank",
		run->ident.world_size, run->ident.world_size == 1 ? "" : "s", run->ident.node_count,
		run->ident.node_count == 1 ? "" : "s", run->ident.source, run->ident.attempt,
		rdzv_provider(run->rdzv), comm_provider(run->comm), run->threads,
		run->threads == 1 ? "" : "s");
	line("identity", text);
	snprintf(text, sizeof text, "%zu in %d tensors, %.3g floating-point operations a sample",
		run->state.tensors->parameters, run->state.tensors->count, model_flops(run->model));
	line("parameters", text);
	if (dataset_shards(run->data) > 1)
		snprintf(files, sizeof files, " in %zu files", dataset_shards(run->data));
	snprintf(text, sizeof text, "%" PRIu64 " samples%s, %" PRIu64 " steps an epoch, identity %s",
		dataset_samples(run->data), files, sampler_epoch_steps(&run->sampler),
		hash_hex(dataset_identity(run->data), hex));
	line("data", text);
	snprintf(text, sizeof text, "%lld slots of %lld x %lld samples, %d bucket%s",
		(long long)settings->slots, (long long)settings->slot_microbatches,
		(long long)settings->microbatch, ddp_buckets(run->ddp),
		ddp_buckets(run->ddp) == 1 ? "" : "s");
	line("step", text);
	report_cost(run);
	if (run->on_gpu)
		snprintf(text, sizeof text, "%s, %s, %s, build %s", run->ops->name, run->ops->device->card,
			run->ops->libraries, build_id());
	else
		snprintf(text, sizeof text, "%s, %s, %s, build %s", run->ops->name, ops_cpu_isa(),
			ops_cpu_versions(), build_id());
	line("numerics", text);
	line("memory of a rank", memory);
	snprintf(text, sizeof text, "step %" PRIu64 " of %lld", run->state.step + 1,
		(long long)settings->steps);
	line("begins with", text);
	if (settings->comm == DDP_COMM_NONE)
		line("measurement",
			"--comm none: every rank goes on with its own sums, nothing is trained or saved");
	if (settings->comm == DDP_COMM_REPLAY)
		line("measurement",
			"--comm replay: exchanges without a model, nothing is trained or saved");
	fflush(stdout);
	return 0;
}

static int digits(uint64_t number)
{
	return snprintf(NULL, 0, "%" PRIu64, number);
}

/* The end of a step's line, which says so where nothing is trained. */
static const char *measured(const struct run *run)
{
	static const char *const marks[] = { "", "  not trained: --comm none",
		"  not trained: --comm replay" };
	return marks[run->settings.comm];
}

/* On a terminal, how long the rest takes at the pace of this attempt. */
static const char *time_left(const struct run *run, uint64_t step, char text[60])
{
	char time[PROGRESS_TIME_SIZE];
	const double pace = (clock_now() - run->began) / (double)(step - run->began_step);
	text[0] = '\0';
	if (isatty(STDOUT_FILENO) && step < (uint64_t)run->settings.steps)
		snprintf(text, 60, "  %s left",
			progress_time(pace * (double)((uint64_t)run->settings.steps - step), time));
	return text;
}

void report_step(const struct run *run, const struct metrics_step *step)
{
	char cost[100], left[60], use[40] = "";
	if (step->use > 0)
		snprintf(use, sizeof use, "  MFU %4.1f%%", step->use * 100);
	printf("step %*" PRIu64
		   "/%lld  loss %9.6f  norm %9.4f  lr %.3e  %s %8.0f  ms %8.1f%s%s%s%s%s\n",
		digits((uint64_t)run->settings.steps), step->step, (long long)run->settings.steps,
		(double)step->loss, (double)step->norm, (double)step->learning_rate,
		run->settings.model == MODEL_GPT2 ? "tokens/s" : "samples/s", step->tokens_per_second,
		step->milliseconds, use, cost_text(&step->cost, cost),
		step->skipped ? "  skipped: not finite" : "", measured(run),
		time_left(run, step->step, left));
	fflush(stdout);
}

void report_validation(const struct run *run, uint64_t step, float loss)
{
	printf("step %*" PRIu64 "/%lld  validation loss %9.6f\n", digits((uint64_t)run->settings.steps),
		step, (long long)run->settings.steps, (double)loss);
	fflush(stdout);
}

void report_sample(const struct run *run, uint64_t step, const char *text)
{
	printf("step %*" PRIu64 "/%lld  sample: %s\n", digits((uint64_t)run->settings.steps), step,
		(long long)run->settings.steps, text);
	fflush(stdout);
}
