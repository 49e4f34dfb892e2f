#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Jobs to which Slurm itself gives a /tmp and a /dev/shm of their own (job_container/tmpfs), which
# the node's services do not see: a training saves through the job's services all the same, and
# comes back.

load helpers
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=5
    export MUSTER_CLUSTER_CONF='JobContainerType=job_container/tmpfs
PrologFlags=Contain'
    plugin_locate || return 0
    # Linux 6.18 numbers namespaces by CPU, and binds no mount namespace whose number is lower than
    # that of the caller's: on several CPUs Slurm's plugin fails now and then.
    taskset -cp "$(taskset -cp $BASHPID | sed 's/.*: //; s/[,-].*//')" $BASHPID
    cluster_begin 2 --plugin "$PLUGIN"
    training_begin
    for node in n1 n2; do as_root $node touch /tmp/of-node /dev/shm/of-node; done
}

as_root() { cluster run --user root --node "$@"; }

# of_service JOB: what the services of the job on both nodes say of the clients that are connected.
of_service() {
    local node
    for node in n1 n2; do
        cluster run --node $node muster-ckptd --status "/run/muster/job-$1/ckptd/socket" |
            grep 'client connected'
    done
}

nothing_left() {
    [ -z "$(as_root "$1" find /run/muster /run/containers -mindepth 1 \
        \( -name 'job-*' -o -name '[0-9]*' \) 2>&1)" ]
}

@test "a job sees nothing of the node's /tmp and /dev/shm, and is healthy" {
    run cluster run srun --muster -N2 --ntasks-per-node=1 \
        bash -c 'ls -A /tmp /dev/shm; muster-ckptd --status "$MUSTER_CKPTD"'
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output != *of-node* ]]
    [ "$(grep -c '^pid .*, job ' <<<"$output")" -eq 2 ]
    run cluster run srun --muster -N2 --ntasks-per-node=1 muster-doctor
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "the job's services write before and after a preemption; bit-identical" {
    job=$(PAUSE_IN="0 1" PAUSE_AT=30 train_submit own --wrap-with ./pausing -N2 --exclusive -- \
        --ckpt-every 20 --ckpt-writers node)
    for attempt in 0 1; do
        job_wait_attempt "$job" $attempt 60
        wait_for 60 stands_still own "$job"
        clients=$(of_service "$job")
        echo "$clients"
        [ "$(wc -l <<<"$clients")" -eq 2 ]
        job_preempt "$job" 0
    done
    job_wait "$job" 180 COMPLETED
    cat "$JOBS/own.log"
    [ "$(job_restarts "$job")" -eq 2 ]
    [ "$(train_notices own)" -eq 2 ]
    [ "$(grep -c 'service of its own' "$JOBS/own.log")" -eq 0 ]
    muster-ckpt diff "$JOBS/reference" "$JOBS/own"
    diff <(muster-curve "$JOBS/own") <(muster-curve "$JOBS/reference")
    for node in n1 n2; do wait_for 60 nothing_left $node; done
}

@test "a checkpoint directory in the job's own /tmp: it is that one that is written" {
    cat >"$JOBS/inside.sh" <<'END_OF_SCRIPT'
#!/bin/bash
./train.sh /tmp/inside --ckpt-every 20 >inside.steps &&
    muster-ckpt verify --deep /tmp/inside &&
    muster-ckpt diff reference /tmp/inside
END_OF_SCRIPT
    job=$(cluster run env PATH="$PATH" TRAIN_ARGS="$TRAIN_ARGS" sbatch --parsable --muster -N1 \
        --ntasks-per-node=2 --gpus-per-task=1 -o inside.log inside.sh)
    job_wait "$job" 120 COMPLETED FAILED
    cat "$JOBS/inside.log"
    [ "$(job_state "$job")" = COMPLETED ]
    [ "$(grep -c 'service of its own' "$JOBS/inside.log")" -eq 0 ]
    as_root n1 test -e /tmp/of-node -a ! -e /tmp/inside
}
