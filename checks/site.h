/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm says about itself, the job and its partition, and what the job's checkpoint directory
 * records about saves. Asked once for a job, not by each task. */
#ifndef MUSTER_SITE_H
#define MUSTER_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "slurm/hooks.h"

/* Unknown numbers are -1, unknown texts "". */
struct site {
	char silent[200]; /* why Slurm does not answer */

	/* scontrol show config */
	int kill_wait;    /* seconds */
	int cred_expire;  /* AuthInfo's; -1: not set, Slurm's default holds */
	bool file_append; /* JobFileAppend */
	bool config_known;
	uint32_t release; /* Slurm's: 22.05.8 is 0x160508; 0: unknown */
	char plug_stack[1024], plugin_dir[1024];
	struct hooks hooks; /* how job prologs and epilogs run */
	int srun_ports;     /* ports in SrunPortRange; -1: srun takes any */

	/* our plugin, on the machine that asks */
	char plugin[1024];       /* its path in plugstack.conf */
	int drain;               /* seconds, of its arguments; -1: no service, or no plugin */
	bool plugin_missing;     /* the file is missing or can't be read */
	uint32_t plugin_release; /* the release it was built for; 0: unknown */

	char mpi[256]; /* types that srun --mpi=list prints, separated by spaces */

	/* scontrol show job */
	bool job_known, batch, requeue;
	bool job_gpus; /* it asked for some */
	int job_tasks;
	bool append; /* --open-mode=append; from the job's environment */

	/* scontrol show partition */
	char partition[128];
	int grace;             /* seconds */
	char preempt_mode[32]; /* the partition's */

	/* the longest save in the newest metrics that have one; seconds, -1: none is recorded */
	double save_stall, save_flush;
	int64_t save_bytes;
	int64_t need_bytes; /* what the shared directory must hold */
	char dir[1024];     /* the shared directory */
};

/* Everything unknown. */
void site_init(struct site *site);

/* Each takes the output of one command. */
void site_read_config(struct site *site, const char *text);
void site_read_job(struct site *site, const char *text);
void site_read_partition(struct site *site, const char *text);
void site_read_mpi(struct site *site, const char *text);

/* Asks Slurm's commands, as found in PATH. `job` 0: none; `partition` is then the one to ask about,
 * or NULL for the default one. If a command does not answer within `seconds`, its facts stay
 * unknown and site->silent says why. */
void site_ask(struct site *site, uint32_t job, const char *partition, double seconds);

/* Asks only for the MPI types. */
void site_ask_mpi(struct site *site, double seconds);

/* In srun: whether its plugin for an MPI type ("pmix", even if a version follows in the file name)
 * is where srun looks for plugins. False also if that can't be found out. */
bool site_mpi_installed(const char *type);

/* Finds our plugin in plugstack.conf and the files that it includes, and looks at its file: the
 * plugin for site->release, or else the last that is named. `folder` is Slurm's PluginDir. */
void site_find_plugin(struct site *site, const char *conf, const char *folder);

/* The release of Slurm that a plugin was built for, from the bytes of its file; 0 if it can't be
 * found. */
uint32_t site_plugin_release(const char *data, size_t size);

/* Reads what metrics-*.jsonl in `dir` (doc/metrics-format.md) record about saves. A missing record
 * is no error. */
void site_read_saves(struct site *site, const char *dir);

/* The same for the bytes of one file; false if it records no save. */
bool site_read_metrics(struct site *site, const char *text, size_t size);

#endif
