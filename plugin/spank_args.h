/* SPDX-License-Identifier: Apache-2.0 */
/* What the administrator (plugstack.conf) and the user (options, MUSTER) have said, the same in
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

/* The arguments behind the plugin's path in plugstack.conf. */
struct spank_args {
	bool default_on;               /* default=on|off (off) */
	const char *requeue;           /* requeue=PATH|off (LIBEXECDIR/muster-requeue); NULL: off */
	const char *ckptd;             /* ckptd=PATH|off (BINDIR/muster-ckptd); NULL: off */
	const char *run;               /* run=DIR (/run/muster), without a slash at its end */
	int drain;                     /* drain=SECONDS (300) */
	int breaker;                   /* breaker=MINUTES|off (10); -1: off */
	enum preflight_mode preflight; /* preflight=on|warn|off (on) */
};

/* An unknown key or a bad value is an error; the rest is then still filled in. */
int spank_args_parse(int argc, char **argv, struct spank_args *args, struct err *err);

/* Registers --muster and --no-muster; only valid in slurm_spank_init. */
int spank_args_register(spank_t spank, struct err *err);

enum spank_choice { CHOICE_NONE, CHOICE_OFF, CHOICE_ON };

/* What --muster and --no-muster say, once Slurm has processed the options. */
enum spank_choice spank_args_option(void);

/* The same from a command line that Slurm has not processed yet: the last of them before "--". */
enum spank_choice spank_args_scan(char *const *argv, int argc);

/* Whether srun is to end a step for a task's bad exit: what its command line says last, else what
 * SLURM_KILL_BAD_EXIT does; -1: neither. NULL for a variable that is not set. */
int spank_args_kill_on_bad_exit(char *const *argv, int argc, const char *variable);

/* Where on srun's command line an option first stands, also cut behind its first `least`
 * characters: how many words from the end, with that one; 0 for nowhere. Which words are the
 * program's own is known where the step runs. */
int spank_args_place(char *const *argv, int argc, const char *option, size_t least);

/* Slurm carries an option of sbatch to the srun commands of its script in a variable, and takes
 * that for the option itself. `env` reads a variable. */
enum spank_choice spank_args_inherited(ident_env *env, void *arg);

/* What they and MUSTER said to the command that made the job; only valid in slurm_spank_job_prolog.
 */
enum spank_choice spank_args_job(spank_t spank);

/* Hands the choice of the command that makes a job on to its prologs. */
void spank_args_tell_job(spank_t spank, enum spank_choice choice);

/* Makes those variables of this process say `choice` and nothing else, so that Slurm hands it on to
 * where no environment goes (--export=NONE). */
void spank_args_hand_on(enum spank_choice choice);

/* What a value of MUSTER says; NULL and "" say nothing. */
enum spank_choice spank_args_variable(const char *value);

/* The first of two choices that is one. */
enum spank_choice spank_args_first(enum spank_choice first, enum spank_choice second);

#endif
