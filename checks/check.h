/* SPDX-License-Identifier: Apache-2.0 */
/* The faults of a launch, one row each, and the functions that find them in facts. These are pure
 * functions. muster-doctor and the plugin's preflight report a fault in the same words. */
#ifndef MUSTER_CHECK_H
#define MUSTER_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "checks/facts.h"
#include "checks/site.h"

enum check_severity {
	CHECK_NOTE,    /* information */
	CHECK_WARNING, /* works, but slower, or does not survive an interruption */
	CHECK_ERROR,   /* does not work */
};

/* What the plugin does about a fault when it starts a task. */
enum check_preflight {
	PREFLIGHT_SILENT, /* can't be seen there */
	PREFLIGHT_SLURMD, /* reported when slurmd starts */
	PREFLIGHT_SAY,
	PREFLIGHT_STOP, /* the step ends with EXIT_USAGE */
};

/* What the checks judge. */
struct checkup {
	const struct facts *tasks; /* facts of all ranks, or of those that are known */
	int count;
	const struct site *site; /* NULL: Slurm was not asked */
};

struct findings;

struct check {
	const char *name;
	enum check_severity severity;
	enum check_preflight preflight;
	const char *what;   /* the fault, for the manual */
	const char *remedy; /* "{}" is replaced by a value that the finding has */
	void (*judge)(const struct check *check, const struct checkup *checkup,
		struct findings *findings);
};

extern const struct check checks[]; /* ends with a row without a name */

/* A fault that was found, and which tasks have it. */
struct finding {
	const struct check *check;
	char text[400]; /* the fault, without where it is */
	char remedy[400];
	bool *tasks; /* by checkup task: those it concerns; NULL: the job or the site */
};

/* Start with zeros; freed by findings_clear. */
struct findings {
	struct finding *list;
	int count;
	int task_count;
	bool incomplete; /* out of memory */
};

/* Runs every check, or those of the plugin's preflight. */
void check_run(const struct checkup *checkup, bool preflight, struct findings *findings);

/* Runs the checks that slurmd makes when it starts. */
void check_run_in_slurmd(const struct checkup *checkup, struct findings *findings);

/* For the checks: adds a fault of one task (-1: of none) to the findings. Faults of several tasks
 * with the same text become one finding. `value` replaces "{}" in the remedy; NULL if the remedy
 * has none. */
void findings_add(struct findings *findings, const struct check *check, int task, const char *value,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
void findings_clear(struct findings *findings);

/* The worst severity; -1 if there are no findings. */
int findings_worst(const struct findings *findings);

/* "error", "warning" or "note". */
const char *check_severity_name(enum check_severity severity);

/* One line: "error: NAME: ranks 0-3 on n1, n2: TEXT: REMEDY". Returns `out`. */
char *finding_line(const struct finding *finding, const struct checkup *checkup, char *out,
	size_t size);

/* The check functions, grouped by what they look at. */
typedef void check_judge(const struct check *check, const struct checkup *checkup,
	struct findings *findings);
check_judge check_gpu_none, check_gpu_step, check_gpu_too_few, check_gpu_idle, check_gpu_shared,
	check_gpu_hidden;
check_judge check_gpu_number, check_srun_missing, check_interface_missing, check_nccl_interface,
	check_gloo_interface;
check_judge check_cpu_few, check_cpu_overlap, check_step_nodes, check_step_tasks, check_pmix_step,
	check_port, check_memory;
check_judge check_driver, check_cuda, check_nccl, check_muster, check_master, check_clock;
check_judge check_dir, check_dir_shared, check_dir_space;
check_judge check_plugin, check_slurm_silent, check_pmix_missing, check_requeue, check_batch,
	check_open_mode, check_grace;
check_judge check_pmi2_only, check_kill_wait, check_credentials, check_preempt_mode,
	check_srun_ports;
check_judge check_prolog_in_job, check_prolog_serial, check_prolog_short, check_epilog_short;

#endif
