/* SPDX-License-Identifier: Apache-2.0 */
/* A process that was not started as one rank of several, though it was meant to be.
 *
 * A forgotten srun: a program that was started in a job's script or shell, beside the job's steps,
 * is a world of one however much the job was given, and nothing else tells it so. */
#ifndef MUSTER_ALONE_H
#define MUSTER_ALONE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/ident.h"

/* A step whose Slurm gives its tasks no way to meet. */
#define ALONE_NO_PMIX "this step was started without PMIx"
#define ALONE_WITH_PMIX \
	"start it with srun --mpi=pmix (or srun --muster), where Slurm has none with srun --mpi=pmi2"

#define ALONE_REMEDY "write srun before it (sbatch and salloc start it once)"

/* Whether a text (a script, a word of a command line) names a program that starts ranks itself:
 * mpirun, torchrun, … */
bool alone_names_launcher(const char *text);

/* Whether a job was given several nodes or tasks, as its environment says. `out` gets "4 nodes and
 * 8 tasks". */
bool alone_job_is_larger(ident_env *env, void *arg, char *out, size_t size);

/* Whether that process is such a one. `out` then gets what is so, in one line without the remedy.
 */
bool alone_in_job(const struct ident *ident, ident_env *env, void *arg, char *out, size_t size);

/* The same over the real environment, logged as a warning with its remedy. Defined in
 * launch/ident_discover.c. */
void alone_warn(const struct ident *ident);

#endif
