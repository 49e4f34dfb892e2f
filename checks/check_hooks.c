/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of how Slurm runs the job prologs and epilogs, which start and end the checkpoint
 * service. At most one of them finds something. slurmd also reports it when it starts. */
#include <stdio.h>
#include <string.h>

#include "checks/check.h"

#define OWN_TIMEOUTS 0x190500 /* Slurm 25.05: since then prolog and epilog have a timeout each */
#define NO_SERVICE "so that the job prolog starts no checkpoint service"

enum fault { FAULT_NONE, FAULT_IN_JOB, FAULT_SERIAL, FAULT_PROLOG, FAULT_EPILOG };

/* What must be fixed first. */
static enum fault fault_of(const struct checkup *checkup)
{
	const struct site *site = checkup->site;
	if (!site || site->drain < 0)
		return FAULT_NONE;
	if (site->hooks.in_job || site->hooks.serial)
		return site->hooks.in_job ? FAULT_IN_JOB : FAULT_SERIAL;
	bool ends = hooks_drain(site->hooks.epilog, HOOKS_EPILOG_SECONDS, 1) == 1;
	if (ends && !hooks_allow_service(&site->hooks))
		return FAULT_PROLOG;
	return hooks_drain(site->hooks.epilog, HOOKS_EPILOG_SECONDS, site->drain) < site->drain || !ends
		? FAULT_EPILOG
		: FAULT_NONE;
}

void check_prolog_in_job(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (fault_of(checkup) == FAULT_IN_JOB)
		findings_add(findings, check, -1, NULL,
			"PrologFlags has RunInJob, " NO_SERVICE ": it would end with the job's steps");
}

void check_prolog_serial(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (fault_of(checkup) == FAULT_SERIAL)
		findings_add(findings, check, -1, NULL,
			"PrologFlags has Serial, " NO_SERVICE
			": the node's other jobs would wait until its user lets it end");
}

/* The setting in slurm.conf that is long enough. */
static void remedy_of(const struct site *site, bool epilog, char *out, size_t size)
{
	int end = HOOKS_EPILOG_SECONDS + (site->drain ? site->drain : 1),
		start = HOOKS_PROLOG_SECONDS + 1;
	if (site->release >= OWN_TIMEOUTS)
		snprintf(out, size, "%s=%d in slurm.conf", epilog ? "EpilogTimeout" : "PrologTimeout",
			epilog ? end : start);
	else
		snprintf(out, size, "PrologEpilogTimeout=%d in slurm.conf", end > start ? end : start);
}

void check_prolog_short(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	char remedy[100];
	if (fault_of(checkup) != FAULT_PROLOG)
		return;
	remedy_of(checkup->site, false, remedy, sizeof remedy);
	findings_add(findings, check, -1, remedy, "%s is %d s, " NO_SERVICE ": that may take %d s",
		checkup->site->release >= OWN_TIMEOUTS ? "PrologTimeout" : "PrologEpilogTimeout",
		checkup->site->hooks.prolog, HOOKS_PROLOG_SECONDS + 1);
}

void check_epilog_short(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const struct site *site = checkup->site;
	char remedy[100];
	if (fault_of(checkup) != FAULT_EPILOG)
		return;
	const char *name = site->release >= OWN_TIMEOUTS ? "EpilogTimeout" : "PrologEpilogTimeout";
	int given = hooks_drain(site->hooks.epilog, HOOKS_EPILOG_SECONDS, site->drain);
	remedy_of(site, true, remedy, sizeof remedy);
	if (!hooks_allow_service(&site->hooks)) {
		findings_add(findings, check, -1, remedy,
			"%s is %d s, " NO_SERVICE ": its end may take drain=%d and %d s", name,
			site->hooks.epilog, site->drain, HOOKS_EPILOG_SECONDS);
		return;
	}
	size_t length = strlen(remedy);
	snprintf(remedy + length, sizeof remedy - length, ", or drain=%d in plugstack.conf", given);
	findings_add(findings, check, -1, remedy,
		"%s is %d s, and the end of a checkpoint service may take drain=%d and %d s: it is given "
		"%d s, as if drain= said so",
		name, site->hooks.epilog, site->drain, HOOKS_EPILOG_SECONDS, given);
}
