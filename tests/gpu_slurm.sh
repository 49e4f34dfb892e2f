#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The part of tests/gpu.sh that trains through Slurm and PMIx: prints TAP. A Slurm of two nodes on
# this machine (tests/cluster), one task a node with --gpus-per-task=1, which both have the one
# card: preempted, requeued, and in the end the bits of one rank.
#   GPU_PROGRAMS   folder of the programs; GPU_LIBRARIES, of their libraries
#   GPU_CLUSTER    folder of the cluster's script and helpers.bash
#   GPU_SLURM      Slurm, munge and PMIx where the machine has none: a folder with their usr/
#   GPU_JOB        slurm-examples/train-no-plugin.sbatch
set -u -o pipefail

PATH=$PATH:/usr/sbin:/sbin
steps=${GPU_SLURM_STEPS:-4000}
args="${GPU_SMALL:---layers 2 --width 128 --heads 2 --context 64 --global-batch 8 --microbatch 2}
    --vocabulary 256 --slots 4 --steps $steps
    --ckpt-every 200 --learning-rate 0.001 --warmup-steps 3
    --rdzv-timeout 60 --collective-timeout 60"

skip() {
    echo "1..0 # SKIP $1"
    exit 0
}

# Not through /: what the machine has is the machine's, and only this process and its children see
# the rest. What is mounted below /usr, such as the driver, would be hidden, and is mounted again.
lay_over_usr='
    below=$(awk "\$5 ~ /^\/usr\// { print \$5 }" /proc/self/mountinfo | sort)
    old=$(mktemp -d) && mount --rbind /usr "$old" &&
        mount -t overlay overlay -o "lowerdir=/usr:$1/usr" /usr || {
        echo "1..0 # SKIP the packages of Slurm could not be laid over /usr" && exit 0
    }
    for place in $below; do mount --bind "$old${place#/usr}" "$place" || exit; done
    umount -l "$old" && rmdir "$old" && exec bash "$2"'
enter_packages() {
    [ -d "${GPU_SLURM-}/usr" ] && ! command -v slurmctld >/dev/null || return 0
    [ -z "${GPU_ENTERED-}" ] || skip "the packages in $GPU_SLURM have no slurmctld"
    unshare --mount true 2>/dev/null || skip "this machine lets no one make a mount namespace"
    export GPU_ENTERED=yes
    exec unshare --mount --propagation private bash -c "$lay_over_usr" overlay "$GPU_SLURM" \
        "${BASH_SOURCE[0]}"
}

need_programs() {
    local program
    [ "$(id -u)" = 0 ] || skip "a Slurm of two nodes on one machine needs root"
    for program in slurmctld slurmd sbatch srun munged ip tc unshare nsenter setpriv useradd; do
        command -v $program >/dev/null ||
            skip "$program is not on this machine; gpu.sh --pack-slurm packs Slurm, munge and PMIx"
    done
    [ -x "$GPU_PROGRAMS/muster-requeue" ] ||
        skip "this build has no muster-requeue: no Slurm headers"
}

fail() {
    echo "not ok 1 - preempted_and_requeued" >&3
    {
        echo "$1" && tail -qn 6 "$log" "$JOBS/gpu.log" "$(cluster status log)/slurmctld.log"
    } 2>/dev/null | sed 's/^/# /' >&3
    exit 1
}

# All users have to reach the programs, wherever they were unpacked.
bring() {
    mkdir -p "$JOBS"/{bin,lib,libexec} &&
        cp -L "$GPU_PROGRAMS"/muster-{train,ckptd,ckpt,curve,tokens} "$JOBS/bin/" &&
        cp -L "$GPU_PROGRAMS/muster-requeue" "$JOBS/libexec/" || return
    [ ! -d "${GPU_LIBRARIES-}" ] || cp -L "$GPU_LIBRARIES"/* "$JOBS/lib/" || return
    cp "$GPU_JOB" "$JOBS/job.sbatch" && chmod -R a+rX "$JOBS"
    export PATH=$JOBS/bin:$PATH \
        LD_LIBRARY_PATH=$JOBS/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        MUSTER_CKPTD_PROGRAM=$JOBS/bin/muster-ckptd
    awk 'BEGIN {
        for (i = 1; i <= 60000; i++) {
            a = i * 7919 % 997; b = i * 104729 % 89; print a " times " b " is " a * b "."
        }
    }' >"$JOBS/text"
    muster-tokens -o "$JOBS/train.bin" "$JOBS/text" && chmod a+r "$JOBS/train.bin"
}

run_job() {
    # shellcheck disable=SC2086
    cluster run muster-train --data train.bin --ckpt-dir reference --device cuda $args ||
        fail "one rank failed"
    job=$(cluster run env PATH="$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" \
        MUSTER_CKPTD_PROGRAM="$MUSTER_CKPTD_PROGRAM" \
        OMP_WAIT_POLICY=passive DATA=train.bin CKPT=gpu \
        TRAIN_ARGS="$args --device cuda --share-gpu" \
        sbatch --parsable -N2 --ntasks-per-node=1 --gpus-per-task=1 -o gpu.log job.sbatch) ||
        fail "sbatch failed"
    wait_for 60 attempt_has 0 $((steps / 10)) ||
        fail "the first attempt never came to step $((steps / 10))"
    job_preempt "$job" 0 || fail "it was not preempted"
    job_wait "$job" 120 COMPLETED || fail "it was not brought to its end"
}

attempt_has() { [ "$(wc -l 2>/dev/null <"$JOBS/gpu/metrics-$1.jsonl" || echo 0)" -ge "$2" ]; }

compare() {
    local last
    last=$(printf step-%08d "$steps")
    attempt_has 1 1 || fail "there was no second attempt"
    muster-ckpt diff "$JOBS/reference/$last" "$JOBS/gpu/$last" ||
        fail "two ranks, preempted, end with other bits than one"
    diff <(muster-curve "$JOBS/reference") <(muster-curve "$JOBS/gpu") ||
        fail "the losses differ from those of one rank"
}

enter_packages
need_programs
# shellcheck source=/dev/null
. "$GPU_CLUSTER/helpers.bash"
cluster() { "$GPU_CLUSTER/cluster" "$@"; }
exec 3>&1
echo 1..1
log=$(mktemp) || exit 1
trap 'cluster down >/dev/null 2>&1; rm -f "$log"' EXIT
trap 'exit 143' TERM INT
export MUSTER_CLUSTER_GRACE=30 MUSTER_CLUSTER_KILLWAIT=5
unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_RDZV@}"
cluster up 2 >"$log" 2>&1 || { JOBS=/nonexistent && fail "the cluster is not up"; }
JOBS=$(cluster status jobs)
export JOBS
bring >>"$log" 2>&1 || fail "the programs could not be brought to all users"
run_job >>"$log" 2>&1
compare >>"$log" 2>&1
echo "ok 1 - preempted_and_requeued"
