#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A cluster whose administrator has not installed the plugin: what its users copy,
# slurm-examples/train-no-plugin.sbatch, brings the job back after each interruption, bit for bit,
# and only then.

load helpers
STEPS=300
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=5
    cluster_begin 4
    training_begin
    [ "$(id -u)" = 0 ] || return 0
    cp "$MUSTER_TOP/slurm-examples/train-no-plugin.sbatch" "$JOBS/"
    # What the script's srun runs stands still at some step of each attempt that is interrupted.
    mkdir "$JOBS/bin"
    ln -s "$MUSTER_PREFIX/libexec" "$JOBS/libexec"
    printf '#!/bin/bash\nexec ./pausing "%s" "$@"\n' "$(command -v muster-train)" \
        >"$JOBS/bin/muster-train"
    chmod -R a+rX "$JOBS/bin" && chmod a+x "$JOBS/bin/muster-train"
}

setup() {
    cluster_require
    [ -e "$MUSTER_PREFIX/libexec/muster-requeue" ] ||
        skip "this build has no muster-requeue: no Slurm headers"
}

# plain_submit NAME [SBATCH-OPTION…]: with $MORE for muster-train; prints the job's id.
plain_submit() {
    cluster run env PATH="${BIN-$JOBS/bin}:$PATH" NAME="$1" \
        PAUSE_AT=45 PAUSE_IN="${PAUSE_IN-0 1 2 3}" \
        OMP_WAIT_POLICY=passive DATA=train.bin CKPT="$1" TRAIN_ARGS="$TRAIN_ARGS ${MORE-}" \
        sbatch --parsable --exclusive -o "$1.log" "${@:2}" train-no-plugin.sbatch
}

# Waits until an attempt trains, and some steps longer.
wait_attempt() {
    job_wait_attempt "$2" "$3" 60
    wait_for 60 train_attempt_has "$1" "$3" $((25 + RANDOM % 20))
}

kill_rank() {
    local node pid
    read -r node pid < <(train_rank "$1" "$2")
    echo "rank $2 is pid $pid on $node"
    kill -9 "$pid"
}

@test "preempted twice, rank 0 killed, another rank killed: requeued and resumed each time, bit-identical" {
    job=$(MORE="--ckpt-every 20" plain_submit plain)
    wait_attempt plain "$job" 0
    if grep -q . "$(cluster status dir)/etc/plugstack.conf"; then false; fi
    job_preempt "$job" 0
    wait_attempt plain "$job" 1
    kill_rank "$job" 0
    wait_attempt plain "$job" 2
    job_preempt "$job" 0
    wait_attempt plain "$job" 3
    kill_rank "$job" $((1 + RANDOM % 7))
    job_wait_attempt "$job" 4 60
    job_wait "$job" 120 COMPLETED
    cat "$JOBS/plain/attempts.jsonl"
    [ "$(job_restarts "$job")" -eq 4 ]
    for attempt in 0 2; do
        grep -q "\"event\":\"notice\".*\"attempt\":$attempt,.*SIGTERM" "$JOBS/plain/attempts.jsonl"
        grep -q "\"event\":\"end\".*\"attempt\":$attempt,.*\"status\":75" \
            "$JOBS/plain/attempts.jsonl"
    done
    # Each attempt went on from a later step than the one before.
    run sed -n 's/.*"event": *"start".*"step": *\([0-9]*\).*/\1/p' "$JOBS/plain/attempts.jsonl"
    echo "resumed from: $output"
    [ "${#lines[@]}" -ge 4 ]
    [ "$output" = "$(sort -nu <<<"$output")" ]
    train_equals_reference plain
}

@test "a wrong option ends the job, and so does scancel" {
    wrong=$(MORE="--global-batch 17" plain_submit wrong)
    cancelled=$(plain_submit cancelled --nodes=1)
    job_wait "$wrong" 60 FAILED
    [ "$(job_field "$wrong" Restarts) $(job_field "$wrong" ExitCode)" = "0 2:0" ]
    wait_for 60 train_attempt_has cancelled 0 3
    cluster run scancel "$cancelled"
    job_wait "$cancelled" 30 CANCELLED
    wait_for 60 all_idle # whatever could put it back has ended
    [ "$(job_state "$cancelled") $(job_field "$cancelled" Restarts)" = "CANCELLED 0" ]
}

# Its muster-requeue is the one that asks by scontrol, and lies where the folder of the installation
# was moved to.
@test "built without libslurm: preempted, and a rank killed, it comes back; cancelled, it does not" {
    mkdir -p "$JOBS"/free/{bin,libexec,moved/bin,moved/libexec}
    cp "$(command -v muster-train)" "$(command -v muster-ckptd)" "$JOBS/free/moved/bin"
    for folder in free free/moved; do
        cp "$MUSTER_TOP/slurm/muster_requeue_scontrol.sh" "$JOBS/$folder/libexec/muster-requeue"
    done
    printf '#!/bin/bash\nexec ./pausing "%s" "$@"\n' "$JOBS/free/moved/bin/muster-train" \
        >"$JOBS/free/bin/muster-train"
    chmod -R a+rX "$JOBS/free" && chmod a+x "$JOBS"/free/bin/*
    export BIN=$JOBS/free/bin
    job=$(PAUSE_IN="0 1" MORE="--ckpt-every 20" plain_submit free-run)
    wait_attempt free-run "$job" 0
    job_preempt "$job" 0
    wait_attempt free-run "$job" 1
    kill_rank "$job" 3
    job_wait_attempt "$job" 2 60
    job_wait "$job" 120 COMPLETED
    cat "$JOBS/free-run.log"
    [ "$(job_restarts "$job")" -eq 2 ]
    grep -q "^muster-requeue: job $job is put back in the queue after attempt 1\$" \
        "$JOBS/free-run.log"
    train_equals_reference free-run
    cancelled=$(plain_submit free-cancelled --nodes=1)
    wait_for 60 train_attempt_has free-cancelled 0 3
    cluster run scancel "$cancelled"
    job_wait "$cancelled" 30 CANCELLED
    wait_for 60 all_idle
    [ "$(job_state "$cancelled") $(job_field "$cancelled" Restarts)" = "CANCELLED 0" ]
    # What it tells of a job that has ended, and of one that never was.
    requeue=$JOBS/free/libexec/muster-requeue
    run cluster run "$requeue" --runs "$cancelled" 0
    [ "$status $output" = "0 no" ]
    run cluster run "$requeue" "$cancelled" 0
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = "muster-requeue: job $cancelled is left as it is: it is CANCELLED "* ]]
    run cluster run "$requeue" 4000000 0
    [ "$status" -eq 0 ]
    [ "$output" = "muster-requeue: job 4000000 is left as it is: the controller knows no such job" ]
    run cluster run "$requeue" --times 4000000 0
    [ "$status $output" = "1 " ]
    run cluster run "$requeue" --status 7
    [ "$status" -eq 7 ]
    run cluster run "$requeue" --deadline soon 1 0
    [ "$status" -eq 2 ]
}
