#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The ten faults of doc/launch-faults.md, each provoked on a real Slurm. Where each is
# (tests/manuals.bats looks them up):
#  1  doctor.bats: MASTER_PORT taken, MASTER_ADDR not reached
#  1  plugin.bats: all tasks of a step agree on the port, and it is outside the ephemeral range
#  2  environment.bats: a task with one GPU, one with two
#  2  pains.bats: a script that counts GPUs by itself, where a task sees one
#  3  doctor.bats: GPUs of the siblings hidden
#  4  environment.bats: a task with one GPU, one with two
#  4  pains.bats: a script that counts GPUs by itself, where a task sees one
#  5  doctor.bats: GPUs: too few, idle, shared, none visible, none in the step
#  5  doctor.bats: the plugin does not begin a step whose ranks would share a GPU, and drains no node
#  6  pains.bats: a forgotten srun
#  6  doctor.bats: the plugin does not begin a step whose ranks would share a GPU, and drains no node
#  7  doctor.bats: MASTER_PORT taken, MASTER_ADDR not reached
#  7  environment.bats: MASTER_ADDR is the address by which Slurm reaches the node, not a name
#  8  doctor.bats: CPUs: fewer than asked for, and shared ones
#  9  pains.bats: a network interface that other nodes don't reach, or that a node does not have
#  9  pains.bats: ranks that have met and can't connect
# 10  environment.bats: a step smaller than its job is a world of its own
# 10  doctor.bats: a step that is smaller than the job
# 10 rendezvous.bats: a rank that stops, sleeps, dies, ends or miscounts before it has met the
# others

load helpers

setup_file() {
    export MUSTER_CLUSTER_KILLWAIT=2
    plugin_locate || return 0
    cluster_begin 2 --plugin "$PLUGIN"
    # A second network, on which the nodes don't reach each other.
    for node in 1 2; do
        cluster run --user root --node n$node \
            sh -c "ip link add eth1 type veth peer name far && ip link set far up &&
            ip link set eth1 up && ip address add 192.168.7.$node/32 dev eth1"
    done
    printf '#!/bin/bash\n"$@"\n' >"$JOBS/script" && chmod 755 "$JOBS/script"
}

srun() { run cluster run timeout -k 10 "$HANG" srun --muster "$@" && echo "$output"; }

# says COUNT LINE: that many lines begin so.
says() {
    [ "$(grep -cF -- "$2" <<<"$output")" -eq "$1" ] || { echo "not $1 times: $2" && return 1; }
}

@test "a script that counts GPUs by itself, where a task sees one" {
    srun -N2 --ntasks-per-node=2 --gpus-per-task=1 \
        bash -c 'echo "device $LOCAL_RANK $JAX_LOCAL_DEVICE_IDS"'
    says 4 "device 0 0"
    says 0 muster:
    srun -N2 --ntasks-per-node=2 --gpus-per-task=1 --export=ALL,JAX_LOCAL_DEVICE_IDS=1 true
    says 1 "muster: error: gpu-number: ranks 0-1 on n1: JAX_LOCAL_DEVICE_IDS=1, and the task sees one GPU, which is number 0"
    srun -N2 --ntasks-per-node=2 --gpus-per-task=1 \
        bash -c 'LOCAL_RANK=$SLURM_LOCALID exec muster-doctor'
    says 1 "error: gpu-number: ranks 1, 3 on n1, n2: LOCAL_RANK=1, and the task sees one GPU, which is number 0"
    [ "$status" -eq 1 ]
}

@test "a forgotten srun" {
    local each alone="this process runs alone on n1, outside of the steps of job"
    local prefix=$MUSTER_PREFIX remedy="2 nodes and 4 tasks: write srun" \
        script="muster: warning: srun-missing: the job's script has ended without srun"
    gcc -x c -I"$prefix/include" -o "$JOBS/program" - -L"$prefix/lib" \
        -lmuster -Wl,-rpath,"$prefix/lib" <<'END'
#include <muster.h>
int main(void) { struct muster *muster; return muster_open(&muster, 1); }
END
    local -A id=() does=([rdzv]=muster-rdzv [train]="muster-train --data none" [program]=./program
        [doctor]=muster-doctor
        [python]="python3 torch.py" [steps]="srun -n1 -N1 muster-rdzv")
    echo 'import os; os.environ["RANK"]' >"$JOBS/torch.py"
    # shellcheck disable=SC2086
    for each in "${!does[@]}"; do
        id[$each]=$(job_submit --muster -N2 -n4 script ${does[$each]})
    done
    id[one]=$(job_submit --muster -N1 -n1 script muster-rdzv)
    # It starts ranks itself, by its command or in its text.
    id[mpirun]=$(job_submit --muster -N1 -n4 script mpirun -n 2 muster-rdzv)
    printf '#!/bin/bash\ntorchrun() { "$@"; }\ntorchrun true\n' >"$JOBS/launcher" &&
        chmod 755 "$JOBS/launcher"
    id[launcher]=$(job_submit --muster -N2 -n4 launcher)
    id[killed]=$(job_submit --muster -N2 -n4 script bash -c 'kill -9 $$')
    for each in "${!id[@]}"; do
        job_wait "${id[$each]}" 60 COMPLETED FAILED
        output=$(<"$(job_output "${id[$each]}")")
        echo "--- $each: $output"
        case $each in
        rdzv | train | program)
            says 1 "muster: warning: $alone ${id[$each]}, which has $remedy"
            ;;
        doctor)
            says 1 "note: srun-missing: $alone ${id[$each]}, which has $remedy before it"
            ;;
        *) says 0 "$alone" ;;
        esac
        case $each in
        mpirun) says 0 srun && says 1 " 1/2 " ;;
        steps | one | killed | launcher) says 0 "srun-missing" ;;
        *)
            says 1 "$script: what it started ran once, on n1 alone, and the job has $remedy"
            ;;
        esac
    done
    # In salloc's shell, which runs where salloc does.
    run cluster run timeout -k 10 "$HANG" salloc -N2 -n4 muster-rdzv
    says 1 "muster: warning: this process runs alone on ctl, outside of the steps of job"
}

@test "a network interface that other nodes don't reach, or that a node does not have" {
    two_cpus
    unreached="by eth1, which is 192.168.7.1 there: 192.168.7.1 port"
    remedy="SOCKET_IFNAME to the interface by which all nodes reach each other (eth0 has the address of this node's name)"
    srun -N2 --ntasks-per-node=2 --export=ALL,NCCL_SOCKET_IFNAME=eth1,GLOO_SOCKET_IFNAME=eth1 \
        muster-doctor
    says 1 "error: nccl-interface: rank 2 on n2: can't reach n1 $unreached"
    says 2 "set NCCL_$remedy"
    says 1 "warning: gloo-interface: rank 2 on n2: can't reach n1 $unreached"
    says 2 "set GLOO_$remedy"
    [ "$status" -eq 1 ]
    # NCCL takes both where nobody says; nobody does without GPUs.
    srun -N2 --ntasks-per-node=2 --gpus-per-task=1 muster-doctor
    says 2 "error: nccl-interface: rank "
    says 0 gloo-interface
    for healthy in "--export=ALL,NCCL_SOCKET_IFNAME=eth0 --gpus-per-task=1" "--ntasks-per-node=2"
    do
        # shellcheck disable=SC2086
        srun -N2 --ntasks-per-node=2 $healthy muster-doctor
        [ "$status" -eq 0 ]
        says 0 -interface
    done
    srun -N2 --ntasks-per-node=2 --export=ALL,NCCL_SOCKET_IFNAME=ib0,GLOO_SOCKET_IFNAME=eth0 true
    says 1 "muster: error: interface-missing: ranks 0-1 on n1: NCCL_SOCKET_IFNAME=ib0, and the node has lo eth0 eth1"
    says 1 "muster: error: interface-missing: ranks 2-3 on n2: NCCL_SOCKET_IFNAME=ib0"
    says 0 GLOO
    [ "$status" -eq 0 ]
    # As Debian's installer names a host.
    cluster run --user root --node n2 sh -c \
        'sed "/ n2\$/d" /etc/hosts >/run/hosts && echo 127.0.1.1 n2 >>/run/hosts && mount --bind /run/hosts /etc/hosts'
    srun -N2 --ntasks-per-node=2 muster-doctor
    cluster run --user root --node n2 umount /etc/hosts
    says 1 "warning: gloo-interface: rank 0 on n1: can't reach n2 by n2, which is 127.0.1.1 there: a loopback address: set"
    [ "$status" -eq 3 ]
}

@test "ranks that have met and can't connect" {
    muster-tokens -o "$JOBS/train.bin" "$MUSTER_TOP/LICENSE"
    chmod a+r "$JOBS/train.bin"
    srun -N2 -n2 --export=ALL,GLOO_SOCKET_IFNAME=eth1 muster-train --data train.bin \
        --vocabulary 256 --layers 1 --width 32 \
        --heads 2 --context 32 --global-batch 8 --steps 2 --collective-timeout "$((HANG / 12))"
    [ "$status" -ne 0 ]
    [[ $output = *"couldn't connect to rank "* ]]
    [[ $output = *"MUSTER_IFNAME names an interface by which all nodes reach each other (this rank is at 192.168.7."* ]]
}
