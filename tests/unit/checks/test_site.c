/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm's commands print, as seen in Slurm 22.05 and 25.11, and what a run records of its
 * saves. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checks/site.h"
#include "common/auto.h"
#include "common/io.h"
#include "tests/unit/files.h"

static struct site fresh(void)
{
	struct site site;
	site_init(&site);
	return site;
}

static void the_configuration(void **state)
{
	struct site site = fresh();
	site_read_config(&site,
		"Configuration data as of 2026-11-21T16:06:06\n"
		"AuthAltParameters       = (null)\n"
		"AuthInfo                = socket=/run/munge/munge.socket.2,cred_expire=5\n"
		"JobFileAppend           = 1\n"
		"UnkillableKillWait      = 7 sec\n"
		"KillWait                = 30 sec\n"
		"PlugStackConfig         = /etc/slurm/plugstack.conf\n"
		"SLURM_VERSION           = 22.05.8\n");
	assert_int_equal(site.release, 0x160508);
	assert_string_equal(site.plug_stack, "/etc/slurm/plugstack.conf");
	assert_true(site.config_known && site.file_append);
	assert_int_equal(site.cred_expire, 5);
	assert_int_equal(site.kill_wait, 30);
	site_read_config(&site,
		"AuthInfo                = (null)\nKillWait = 5 sec\nJobFileAppend = 0\n");
	assert_int_equal(site.cred_expire, -1);
	assert_false(site.file_append);
	site_read_config(&site,
		"slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n");
	assert_false(site.config_known);
}

/* As 22.05, 24.11 and 25.05 print them. */
static void how_prologs_run(void **state)
{
	struct site site = fresh();
	static const char usual[] = "PrologEpilogTimeout     = 65534\nPrologFlags             = "
								"(null)\nSrunPortRange           = 0-0\n";
	static const char old[] =
		"Epilog                  = (null)\nProlog                  = "
		"/etc/prolog\nPrologEpilogTimeout     = 60\n"
		"PrologSlurmctld         = (null)\nPrologFlags             = Alloc,Contain,Serial,X11\n"
		"SrunPortRange           = 60001-60006\n";
	static const char recent[] = "EpilogMsgTime           = 2000 usec\nEpilogTimeout           = "
								 "320\nPrologTimeout           = 30\n"
								 "PrologFlags             = Alloc,Contain,RunInJob\n";
	static const char same[] =
		"PrologEpilogTimeout     = 40\nPrologFlags             = Alloc,SerialOther\n";
	site_read_config(&site, usual);
	assert_true(
		!site.hooks.in_job && !site.hooks.serial && !site.hooks.prolog && !site.hooks.epilog);
	assert_int_equal(site.srun_ports, -1);
	site_read_config(&site, old);
	assert_true(site.hooks.serial && !site.hooks.in_job);
	assert_int_equal(site.hooks.prolog, 60);
	assert_int_equal(site.hooks.epilog, 60);
	assert_int_equal(site.srun_ports, 6);
	site_read_config(&site, recent);
	assert_true(site.hooks.in_job && !site.hooks.serial);
	assert_int_equal(site.hooks.prolog, 30);
	assert_int_equal(site.hooks.epilog, 320);
	assert_int_equal(site.srun_ports, -1);
	site_read_config(&site, same);
	assert_true(!site.hooks.in_job && !site.hooks.serial);
	assert_int_equal(site.hooks.prolog, 40);
	assert_int_equal(site.hooks.epilog, 40);
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void the_plugin_in_plugstack_conf(void **state)
{
	char folder[FILES_PATH_SIZE], path[FILES_PATH_SIZE + 30], text[2 * FILES_PATH_SIZE + 100];
	struct site site = fresh();
	assert_int_equal(files_make_folder(folder), 0);
	snprintf(path, sizeof path, "%s/more.conf", folder);
	write_file(path, "optional /opt/x.so\nrequired spank_muster.so default=on\n");
	snprintf(path, sizeof path, "%s/plugstack.conf", folder);
	snprintf(text, sizeof text,
		"# optional /a/spank_muster.so\n\ninclude %s/*.none\ninclude %s/m*.conf\n", folder, folder);
	write_file(path, text);
	site_find_plugin(&site, path, "/usr/lib/slurm");
	assert_string_equal(site.plugin, "/usr/lib/slurm/spank_muster.so");
	assert_int_equal(site.drain, 300);
	write_file(path, "optional  /b/spank_muster.so default=on\tdrain=60");
	site_find_plugin(&site, path, "");
	assert_string_equal(site.plugin, "/b/spank_muster.so");
	assert_int_equal(site.drain, 60);
	write_file(path, "optional spank_muster.so drain=60 ckptd=off\n");
	site_find_plugin(&site, path, "/c");
	assert_int_equal(site.drain, -1);
	/* One that includes itself. */
	snprintf(text, sizeof text, "include %s\n", path);
	write_file(path, text);
	site = fresh();
	site_find_plugin(&site, path, "");
	assert_string_equal(site.plugin, "");
	assert_int_equal(site.drain, -1);
	write_file(path, "optional /nonexistent/spank_muster.so\n");
	site_find_plugin(&site, path, "");
	assert_true(site.plugin_missing);
	assert_int_equal(files_remove_folder(folder), 0);
}

/* This program serves as a plugin. */
__attribute__((visibility("default"))) extern const unsigned int plugin_version;
const unsigned int plugin_version = 0x190b07;

static void the_release_of_a_plugin_is_read_from_its_file(void **state)
{
	AUTO_FREE char *data = NULL;
	size_t size;
	struct err err;
	assert_int_equal(io_read_file(AT_FDCWD, "/proc/self/exe", 64 << 20, &data, &size, &err), 0);
	assert_int_equal(site_plugin_release(data, size), plugin_version);
	/* A file that is cut or spoilt anywhere tells nothing wrong, and is never read beyond its end.
	 */
	unsigned seed = 1;
	for (int i = 0; i < 300; i++) {
		size_t cut = size * (size_t)i / 300;
		AUTO_FREE char *less = malloc(cut + 1);
		memcpy(less, data, cut);
		assert_int_equal(site_plugin_release(less, cut), 0);
		if (cut > 4096) {
			less[rand_r(&seed) % 4096] ^= (char)rand_r(&seed);
			site_plugin_release(less, cut);
		}
		char kept = data[i];
		data[i] = (char)rand_r(&seed);
		site_plugin_release(data, size);
		data[i] = kept;
	}
	assert_int_equal(site_plugin_release("", 0), 0);
}

/* This program, as a plugin for another release. */
static void write_plugin(const char *path, uint32_t release)
{
	AUTO_FREE char *data = NULL;
	size_t size;
	uint32_t built;
	assert_int_equal(io_read_file(AT_FDCWD, "/proc/self/exe", 64 << 20, &data, &size, NULL), 0);
	for (size_t i = 0; i + sizeof built <= size; i += sizeof built) {
		memcpy(&built, data + i, sizeof built);
		if (built == plugin_version)
			memcpy(data + i, &release, sizeof release);
	}
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

/* While nodes are upgraded, plugstack.conf has a line for each release. */
static void the_plugin_for_this_slurm_counts(void **state)
{
	static const struct {
		uint32_t slurm;
		const char *folder;
		uint32_t plugin;
	} cases[] = { { 0x160509, "22.05", 0x160508 }, { 0x190b00, "25.11", 0x190b07 },
		{ 0x180508, "25.11", 0x190b07 } };
	char folder[FILES_PATH_SIZE], path[FILES_PATH_SIZE + 40], text[3 * sizeof path];
	assert_int_equal(files_make_folder(folder), 0);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, cases[i].folder);
		assert_int_equal(mkdir(path, 0700), 0);
		snprintf(path, sizeof path, "%s/%s/spank_muster.so", folder, cases[i].folder);
		write_plugin(path, cases[i].plugin);
	}
	snprintf(path, sizeof path, "%s/plugstack.conf", folder);
	snprintf(text, sizeof text,
		"optional %s/22.05/spank_muster.so drain=22\noptional %s/25.11/spank_muster.so drain=25\n",
		folder, folder);
	write_file(path, text);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct site site = fresh();
		site.release = cases[i].slurm;
		site_find_plugin(&site, path, "");
		assert_non_null(strstr(site.plugin, cases[i].folder));
		assert_false(site.plugin_missing);
		assert_int_equal(site.plugin_release, cases[i].plugin);
		assert_int_equal(site.drain, atoi(cases[i].folder));
	}
	assert_int_equal(files_remove_folder(folder), 0);
}

static void the_job(void **state)
{
	struct site site = fresh();
	site_read_job(&site,
		"JobId=1 JobName=Requeue=0\n   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n"
		"   Partition=spot AllocNode:Sid=ctl:27523\n   NumNodes=2 NumCPUs=8 NumTasks=4 "
		"CPUs/Task=2\n   TresPerNode=gres:gpu:2\n");
	assert_true(site.job_known && site.batch && site.requeue && site.job_gpus);
	assert_int_equal(site.job_tasks, 4);
	assert_string_equal(site.partition, "spot");
	site_read_job(&site, "slurm_load_jobs error: Invalid job id specified\n");
	assert_false(site.job_known || site.batch || site.requeue || site.job_gpus);
	site_read_job(&site, "JobId=1 TresPerTask=cpu=2,gres/gpu=1\n");
	assert_true(site.job_gpus);
	site_read_job(&site, "JobId=1 TRES=cpu=8,node=2,gres/gpu=4 TresPerNode=gres:craynetwork:1\n");
	assert_false(site.job_gpus);
	assert_string_equal(site.partition, "");
}

static const char partitions[] =
	"PartitionName=spot AllowGroups=ALL Default=NO QoS=N/A DefaultTime=NONE GraceTime=15 "
	"PriorityTier=1 PreemptMode=REQUEUE\n"
	"PartitionName=ondemand AllowGroups=ALL Default=YES GraceTime=0 PriorityTier=10 "
	"PreemptMode=OFF State=UP\n";

static void the_partition_of_the_job_or_the_default_one(void **state)
{
	struct site site = fresh();
	strcpy(site.partition, "spot");
	site_read_partition(&site, partitions);
	assert_int_equal(site.grace, 15);
	assert_string_equal(site.preempt_mode, "REQUEUE");
	site = fresh();
	site_read_partition(&site, partitions);
	assert_string_equal(site.partition, "ondemand");
	assert_int_equal(site.grace, 0);
	assert_string_equal(site.preempt_mode, "OFF");
	site = fresh();
	strcpy(site.partition, "gone");
	site_read_partition(&site, partitions);
	assert_int_equal(site.grace, -1);
}

static void kinds_of_mpi(void **state)
{
	struct site site = fresh();
	site_read_mpi(&site,
		"MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: "
		"pmix_v4\n");
	assert_string_equal(site.mpi, "pmix none pmi2");
	site_read_mpi(&site, "srun: MPI types are...\nsrun: none\nsrun: pmi2\n");
	assert_string_equal(site.mpi, "none pmi2");
	site_read_mpi(&site, "srun: fatal: nothing\n");
	assert_string_equal(site.mpi, "");
}

static void the_longest_save_of_a_run(void **state)
{
	struct site site = fresh();
	static const char text[] =
		"{\"step\":1,\"loss\":2.5,\"loss_bits\":\"40200000\"}\n"
		"{\"step\":1,\"checkpoint\":{\"stall\":0.25,\"flush\":1.5,\"bytes\":1000},\"time\":\"x\"}\n"
		"{\"step\":2,\"checkpoint\":{\"stall\":0.5,\"flush\":4,\"bytes\":900}}\n"
		"{\"step\":3,\"checkpoint\":{\"stall\":0.1,\"flush\":1,\"bytes\":\"many\"}}\n"
		"{\"step\":3,\"checkpoint\":\n"
		"{\"step\":4,\"checkpoint\":{\"stall\":9,\"flush\":9,\"bytes\":9000}}";
	assert_true(site_read_metrics(&site, text, strlen(text)));
	assert_true(site.save_stall == 0.5 && site.save_flush == 4);
	assert_int_equal(site.save_bytes, 1000);
	site = fresh();
	assert_false(site_read_metrics(&site, text, 40));
	assert_false(site_read_metrics(&site, "", 0));
	assert_true(site.save_stall < 0);
	site_read_saves(&site, "/nonexistent");
	assert_true(site.save_stall < 0);
}

static void a_slurm_that_is_not_there(void **state)
{
	struct site site = fresh();
	assert_int_equal(setenv("PATH", "/nonexistent", 1), 0);
	site_ask(&site, 7, NULL, 5);
	assert_non_null(strstr(site.silent, "scontrol show config: "));
	assert_false(site.config_known || site.job_known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_configuration),
		cmocka_unit_test(how_prologs_run),
		cmocka_unit_test(the_plugin_in_plugstack_conf),
		cmocka_unit_test(the_release_of_a_plugin_is_read_from_its_file),
		cmocka_unit_test(the_plugin_for_this_slurm_counts),
		cmocka_unit_test(the_job),
		cmocka_unit_test(the_partition_of_the_job_or_the_default_one),
		cmocka_unit_test(kinds_of_mpi),
		cmocka_unit_test(the_longest_save_of_a_run),
		cmocka_unit_test(a_slurm_that_is_not_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
