/* SPDX-License-Identifier: Apache-2.0 */
/* What the administrator (plugstack.conf) and the user (options, MUSTER) have chosen, the same in
 * every context. */
#ifndef MUSTER_SPANK_ARGS_H
#define MUSTER_SPANK_ARGS_H

#include <slurm/spank.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"
#include "plugin/preflight.h"

#define SPANK_ARGS_REQUEUE LIBEXECDIR "/muster-requeue"
#define SPANK_ARGS_FIRST_NODE LIBEXECDIR "/muster-first-node"
#define SPANK_ARGS_CKPTD BINDIR "/muster-ckptd"

/* The arguments after the plugin's path in plugstack.conf, with their defaults. */
struct spank_args {
	bool default_on;               /* default=on|off (off) */
	const char *requeue;           /* requeue=PATH|off (LIBEXECDIR/muster-requeue); NULL: off */
	const char *ckptd;             /* ckptd=PATH|off (BINDIR/muster-ckptd); NULL: off */
	const char *run;               /* run=DIR (/run/muster), without a final slash */
	int drain;                     /* drain=SECONDS (300) */
	int breaker;                   /* breaker=MINUTES|off (10); -1: off */
	enum preflight_mode preflight; /* preflight=on|warn|off (on) */
};

/* An unknown key or a bad value is an error; the other arguments are still filled in. */
int spank_args_parse(int argc, char **argv, struct spank_args *args, struct err *err);

/* Registers --muster and --no-muster; only valid in slurm_spank_init. */
int spank_args_register(spank_t spank, struct err *err);

enum spank_choice { CHOICE_NONE, CHOICE_OFF, CHOICE_ON };

/* The choice of --muster and --no-muster, once Slurm has processed the options. */
enum spank_choice spank_args_option(void);

/* The same from a command line that Slurm has not processed yet: the last of these options before
 * "--". */
enum spank_choice spank_args_scan(char *const *argv, int argc);

/* Whether srun will end a step after a task's bad exit: as the command line says last, else as the
 * value of SLURM_KILL_BAD_EXIT says; -1: neither. `variable` is NULL if it is not set. */
int spank_args_kill_on_bad_exit(char *const *argv, int argc, const char *variable);

/* Where an option first is on srun's command line, also when abbreviated to `least` characters or
 * more: its distance in words from the end, 1 for the last word; 0: nowhere. Only where the step
 * runs is it known which words belong to the program. */
int spank_args_place(char *const *argv, int argc, const char *option, size_t least);

/* Slurm passes an option of sbatch to the srun commands of its script in a variable, and treats
 * that as the option itself. `env` reads a variable. */
enum spank_choice spank_args_inherited(ident_env *env, void *arg);

/* The choice of these options and MUSTER in the command that made the job; only valid in
 * slurm_spank_job_prolog. */
enum spank_choice spank_args_job(spank_t spank);

/* Passes the choice of the command that makes a job on to the job's prologs. */
void spank_args_tell_job(spank_t spank, enum spank_choice choice);

/* Makes those variables of this process express exactly `choice`, so that Slurm passes it on even
 * where no environment goes (--export=NONE). */
void spank_args_hand_on(enum spank_choice choice);

/* The choice that a value of MUSTER expresses; CHOICE_NONE for NULL and "". */
enum spank_choice spank_args_variable(const char *value);

/* The first choice, unless it is CHOICE_NONE; then the second. */
enum spank_choice spank_args_first(enum spank_choice first, enum spank_choice second);

#endif
