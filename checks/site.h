/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm says of itself, of the job and of its partition; and what the job's checkpoint
 * directory says of its saves. Asked once a job, not by each task. */
#ifndef MUSTER_SITE_H
#define MUSTER_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "slurm/hooks.h"

/* Numbers are -1, and texts "", where nothing is known. */
struct site {
	char silent[200]; /* why Slurm could not be asked */

	/* scontrol show config */
	int kill_wait;    /* seconds */
	int cred_expire;  /* AuthInfo's; -1: not set there, so Slurm's default */
	bool file_append; /* JobFileAppend */
	bool config_known;
	uint32_t release; /* Slurm's: 22.05.8 is 0x160508; 0: not known */
	char plug_stack[1024], plugin_dir[1024];
	struct hooks hooks; /* how the job prologs and epilogs run */
	int srun_ports;     /* how many SrunPortRange has; -1: srun takes any */

	/* our plugin, on the machine that asks */
	char plugin[1024];   /* as plugstack.conf has it */
	int drain;           /* seconds, of its arguments; -1: it starts no service, or there is none */
	bool plugin_missing; /* there is no such file, or it can't be read */
	uint32_t plugin_release; /* the one that it was built for; 0: not known */

	char mpi[256]; /* what srun --mpi=list lists, separated by spaces */

	/* scontrol show job */
	bool job_known, batch, requeue;
	bool job_gpus; /* it asked for some */
	int job_tasks;
	bool append; /* --open-mode=append; from the job's environment */

	/* scontrol show partition */
	char partition[128];
	int grace;             /* seconds */
	char preempt_mode[32]; /* of the partition */

	/* the longest save in the newest record of them; seconds, -1: no save is recorded */
	double save_stall, save_flush;
	int64_t save_bytes;
	int64_t need_bytes; /* what the shared directory must hold */
	char dir[1024];     /* the shared directory */
};

/* Nothing known. */
void site_init(struct site *site);

/* Each takes what one command printed. */
void site_read_config(struct site *site, const char *text);
void site_read_job(struct site *site, const char *text);
void site_read_partition(struct site *site, const char *text);
void site_read_mpi(struct site *site, const char *text);

/* Asks Slurm's commands, as they are found in PATH. `job` 0: there is none; `partition` is then the
 * one to ask about, or NULL for the default one. What doesn't answer within `seconds` is left out,
 * and site->silent says why. */
void site_ask(struct site *site, uint32_t job, const char *partition, double seconds);

/* Asks only for the types of MPI. */
void site_ask_mpi(struct site *site, double seconds);

/* In srun: whether its plugin for a type of MPI ("pmix", also where its name has a version behind)
 * is where it looks for plugins. False also where it can't be told. */
bool site_mpi_installed(const char *type);

/* Finds our plugin, and its drain, in plugstack.conf and what that includes. `folder` is Slurm's
 * PluginDir. False where it isn't. */
bool site_find_plugin(struct site *site, const char *conf, const char *folder);

/* The release of Slurm that a plugin was built for, from the bytes of its file; 0 where they don't
 * tell. */
uint32_t site_plugin_release(const char *data, size_t size);

/* Both, into `site`. */
void site_look_at_plugin(struct site *site, const char *conf, const char *folder);

/* Reads what metrics-*.jsonl in `dir` (doc/metrics-format.md) say of saves. No record is no error.
 */
void site_read_saves(struct site *site, const char *dir);

/* The same from the bytes of one file; false when it tells of none. */
bool site_read_metrics(struct site *site, const char *text, size_t size);

#endif
