/* SPDX-License-Identifier: Apache-2.0 */
/* The table of checks. doc/muster-doctor.1 lists the same rows; tests/doctor.bats compares the
 * two. */
#include "checks/check.h"

#include "common/alone.h"

const struct check checks[] = {
	{ "gpu-none", CHECK_ERROR, PREFLIGHT_SAY, "The step has GPUs and a task sees none.",
		"leave CUDA_VISIBLE_DEVICES to Slurm: set it neither in the script nor with --export",
		check_gpu_none },
	{ "gpu-step", CHECK_WARNING, PREFLIGHT_SAY, "The job asked for GPUs and the step has none.",
		"give them to the step: srun --gpus-per-task=1, and no --gres=none", check_gpu_step },
	{ "gpu-too-few", CHECK_ERROR, PREFLIGHT_STOP, "A node has more tasks than GPUs.",
		"start one task a GPU: --ntasks-per-node={}", check_gpu_too_few },
	{ "gpu-idle", CHECK_WARNING, PREFLIGHT_SAY,
		"A node has fewer tasks than GPUs: the others stand idle.",
		"start one task a GPU: --ntasks-per-node={} (unless each task drives several itself)",
		check_gpu_idle },
	{ "gpu-shared", CHECK_ERROR, PREFLIGHT_STOP, "Two ranks use one GPU; NCCL refuses that.",
		"give each rank its own: srun --gpus-per-task=1 without --gpu-bind (if it is meant: "
		"NCCL_MULTI_RANK_GPU_ENABLE=1)",
		check_gpu_shared },
	{ "gpu-number", CHECK_ERROR, PREFLIGHT_SAY,
		"A task sees one GPU, number 0 to it, and LOCAL_RANK or JAX_LOCAL_DEVICE_IDS names "
		"another: invalid device ordinal.",
		"leave {} to the plugin, or set it to 0", check_gpu_number },
	{ "gpu-hidden", CHECK_WARNING, PREFLIGHT_SILENT,
		"The device cgroup hides a rank's GPU from the other ranks of its node: NCCL fails, or "
		"goes without NVLink.",
		"srun --gres-flags=allow-task-sharing (Slurm 23.11 on); before that --gpus-per-node={} in "
		"place of --gpus-per-task",
		check_gpu_hidden },
	{ "cpu-few", CHECK_WARNING, PREFLIGHT_SAY,
		"A rank may use fewer CPUs than were asked for, or one only where the step has more.",
		"srun --cpus-per-task={} (srun does not take it from sbatch in Slurm 22.05 to 23.02)",
		check_cpu_few },
	{ "cpu-overlap", CHECK_WARNING, PREFLIGHT_SILENT, "Ranks of a node are bound to the same CPUs.",
		"srun --cpu-bind=cores --cpus-per-task={}, and no binding in the script",
		check_cpu_overlap },
	{ "srun-missing", CHECK_NOTE, PREFLIGHT_SILENT,
		"The program was started in the job's script or shell, not by srun, and the job has more "
		"nodes or tasks.",
		ALONE_REMEDY, check_srun_missing },
	{ "step-nodes", CHECK_WARNING, PREFLIGHT_SAY, "The step runs on some of the job's nodes only.",
		"srun --nodes={}, or leave --nodes and --nodelist out", check_step_nodes },
	{ "step-tasks", CHECK_WARNING, PREFLIGHT_SAY,
		"The step has fewer tasks than the job was submitted for.",
		"srun --ntasks={}, or leave it out", check_step_tasks },
	{ "pmix-missing", CHECK_ERROR, PREFLIGHT_SAY, "This Slurm has neither PMIx nor PMI2.",
		"install Slurm's plugin mpi/pmix or mpi/pmi2; until then set MUSTER_RDZV_DIR to a folder "
		"that all nodes share",
		check_pmix_missing },
	{ "pmi2-only", CHECK_NOTE, PREFLIGHT_SILENT, "This Slurm has PMI2 and no PMIx.",
		"start steps with srun --mpi=pmi2 (srun --muster does); others than Muster may need "
		"Slurm's plugin mpi/pmix",
		check_pmi2_only },
	{ "pmix-step", CHECK_ERROR, PREFLIGHT_SILENT,
		"A step of several ranks was started without PMIx.", ALONE_WITH_PMIX, check_pmix_step },
	{ "port-taken", CHECK_ERROR, PREFLIGHT_SAY,
		"Another process listens on MASTER_PORT, on the node of rank 0.",
		"set MASTER_PORT to a free port, or leave it to the plugin", check_port },
	{ "master-unreachable", CHECK_ERROR, PREFLIGHT_SILENT,
		"A node can't reach rank 0 at MASTER_ADDR.",
		"set MASTER_ADDR to an address of {} that every node reaches, or correct that name in "
		"/etc/hosts or DNS",
		check_master },
	{ "interface-missing", CHECK_ERROR, PREFLIGHT_SAY,
		"NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that a node does not have.",
		"name one that every node has, or leave {} unset", check_interface_missing },
	{ "nccl-interface", CHECK_ERROR, PREFLIGHT_SILENT,
		"NCCL takes an interface of a node by which another node can't reach it: ncclCommInitRank "
		"hangs.",
		"set NCCL_SOCKET_IFNAME to the interface by which all nodes reach each other {}",
		check_nccl_interface },
	{ "gloo-interface", CHECK_WARNING, PREFLIGHT_SILENT,
		"PyTorch's Gloo takes an address of a node at which another node can't reach it: "
		"init_process_group fails.",
		"set GLOO_SOCKET_IFNAME to the interface by which all nodes reach each other {}",
		check_gloo_interface },
	{ "clocks-apart", CHECK_WARNING, PREFLIGHT_SILENT,
		"The clocks of two nodes differ by more than a second.",
		"run chrony or ntpd on every node: chronyc tracking", check_clock },
	{ "driver-differs", CHECK_WARNING, PREFLIGHT_SILENT,
		"Nodes have different versions of the NVIDIA driver.",
		"install {} there, or leave these nodes out: --exclude", check_driver },
	{ "cuda-differs", CHECK_WARNING, PREFLIGHT_SILENT, "Nodes have different versions of CUDA.",
		"install {} there, or leave these nodes out: --exclude", check_cuda },
	{ "nccl-differs", CHECK_ERROR, PREFLIGHT_SILENT,
		"Nodes have different versions of NCCL; ranks with different ones can't talk.",
		"install {} there, or let LD_LIBRARY_PATH name one folder that all nodes share",
		check_nccl },
	{ "muster-differs", CHECK_ERROR, PREFLIGHT_SILENT, "Nodes have different builds of Muster.",
		"install the same package on every node, or start it from a folder that all nodes share",
		check_muster },
	{ "dir-unusable", CHECK_ERROR, PREFLIGHT_SILENT,
		"The shared directory can't be written on a node.",
		"fix its owner and mode, or its mount there: the job's user must be able to write",
		check_dir },
	{ "dir-not-shared", CHECK_ERROR, PREFLIGHT_SILENT,
		"Nodes see different directories under the same path.",
		"take a folder on a file system that every node mounts", check_dir_shared },
	{ "dir-full", CHECK_ERROR, PREFLIGHT_SILENT,
		"The shared directory has no room on a node, or not for two more checkpoints.",
		"free some room or raise the quota: muster-ckpt prune, --keep-last", check_dir_space },
	{ "locked-memory", CHECK_WARNING, PREFLIGHT_SILENT,
		"A node has an RDMA adapter, and locked memory is limited.",
		"LimitMEMLOCK=infinity in slurmd's unit, and PropagateResourceLimitsExcept=MEMLOCK in "
		"slurm.conf",
		check_memory },
	{ "plugin-unloaded", CHECK_WARNING, PREFLIGHT_SILENT,
		"plugstack.conf names Muster's plugin, and Slurm can't load it: it was built for another "
		"release, or can't be read.",
		"install the plugin for this Slurm on every node, readable by all users: its package, or a "
		"build with configure --with-slurm=DIR",
		check_plugin },
	{ "slurm-silent", CHECK_NOTE, PREFLIGHT_SILENT,
		"Slurm does not answer: its settings are not checked.",
		"start muster-doctor where scontrol works", check_slurm_silent },
	{ "no-requeue", CHECK_WARNING, PREFLIGHT_SILENT, "The job can't be put back in the queue.",
		"sbatch --requeue (and no --no-requeue), or JobRequeue=1 in slurm.conf", check_requeue },
	{ "no-batch", CHECK_NOTE, PREFLIGHT_SILENT,
		"Only a job of sbatch can be put back in the queue; this one is not.",
		"submit it with sbatch", check_batch },
	{ "no-append", CHECK_WARNING, PREFLIGHT_SILENT,
		"A requeued job empties its output file when it starts again.",
		"sbatch --open-mode=append, or JobFileAppend=1 in slurm.conf", check_open_mode },
	{ "grace-short", CHECK_WARNING, PREFLIGHT_SILENT,
		"The partition's GraceTime is shorter than a save takes.",
		"GraceTime={} for the partition in slurm.conf", check_grace },
	{ "killwait-short", CHECK_WARNING, PREFLIGHT_SILENT,
		"KillWait, all that a job has without a grace time, is shorter than a save takes.",
		"KillWait={} in slurm.conf", check_kill_wait },
	{ "credentials-linger", CHECK_WARNING, PREFLIGHT_SILENT,
		"A requeued job waits until the credentials of its last attempt have expired.",
		"AuthInfo=cred_expire=5 in slurm.conf", check_credentials },
	{ "prolog-in-job", CHECK_WARNING, PREFLIGHT_SLURMD,
		"PrologFlags=RunInJob: the job prolog runs in a step, and with it whatever it starts.",
		"take RunInJob out of PrologFlags in slurm.conf; till then a save must fit into GraceTime "
		"or KillWait",
		check_prolog_in_job },
	{ "prolog-serial", CHECK_WARNING, PREFLIGHT_SLURMD,
		"PrologFlags=Serial: the prologs and epilogs of a node wait for each other.",
		"take Serial out of PrologFlags in slurm.conf; till then a save must fit into GraceTime or "
		"KillWait",
		check_prolog_serial },
	{ "prolog-short", CHECK_WARNING, PREFLIGHT_SLURMD,
		"Slurm kills a prolog (PrologTimeout, PrologEpilogTimeout) sooner than a checkpoint "
		"service may have started.",
		"set {}", check_prolog_short },
	{ "epilog-short", CHECK_WARNING, PREFLIGHT_SLURMD,
		"Slurm kills an epilog (EpilogTimeout, PrologEpilogTimeout) sooner than a checkpoint "
		"service may have ended.",
		"set {}", check_epilog_short },
	{ "srun-ports", CHECK_WARNING, PREFLIGHT_SILENT,
		"SrunPortRange has fewer ports than one srun of this size listens on.",
		"give SrunPortRange in slurm.conf {} ports or more for each srun that runs on a machine at "
		"a time",
		check_srun_ports },
	{ "preempt-cancels", CHECK_WARNING, PREFLIGHT_SILENT,
		"A job of this partition that is preempted is cancelled.",
		"PreemptMode=REQUEUE for the partition in slurm.conf", check_preempt_mode },
	{ 0 },
};

void check_run(const struct checkup *checkup, bool preflight, struct findings *findings)
{
	findings->task_count = checkup->count;
	for (const struct check *check = checks; check->name; check++)
		if (!preflight || check->preflight >= PREFLIGHT_SAY)
			check->judge(check, checkup, findings);
}

void check_run_in_slurmd(const struct checkup *checkup, struct findings *findings)
{
	for (const struct check *check = checks; check->name; check++)
		if (check->preflight == PREFLIGHT_SLURMD)
			check->judge(check, checkup, findings);
}
