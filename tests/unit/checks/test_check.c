/* SPDX-License-Identifier: Apache-2.0 */
/* The judge: a launch without fault has no finding; each fault has the one that is meant, with the
 * ranks that it concerns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/checks/check_launch.h"

static void a_launch_without_fault_has_no_finding(void **state)
{
	struct world world = healthy();
	assert_int_equal(judge(&world, RANKS, false), 0);
	/* All GPUs visible to all: each rank takes the one at its place. */
	for (int i = 0; i < RANKS; i++)
		strcpy(world.tasks[i].visible, "0,1");
	assert_int_equal(judge(&world, RANKS, false), 0);
	/* Two each. */
	for (int i = 0; i < RANKS; i++) {
		world.tasks[i].gpus = 4;
		world.tasks[i].devices_present = world.tasks[i].devices_open = 15;
		strcpy(world.tasks[i].visible, i % 2 ? "2,3" : "0,1");
	}
	assert_int_equal(judge(&world, RANKS, false), 0);
	/* None at all. */
	for (int i = 0; i < RANKS; i++) {
		world.tasks[i].gpus = -1;
		world.tasks[i].gpus_asked = false;
		world.tasks[i].devices_present = world.tasks[i].devices_open = 0;
		world.tasks[i].visible[0] = '\0';
	}
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void gpus_are_counted_and_compared(void **state)
{
	struct world world = healthy();
	world.tasks[3].visible[0] = '\0';
	world.tasks[3].gpus_hidden = true;
	says(&world, "error: gpu-none: rank 3 on n2: ", "leave CUDA_VISIBLE_DEVICES to Slurm");
	world.tasks[3].gpus_hidden = false;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.tasks[3].devices_present = world.tasks[3].devices_open = 0;
	says(&world,
		"error: gpu-none: rank 3 on n2: sees none of the step's GPUs (CUDA_VISIBLE_DEVICES is not "
		"set): ",
		"leave");
	world = healthy();
	for (int i = 0; i < RANKS; i++) {
		world.tasks[i].gpus = -1;
		world.tasks[i].visible[0] = '\0';
	}
	says(&world, "warning: gpu-step: ranks 0-7 on n1, n2, n3, n4: ", "--gpus-per-task=1");
	/* By --gres, which only the controller tells; and with whole nodes, by nobody. */
	for (int i = 0; i < RANKS; i++)
		world.tasks[i].gpus_asked = false;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.job_gpus = true;
	says(&world, "warning: gpu-step: ranks 0-7 on n1, n2, n3, n4: ", "--gres=none");
	world = healthy();
	world.tasks[4].gpus = world.tasks[5].gpus = 1;
	strcpy(world.tasks[5].visible, "0");
	says(&world,
		"error: gpu-too-few: ranks 4-5 on n3: 2 tasks a node and 1 GPU: ", "--ntasks-per-node=1");
	world.tasks[4].gpus_may_share = world.tasks[5].gpus_may_share = true;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world = healthy();
	for (int i = 0; i < RANKS; i++)
		world.tasks[i].gpus = 8;
	strcpy(world.tasks[0].visible, "0,1,2,3,4,5,6,7");
	says(&world, "warning: gpu-idle: ranks 0-7 on n1, n2, n3, n4: 2 tasks a node and 8 GPUs: ",
		"--ntasks-per-node=8");
	world = healthy();
	strcpy(world.tasks[7].visible, "0");
	strcpy(world.tasks[1].visible, "0");
	says(&world, "error: gpu-shared: ranks 0-1, 6-7 on n1, n4: GPU 0 of the node",
		"--gpus-per-task=1");
	strcpy(world.tasks[1].visible, "GPU-8a1c");
	strcpy(world.tasks[0].visible, "GPU-8a1c");
	assert_int_equal(judge(&world, RANKS, false), 2);
}

static void a_device_that_is_not_there(void **state)
{
	struct world world = healthy();
	strcpy(world.tasks[3].device_told, "1");
	says(&world, "error: gpu-number: rank 3 on n2: LOCAL_RANK=1, and the task sees one GPU",
		"leave LOCAL_RANK to the plugin");
	strcpy(world.tasks[3].device_told, "0");
	strcpy(world.tasks[5].jax_devices, "1");
	says(&world, "error: gpu-number: rank 5 on n3: JAX_LOCAL_DEVICE_IDS=1, and",
		"leave JAX_LOCAL_DEVICE_IDS to the plugin");
	/* It sees both, and takes the one at its place. */
	for (int i = 0; i < RANKS; i++) {
		strcpy(world.tasks[i].visible, "0,1");
		strcpy(world.tasks[i].device_told, i % 2 ? "1" : "0");
	}
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void network_interfaces(void **state)
{
	struct world world = healthy();
	for (int i = 0; i < RANKS; i++) {
		strcpy(world.tasks[i].interfaces, "lo eth0 ib0 docker0");
		strcpy(world.tasks[i].nccl_wanted, "ib,eth");
		strcpy(world.tasks[i].gloo_wanted, "eth0");
	}
	assert_int_equal(judge(&world, RANKS, false), 0);
	strcpy(world.tasks[6].interfaces, "lo enp1s0");
	assert_int_equal(judge(&world, RANKS, false), 2);
	strcpy(world.tasks[6].gloo_wanted, "enp1s0");
	says(&world,
		"error: interface-missing: rank 6 on n4: NCCL_SOCKET_IFNAME=ib,eth, and the node has lo "
		"enp1s0: ",
		"leave NCCL_SOCKET_IFNAME");
	strcpy(world.tasks[6].gloo_wanted, "enp1s0,eth0");
	strcpy(world.tasks[6].nccl_wanted, "^lo");
	says(&world, "error: interface-missing: rank 6 on n4: GLOO_SOCKET_IFNAME=enp1s0,eth0, and",
		"leave GLOO_SOCKET_IFNAME");
	world = healthy();
	strcpy(world.tasks[2].nccl_error, "n3 by eth1, which is 192.168.7.3 there: No route to host");
	says(&world,
		"error: nccl-interface: rank 2 on n2: can't reach n3 by eth1, which is 192.168.7.3 there: "
		"No route to host: ",
		"ip -brief address");
	strcpy(world.tasks[2].interface, "eth0");
	says(&world, "error: nccl-interface: rank 2 on n2: ",
		"each other (eth0 has the address of this node's name)");
	/* Nobody is going to use NCCL. */
	world.tasks[2].gpus = -1;
	world.tasks[2].gpus_asked = false;
	assert_int_equal(judge(&world, RANKS, false), 0);
	strcpy(world.tasks[2].gloo_error, "n3 by n3, which is 127.0.1.1 there: a loopback address");
	says(&world,
		"warning: gloo-interface: rank 2 on n2: can't reach n3 by n3, which is 127.0.1.1 there: ",
		"GLOO_SOCKET_IFNAME");
}

static void a_forgotten_srun(void **state)
{
	struct world world = healthy();
	strcpy(world.tasks[0].alone,
		"this process runs alone on n1, outside of the steps of job 7, which has 4 nodes");
	world.tasks[0].in_step = false;
	world.tasks[0].world_size = world.tasks[0].local_world_size = world.tasks[0].node_count = 1;
	assert_int_equal(judge(&world, 1, false), 1);
	assert_int_equal(strncmp(said[0], "note: srun-missing: this process runs alone on n1, ", 50),
		0);
	assert_non_null(strstr(said[0], "write srun before it"));
}

/* Where the cgroup hides GPUs, every task calls its own number 0. */
static void a_hidden_gpu_is_no_shared_one(void **state)
{
	struct world world = healthy();
	for (int i = 0; i < RANKS; i++) {
		strcpy(world.tasks[i].visible, "0");
		world.tasks[i].devices_open = 1 << i % 2;
	}
	says(&world, "warning: gpu-hidden: ranks 0-7 on n1, n2, n3, n4: ", "--gpus-per-node=2");
	assert_non_null(strstr(said[0], "allow-task-sharing"));
}

static void cpus_are_counted_and_compared(void **state)
{
	struct world world = healthy();
	world.tasks[2].cpus[0] = 1;
	world.tasks[3].cpus[0] = 2;
	says(&world,
		"warning: cpu-few: ranks 2-3 on n2: may use 1 CPU of 4 asked for: ", "--cpus-per-task=4");
	for (int i = 2; i < 4; i++)
		world.tasks[i].cpus_per_task = -1;
	says(&world, "warning: cpu-few: ranks 2-3 on n2: may use 1 CPU of 4 that the step has for it: ",
		"--cpus-per-task=4");
	world = healthy();
	world.tasks[7].cpus[0] = 0x0f;
	says(&world, "warning: cpu-overlap: ranks 6-7 on n4: 2 ranks of a node are bound to CPU 0-3: ",
		"--cpu-bind=cores");
	/* Not bound at all, and more asked for than there are. */
	for (int i = 0; i < RANKS; i++) {
		world.tasks[i].cpus[0] = 0xff;
		world.tasks[i].cpus_per_task = 100;
	}
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void the_step_is_compared_with_the_job(void **state)
{
	struct world world = healthy();
	for (int i = 0; i < RANKS; i++)
		world.tasks[i].job_nodes = 6;
	world.site.job_tasks = 12;
	says(&world, "warning: step-nodes: the step runs on 4 of the job's 6 nodes: ", "--nodes=6");
	world = healthy();
	world.site.job_tasks = 12;
	says(&world, "warning: step-tasks: the world size is 8, and the job was submitted for 12",
		"--ntasks=12");
	/* A part of the job on purpose. */
	for (int i = 0; i < RANKS; i++)
		world.tasks[i].job_tasks = 0;
	assert_int_equal(judge(&world, RANKS, false), 0);
	for (int i = 0; i < RANKS; i++)
		world.tasks[i].job_nodes = 6;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world = healthy();
	world.tasks[0].can_meet = world.tasks[1].can_meet = false;
	says(&world, "error: pmix-step: ranks 0-1 on n1: this step was started without PMIx: ",
		"srun --mpi=pmix");
	world = healthy();
	strcpy(world.site.mpi, "none cray_shasta");
	says(&world,
		"error: pmix-missing: srun --mpi=list has neither pmix nor pmi2, only none cray_shasta: ",
		"MUSTER_RDZV_DIR");
	strcpy(world.site.mpi, "none pmi2");
	says(&world,
		"note: pmi2-only: srun --mpi=list has no pmix, only none pmi2: ", "srun --mpi=pmi2");
}

static void nodes_are_compared_with_most(void **state)
{
	struct world world = healthy();
	strcpy(world.tasks[2].driver, "535.1");
	says(&world, "warning: driver-differs: rank 2 on n2: driver 535.1 here, 550.54.14 on most: ",
		"driver 550.54.14");
	world = healthy();
	strcpy(world.tasks[0].cuda, "");
	says(&world, "warning: cuda-differs: rank 0 on n1: no CUDA here, 12.4 on most: ", "CUDA 12.4");
	world = healthy();
	strcpy(world.tasks[6].nccl, "2.27.3");
	strcpy(world.tasks[7].nccl, "2.27.3");
	says(&world,
		"error: nccl-differs: ranks 6-7 on n4: NCCL 2.27.3 here, 2.28.9 on most: ", "NCCL 2.28.9");
	world = healthy();
	strcpy(world.tasks[6].muster, "0.0.9");
	says(&world,
		"error: muster-differs: rank 6 on n4: Muster 0.0.9 here, 0.1.0 on most: ", "same package");
	/* One that has what nobody else has. */
	world = healthy();
	for (int i = 0; i < 7; i++)
		strcpy(world.tasks[i].nccl, "");
	says(&world,
		"error: nccl-differs: rank 7 on n4: NCCL 2.28.9 here, none on most: ", "LD_LIBRARY_PATH");
}

static void ways_and_clocks(void **state)
{
	struct world world = healthy();
	strcpy(world.tasks[0].port_error, "Address already in use");
	says(&world,
		"error: port-taken: rank 0 on n1: can't listen on MASTER_PORT=23456: Address already in "
		"use: ",
		"MASTER_PORT");
	world = healthy();
	strcpy(world.tasks[4].master_error, "127.0.1.1 port 23456: Connection refused");
	says(&world, "error: master-unreachable: rank 4 on n3: can't reach rank 0 at n1: 127.0.1.1",
		"an address of n1 that");
	world = healthy();
	world.tasks[6].met_before += 5;
	world.tasks[6].met_after += 5;
	says(&world,
		"warning: clocks-apart: rank 6 on n4: the clock is 5 s ahead of that of rank 0 on n1: ",
		"chrony");
	world.tasks[6].met_before -= 65;
	world.tasks[6].met_after -= 65;
	says(&world,
		"warning: clocks-apart: rank 6 on n4: the clock is 60 s behind that of rank 0 on n1: ",
		"chrony");
}

/* However long it took a rank to come or to leave, its clock is not blamed for it. */
static void a_slow_rank_has_no_wrong_clock(void **state)
{
	struct world world = healthy();
	world.tasks[3].met_before -= 50; /* came early and waited */
	world.tasks[5].met_after += 50;  /* left late */
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.tasks[0].met_before -= 50;
	world.tasks[0].met_after += 50;
	assert_int_equal(judge(&world, RANKS, false), 0);
	for (int i = 0; i < RANKS; i++)
		world.tasks[i].met_before = world.tasks[i].met_after = 0;
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void the_shared_directory(void **state)
{
	struct world world = healthy();
	strcpy(world.tasks[2].dir_error, "couldn't write in /shared: Permission denied");
	says(&world,
		"error: dir-unusable: rank 2 on n2: couldn't write in /shared: Permission denied: ",
		"owner and mode");
	world = healthy();
	world.tasks[2].dir_differs = true;
	says(&world,
		"error: dir-not-shared: rank 2 on n2: /shared/run1 is not the directory that rank 0 on n1 "
		"has there: ",
		"every node mounts");
	world = healthy();
	strcpy(world.tasks[2].dir_error, "couldn't write in /shared: No space left on device");
	world.tasks[2].dir_full = true;
	says(&world,
		"error: dir-full: rank 2 on n2: couldn't write in /shared: No space left on device: ",
		"prune");
	world = healthy();
	world.tasks[0].dir_free = 3 << 19;
	world.tasks[2].dir_free = (3 << 19) - 4096; /* somebody wrote meanwhile */
	world.site.need_bytes = 2 << 20;
	says(&world,
		"error: dir-full: ranks 0, 2 on n1, n2: /shared/run1 has 1.5 MiB free, and two checkpoints "
		"need 2.0 MiB: ",
		"quota");
	world.site.need_bytes = -1;
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void limits(void **state)
{
	struct world world = healthy();
	world.tasks[1].locked_memory = 64 << 10;
	says(&world, "warning: locked-memory: rank 1 on n1: locked memory is limited to 64 KiB",
		"LimitMEMLOCK=infinity");
	world.tasks[1].rdma = false;
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void what_slurm_says_of_a_job_that_comes_back(void **state)
{
	struct world world = healthy();
	world.site.requeue = false;
	says(&world, "warning: no-requeue: ", "sbatch --requeue");
	world = healthy();
	world.site.batch = false;
	says(&world, "note: no-batch: ", "sbatch");
	world = healthy();
	world.site.append = false;
	says(&world, "warning: no-append: ", "--open-mode=append");
	world.site.file_append = true;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world = healthy();
	world.site.cred_expire = -1;
	says(&world, "warning: credentials-linger: a requeued job waits 120 s",
		"AuthInfo=cred_expire=5");
	world = healthy();
	strcpy(world.site.preempt_mode, "CANCEL");
	says(&world,
		"warning: preempt-cancels: partition spot has PreemptMode=CANCEL: ", "PreemptMode=REQUEUE");
	world = healthy();
	strcpy(world.site.plugin, "/usr/lib/slurm/spank_muster.so");
	world.site.release = world.site.plugin_release = 0x160508;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.release = 0x16050a;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.release = 0x190b07;
	says(&world,
		"warning: plugin-unloaded: /usr/lib/slurm/spank_muster.so was built for Slurm 22.05, and "
		"this is 25.11: ",
		"--with-slurm");
	world.site.plugin_missing = true;
	says(&world, "warning: plugin-unloaded: /usr/lib/slurm/spank_muster.so can't be read: ",
		"readable by all");
	world = healthy();
	strcpy(world.site.silent, "scontrol show config: no answer");
	says(&world, "note: slurm-silent: scontrol show config: no answer: ", "scontrol");
}

static void prologs_that_let_no_service_be(void **state)
{
	struct world world = healthy();
	world.site.hooks.in_job = true;
	says(&world,
		"warning: prolog-in-job: PrologFlags has RunInJob, so that the job prolog starts no "
		"checkpoint service: ",
		"take RunInJob out of PrologFlags");
	world.site.hooks.epilog = 5;
	assert_int_equal(judge(&world, RANKS, false), 1);
	world.site.hooks = (struct hooks) { .serial = true };
	says(&world,
		"warning: prolog-serial: PrologFlags has Serial, so that the job prolog starts no "
		"checkpoint service: ",
		"take Serial out of PrologFlags");
	/* Nobody wants one. */
	world.site.drain = -1;
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void prologs_and_epilogs_that_are_killed_too_soon(void **state)
{
	struct world world = healthy();
	world.site.hooks = (struct hooks) { .prolog = 320, .epilog = 320 };
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.hooks = (struct hooks) { .prolog = 60, .epilog = 60 };
	says(&world,
		"warning: epilog-short: PrologEpilogTimeout is 60 s, and the end of a checkpoint service "
		"may take drain=300 and 20 s: it is given 40 s, ",
		"set PrologEpilogTimeout=320 in slurm.conf, or drain=40 in plugstack.conf");
	world.site.release = 0x190508;
	says(&world, "warning: epilog-short: EpilogTimeout is 60 s, and ",
		"set EpilogTimeout=320 in slurm.conf, or drain=40");
	world.site.drain = 40;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.hooks.prolog = 24;
	says(&world,
		"warning: prolog-short: PrologTimeout is 24 s, so that the job prolog starts no checkpoint "
		"service: that may take 25 s",
		"set PrologTimeout=25 in slurm.conf");
	world.site.release = 0x180507;
	says(&world, "warning: prolog-short: PrologEpilogTimeout is 24 s, ",
		"set PrologEpilogTimeout=60 in slurm.conf");
	/* One line, though both are too short. */
	world.site.hooks.epilog = 15;
	says(&world,
		"warning: epilog-short: PrologEpilogTimeout is 15 s, so that the job prolog starts no "
		"checkpoint service: its end may take drain=40 and 20 s: ",
		"set PrologEpilogTimeout=60 in slurm.conf");
	world.site.drain = 0;
	says(&world, "warning: epilog-short: ", "set PrologEpilogTimeout=25 in slurm.conf");
}

static void ports_of_srun(void **state)
{
	struct world world = healthy();
	world.site.srun_ports = 5;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.srun_ports = 4;
	says(&world,
		"warning: srun-ports: SrunPortRange has 4 ports, and an srun on 4 nodes listens on 5: ",
		"5 ports or more for each srun");
	world.tasks[0].job_nodes = 49;
	world.site.srun_ports = 6;
	int lines = judge(&world, RANKS, false);
	assert_true(lines > 0);
	assert_non_null(strstr(said[lines - 1], "an srun on 49 nodes listens on 7: "));
	/* On a login node, without a job. */
	world.site.job_known = false;
	world.site.srun_ports = 1;
	lines = judge(&world, 0, false);
	assert_true(lines > 0);
	assert_non_null(
		strstr(said[lines - 1], "SrunPortRange has 1 port, and an srun on 1 node listens on 5: "));
}

/* slurmd knows its settings, and nothing of the job or of what scontrol says. */
static void slurmd_says_what_concerns_prologs_alone(void **state)
{
	struct world world = healthy();
	struct findings findings = { 0 };
	char line[600];
	const struct checkup checkup = { NULL, 0, &world.site };
	site_init(&world.site);
	check_run_in_slurmd(&checkup, &findings);
	assert_int_equal(findings.count, 0);
	world.site.drain = 300;
	world.site.hooks.serial = true;
	check_run_in_slurmd(&checkup, &findings);
	assert_int_equal(findings.count, 1);
	finding_line(&findings.list[0], &checkup, line, sizeof line);
	assert_int_equal(strncmp(line, "warning: prolog-serial: PrologFlags has Serial, ", 48), 0);
	findings_clear(&findings);
	/* Which is not for each step to say. */
	world = healthy();
	world.site.hooks.serial = true;
	assert_int_equal(judge(&world, RANKS, true), 0);
}

static void times_are_compared_with_the_measured_save(void **state)
{
	struct world world = healthy();
	world.site.grace = 20;
	says(&world,
		"warning: grace-short: GraceTime of partition spot is 20 s, and a save took 20.5 s: ",
		"GraceTime=41");
	world.site.grace = 21;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.kill_wait = 20;
	says(&world,
		"warning: killwait-short: KillWait is 20 s, and a save took 20.5 s: ", "KillWait=41");
	world.site.grace = 0;
	assert_int_equal(judge(&world, RANKS, false), 2);
	/* A service outlives the step: only the copy has to be in time. */
	for (int i = 0; i < RANKS; i++)
		world.tasks[i].service = true;
	world.site.grace = world.site.kill_wait = 1;
	assert_int_equal(judge(&world, RANKS, false), 0);
	world.site.save_stall = 1.5;
	assert_int_equal(judge(&world, RANKS, false), 2);
	world.tasks[5].service = false;
	assert_int_equal(judge(&world, RANKS, false), 2);
	world.site.save_stall = -1;
	assert_int_equal(judge(&world, RANKS, false), 0);
}

static void one_task_alone_is_judged_too(void **state)
{
	struct world world = healthy();
	struct site *site = &world.site;
	world.tasks[0] = (struct facts) { .world_size = 1,
		.local_world_size = 1,
		.node_count = 1,
		.gpus = -1,
		.job_nodes = -1,
		.job_tasks = -1,
		.cpus_per_task = -1,
		.cpus_on_node = -1,
		.cpus_online = 8,
		.locked_memory = 65536,
		.port = -1,
		.dir_free = -1,
		.node = "login" };
	site->job_known = false;
	assert_int_equal(judge(&world, 1, false), 0);
	site->cred_expire = 120;
	world.tasks[0].rdma = true;
	assert_int_equal(judge(&world, 1, false), 2);
	assert_int_equal(strncmp(said[0], "warning: locked-memory: login: ", 31), 0);
}

static void the_preflight_keeps_to_what_it_can_see(void **state)
{
	struct world world = healthy();
	world.site.cred_expire = -1;
	strcpy(world.tasks[2].driver, "535.1");
	world.tasks[0].gpus = 1;
	assert_int_equal(judge(&world, 1, true), 1);
	assert_int_equal(strncmp(said[0], "error: gpu-too-few: rank 0 on n1: ", 34), 0);
}

/* A thousand ranks on as many nodes fit into one line. */
static void many_ranks_are_one_line(void **state)
{
	static struct facts tasks[1024];
	char line[600];
	struct findings findings = { 0 };
	for (int i = 0; i < 1024; i++) {
		tasks[i] = (struct facts) { .rank = i,
			.world_size = 1024,
			.local_world_size = 1,
			.node_count = 1024,
			.in_step = true,
			.can_meet = i % 2,
			.gpus = -1 };
		snprintf(tasks[i].node, sizeof tasks[i].node, "node%04d", i);
	}
	const struct checkup checkup = { tasks, 1024, NULL };
	check_run(&checkup, false, &findings);
	assert_int_equal(findings.count, 1);
	finding_line(&findings.list[0], &checkup, line, sizeof line);
	assert_non_null(
		strstr(line, "ranks 0, 2, 4, 6, 8, 10, 12, 14 and more on node0000, node0002, "));
	assert_non_null(strstr(line, " and 504 more: this step"));
	assert_int_equal(findings_worst(&findings), CHECK_ERROR);
	findings_clear(&findings);
}

static void what_came_from_outside_stays_in_its_line(void **state)
{
	struct world world = healthy();
	strcpy(world.tasks[1].nccl, "2\n1\x1b[2J");
	says(&world, "error: nccl-differs: rank 1 on n1: NCCL 2?1?[2J here", "2.28.9");
	strcpy(world.tasks[1].node, "n\n1");
	says(&world, "error: nccl-differs: rank 1 on n?1: NCCL 2?1?[2J here", "2.28.9");
}

static void every_check_has_been_seen_at_work(void **state)
{
	for (int i = 0; checks[i].name; i++)
		if (!provoked[i])
			fail_msg("no test provokes %s", checks[i].name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_launch_without_fault_has_no_finding),
		cmocka_unit_test(gpus_are_counted_and_compared),
		cmocka_unit_test(a_device_that_is_not_there),
		cmocka_unit_test(network_interfaces),
		cmocka_unit_test(a_forgotten_srun),
		cmocka_unit_test(a_hidden_gpu_is_no_shared_one),
		cmocka_unit_test(cpus_are_counted_and_compared),
		cmocka_unit_test(the_step_is_compared_with_the_job),
		cmocka_unit_test(nodes_are_compared_with_most),
		cmocka_unit_test(ways_and_clocks),
		cmocka_unit_test(a_slow_rank_has_no_wrong_clock),
		cmocka_unit_test(the_shared_directory),
		cmocka_unit_test(limits),
		cmocka_unit_test(what_slurm_says_of_a_job_that_comes_back),
		cmocka_unit_test(prologs_that_let_no_service_be),
		cmocka_unit_test(prologs_and_epilogs_that_are_killed_too_soon),
		cmocka_unit_test(ports_of_srun),
		cmocka_unit_test(slurmd_says_what_concerns_prologs_alone),
		cmocka_unit_test(times_are_compared_with_the_measured_save),
		cmocka_unit_test(one_task_alone_is_judged_too),
		cmocka_unit_test(the_preflight_keeps_to_what_it_can_see),
		cmocka_unit_test(many_ranks_are_one_line),
		cmocka_unit_test(what_came_from_outside_stays_in_its_line),
		cmocka_unit_test(every_check_has_been_seen_at_work),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
