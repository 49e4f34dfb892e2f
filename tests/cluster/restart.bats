#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-run: a rank or a node dies, and the step begins again within the allocation; the result is
# that of an undisturbed training, bit for bit.

bats_require_minimum_version 1.5.0
load helpers
load training
load restart

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=5
    # Slurm itself does not notice a dead node in time.
    export MUSTER_CLUSTER_DOWN_AFTER=3600
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
}

setup() {
    plugin_require
    pace 200
    wait_for 60 all_idle
}

teardown() {
    cluster_explain
    [ -n "${BATS_TEST_COMPLETED-}" ] || [ -z "${node-}" ] ||
        { cluster heal "$node" && cluster start-node "$node"; } >/dev/null 2>&1 || :
}

@test "ranks die, rank 0, and two at once: the step begins again, and nobody asks for a requeue" {
    start ranks
    kill_rank ranks 5
    goes_on ranks 1
    kill_rank ranks 0
    goes_on ranks 2
    kill_rank ranks 1 6
    goes_on ranks 3
    ends_in_place ranks
    [ "$(started ranks restart)" = "0 1 2 3" ]
    [ "$(started ranks world_size)" = "8 8 8 8" ]
    log_has ranks 3 '^muster-run: rank . on n. .*: beginning the step again on 4 nodes, restart . of 10'
    run ! log_has ranks 1 'back in the queue'
}

@test "a node dies: a spare takes its place, and without one the others go on" {
    LAUNCHER="muster-run --silence=3 --spares=1 --" start node --no-kill
    [ "$(started node nodes)" = "n[1-3]" ]
    node=n2
    cluster kill-node n2
    goes_on node 1
    [ "$(started node nodes)" = "n[1-3] n[1,3-4]" ]
    log_has node 1 '^muster-run: n2 is left out of this job.s steps: it has said nothing for 3 s'
    cluster kill-node n4
    goes_on node 2
    [ "$(started node nodes)" = "n[1-3] n[1,3-4] n[1,3]" ]
    [ "$(started node world_size)" = "6 6 4" ]
    [ "$(started node left_out)" = "0 n2 n2,n4" ]
    pace 0
    wait_for 60 train_has_step node "$STEPS"
    cluster start-node n2 && cluster start-node n4 # Slurm ends the job on them, too
    ends_in_place node
}

@test "a node is cut off and heals: it is left out, and what it still writes does no harm" {
    LAUNCHER="muster-run --silence=3 --" start cut --no-kill
    node=n2
    cluster cut n2
    goes_on cut 1
    cluster heal n2
    ends_in_place cut
    [ "$(started cut nodes)" = "n[1-4] n[1,3-4]" ]
}

@test "links are reset, that with the batch host too: no node is left out" {
    start reset
    cluster reset n3 n2
    goes_on reset 1
    cluster reset n3 n1
    goes_on reset 2
    ends_in_place reset
    [ "$(started reset nodes)" = "n[1-4] n[1-4] n[1-4]" ]
}

@test "a rank that is only slow is not taken for dead" {
    LAUNCHER="muster-run --silence=2 --" start slow
    read -r _ pid < <(train_rank "$job" 3)
    kill -STOP "$pid"
    sleep 6 # three times its deadline
    kill -CONT "$pid"
    ends_in_place slow
    [ "$(started slow restart)" = 0 ]
}

@test "a notice is no death: the job saves, and comes back through the queue" {
    start notice
    cluster run scancel --signal=TERM "$job.0"
    wait_for 120 job_left_attempt "$job" 0
    pace 0
    job_wait "$job" 120 COMPLETED
    [ "$(job_restarts "$job")" -eq 1 ]
    [ "$(started notice restart)" = "0 0" ]
    train_equals_reference notice
}

@test "when all restarts are used up, or too few nodes are left, the job goes back into the queue" {
    LAUNCHER="muster-run --restarts=1 --" start used
    kill_rank used 2
    goes_on used 1
    kill_rank used 3
    wait_for 120 job_left_attempt "$job" 0
    pace 0
    job_wait "$job" 120 COMPLETED
    [ "$(job_restarts "$job")" -eq 1 ]
    [ "$(started used restart)" = "0 1 0" ]
    train_equals_reference used
    pace 200
    LAUNCHER="muster-run --silence=3 --least=4 --" start few --no-kill
    node=n3
    cluster kill-node n3
    wait_for 120 job_left_attempt "$job" 0
    log_has few 1 '^muster-run: 3 nodes are left, and at least 4 are needed: job .* asks to go back'
    cluster start-node n3
    pace 0
    job_wait "$job" 240 COMPLETED
    train_equals_reference few
}

@test "a failure for good is not begun again" {
    job=$(LAUNCHER="muster-run --" train_submit wrong -- --layers two)
    job_wait "$job" 60 FAILED
    [ "$(job_restarts "$job")" -eq 0 ]
    run ! log_has wrong 1 'beginning the step again'
    # The same of a program that is not Muster's.
    cat >"$JOBS/own.sh" <<'END'
#!/bin/bash
muster-run -- srun bash -c '[ $RANK != 2 ] || exit 3; exec sleep 1000'
END
    job=$(job_submit --muster --requeue -N2 --ntasks-per-node=2 own.sh)
    job_wait "$job" 60 FAILED
    grep -q 'rank 2 on n. exited with status 3, the first of 4' "$(job_output "$job")"
    run ! grep 'beginning the step again' "$(job_output "$job")"
}
