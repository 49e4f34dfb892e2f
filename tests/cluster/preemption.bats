#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A training whose nodes are taken away goes on as if nothing had happened, however often and
# however slowly it saves.

load helpers
STEPS=240 # more than eight attempts have until they stand still
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=5
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
}

@test "eight preemptions in a row: requeued each time, never held, bit-identical" {
    # Should this test come late, the training waits for it.
    job=$(PAUSE_IN="0 1 2 3 4 5 6 7" PAUSE_AT=20 train_submit eight --wrap-with ./pausing \
        --exclusive -- --ckpt-every 50)
    for attempt in 0 1 2 3 4 5 6 7; do
        job_wait_attempt "$job" $attempt 60
        wait_for 60 train_attempt_has eight $attempt $((3 + RANDOM % 10))
        job_preempt "$job" 0
    done
    job_wait "$job" 180 COMPLETED
    [ "$(job_restarts "$job")" -eq 8 ]
    [ "$(train_notices eight)" -eq 8 ]
    train_equals_reference eight
    # Each start tells when the job was in the queue, in Slurm's whole seconds: after the end of the
    # attempt before.
    python3 - "$JOBS/eight/attempts.jsonl" <<'END'
import json, sys
starts, ends = 0, []
for record in map(json.loads, open(sys.argv[1])):
    if record["event"] == "end":
        ends.append(record["time"])
    elif record["event"] == "start":
        assert record["submitted"] <= record["started"] <= record["time"] + 1, record
        assert not ends or record["submitted"] >= ends[-1] - 2, (record, ends)
        starts += 1
assert starts >= 9, starts
END
}

@test "preempted on 8 ranks that share the moments, as 3 do then, and ended by 5 that do not: bit-identical" {
    cat >"$JOBS/elastic.sh" <<'EOF'
#!/bin/bash
sizes=(8 3 5 5) zero=(1 1 0 0)
export SRUN_OPTIONS="-n ${sizes[${SLURM_RESTART_COUNT:-0}]} --gpus-per-task=1"
exec ./train.sh "$@" --zero "${zero[${SLURM_RESTART_COUNT:-0}]}"
EOF
    job=$(cluster run env PATH="$PATH" TRAIN_ARGS="$TRAIN_ARGS" WRAP=./pausing PAUSE_IN="0 1" \
        PAUSE_AT=20 \
        sbatch --parsable --open-mode=append --muster --requeue -N4 --exclusive --gpus-per-node=2 \
        -J sizes -o sizes.log \
        elastic.sh sizes --ckpt-every 50)
    for attempt in 0 1; do
        job_wait_attempt "$job" $attempt 60
        wait_for 60 train_attempt_has sizes $attempt $((3 + RANDOM % 10))
        job_preempt "$job" 0
    done
    job_wait "$job" 180 COMPLETED
    ranks=$(sed -n 's/.*"event": *"start".*"world_size": *\([0-9]*\).*/\1/p' \
        "$JOBS/sizes/attempts.jsonl" | xargs)
    echo "ranks of the attempts: $ranks"
    # from Slurm 24.05 on there may be one more, which finds the run finished
    [[ $ranks = "8 3 5"* ]]
    train_equals_reference sizes
}

@test "a save that takes several times KillWait is durable, and the tasks end with 75" {
    job=$(train_submit slow --wrap-with "./slow-rank0 ./pausing" --exclusive -- --ckpt-every 100000)
    wait_for 90 train_attempt_has slow 0 5
    began=$SECONDS
    job_preempt "$job" 0
    took=$((SECONDS - began))
    echo "the save and its fence took $took s, KillWait is $MUSTER_CLUSTER_KILLWAIT s"
    [ $took -ge $((2 * MUSTER_CLUSTER_KILLWAIT)) ]
    # A rank may have passed the closing fence, and be killed by the requeue before its shell has
    # written its status.
    job_wait_attempt "$job" 1 60
    cat "$JOBS"/slow.status-0-*
    [ "$(cat "$JOBS"/slow.status-0-* | sort -u)" = 75 ]
    grep -E '"event": *"end"' "$JOBS/slow/attempts.jsonl" | grep -E '"attempt": *0[,}]' |
        grep -E '"status": *75'
    cluster run scancel "$job"
    ls -d "$JOBS"/slow/step-*
}

@test "the time limit's warning (USR2) saves and requeues too" {
    job=$(train_submit warned --wrap-with ./pausing --exclusive -- --ckpt-every 100000)
    wait_for 60 stands_still warned "$job"
    cluster run scancel --signal=USR2 "$job"
    read -r _ pid < <(train_rank "$job" 0)
    kill -CONT "$pid"
    job_wait_attempt "$job" 1 60
    [ "$(train_notices warned)" -eq 1 ]
    job_wait "$job" 180 COMPLETED
    train_equals_reference warned
}

# bats test_tags=long
@test "the time limit: a run stops while there is time for two saves, and comes back" {
    job=$(STEP_MILLISECONDS=300 train_submit limited --exclusive --time=1 -- --ckpt-every 20)
    job_wait_attempt "$job" 1 90
    grep 'time limit: Slurm ends the job in [0-9]* s, and a save takes' "$JOBS/limited.log"
    grep '"event": *"notice"' "$JOBS/limited/attempts.jsonl" | grep '"why": *"the time limit"'
    [ "$(grep -c 'DUE TO TIME LIMIT' "$JOBS/limited.log")" -eq 0 ]
    job_wait "$job" 120 COMPLETED
    train_equals_reference limited
}
