/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what Slurm's commands print: the words are the same in all releases, while the C interface
 * changes. */
#include "config.h"

#include "checks/site.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/run_as_user.h"

#define OUTPUT_BYTES 65536

void site_init(struct site *site)
{
	*site = (struct site) { .kill_wait = -1,
		.cred_expire = -1,
		.srun_ports = -1,
		.drain = -1,
		.job_tasks = -1,
		.grace = -1,
		.save_stall = -1,
		.save_flush = -1,
		.save_bytes = -1,
		.need_bytes = -1 };
}

/* ---- reading ---- */

/* The value after `name`, which must begin a word, and an equals sign with optional spaces; false
 * if there is none. The value ends at the next space. */
static bool value_of(const char *text, const char *name, char *out, size_t size)
{
	size_t length = strlen(name);
	for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
		const char *value = at + length;
		if (at > text && !isspace((unsigned char)at[-1]))
			continue;
		value += strspn(value, " \t");
		if (*value++ != '=')
			continue;
		value += strspn(value, " \t");
		snprintf(out, size, "%.*s", (int)strcspn(value, " \t\n"), value);
		return true;
	}
	return false;
}

/* -1 if there is no such number. */
static int number_of(const char *text, const char *name)
{
	char value[32], *end;
	if (!value_of(text, name, value, sizeof value))
		return -1;
	long number = strtol(value, &end, 10);
	return end == value || number < 0 || number > 1 << 30 ? -1 : (int)number;
}

/* Reads "22.05.8" or "24.11.0-0rc1" to the number that Slurm puts into plugins. */
static uint32_t read_release(const char *text)
{
	char value[64];
	unsigned major, minor, micro;
	if (!value_of(text, "SLURM_VERSION", value, sizeof value)
		|| sscanf(value, "%2u.%2u.%2u", &major, &minor, &micro) != 3)
		return 0;
	return major << 16 | minor << 8 | micro;
}

/* Whether a word is in a comma-separated list. */
static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);
	for (; list; list = strchr(list, ','), list += list ? 1 : 0)
		if (strncasecmp(list, word, length) == 0 && (!list[length] || list[length] == ','))
			return true;
	return false;
}

/* Slurm prints "PrologEpilogTimeout" if both are the same, and up to 24.11. */
static void read_hooks(struct hooks *hooks, const char *text)
{
	char flags[200] = "";
	int both = number_of(text, "PrologEpilogTimeout"), prolog = number_of(text, "PrologTimeout"),
		epilog = number_of(text, "EpilogTimeout");
	value_of(text, "PrologFlags", flags, sizeof flags);
	*hooks = (struct hooks) { .in_job = has_word(flags, "RunInJob"),
		.serial = has_word(flags, "Serial"),
		.prolog = hooks_timeout(prolog < 0 ? both : prolog),
		.epilog = hooks_timeout(epilog < 0 ? both : epilog) };
}

/* The number of ports in "60001-63000"; "0-0" means no range. */
static int read_ports(const char *text)
{
	char range[40];
	unsigned first, last;
	if (!value_of(text, "SrunPortRange", range, sizeof range)
		|| sscanf(range, "%5u-%5u", &first, &last) != 2)
		return -1;
	return first == 0 || last < first ? -1 : (int)(last - first + 1);
}

void site_read_config(struct site *site, const char *text)
{
	char value[512];
	site->kill_wait = number_of(text, "KillWait");
	site->file_append = number_of(text, "JobFileAppend") == 1;
	site->cred_expire = -1;
	site->config_known = site->kill_wait >= 0;
	site->release = read_release(text);
	read_hooks(&site->hooks, text);
	site->srun_ports = read_ports(text);
	if (!value_of(text, "PlugStackConfig", site->plug_stack, sizeof site->plug_stack))
		site->plug_stack[0] = '\0';
	if (!value_of(text, "PluginDir", site->plugin_dir, sizeof site->plugin_dir))
		site->plugin_dir[0] = '\0';
	if (!value_of(text, "AuthInfo", value, sizeof value))
		return;
	const char *expire = strstr(value, "cred_expire=");
	if (expire)
		site->cred_expire = atoi(expire + strlen("cred_expire="));
}

/* What a job asked for, as in "TresPerNode=gres:gpu:2" or "TresPerTask=gres/gpu=1". With whole
 * nodes the job may have more. */
static bool asks_for_gpus(const char *text)
{
	static const char *const names[] = { "TresPerJob", "TresPerNode", "TresPerSocket",
		"TresPerTask" };
	char value[256];
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (value_of(text, names[i], value, sizeof value) && strstr(value, "gpu"))
			return true;
	return false;
}

void site_read_job(struct site *site, const char *text)
{
	site->job_known = number_of(text, "JobId") >= 0;
	site->batch = number_of(text, "BatchFlag") > 0;
	site->requeue = number_of(text, "Requeue") > 0;
	site->job_gpus = asks_for_gpus(text);
	site->job_tasks = number_of(text, "NumTasks");
	if (!value_of(text, "Partition", site->partition, sizeof site->partition))
		site->partition[0] = '\0';
}

/* One line a partition: takes the one that site->partition names, or the default one. */
void site_read_partition(struct site *site, const char *text)
{
	char line[8192], name[sizeof site->partition], is_default[8] = "";
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
		if (!value_of(line, "PartitionName", name, sizeof name))
			continue;
		value_of(line, "Default", is_default, sizeof is_default);
		if (site->partition[0] ? strcmp(name, site->partition) != 0
							   : strcmp(is_default, "YES") != 0)
			continue;
		memcpy(site->partition, name, sizeof name);
		site->grace = number_of(line, "GraceTime");
		if (!value_of(line, "PreemptMode", site->preempt_mode, sizeof site->preempt_mode))
			site->preempt_mode[0] = '\0';
		return;
	}
}

/* A heading, then one type a line after a tab ("srun: pmix" after the program's name in older
 * releases); then one line with a colon and the versions. */
void site_read_mpi(struct site *site, const char *text)
{
	size_t used = 0;
	site->mpi[0] = '\0';
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		char line[200], word[64];
		snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
		const char *type = strncmp(line, "srun: ", 6) == 0 ? line + 6 : line;
		int end = 0;
		if (sscanf(type, " %63[A-Za-z0-9_] %n", word, &end) == 1 && !type[end]
			&& used + strlen(word) + 2 < sizeof site->mpi)
			used += (size_t)snprintf(site->mpi + used, sizeof site->mpi - used, "%s%s",
				used ? " " : "", word);
	}
}

/* ---- asking ---- */

/* The output of one of Slurm's commands; "" if it can't be run. `argv` begins with its name, which
 * is looked up in PATH. */
static void ask(char *const *argv, double seconds, char *out)
{
	struct run_user self = { getuid(), getgid(), NULL, 0 };
	struct err err;
	if (run_as_user(&self, argv, environ, seconds, out, OUTPUT_BYTES, &err) < 0)
		snprintf(out, OUTPUT_BYTES, "%s", "");
}

/* Keeps the first line of a useless answer as the reason. */
static void be_silent(struct site *site, const char *command, const char *answer)
{
	int length = (int)strcspn(answer, "\n");
	if (!site->silent[0])
		snprintf(site->silent, sizeof site->silent, "%s: %.*s", command, length ? length : 9,
			length ? answer : "no answer");
}

#define ENV "/usr/bin/env"

/* MUSTER=0: our own plugin has nothing to do in this srun. */
void site_ask_mpi(struct site *site, double seconds)
{
	char *text = malloc(OUTPUT_BYTES);
	if (!text)
		return;
	ask((char *[]) { ENV, "MUSTER=0", "srun", "--mpi=list", NULL }, seconds, text);
	site_read_mpi(site, text);
	free(text);
}

void site_ask(struct site *site, uint32_t job, const char *partition, double seconds)
{
	char *text = malloc(OUTPUT_BYTES), id[16];
	if (!text)
		return;
	snprintf(id, sizeof id, "%u", job);
	ask((char *[]) { ENV, "scontrol", "show", "config", NULL }, seconds, text);
	site_read_config(site, text);
	if (!site->config_known)
		be_silent(site, "scontrol show config", text);
	if (job && site->config_known) {
		ask((char *[]) { ENV, "scontrol", "show", "job", id, NULL }, seconds, text);
		site_read_job(site, text);
		if (!site->job_known)
			be_silent(site, "scontrol show job", text);
	}
	if (partition)
		snprintf(site->partition, sizeof site->partition, "%s", partition);
	if (site->config_known) {
		ask((char *[]) { ENV, "scontrol", "-o", "show", "partition", NULL }, seconds, text);
		site_read_partition(site, text);
		if (partition && site->grace < 0) {
			snprintf(text, OUTPUT_BYTES, "there is no partition %s", partition);
			be_silent(site, "scontrol show partition", text);
		}
		site_ask_mpi(site, seconds);
	}
	free(text);
}
