/* SPDX-License-Identifier: Apache-2.0 */
/* Tunes the products one after the other, within the time allowed. */
#include "trainer/cuda/host/tune.h"

#include <stdio.h>

#include "common/log.h"
#include "trainer/cuda/host/tune_bench.h"

#define TELL_SECONDS 5.0 /* between two lines of progress */
#define LIST_MOST 128

/* The products to time; plain products come before the epilogues that build on them. */
struct work {
	struct gemm list[LIST_MOST];
	size_t count;
};

static void add(struct work *work, const struct tune *tune, const struct gemm *gemm)
{
	struct gemm plain = *gemm;
	plain.epilogue = GEMM_PLAIN;
	if (gemm_plans_find(gemm_choices(tune->engine), gemm))
		return; /* so its plain product is chosen too, if it is needed */
	if (gemm->epilogue != GEMM_PLAIN)
		add(work, tune, &plain);
	if (work->count >= LIST_MOST)
		return;
	for (size_t i = 0; i < work->count; i++)
		if (gemm_equal(&work->list[i], gemm))
			return;
	work->list[work->count++] = *gemm;
}

/* The fastest way, if it beats the first by more than noise. */
static int best_of(const struct tune_bench *bench)
{
	int best = 0;
	for (int way = 1; way < bench->count; way++)
		if (bench->medians[way] < bench->medians[best])
			best = way;
	return bench->medians[best] < bench->medians[0] * (1 - TUNE_MARGIN) ? best : 0;
}

/* Chooses the fastest; or the first correct way, if there is no time to compare. */
static int choose(struct tune_bench *bench, double deadline, struct tune_result *result,
	struct err *err)
{
	int wrong = tune_bench_check(bench, err), best = 0;
	int rc = wrong < 0 ? -1 : tune_bench_time(bench, deadline, err);
	if (rc < 0)
		return -1;
	result->wrong += wrong;
	if (rc == 0) {
		best = best_of(bench);
		result->timed++;
		result->others += best > 0;
		result->first += bench->medians[0];
		result->best += bench->medians[best];
	}
	if (gemm_trial_keep(bench->trial, bench->ways[best], err) < 0)
		return -1;
	return rc;
}

static int tune_one(const struct tune *tune, const struct gemm *gemm, double deadline,
	struct tune_result *result, struct err *err)
{
	struct tune_bench bench = { 0 };
	int rc = tune->now() < deadline ? tune_bench_prepare(&bench, tune, gemm, err) : 1;
	if (rc == 0)
		rc = choose(&bench, deadline, result, err);
	tune_bench_clear(&bench);
	result->untimed += rc > 0;
	return rc < 0 ? -1 : 0;
}

int tune_gemms(const struct tune *tune, const struct gemm *list, size_t count,
	struct tune_result *result, struct err *err)
{
	struct work work = { .count = 0 };
	double begin = tune->now(), told = begin;
	*result = (struct tune_result) { 0 };
	for (size_t i = 0; i < count; i++)
		add(&work, tune, &list[i]);
	for (size_t i = 0; i < work.count; i++) {
		double now = tune->now(), left = begin + tune->seconds - now;
		if (tune_one(tune, &work.list[i], now + left / (double)(work.count - i), result, err) < 0)
			return -1;
		if (tune->now() - told < TELL_SECONDS)
			continue;
		told = tune->now();
		log_info("tune: %zu of %zu products after %.0f s", i + 1, work.count, told - begin);
	}
	result->seconds = tune->now() - begin;
	return 0;
}

char *tune_text(const struct tune_result *r, char *out, size_t size)
{
	int n = snprintf(out, size,
		"tune: %d products timed in %.1f s: one run of each takes %.3f ms, %.1f %% less than the "
		"%.3f ms of the library's first algorithms; %d have others",
		r->timed, r->seconds, r->best, r->first > 0 ? 100 * (1 - r->best / r->first) : 0, r->first,
		r->others);
	if (r->wrong && n > 0 && (size_t)n < size)
		n += snprintf(out + n, size - (size_t)n,
			"; %d that gave other numbers or none are left out", r->wrong);
	if (r->untimed && n > 0 && (size_t)n < size)
		snprintf(out + n, size - (size_t)n, "; there was no time or memory for %d", r->untimed);
	return out;
}
