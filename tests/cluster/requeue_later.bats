#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A requeue that can't be asked for at once: the controller is away or fails over, or the job's time
# is over.

load helpers
load requeue

setup_file() { requeue_begin; }

# dying RANK SBATCH-ARGUMENT…: a job of two ranks on two nodes; that one is killed when $JOBS/die.ID
# is there. The other one takes no note of it: Slurm has to end it.
dying() {
    job "${@:2}" -N2 -n2 \
        "[ \$MUSTER_ATTEMPT = 0 ] || exit 0; echo ready; [ \$RANK = $1 ] || exec sleep 600
        until [ -e die.\$SLURM_JOB_ID ]; do sleep 0.1; done; kill -SEGV \$\$"
}

# Whether slurmstepd asks for the job's requeue, or has asked in vain.
asks() { [ -n "$(cluster_pids -f "muster-requeue .* $1 0\$")" ]; }

@test "the controller is away when a rank dies, for 5 s and for a minute: the job comes back" {
    # Longer ones, outside of the suite: MUSTER_TESTS_AWAY=300 BATS_TEST_TIMEOUT=900.
    local seconds id ids
    for seconds in ${MUSTER_TESTS_AWAY:-5 60}; do
        ids=("$(dying 0)" "$(dying 1)") # where the script runs, and elsewhere
        for id in "${ids[@]}"; do
            wait_for 30 said "$id" ready
            wait_for 20 job_has_step "$id" # an srun that is about to begin one gives up
        done
        cluster stop-controller
        for id in "${ids[@]}"; do touch "$JOBS/die.$id"; done
        for id in "${ids[@]}"; do wait_for 30 asks "$id"; done
        sleep "$seconds"
        cluster start-controller
        for id in "${ids[@]}"; do
            restarted_once "$id" "muster-requeue: job $id is put back in the queue after attempt 0"
        done
    done
}

@test "a job that waits for a controller that was away can be cancelled; one that ended for good does not come back" {
    cancelled=$(dying 1)
    final=$(job -N2 -n2 \
        'echo ready; [ $RANK = 1 ] || exec sleep 600; until [ -e die ]; do sleep 0.1; done; exit 1')
    for id in "$cancelled" "$final"; do
        wait_for 30 said "$id" ready
        wait_for 20 job_has_step "$id"
    done
    cluster stop-controller
    touch "$JOBS/die"
    wait_for 30 asks "$final"
    sleep 12
    cluster start-controller
    cluster run scancel "$cancelled"
    job_wait "$cancelled" 60 CANCELLED
    job_wait "$final" 90 FAILED COMPLETED
    wait_for 90 all_idle
    cat "$(job_output "$final")"
    [ "$(job_state "$cancelled") $(job_restarts "$cancelled")" = "CANCELLED 0" ]
    [ "$(job_restarts "$final")" = 0 ]
}

@test "a job whose time is over on two nodes comes back once both are clean" {
    id=$(job -N2 -n2 --time=1 \
        'trap "exit 75" TERM; [ $MUSTER_ATTEMPT -gt 0 ] && exit 0; sleep 1000 & wait; exit 75')
    # Slurm looks for such jobs every 30 s.
    job_wait "$id" 180 COMPLETED
    cat "$(job_output "$id")"
    [ "$(job_restarts "$id")" = 1 ]
    said "$id" "DUE TO TIME LIMIT"
    said "$id" \
        "job $id has ended: it is put back in the queue when nothing of it is left on its nodes"
}

@test "one that ended for good does not come back either for a rank that saw its peer go, when a controller that was away is slow" {
    slow_requeue
    cluster plugin "$PLUGIN" breaker=off "requeue=$JOBS/slow-requeue"
    mkfifo -m 666 "$JOBS/gone"
    id=$(job -N2 -n2 'echo ready
        if [ $RANK = 1 ]; then mkfifo held; read -r _ <held; echo $$ >gone; exit 1; fi
        '"$LOST")
    wait_for 30 said "$id" ready
    wait_for 20 job_has_step "$id"
    cluster stop-controller
    touch "$JOBS/slow"
    let_go held
    wait_for 30 asks "$id"
    sleep 12
    cluster start-controller
    job_wait "$id" 120 FAILED COMPLETED
    rm "$JOBS/slow"
    cluster plugin "$PLUGIN"
    cat "$(job_output "$id")"
    [ "$(job_restarts "$id")" = 0 ]
}

controller() { cat "$(cluster status dir)/pid/slurmctld"; }

# Whether another process than that asks for the job's requeue.
asks_again() { [ -n "$(cluster_pids -f "muster-requeue .* $1 0\$" | grep -vx "$2")" ]; }

# die_and_hold RANK: that rank of a job dies, and what asks for the requeue waits with its call as
# long as $JOBS/hold is there. Sets $id, and $first, its pid.
die_and_hold() {
    slow_requeue
    rm -f "$JOBS/asked"
    touch "$JOBS/hold"
    cluster plugin "$PLUGIN" "requeue=$JOBS/slow-requeue"
    id=$(dying "$1")
    wait_for 30 said "$id" ready
    wait_for 20 job_has_step "$id"
    touch "$JOBS/die.$id"
    wait_for 30 test -e "$JOBS/asked"
    first=$(cluster_pids -f "muster-requeue .* $id 0\$" | head -n 1)
}

@test "a controller that stops in the moment in which it is asked puts the job back once" {
    die_and_hold 1
    kill -STOP "$(controller)"
    rm "$JOBS/hold"
    # The call lies in the controller's queue when its caller has given up; another one asks on.
    again=0
    wait_for 60 asks_again "$id" "$first" || again=$?
    kill -CONT "$(controller)"
    [ $again -eq 0 ]
    restarted_once "$id" ready
    cluster plugin "$PLUGIN"
    wait_for 90 all_idle
    [ "$(job_restarts "$id")" = 1 ]
}

@test "srun ends before the controller has answered for a dead rank: the script's end waits for the answer, the job comes back" {
    die_and_hold 0
    # shellcheck disable=SC2046
    kill -KILL $(cluster_pids -f '^srun /bin/bash -c')
    again=0
    wait_for 60 asks_again "$id" "$first" || again=$?
    rm "$JOBS/hold"
    [ $again -eq 0 ]
    restarted_once "$id" ready
    cluster plugin "$PLUGIN"
}

@test "a requeue that the controller takes up late costs the attempt that runs by then no more than a preemption, and once" {
    slow_requeue
    rm -f "$JOBS/asked"
    touch "$JOBS/hold"
    id=$(job -N2 -n2 \
        'trap "echo saved in attempt $MUSTER_ATTEMPT; exit 75" TERM; echo "ready $MUSTER_ATTEMPT"
        until [ -e done.$SLURM_JOB_ID ]; do sleep 0.1; done')
    wait_for 30 said "$id" "ready 0"
    cluster run "$JOBS/slow-requeue" --deadline=600 "$id" 0 3>&- &
    wait_for 30 test -e "$JOBS/asked"
    cluster run scontrol requeue "$id"
    wait_for 60 said "$id" "ready 1"
    wait_for 20 job_has_step "$id"
    rm "$JOBS/hold"
    wait $!
    # From 26.05 on the call names the attempt.
    last=2
    [ "$(printf '%s\n' 26.05 "$(srun --version | grep -o '[0-9.]*$')" | sort -V | head -n 1)" != \
        26.05 ] || last=1
    wait_for 60 said "$id" "ready $last"
    touch "$JOBS/done.$id"
    job_wait "$id" 60 COMPLETED FAILED
    cat "$(job_output "$id")"
    [ "$(job_state "$id") $(job_restarts "$id") $(comment "$id")" = "COMPLETED $last " ]
    [ $last -eq 1 ] || said "$id" "saved in attempt 1"
}

@test "a job that Slurm held since a node still ran it is released when nothing of it is left" {
    id=$(job -N2 -n2 -w n1,n2 'trap "exit 75" TERM; echo "ready $MUSTER_ATTEMPT"
        until [ -e done.$SLURM_JOB_ID ]; do sleep 0.1; done')
    wait_for 60 said "$id" "ready 0"
    refuse_start n1 "$id"
    wait_for 90 released "$id"
    cluster run --user root scontrol update NodeName=n1 State=RESUME
    wait_for 90 said "$id" "ready 1"
    touch "$JOBS/done.$id"
    job_wait "$id" 60 COMPLETED FAILED
    [ "$(job_state "$id") $(job_restarts "$id")" = "COMPLETED 1" ]
    # One after another fault of the node stays, and so does a user's own.
    waits='trap "exit 75" TERM; echo "ready $MUSTER_ATTEMPT"; sleep 600 & wait'
    id=$(job -N2 -n2 -w n1,n2 "$waits")
    wait_for 60 said "$id" "ready 0"
    refuse_start n1 "$id" "another reason"
    wait_for 90 held_alone "$id"
    cluster run --user root scontrol update NodeName=n1 State=RESUME
    job_end "$id"
    id=$(job -N2 -n2 -w n1,n2 "$waits")
    wait_for 60 said "$id" "ready 0"
    cluster run scontrol requeuehold "$id"
    wait_for 90 is_held "$id" "job requeued in held state"
    job_end "$id"
}
released() { [ "$(job_field "$1" Restarts)" = 1 ] && [ "$(job_field "$1" Priority)" != 0 ]; }
# is_held ID REASON: and nobody asks about it any more.
is_held() {
    [ "$(cluster run squeue -h -j "$1" -o '%T %r')" = "PENDING $2" ] &&
        [ -z "$(cluster_pids -f "muster-requeue .* $1 0\$")" ]
}
held_alone() {
    is_held "$1" "launch failed requeued held" &&
        grep -q "muster: job $1: process .* asks for its requeue" \
            "$(cluster status log)/slurmd-n1.log"
}

# The last one: its cluster has a second controller, on n4, which takes over.
@test "the controller fails over when a rank dies: the job comes back under the other" {
    cluster down
    MUSTER_CLUSTER_CONF=$'SlurmctldHost=n4(10.77.0.14)\nSlurmctldTimeout=10' cluster up 4 \
        --plugin "$PLUGIN"
    cluster start-backup n4
    wait_for 30 cluster run bash -c 'scontrol ping | grep -q "backup.* is UP"'
    requeue_script
    id=$(dying 1 -w n1,n2)
    wait_for 30 said "$id" ready
    wait_for 20 job_has_step "$id"
    # What the other one reads of it: slurmctld writes it some seconds after a change.
    touch "$JOBS/before"
    cluster run scontrol update job="$id" comment=mine
    wait_for 30 [ "$(cluster status dir)/controller/job_state" -nt "$JOBS/before" ]
    cluster kill-controller
    touch "$JOBS/die.$id"
    wait_for 90 said "$id" "muster-requeue: job $id is put back in the queue after attempt 0"
    restarted_once "$id" "put back"
}
