/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks begin with the state of the newest checkpoint. Rank 0 owns the directory and finds the
 * newest intact checkpoint; each other rank reads the same one itself, since data sent over the
 * rendezvous stays in the rendezvous. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "common/log.h"
#include "lib/ckpt_open.h"
#include "lib/saved.h"

/* What rank 0 tells the others. */
struct found {
	int64_t step;           /* -1: there is none */
	struct hash128 content; /* hash of the checkpoint's manifest */
	struct hash128 plan;    /* hash of the plan */
	struct told told;       /* for the other writers */
};

/* Where a rank puts what it reads: into the plan's arrays, or with `saved` into that. */
struct target {
	struct muster_ckpt **ckpt;
	struct muster_saved **saved;
};

static int hash_manifest(const struct manifest *manifest, struct hash128 *hash, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	if (manifest_encode(manifest, &text, &size, err) < 0)
		return -1;
	*hash = hash_bytes(text, size);
	return 0;
}

/* ---- on rank 0 ---- */

static int describe_found(const char *path, struct found *found, struct err *err)
{
	struct ckpt_dir dir;
	if (found->step < 0)
		return 0;
	if (ckpt_dir_open_existing(&dir, path, err) < 0)
		return -1;
	struct manifest *manifest = ckpt_dir_manifest(&dir, found->step, err);
	int rc = manifest ? hash_manifest(manifest, &found->content, err) : -1;
	manifest_destroy(manifest);
	ckpt_dir_close(&dir);
	return rc;
}

static int find(struct muster *muster, const struct muster_ckpt_plan *given,
	struct writers *writers, struct found *found, const struct target *target)
{
	struct err err;
	int status = muster_ckpt_open_part(muster, given, writers, NULL, target->ckpt);
	if (status == MUSTER_OK && !target->saved) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): resume_all refuses NULL */
		status = muster_ckpt_load(*target->ckpt, &found->step);
	} else if (status == MUSTER_OK) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): as above */
		status = muster_ckpt_load_state(*target->ckpt, target->saved);
		found->step = muster_saved_step(*target->saved);
	}
	if (status == MUSTER_OK) {
		found->told = (*target->ckpt)->told;
		found->told.step = found->step;
		if (describe_found(given->dir, found, &err) < 0)
			status = muster_failed(&err);
	}
	return status;
}

/* ---- on the other ranks ---- */

/* Takes ownership of `from`. */
static int use(const struct plan *plan, struct ckpt *from, const struct target *target,
	struct err *err)
{
	if (target->saved) {
		*target->saved = saved_make(from, err);
		return *target->saved ? 0 : -1;
	}
	int rc = arrays_load(&plan->arrays, from, err);
	ckpt_close(from);
	return rc;
}

static int load_from(const struct ckpt_dir *dir, const struct plan *plan, const struct found *found,
	const struct target *target, struct err *err)
{
	struct hash128 content;
	struct ckpt *from;
	if (ckpt_open(dir, found->step, plan->timeout, &from, err) < 0)
		return -1;
	int rc = hash_manifest(ckpt_manifest(from), &content, err);
	if (rc == 0 && !hash_equal(content, found->content))
		rc = err_fail(err, EXIT_USAGE, "it is another one here");
	if (rc == 0)
		return use(plan, from, target, err);
	ckpt_close(from);
	return rc;
}

static int read_found(const char *path, const struct plan *plan, const struct found *found,
	const struct target *target, struct err *err)
{
	struct ckpt_dir dir;
	if (found->step < 0)
		return 0;
	int rc = ckpt_dir_open_existing(&dir, path, err);
	if (rc == 0) {
		rc = load_from(&dir, plan, found, target, err);
		ckpt_dir_close(&dir);
	}
	return rc == 0 ? 0
				   : err_prefix(err,
					   "resume: couldn't read step %" PRId64
					   " in %.300s, which rank 0 has read (does this node see the same directory?)",
					   found->step, path);
}

/* ---- on all ranks ---- */

/* Each rank's part before the ranks meet. */
static int prepare(const struct muster_ckpt_plan *given, struct plan *plan, struct found *found)
{
	struct err err;
	if (plan_open(plan, given, &err) < 0 || plan_hash(plan, &found->plan, &err) < 0)
		return muster_failed(&err);
	return MUSTER_OK;
}

static int share(struct muster *muster, int status, struct found *found, double timeout)
{
	return status ? muster_agree(muster, status, NULL, timeout)
				  : muster_broadcast(muster, 0, found, sizeof *found, timeout);
}

/* What the others do with what rank 0 has found: they read it, and open their parts. */
static int take(struct muster *muster, const struct muster_ckpt_plan *given,
	const struct plan *plan, struct writers *writers, const struct found *own,
	const struct found *found, const struct target *target)
{
	struct err err;
	int rc = 0;
	if (!hash_equal(own->plan, found->plan))
		rc = err_fail(&err, EXIT_USAGE,
			"resume: couldn't use this rank's plan: its tensors, identity or writers are not those "
			"of rank 0: give the same names, types and shapes in the same order");
	if (rc < 0 || read_found(given->dir, plan, found, target, &err) < 0)
		return muster_failed(&err);
	return writers->part < 0
		? MUSTER_OK
		: muster_ckpt_open_part(muster, given, writers, &found->told, target->ckpt);
}

/* The stages at which all ranks go on or fail together. */
static int resume(struct muster *muster, const struct muster_ckpt_plan *given, double timeout,
	const struct target *target, struct found *found)
{
	struct plan plan = { 0 };
	struct writers writers;
	const bool first = muster->ident.rank == 0;
	int status = prepare(given, &plan, found);
	const struct found own = *found;
	status = writers_meet(muster, status, plan.writers, timeout, &writers);
	if (status == MUSTER_OK) {
		status = first ? find(muster, given, &writers, found, target) : MUSTER_OK;
		status = share(muster, status, found, timeout);
	}
	if (status == MUSTER_OK) {
		status = first ? MUSTER_OK : take(muster, given, &plan, &writers, &own, found, target);
		status = muster_agree(muster, status, NULL, timeout);
	}
	writers_release(&writers);
	plan_release(&plan);
	return status;
}

/* The end of both calls: on an error nothing is left open. */
static int resume_all(struct muster *muster, const struct muster_ckpt_plan *plan, double timeout,
	const struct target *target, struct found *found)
{
	struct err err;
	int status = muster_check(muster, timeout, &err) < 0
		? muster_failed(&err)
		: resume(muster, plan, timeout, target, found);
	if (status == MUSTER_OK) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): resume() refuses NULL */
		muster_keep_flight(muster, plan->dir);
		return MUSTER_OK;
	}
	if (target->saved) {
		muster_saved_close(*target->saved);
		*target->saved = NULL;
	}
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): its callers refuse NULL */
	if (muster_ckpt_leave(*target->ckpt, status, muster_error(), &err) < 0)
		log_warn("checkpoint: couldn't record the end: %s", err.text);
	*target->ckpt = NULL;
	return status;
}

int muster_ckpt_resume(struct muster *muster, const struct muster_ckpt_plan *plan, double timeout,
	struct muster_ckpt **ckpt, int64_t *step)
{
	struct err err;
	struct found found = { .step = -1 };
	if (ckpt)
		*ckpt = NULL;
	if (step)
		*step = -1;
	if (muster_check_given(ckpt, "the place for the struct muster_ckpt", &err) < 0
		|| muster_check_given(step, "the place for the step", &err) < 0)
		return muster_failed(&err);
	int status = resume_all(muster, plan, timeout, &(struct target) { .ckpt = ckpt }, &found);
	if (status == MUSTER_OK)
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): refused above */
		*step = found.step;
	return status;
}

int muster_ckpt_resume_state(struct muster *muster, const struct muster_ckpt_plan *plan,
	double timeout, struct muster_ckpt **ckpt, struct muster_saved **saved)
{
	struct err err;
	struct found found = { .step = -1 };
	if (ckpt)
		*ckpt = NULL;
	if (saved)
		*saved = NULL;
	if (muster_check_given(ckpt, "the place for the struct muster_ckpt", &err) < 0
		|| muster_check_given(saved, "the place for the struct muster_saved", &err) < 0)
		return muster_failed(&err);
	return resume_all(muster, plan, timeout, &(struct target) { ckpt, saved }, &found);
}
