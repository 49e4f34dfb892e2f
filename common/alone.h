/* SPDX-License-Identifier: Apache-2.0 */
/* Detects a process that runs alone though it was meant to be one rank of several.
 *
 * The usual cause is a forgotten srun: a program started in a job's script or shell, outside the
 * job's steps, is a world of one however many nodes the job has, and nothing else warns about
 * it. */
#ifndef MUSTER_ALONE_H
#define MUSTER_ALONE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/ident.h"

/* For a step whose Slurm gives its tasks no PMI. */
#define ALONE_NO_PMIX "this step was started without PMIx"
#define ALONE_WITH_PMIX \
	"start it with srun --mpi=pmix (or srun --muster), where Slurm has none with srun --mpi=pmi2"

#define ALONE_REMEDY "write srun before it (sbatch and salloc start it once)"

/* Whether a text (a script, a word of a command line) names a program that starts ranks itself:
 * mpirun, torchrun, … */
bool alone_names_launcher(const char *text);

/* Whether the environment says that the job has several nodes or tasks. `out` gets "4 nodes and 8
 * tasks". */
bool alone_job_is_larger(ident_env *env, void *arg, char *out, size_t size);

/* Whether this process runs alone in a larger job. If so, `out` gets one line that says so, without
 * the remedy. */
bool alone_in_job(const struct ident *ident, ident_env *env, void *arg, char *out, size_t size);

/* alone_in_job() over the real environment, logged as a warning with the remedy. Defined in
 * launch/ident_discover.c. */
void alone_warn(const struct ident *ident);

#endif
