/* SPDX-License-Identifier: Apache-2.0 */
/* muster-doctor: looks, before a training starts, for what keeps it from starting, from running
 * well or from coming back. */
#include "config.h"

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks/check.h"
#include "checks/facts_probe.h"
#include "common/auto.h"
#include "common/descriptors.h"
#include "common/ident.h"
#include "common/log.h"
#include "common/progress.h"
#include "common/opt.h"
#include "doctor/doctor_dir.h"
#include "doctor/doctor_meet.h"
#include "doctor/doctor_print.h"

const char *argp_program_version = PACKAGE_STRING;

#define EXIT_WARNED 3 /* warnings but no errors */

struct options {
	bool json, list;
	const char *dir, *partition;
	double timeout, slurm_timeout;
};

#define ROW(option, field, of_type) \
	.name = option, .kind = OPT_OPERATION, .type = of_type, \
	.offset = offsetof(struct options, field)

static const struct opt table[] = {
	{ ROW("dir", dir, OPT_TEXT), .argument = "DIR",
		.help = "The directory for checkpoints: must be shared, writable and have room; what it "
				"records of saves is compared with the times that Slurm gives" },
	{ ROW("partition", partition, OPT_TEXT), .argument = "NAME",
		.help = "The partition whose GraceTime and PreemptMode count (default: the job's, else "
				"Slurm's default one)" },
	{ ROW("timeout", timeout, OPT_REAL), .fallback = "60", .least = 0.1, .most = 86400,
		.argument = "SECONDS", .help = "How long ranks wait for each other" },
	{ ROW("slurm-timeout", slurm_timeout, OPT_REAL), .fallback = "10", .least = 0.1, .most = 3600,
		.argument = "SECONDS", .help = "How long each of Slurm's commands may take" },
	{ ROW("json", json, OPT_SWITCH), .help = "One JSON object" },
	{ ROW("list", list, OPT_SWITCH), .help = "List all checks with their remedies" },
	{ 0 },
};

static const char doc[] =
	"Looks for faults of a launch, and reports each in one line with the flag or setting that "
	"fixes it.\vStart it like the training, srun --muster -N4 --ntasks-per-node=2 muster-doctor "
	"--dir DIR, or by itself on a login node. It ends with 0 when nothing is wrong, with 3 after "
	"warnings, with 1 after errors.";

static const char *real_env(const char *name, void *arg)
{
	return getenv(name);
}

static void ask_site(struct site *site, const struct ident *ident, const struct options *options)
{
	const char *mode = getenv("SLURM_OPEN_MODE");
	site_init(site);
	site_ask(site, ident->job, options->partition, options->slurm_timeout);
	site->append = mode && mode[0] == 'a';
	if (site->plug_stack[0])
		site_find_plugin(site, site->plug_stack, site->plugin_dir);
	if (!options->dir)
		return;
	snprintf(site->dir, sizeof site->dir, "%s", options->dir);
	site_read_saves(site, options->dir);
	if (site->save_bytes > 0)
		site->need_bytes = 2 * site->save_bytes;
}

/* Judges and prints; returns the exit status. */
static int conclude(const struct checkup *checkup, bool summary, const struct options *options)
{
	struct findings findings = { 0 };
	struct err err;
	check_run(checkup, false, &findings);
	int worst = findings_worst(&findings);
	bool incomplete = findings.incomplete;
	int rc = options->json ? doctor_print_json(&findings, checkup, &err)
						   : doctor_print_text(&findings, checkup, summary, &err);
	findings_clear(&findings);
	if (incomplete)
		rc = err_set(&err, "muster-doctor: no memory for all findings");
	if (rc < 0)
		return rdzv_leave(NULL, &err);
	log_status_is_result();
	return worst == CHECK_ERROR ? EXIT_FAULT : worst == CHECK_WARNING ? EXIT_WARNED : EXIT_OK;
}

/* Without a rendezvous each rank reports for itself; rank 0 also reports what holds for all of
 * them. */
static int judge_alone(struct facts *own, const struct ident *ident, const struct options *options)
{
	struct site site;
	struct checkup checkup = { own, 1, NULL };
	if (own->rank != 0)
		own->can_meet = true;
	if (own->rank == 0) {
		ask_site(&site, ident, options);
		checkup.site = &site;
	}
	if (options->dir)
		doctor_dir_look(own, options->dir, "alone", false);
	const int status = conclude(&checkup, own->rank == 0, options);
	if (!own->in_step && status != EXIT_FAULT)
		progress_next("the same in a step: srun --muster … muster-doctor --dir DIR");
	return status;
}

static int judge_together(struct rdzv *rdzv, struct facts *own, const struct ident *ident,
	const struct options *options)
{
	struct err err;
	struct site site;
	AUTO_FREE struct facts *all = NULL;
	int status = EXIT_OK;
	if (doctor_meet(rdzv, own, options->dir, &all, &err) < 0)
		return rdzv_leave(rdzv, &err);
	if (own->rank == 0) {
		ask_site(&site, ident, options);
		const struct checkup checkup = { all, own->world_size, &site };
		status = conclude(&checkup, true, options);
	}
	/* If a rank leaves with a bad status, Slurm kills the others, so they leave first. */
	if (rdzv_fence(rdzv, 0, &err) < 0)
		return rdzv_leave(rdzv, &err);
	rdzv_close(rdzv, 1);
	return status;
}

static int examine(const struct options *options)
{
	struct ident ident;
	struct facts own;
	struct err err;
	if (ident_discover(&ident, &err) < 0)
		return rdzv_leave(NULL, &err);
	log_set_tag("rank %d on %s", ident.rank, ident.node);
	facts_from_env(&own, &ident, real_env, NULL);
	facts_probe_devices(&own);
	facts_probe_limits(&own);
	facts_probe_interfaces(&own);
	facts_probe_network(&own);
	facts_probe_versions(&own);
	facts_probe_port(&own);
	if (ident.world_size == 1 && !own.in_step)
		return judge_alone(&own, &ident, options);
	struct rdzv *rdzv = rdzv_open(&ident, NULL, options->timeout, &err);
	if (!rdzv && err.status == EXIT_USAGE)
		return judge_alone(&own, &ident, options);
	return rdzv ? judge_together(rdzv, &own, &ident, options) : rdzv_leave(NULL, &err);
}

int main(int argc, char **argv)
{
	struct options options;
	bool given[sizeof table / sizeof table[0]];
	struct err err;
	descriptors_raise();
	log_keep_last();
	if (opt_defaults(table, &options, &err) < 0
		|| opt_parse(table, doc, argc, argv, &options, given, &err) < 0)
		return rdzv_leave(NULL, &err);
	if (options.list)
		return doctor_print_checks(&err) < 0 ? rdzv_leave(NULL, &err) : EXIT_OK;
	return examine(&options);
}
