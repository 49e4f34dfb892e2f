#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Ranks and nodes that die, links that break, programs that are wrong: the job comes back and ends
# bit-identical, or ends with a line that says why.

load helpers
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=5 MUSTER_CLUSTER_DOWN_AFTER=6
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
}

teardown() {
    cluster_explain
    resume_drained
    # The next test needs the node, too.
    [ -n "${BATS_TEST_COMPLETED-}" ] || [ -z "${node-}" ] ||
        { cluster heal "$node" && cluster start-node "$node"; } >/dev/null 2>&1 || :
}

# start NAME SBATCH-OPTION… -- TRAIN-OPTION…: submits a training that stands still at a step which
# nobody planned, so that there is time to look things up; sets $job, $nodes, and $rank0, its pid.
start() {
    job=$(PAUSE_AT=$((10 + RANDOM % 60)) train_submit "$1" --wrap-with ./pausing \
        --exclusive "${@:2}")
    wait_for 60 train_attempt_has "$1" 0 1
    mapfile -t nodes < <(cluster run scontrol show hostnames "$(job_field "$job" NodeList)")
    wait_for 60 stands_still "$1" "$job"
    read -r _ rank0 < <(train_rank "$job" 0)
}

# Goes on to a moment that nobody planned either.
go_on() { kill -CONT "$rank0" && sleep "0.$((RANDOM % 5))"; }

kill_rank() {
    local name=$1 rank=$2 job node pid
    start "$name" -- --ckpt-every 20
    read -r node pid < <(train_rank "$job" "$rank")
    echo "rank $rank is pid $pid on $node; step $(train_step "$name")"
    go_on
    kill -9 "$pid"
    job_wait "$job" 120 COMPLETED
    [ "$(job_restarts "$job")" -eq 1 ]
    train_equals_reference "$name"
}

@test "kill -9 of one rank" { kill_rank dead-rank $((1 + RANDOM % 7)); }

@test "kill -9 of rank 0" { kill_rank dead-rank0 0; }

# node_dies NAME: of the two nodes of a training.
node_dies() {
    start "$1" -N2 -- --ckpt-every 20
    node=${nodes[RANDOM % 2]}
    echo "node $node dies at step $(train_step "$1")"
    go_on
    cluster kill-node "$node"
    job_wait "$job" 150 COMPLETED FAILED
    cluster start-node "$node"
    [ "$(job_restarts "$job")" -ge 1 ]
}

@test "a whole node dies" {
    unless_lost_gpus node_dies dead-node
    job_is "$job" COMPLETED
    train_equals_reference "$name"
}

# cut_off NAME: the first of a training's two nodes: it has rank 0, whose late writes would do the
# most harm. It heals in the next attempt, which goes on for a while. Its ranks wait $timeout
# seconds for a collective.
cut_off() {
    STEP_MILLISECONDS=150 start "$1" -N2 -- --ckpt-every 20 --collective-timeout "$timeout"
    node=${nodes[0]}
    echo "node $node is cut off at step $(train_step "$1")"
    go_on
    cluster cut "$node"
    wait_for 90 went_on_or_ended "$1"
    cluster heal "$node"
    job_wait "$job" 120 COMPLETED FAILED
}
went_on_or_ended() { train_attempt_has "$1" 1 5 || [ "$(job_state "$job")" = FAILED ]; }

# Nothing that its ranks still had to say has come, and a slurmd is there that knows no step. The
# others learn of it by their connections, unless Slurm finds first that the step is missing.
@test "a node loses power, and is back before Slurm misses it" {
    start short-power -N4 -- --ckpt-every 20 --collective-timeout 86400
    node=${nodes[2]}
    go_on
    cluster kill-node "$node"
    cluster start-node "$node"
    job_wait "$job" 150 COMPLETED
    cat "$JOBS/short-power.log"
    [ "$(job_restarts "$job")" -eq 1 ]
    train_equals_reference short-power
}

# heals NAME SECONDS: a training that is cut off comes back once, and to the same bits. Its ranks
# wait so long for a collective.
heals() {
    timeout=$2
    unless_lost_gpus cut_off "$1"
    cat "$JOBS/$name.log"
    job_is "$job" COMPLETED
    # Slurm requeued it once. What the healed node's ranks ask for is of another attempt; what srun
    # and Slurm's PMIx server ask for there is of a step that this one has not.
    [ "$(job_restarts "$job")" -eq 1 ]
    train_equals_reference "$name"
    wait_for 60 node_is "$node" idle
}

@test "a node is cut off and heals after the next attempt has begun" { heals cut-node 20; }

@test "a node that is cut off heals before its ranks have noticed" { heals cut-unseen 86400; }

@test "slurmctld is away while the ranks meet; it and a slurmd are killed while they train: the job goes on" {
    cat >"$JOBS/held" <<'END'
#!/bin/bash
# Each rank begins when it is let go.
mkfifo "held-$SLURM_PROCID" && read -r _ <"held-$SLURM_PROCID"
exec ./pausing "$@"
END
    chmod a+rx "$JOBS/held"
    job=$(train_submit daemons --wrap-with ./held --exclusive -- --ckpt-every 50)
    # A step that is asked for when the controller stops is lost, and so is a launch on its way.
    for rank in {0..7}; do wait_for 30 test -p "$JOBS/held-$rank"; done
    cluster stop-controller
    let_go held-{0..7}
    # The training is not over before the daemons are back.
    wait_for 60 stands_still daemons "$job"
    cluster start-controller
    # What the controller has to know of the job it has written down when it was stopped: some
    # seconds are lost at a kill.
    cluster kill-slurmd n2
    cluster kill-controller
    cluster start-slurmd n2
    cluster start-controller
    read -r _ rank0 < <(train_rank "$job" 0)
    kill -CONT "$rank0"
    job_wait "$job" 120 COMPLETED
    [ "$(job_field "$job" Restarts)" -eq 0 ]
    train_equals_reference daemons
}

# slurmd_dies NAME: of one of a training's two nodes, for good.
slurmd_dies() {
    # It stands still for good, or the training would be over before Slurm has missed the node.
    start "$1" -N2 -- --ckpt-every 20
    node=${nodes[1]}
    echo "the slurmd of $node dies at step $(train_step "$1")"
    cluster kill-slurmd "$node"
    job_wait "$job" 150 COMPLETED FAILED
    cluster start-slurmd "$node"
}

@test "a slurmd is killed in training and stays away: the job resumes elsewhere" {
    unless_lost_gpus slurmd_dies dead-slurmd
    cat "$JOBS/$name.log"
    job_is "$job" COMPLETED
    grep "JobId=$job " "$(cluster status log)/slurmctld.log" |
        grep -q "due to failure of node $node"
    [ "$(job_restarts "$job")" -ge 1 ]
    train_equals_reference "$name"
    wait_for 60 node_is "$node" idle
}

@test "a program error at the same step each time ends the job after three attempts" {
    cat >"$JOBS/crash-rank3" <<'END'
#!/bin/bash
# Rank 3 crashes once rank 0 has logged ten steps of this attempt.
[ "$SLURM_PROCID" = 3 ] || exec "$@"
"$@" &
until [ "$(wc -l 2>/dev/null \
    <"$NAME/metrics-${SLURM_RESTART_COUNT:-0}.jsonl" || echo 0)" -ge 10 ]; do
    kill -0 $! 2>/dev/null || { wait $!; exit; }
    sleep 0.05
done
kill -SEGV $!
wait $!
kill -SEGV $$
END
    chmod a+rx "$JOBS/crash-rank3"
    # A node that was cut off before reaches the others again.
    wait_for 60 cluster run timeout -k 10 30 srun --muster -p spot -N4 -n4 muster-rdzv
    job=$(train_submit crash --wrap-with ./crash-rank3 --exclusive -- --ckpt-every 100000)
    job_wait "$job" 150 FAILED
    cat "$JOBS/crash.log"
    [ "$(job_restarts "$job")" -eq 2 ]
    [ "$(grep -c '"event": *"start"' "$JOBS/crash/attempts.jsonl")" -eq 3 ]
    grep -q '3 attempts' "$JOBS/crash.log"
}

# Nobody hears any more how the ranks of that node end. They and all others stop, save and leave.
@test "the slurmstepd of a node is killed: no step is lost, and the job comes back" {
    start dead-stepd -N4 -- --ckpt-every 100000 --log-level info
    node=${nodes[2]}
    all=$(cluster_pids -f "^slurmstepd: \[$job\.")
    pid=$(cluster_pids -f "^slurmstepd: \[$job\.0\]" | while read -r pid; do
        ! grep -q "muster-cluster:[^ ]*:$node " "/proc/$pid/mountinfo" || echo "$pid"
    done)
    echo "the slurmstepd of $node, $pid, dies at step $(train_step dead-stepd)"
    kill -9 "$pid"
    kill -CONT "$rank0"
    job_wait_attempt "$job" 1 150
    # One that ends later would end the step of the same number in this attempt.
    for pid in $all; do ! kill -0 "$pid" 2>/dev/null || { ps -fp "$pid" && false; }; done
    job_wait "$job" 150 COMPLETED
    cat "$JOBS/dead-stepd.log"
    [ "$(job_restarts "$job")" -eq 1 ]
    [ "$(train_notices dead-stepd)" -eq 1 ]
    grep -q "the end of the launcher on its node: all ranks stop after step" "$JOBS/dead-stepd.log"
    grep -q '"why": *"the end of the launcher on its node"' "$JOBS/dead-stepd/attempts.jsonl"
    train_equals_reference dead-stepd
    wait_for 60 node_is "$node" idle
}

# cancel_at NAME MOMENT: one job of 2 ranks on one node, cancelled at that moment of its life.
cancel_at() {
    local name=$1 job wrap=()
    [ "$2" != saving ] || wrap=(--wrap-with ./slow-rank0)
    # The training must not be over before its moment.
    job=$(STEP_MILLISECONDS=200 train_submit "$name" "${wrap[@]}" -N1 -n2 -- --ckpt-every 100000)
    wait_for 60 train_attempt_has "$name" 0 $((2 + RANDOM % 20))
    case $2 in
    running) sleep "0.$((RANDOM % 10))" ;;
    grace) cluster run scancel --signal=TERM "$job" ;;
    saving)
        cluster run scancel --signal=TERM "$job"
        wait_for 40 save_under_way "$name"
        ;;
    saved)
        cluster run scancel --signal=TERM "$job"
        wait_for 40 has_checkpoint "$name"
        sleep "0.$((RANDOM % 6))"
        ;;
    esac
    cluster run scancel "$job"
    echo "$job" >"$JOBS/$name.job"
}

save_under_way() { [ -n "$(find "$JOBS/$1" -maxdepth 1 -name '.saving-*')" ]; }
has_checkpoint() { [ -n "$(find "$JOBS/$1" -maxdepth 1 -name 'step-*')" ]; }

@test "scancel at ten random moments: none comes back" {
    i=0
    for moment in running running running grace saving; do
        i=$((i + 1)); cancel_at "cancel-$moment-$i" $moment &
    done
    wait
    for moment in grace saving saving saved saved; do
        i=$((i + 1)); cancel_at "cancel-$moment-$i" $moment &
    done
    wait
    [ "$(cat "$JOBS"/cancel-*.job | wc -l)" -eq 10 ]
    wait_for 60 all_over
    for file in "$JOBS"/cancel-*.job; do
        job=$(cat "$file")
        echo "$file: $(job_state "$job"), restarts $(job_restarts "$job")"
        [ "$(job_state "$job")" = CANCELLED ]
    done
}
