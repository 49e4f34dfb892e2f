#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-doctor on a real Slurm: each fault provoked, and its line. What a namespace can't have is
# faked below the probe.

load helpers

setup_file() {
    export MUSTER_CLUSTER_KILLWAIT=2
    # More than 30 s is a finding.
    local expire=$((5 * ${MUSTER_PATIENCE:-3} / 3))
    export MUSTER_CLUSTER_CRED_EXPIRE=$((expire < 30 ? expire : 30))
    export MUSTER_CLUSTER_CONF="PartitionName=cancels Nodes=ALL PriorityTier=1 PreemptMode=CANCEL"
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    cat >"$JOBS/doctor.sh" <<'END'
#!/bin/bash
srun $STEP muster-doctor $WORDS
END
    # as RANK COMMAND…: only that rank runs the doctor by way of the command.
    cat >"$JOBS/as" <<'END'
#!/bin/bash
rank=$1 && shift
[ "$SLURM_PROCID" = "$rank" ] && exec "$@" muster-doctor $WORDS
exec muster-doctor $WORDS
END
    # Ranks that are not through when the doctor's status has srun kill them; the job goes on.
    cat >"$JOBS/slow-end" <<'END'
#!/bin/bash
[ "$SLURM_PROCID" != 0 ] || exec muster-doctor
muster-doctor
exec sleep 1000
END
    cat >"$JOBS/goes-on.sh" <<'END'
#!/bin/bash
srun -N4 -n4 ./slow-end
sleep 4
END
    chmod 755 "$JOBS/doctor.sh" "$JOBS/as" "$JOBS/slow-end" "$JOBS/goes-on.sh"
    mkdir "$JOBS/slow"
    echo '{"step":9,"checkpoint":{"stall":4.5,"flush":100,"bytes":1000}}' \
        >"$JOBS/slow/metrics-3.jsonl"
    # All at once: a job waits for the scheduler longer than it runs.
    STEP='--gpus-per-task=1' WORDS='--dir ckpt' job healthy -N4 --ntasks-per-node=2 --gres=gpu:2 -c1
    STEP='' WORDS='' job one-a-node -N4 --ntasks-per-node=1 -c1
    STEP='-N2 -n4' WORDS='' job few-nodes -N4 --ntasks-per-node=2
    STEP='-N4 -n4' WORDS='' job few-tasks -N4 --ntasks-per-node=2
    STEP='' WORDS='' job no-requeue -N1 --no-requeue
    STEP='' WORDS='' job truncate -N1 --open-mode=truncate
    STEP='' WORDS='--dir slow' job slow -N1
    cluster run sbatch --muster --open-mode=append -o script.out --parsable --wrap muster-doctor \
        >"$JOBS/script.id"
    STEP='--gres=none' WORDS='' job gpu-step -N1 -w n1 -n2 --gres=gpu:2
    STEP='--gpus-per-node=0' WORDS='' job gpu-left -N1 -w n1 -n2 --gpus-per-node=2
    STEP='--exact -N1 -n2' WORDS='' job part -N2 -n4 --exclusive
    cluster run sbatch --muster --open-mode=append -o goes-on.out -N4 --ntasks-per-node=2 \
        --parsable goes-on.sh >"$JOBS/goes-on.id"
}

# job NAME SBATCH-ARGUMENT…: runs it in a batch job, with srun's options in STEP and its own in
# WORDS.
job() {
    cluster run sbatch --muster --open-mode=append -o "$1.out" -J "$1" "${@:2}" \
        --parsable doctor.sh >"$JOBS/$1.id"
}

# told NAME: what that job said, and its status.
told() {
    job_wait "$(<"$JOBS/$1.id")" 60 COMPLETED FAILED CANCELLED
    status=$(job_field "$(<"$JOBS/$1.id")" ExitCode) && status=${status%:*}
    output=$(<"$JOBS/$1.out")
}

# Root's, in the namespaces of a node.
on_node() { cluster run --user root --node "$1" sh -c "$2"; }

# step SRUN-OPTION…: runs the doctor in a step, without our plugin in srun.
step() { run cluster run timeout -k 10 "$HANG" srun --mpi=pmix "$@"; }

# found STATUS SEVERITY CHECK PART…: there is one line of this check, with all the parts, and the
# status was this.
found() {
    local want=$1 line part
    line=$(grep "^$2: $3: " <<<"$output") || { echo "$output"; echo "nothing of $3"; return 1; }
    [ "$(wc -l <<<"$line")" -eq 1 ] || { echo "$output"; echo "more than a line of $3"; return 1; }
    for part in "${@:4}"; do
        [[ $line = *"$part"* ]] || { echo "$line"; echo "without: $part"; return 1; }
    done
    [ "$status" -eq "$want" ] || { echo "$output"; echo "status $status, not $want"; return 1; }
}

# What the plugin said in the same step: line by line what the doctor says of the check.
also_said() {
    local line
    line=$(grep "^[a-z]*: $1: " <<<"$output")
    grep -qF "muster: $line" <<<"$output" || {
        echo "$output"; echo "the plugin did not say: $line"; return 1
    }
}

# plugin_says STATUS COUNT LINE SRUN-ARGUMENT…: a step with --muster ends so, and the plugin says
# that line so often.
plugin_says() {
    local want=$1 count=$2 line=$3
    shift 3
    run cluster run timeout -k 10 "$HANG" srun --muster "$@"
    echo "$output"
    [ "$(grep -cF -- "$line" <<<"$output")" -eq "$count" ] && [ "$status" -eq "$want" ]
}

# How many faults were found, notes apart.
faults() { grep -c '^\(error\|warning\): ' <<<"$output" || :; }

@test "a job as it should be has no finding, and ends with 0" {
    two_cpus
    told healthy
    echo "$output"
    [ "$status $output" = "0 muster-doctor: 8 ranks on 4 nodes: no fault found" ]
    [ -z "$(find "$JOBS" -name '.muster-doctor*')" ]
    told one-a-node
    echo "$output"
    [ "$status $output" = "0 muster-doctor: 4 ranks on 4 nodes: no fault found" ]
    # One of several steps of a job, which has whole nodes and so their GPUs, and uses none.
    told part
    echo "$output"
    [ "$status $output" = "0 muster-doctor: 2 ranks on 1 node: no fault found" ]
    # In the script itself, and without a job.
    told script
    echo "$output"
    [[ $status = 0 && $output = "muster-doctor: n"[1-4]": no fault found" ]]
    run cluster run muster-doctor
    echo "$output"
    [ "$status $output" = "0 muster-doctor: ctl: no fault found" ]
}

@test "GPUs: too few, idle, shared, none visible, none in the step" {
    step -N1 -w n1 -n3 --gres=gpu:1 muster-doctor
    found 1 error gpu-too-few "ranks 0-2 on n1: 3 tasks a node and 1 GPU:" --ntasks-per-node=1
    step -N1 -w n1 -n1 --gres=gpu:2 muster-doctor
    found 3 warning gpu-idle "rank 0 on n1: 1 task a node and 2 GPUs:" --ntasks-per-node=2
    step -N2 -w n1,n2 --ntasks-per-node=2 --gres=gpu:2 --gpu-bind=map_gpu:0,0 muster-doctor
    found 1 error gpu-shared "ranks 0-3 on n1, n2: GPU 0" --gpus-per-task=1
    step -N1 -w n1 -n2 --gpus-per-task=1 ./as 1 env CUDA_VISIBLE_DEVICES=
    found 1 error gpu-none "rank 1 on n1:" "leave CUDA_VISIBLE_DEVICES to Slurm"
    told gpu-step
    found 3 warning gpu-step "ranks 0-1 on n1:" --gpus-per-task=1
    told gpu-left
    found 3 warning gpu-step "ranks 0-1 on n1:" --gpus-per-task=1
    also_said gpu-step
}

@test "the plugin does not begin a step whose ranks would share a GPU, and drains no node" {
    two_cpus
    too_few="muster: error: gpu-too-few: ranks 0-2 on n1: 3 tasks a node and 1 GPU: start one task a GPU: --ntasks-per-node=1"
    plugin_says 2 1 "$too_few (the step ends here" -N1 -w n1 -n3 --gres=gpu:1 echo began
    [[ $output != *$'\n'began* ]]
    MUSTER_PREFLIGHT=warn plugin_says 0 1 "$too_few" -N1 -w n1 -n3 --gres=gpu:1 echo began
    [ "$(grep -c ^began <<<"$output")" -eq 3 ]
    MUSTER_PREFLIGHT=off plugin_says 0 0 muster: -N1 -w n1 -n3 --gres=gpu:1 echo began
    plugin_says 2 1 "muster: error: gpu-shared: ranks 0-1 on n1: GPU 0 of the node" -N2 -w n1,n2 \
        --ntasks-per-node=2 --gres=gpu:2 \
        --gpu-bind=map_gpu:0,0 echo began
    grep -q "gpu-shared: ranks 2-3 on n2:" <<<"$output"
    # What only warns is logged once, not by each node.
    plugin_says 0 1 "muster: warning: gpu-idle: rank 0 on n1: 1 task a node and 2 GPUs" -N4 -n4 \
        --gres=gpu:2 true
    [ "$(grep -c gpu-idle <<<"$output")" -eq 1 ]
    # One process may drive all of them, and so may what it starts.
    plugin_says 0 0 muster: -N1 -n1 --gres=gpu:2 true
    plugin_says 0 0 muster: -N2 -n2 --gres=gpu:2 true torchrun
    plugin_says 0 0 muster: -N4 --ntasks-per-node=2 --gpus-per-task=1 true
    cluster plugin "$PLUGIN" preflight=off
    plugin_says 0 0 muster: -N1 -w n1 -n3 --gres=gpu:1 true
    cluster plugin "$PLUGIN"
    # One task prepares something for the others.
    run cluster run timeout "$HANG" salloc -N2 -n4 --gres=gpu:2 srun --muster -N1 -n1 true
    echo "$output"
    [[ $status = 0 && $output != *muster* ]]
    wait_for "$GIVING_UP" all_idle
}

# The device cgroup is faked by a device file that the user may not open: access(2) says the same of
# both.
@test "GPUs of the siblings hidden" {
    two_cpus
    cluster run unshare -m --map-current-user --keep-caps mount -t tmpfs none /mnt 2>/dev/null ||
        skip "users may not make mount namespaces here"
    locked=$(cluster status dir)/dev/gpu0
    [ -c "$locked" ] || skip "no device files may be made here"
    chmod 600 "$locked"
    cat >"$JOBS/hide" <<END
#!/bin/bash
exec unshare -m --map-current-user --keep-caps bash -c '
    set -e
    old=/tmp/dev.\$SLURM_PROCID
    mkdir \$old && mount --rbind /dev \$old && mount -t tmpfs none /dev
    for file in null zero urandom nvidia0 nvidia1; do : >/dev/\$file; done
    for file in null zero urandom; do mount --bind \$old/\$file /dev/\$file; done
    mount --bind \$old/null /dev/nvidia\$SLURM_LOCALID
    mount --bind $locked /dev/nvidia\$((1 - SLURM_LOCALID))
    mkdir /dev/shm
    CUDA_VISIBLE_DEVICES=0 exec setpriv --ambient-caps=-all --inh-caps=-all muster-doctor'
END
    chmod 755 "$JOBS/hide"
    step -N2 -w n1,n2 --ntasks-per-node=2 --gpus-per-task=1 ./hide
    found 3 warning gpu-hidden "ranks 0-3 on n1, n2:" --gres-flags=allow-task-sharing \
        --gpus-per-node=2
    [ "$(faults)" -eq 1 ]
}

@test "CPUs: fewer than asked for, and shared ones" {
    two_cpus
    step -N2 -w n1,n2 --ntasks-per-node=2 -c2 taskset -c 0 muster-doctor
    found 3 warning cpu-few "ranks 0-3 on n1, n2: may use 1 CPU of 2" --cpus-per-task=2
    found 3 warning cpu-overlap "ranks 0-3 on n1, n2: 2 ranks of a node are bound to CPU 0" \
        --cpu-bind=cores
    # A step has the CPUs of slurmd here; elsewhere it is Slurm that binds the tasks before the
    # plugin looks.
    slurmd=$(cat "$(cluster status dir)/pid/slurmd-n1")
    all=$(taskset -pc "$slurmd" | sed 's/.*: //')
    # all threads: newer releases begin a step on another than the first
    taskset -apc 0 "$slurmd" >/dev/null
    plugin_says 0 1 "muster: warning: cpu-few: ranks 0-1 on n1: may use 1 CPU of 2 asked for: srun --cpus-per-task=2" \
        -N1 -w n1 -n2 -c2 true
    taskset -apc "$all" "$slurmd" >/dev/null
    plugin_says 0 0 muster: -N1 -w n1 -n2 -c2 true
}

@test "a step that is smaller than the job" {
    two_cpus
    told few-nodes
    found 3 warning step-nodes "2 of the job's 4 nodes" --nodes=4
    also_said step-nodes
    [ "$(faults)" -eq 1 ]
    told few-tasks
    found 3 warning step-tasks "the world size is 4" "8 tasks" --ntasks=8
    also_said step-tasks
}

# A rank that Slurm kills has the job put back, but not where it was killed for another's result.
@test "a finding does not put the job back, though srun kills the ranks that are not through" {
    told goes-on
    found 0 warning step-tasks "the world size is 4" "8 tasks"
    grep -q 'Killed\|Terminated\|signal 9' <<<"$output"
    [[ $output != *"muster: rank"* && $output != *"put back"* ]]
    [ "$(job_field "$(<"$JOBS/goes-on.id")" Restarts)" -eq 0 ]
}

@test "no PMIx: in the step, and in all of Slurm; no PMI2 either" {
    run cluster run srun --mpi=none -N2 -w n1,n2 muster-doctor
    found 1 error pmix-step "rank 0 on n1: this step was started without PMIx" "srun --mpi=pmix"
    [ "$(grep -c 'started without PMIx' <<<"$output")" -eq 1 ]
    [[ $output = *"rank 0 of 2, alone"* ]]
    mkdir "$JOBS/plugins"
    ln -s "$(cluster run scontrol show config | sed -n 's/^PluginDir *= //p')"/* "$JOBS/plugins/"
    rm "$JOBS"/plugins/mpi_pmix*
    { cat "$(cluster status conf)" && echo "PluginDir=$JOBS/plugins"; } >"$JOBS/nopmix.conf"
    run cluster run env SLURM_CONF="$JOBS/nopmix.conf" muster-doctor
    found 0 note pmi2-only "has no pmix, only" --mpi=pmi2
    # The plugin takes PMI2 and says nothing of it.
    run cluster run env SLURM_CONF="$JOBS/nopmix.conf" srun --muster -N2 -n2 muster-rdzv
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cE '^ +[01]/2 .* pmi2 +pmi2 ' <<<"$output")" -eq 2 ]
    [[ $output != *muster:* ]]
    rm "$JOBS"/plugins/mpi_pmi2*
    run cluster run env SLURM_CONF="$JOBS/nopmix.conf" muster-doctor
    found 1 error pmix-missing "has neither pmix nor pmi2, only" MUSTER_RDZV_DIR
    # The plugin says the same, and the step begins without.
    line="muster: ${lines[0]}"
    run cluster run env SLURM_CONF="$JOBS/nopmix.conf" srun --muster -N2 -n2 echo began
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c ^began <<<"$output")" -eq 2 ]
    [ "$(grep -cF "$line" <<<"$output")" -eq 1 ]
    run cluster run env SLURM_CONF="$JOBS/nopmix.conf" srun --muster --mpi=none -N1 echo began
    [ "$status $output" = "0 began" ]
}

@test "MASTER_PORT taken, MASTER_ADDR not reached" {
    cluster run --node n1 /usr/bin/python3 -c 'import socket, time
s = socket.create_server(("", 25999))
time.sleep(50)' 3>&- &
    listener=$!
    wait_for 10 cluster run --node n1 bash -c ': </dev/tcp/n1/25999' 2>/dev/null
    step -N2 -w n1,n2 --export=ALL,MASTER_PORT=25999 muster-doctor
    doctors=$output
    plugin_says 0 1 "muster: $(grep '^error: port-taken: ' <<<"$doctors")" -N2 -w n1,n2 \
        --export=ALL,MASTER_PORT=25999 true
    kill "$listener"
    output=$doctors status=1
    found 1 error port-taken \
        "rank 0 on n1: can't listen on MASTER_PORT=25999: Address already in use" "set MASTER_PORT"
    [ "$(faults)" -eq 1 ]
    on_node n3 'sed "/ n1\$/d" /etc/hosts >/run/hosts && echo 127.0.1.1 n1 >>/run/hosts && mount --bind /run/hosts /etc/hosts'
    step -N4 --ntasks-per-node=2 muster-doctor
    on_node n3 'umount /etc/hosts'
    found 1 error master-unreachable "rank 4 on n3: can't reach rank 0 at n1: 127.0.1.1 port" \
        "Connection refused" \
        "an address of n1 that every node reaches"
    step -N2 -w n1,n2 --export=ALL,MASTER_ADDR=nowhere.invalid muster-doctor
    found 1 error master-unreachable "ranks 0-1 on n1, n2: can't reach rank 0 at nowhere.invalid:"
}

@test "clocks apart" {
    faketime=$(find /usr/lib -name libfaketime.so.1 | head -n 1)
    [ -n "$faketime" ] || skip "no libfaketime"
    # PMIx does not start under libfaketime; a shared folder does.
    step --mpi=none --export="ALL,MUSTER_RDZV_DIR=$JOBS" -N4 -w n[1-4] ./as 2 \
        env LD_PRELOAD="$faketime" FAKETIME=-90s \
        FAKETIME_DONT_FAKE_MONOTONIC=1
    found 3 warning clocks-apart "rank 2 on n3: the clock is 90 s behind that of rank 0 on n1" \
        chrony
    step --mpi=none --export="ALL,MUSTER_RDZV_DIR=$JOBS" -N2 -w n1,n2 ./as 1 \
        env LD_PRELOAD="$faketime" FAKETIME=+0.5s \
        FAKETIME_DONT_FAKE_MONOTONIC=1
    [ "$status" -eq 0 ]
    [ "$(faults)" -eq 0 ]
}

# driver_of NODE VERSION: as the kernel module tells it.
driver_of() {
    on_node "$1" "mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia &&
        echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  $2  Sat Aug 19 01:15:15 UTC 2023' >/proc/driver/nvidia/version"
}

# library FOLDER NAME FUNCTION NUMBER: a library with that function, which tells that version.
library() {
    mkdir -p "$JOBS/$1"
    gcc -shared -fPIC -x c -o "$JOBS/$1/$2" - <<<"int $3(int *version) { *version = $4; return 0; }"
}

@test "versions that differ: driver, CUDA, NCCL, Muster" {
    driver_of n1 550.54.14
    driver_of n2 535.104.05
    for n in 0 1; do
        library "lib$n" libnccl.so.2 ncclGetVersion $((22809 - n * 600))
        library "lib$n" libcuda.so.1 cuDriverGetVersion $((12040 - n * 20))
        library "lib$n" libcudart.so.13 cudaRuntimeGetVersion $((12010 - n * 10))
    done
    cat >"$JOBS/versions" <<'END'
#!/bin/bash
export LD_LIBRARY_PATH=$PWD/lib$SLURM_NODEID
[ $SLURM_NODEID = 0 ] && exec muster-doctor
sed 's/0\.2\.0/0.0.9/g' "$(command -v muster-doctor)" >/tmp/muster-doctor &&
    chmod 755 /tmp/muster-doctor && exec /tmp/muster-doctor
END
    chmod 755 "$JOBS/versions"
    step -N2 -w n1,n2 ./versions
    for node in n1 n2; do on_node $node 'umount /proc/driver'; done
    found 1 warning driver-differs "rank 1 on n2: driver 535.104.05 here, 550.54.14 on most"
    found 1 warning cuda-differs \
        "rank 1 on n2: CUDA 12.2 with runtime 12.0 here, 12.4 with runtime 12.1 on most"
    found 1 error nccl-differs "rank 1 on n2: NCCL 2.22.9 here, 2.28.9 on most"
    found 1 error muster-differs "rank 1 on n2: Muster 0.0.9 (build" "here, 0.2.0 (build" \
        "same package"
}

@test "the shared directory: not shared, not writable, full, too small" {
    two_cpus
    step -N4 --ntasks-per-node=2 muster-doctor --dir /tmp/run1
    found 1 error dir-not-shared \
        "ranks 2, 4, 6 on n2, n3, n4: /tmp/run1 is not the directory that rank 0 on n1 has there"
    [ "$(faults)" -eq 1 ]
    mkdir -m 777 "$JOBS/readonly"
    on_node n2 "mount --bind '$JOBS/readonly' '$JOBS/readonly' && mount -o remount,ro,bind '$JOBS/readonly'"
    step -N2 -w n1,n2 muster-doctor --dir readonly/run1
    found 1 error dir-unusable "rank 1 on n2: couldn't write in readonly: Read-only file system"
    [ "$(faults)" -eq 1 ]
    mkdir "$JOBS/full" "$JOBS/locked"
    step -N2 -w n1,n2 muster-doctor --dir locked
    found 1 error dir-unusable "ranks 0-1 on n1, n2: couldn't write in locked: Permission denied"
    cluster run --user root mount -t tmpfs -o mode=1777,size=64k none "$JOBS/full"
    step -N2 -w n1,n2 muster-doctor --dir full
    found 1 error dir-full "ranks 0-1 on n1, n2: couldn't write in full: No space left on device" \
        prune
    mkdir -m 777 "$JOBS/saved"
    echo '{"step":9,"checkpoint":{"stall":0.01,"flush":0.1,"bytes":9000000000000000}}' \
        >"$JOBS/saved/metrics-0.jsonl"
    step -N2 -w n1,n2 muster-doctor --dir saved
    found 1 error dir-full "ranks 0-1 on n1, n2: saved has" "two checkpoints need"
    [ -z "$(find "$JOBS" -name '.muster-doctor*')" ]
}

@test "locked memory is limited where there is RDMA" {
    on_node n2 'mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0'
    step -N2 -w n1,n2 bash -c 'ulimit -l 64 && exec muster-doctor'
    on_node n2 'umount /sys/class'
    found 3 warning locked-memory "rank 1 on n2: locked memory is limited to 64 KiB" \
        LimitMEMLOCK=infinity
}

@test "a job that can't come back, or forgets what it wrote" {
    told no-requeue
    found 3 warning no-requeue "sbatch --requeue"
    told truncate
    found 3 warning no-append "sbatch --open-mode=append"
    step -N1 -w n1 muster-doctor
    found 0 note no-batch "submit it with sbatch"
    run cluster run muster-doctor --partition cancels
    found 3 warning preempt-cancels "partition cancels has PreemptMode=CANCEL"
    run cluster run muster-doctor --partition nosuch
    found 0 note slurm-silent "there is no partition nosuch"
}

@test "times that are shorter than a save" {
    run cluster run muster-doctor --partition spot --dir "$JOBS/slow"
    found 1 warning grace-short "GraceTime of partition spot is 15 s, and a save took 104.5 s" \
        GraceTime=209
    # The job's checkpoint service writes on when the step is killed: then only the copy has to be
    # in time.
    told slow
    found 1 warning killwait-short "KillWait is 2 s, and a save took 4.5 s" KillWait=9
    [[ $output != *grace-short* ]]
}

@test "a plugin that Slurm can't load" {
    mkdir "$JOBS/other"
    gcc -shared -fPIC -x c -o "$JOBS/other/spank_muster.so" - \
        <<<'const char plugin_name[] = "muster", plugin_type[] = "spank";
const unsigned int plugin_version = 0x140b00, spank_plugin_version = 1;'
    cluster plugin "$JOBS/other/spank_muster.so"
    run cluster run muster-doctor
    found 3 warning plugin-unloaded "other/spank_muster.so was built for Slurm 20.11, and this is" \
        --with-slurm
    rm "$JOBS/other/spank_muster.so"
    run cluster run muster-doctor
    cluster plugin "$PLUGIN"
    found 3 warning plugin-unloaded "other/spank_muster.so can't be read" "on every node"
}

@test "a range of ports that is too small for one srun" {
    conf=$(cluster status conf)
    echo SrunPortRange=60001-60004 >>"$conf"
    cluster run --user root scontrol reconfigure
    run cluster run muster-doctor
    sed -i /^SrunPortRange/d "$conf"
    cluster run --user root scontrol reconfigure
    found 3 warning srun-ports "SrunPortRange has 4 ports, and an srun on 1 node listens on 5" \
        "5 ports or more for each srun"
    run cluster run muster-doctor
    [ "$status" -eq 0 ]
}

@test "credentials that linger" {
    conf=$(cluster status conf)
    sed -i 's/,cred_expire=[0-9]*//' "$conf"
    cluster run --user root scontrol reconfigure
    run cluster run muster-doctor
    sed -i 's/^AuthInfo=.*/&,cred_expire=5/' "$conf"
    cluster run --user root scontrol reconfigure
    found 3 warning credentials-linger "a requeued job waits 120 s" AuthInfo=cred_expire=5
    run cluster run muster-doctor
    [ "$status" -eq 0 ]
}

@test "--json of a step has ranks and nodes" {
    step -N4 --ntasks-per-node=2 muster-doctor --json --dir /tmp/run1
    [ "$status" -eq 1 ]
    grep '^{' <<<"$output" | python3 -c '
import json, sys
told = json.load(sys.stdin)
assert (told["ranks"], told["nodes"], told["worst"]) == (8, 4, "error"), told
first = told["findings"][0]
assert first["check"] == "dir-not-shared" and first["ranks"] == [2, 4, 6] and \
    first["nodes"] == ["n2", "n3", "n4"], first'
}

@test "a rank that does not come is named, and a Slurm that does not answer holds nobody up" {
    step -N2 -w n1,n2 --kill-on-bad-exit=1 \
        bash -c '[ $SLURM_PROCID = 0 ] || exec sleep 1000; exec muster-doctor --timeout 2'
    [ "$status" -ne 0 ]
    [[ $output = *"rank 1 (on n2) did not come"* ]]
    sed 's/^SlurmctldHost=.*/SlurmctldHost=ctl(10.77.0.99)/' "$(cluster status conf)" \
        >"$JOBS/away.conf"
    began=$SECONDS
    run cluster run env SLURM_CONF="$JOBS/away.conf" muster-doctor --slurm-timeout 1
    in_time 5 $began # the default is 10
    found 0 note slurm-silent "scontrol show config: no answer"
}
