/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmd, when it starts: reports, in the words of muster-doctor, what the site's settings do to
 * the jobs' checkpoint services, and stores the settings for the prologs and epilogs. These run in
 * slurmstepd, which reads slurm.conf itself only up to 22.05. Later ones get a part of it from
 * slurmd, without the timeouts, and up to 23.11 without the flags. */
#include "config.h"

#include <slurm/spank.h>
#include <stdio.h>

#include "checks/check.h"
#include "plugin/job_folder.h"
#include "plugin/spank_args.h"
#include "plugin/spank_contexts.h"
#include "plugin/spank_slurmd.h"
#include "slurm/slurm_compat.h"

#define WORD_NAME "hooks"

static struct hooks configured(void)
{
	const slurm_conf_t *conf = slurm_compat_conf();
	return conf ? slurm_compat_hooks(conf) : (struct hooks) { 0 };
}

static void say(const struct hooks *hooks, int drain)
{
	struct site site;
	struct findings findings = { 0 };
	char line[1200];
	const struct checkup checkup = { NULL, 0, &site };
	site_init(&site);
	site.release = SLURM_VERSION_NUMBER;
	site.hooks = *hooks;
	site.drain = drain;
	check_run_in_slurmd(&checkup, &findings);
	for (int i = 0; i < findings.count; i++)
		slurm_error("muster: %s", finding_line(&findings.list[i], &checkup, line, sizeof line));
	findings_clear(&findings);
}

int spank_slurmd_init(int argc, char **argv)
{
	struct spank_args args;
	struct err err;
	char text[100];
	struct hooks hooks = configured();
	if (spank_args_parse(argc, argv, &args, &err) < 0)
		slurm_error("muster: %s", err.text);
	say(&hooks, args.ckptd ? args.drain : -1);
	bool usual = !hooks.in_job && !hooks.serial && !hooks.prolog && !hooks.epilog;
	if (job_folder_write_for_all(args.run, WORD_NAME,
			usual ? NULL : hooks_print(&hooks, text, sizeof text), &err)
		< 0)
		slurm_error("muster: %s", err.text);
	return 0;
}

void spank_slurmd_hooks(const char *run, struct hooks *hooks)
{
	*hooks = configured();
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
	struct hooks told;
	char text[100];
	if (!job_folder_read_for_all(run, WORD_NAME, text, sizeof text) || !hooks_parse(&told, text))
		return;
	told.in_job |= hooks->in_job;
	told.serial |= hooks->serial;
	*hooks = told;
#endif
}
