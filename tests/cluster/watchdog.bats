#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped, and a node that is cut off, while they train: all others end within the
# deadline, tell where each of them stood and who gave no answer, and the job resumes to the bits of
# an undisturbed run.

load helpers
load training

DEADLINE=6 # of a collective in the first attempt, seconds
LEAVING=6  # for the last words and the log; the machine may be busy

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=2 MUSTER_CLUSTER_DOWN_AFTER=6
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
    cat >"$JOBS/impatient" <<END
#!/bin/bash
[ "\${SLURM_RESTART_COUNT:-0}" != 0 ] || set -- "\$@" --collective-timeout $DEADLINE
exec "\$@"
END
    chmod a+rx "$JOBS/impatient"
}

# A training whose steps take their time, less than its deadline, until its end has been told: it is
# not over while a rank or a node is looked up.
submit() {
    pace 500
    train_submit "$1" --wrap-with ./impatient -N2 --exclusive -- --ckpt-every 20
}

# nodes_of JOB: its first and its last one.
nodes_of() {
    cluster run scontrol show hostnames "$(job_field "$1" NodeList)" | sed -n '1p; $p' | xargs
}

# told NAME RANK…: each of these ranks has said where it stood, and then why it ends.
told() {
    local name=$1 rank
    shift
    for rank; do
        grep -q "\[rank $rank on n[1-4]\] error: this rank stood: .* of step [0-9]* .*; complete last: .*" \
            "$JOBS/$name.log" || return 1
        grep -q "\[rank $rank on n[1-4]\] error: comm: couldn't complete .* of step [0-9]* after " \
            "$JOBS/$name.log" || return 1
    done
}

# ended_in_time NAME BEGIN RANK…: these ranks do so within the deadline, from a moment that was just
# before the fault.
ended_in_time() {
    wait_for $((DEADLINE + LEAVING)) told "$1" "${@:3}" || { cat "$JOBS/$1.log"; return 1; }
    awk -v begin="$2" -v end="$EPOCHREALTIME" 'BEGIN { print end - begin " s after the fault" }'
    grep "error:" "$JOBS/$1.log"
    # One of them alone tells of all.
    [ "$(grep -c 'where the 4 ranks stood:$' "$JOBS/$1.log")" -eq 1 ]
    pace 0
}

# Whether no rank of the first attempt is left there.
nothing_runs_on() {
    local rank
    for rank in 0 1 2 3; do [ "$(train_rank "$1" $rank | cut -d" " -f1)" != "$2" ] || return 1; done
}

# silent NAME NODE: the ranks there that gave no answer, each with its record, which this cluster's
# nodes share.
silent() {
    sed -nE "s/.* error:   ranks? ([0-9, -]+) on $2: no answer; by its record it was [a-z]+ .* of step [0-9]+ for .* s\$/\1/p" \
        "$JOBS/$1.log" |
        tr -d ' ' | tr , '\n' | while IFS=- read -r first last; do seq "$first" \
        "${last:-$first}"; done | sort -n | xargs
}

@test "a rank is stopped with SIGSTOP: the others end within the deadline and name it" {
    job=$(submit stopped)
    wait_for 60 train_attempt_has stopped 0 20
    read -r first last < <(nodes_of "$job")
    read -r node pid < <(train_rank "$job" 3)
    begin=$EPOCHREALTIME
    kill -STOP "$pid"
    ended_in_time stopped "$begin" 0 1 2
    [ "$node" = "$last" ]
    [ "$(silent stopped "$last")" = 3 ]
    [ "$(silent stopped "$first")" = "" ]
    # Each of them, and perhaps with it rank 0, for which it may have waited when it was stopped.
    # Who waits for the rank on that node that carries its part names the silent one beside it.
    run sed -n "/waiting for rank/{s/rank 0 on $first, //;p}" "$JOBS/stopped.log"
    [ -n "$output" ]
    while read -r line; do
        [[ $line = *"waiting for rank 3 on $last"* ]] ||
            [[ $line = *"nothing was heard of rank 3 on $last"* ]]
    done <<<"$output"
    # Those that answered stood in collectives.
    grep -qE "error:   ranks? [0-2][-0-9, ]* on ($first|$first, $last|$last): waiting in .* of step [0-9]+ for" \
        "$JOBS/stopped.log"
    echo "$job" >"$JOBS/stopped.job"
}

# cut_off NAME: the last of a training's two nodes, until its ranks have ended.
cut_off() {
    job=$(submit "$1")
    wait_for 60 train_attempt_has "$1" 0 20
    read -r first node < <(nodes_of "$job")
    begin=$EPOCHREALTIME
    cluster cut "$node"
    ended_in_time "$1" "$begin" 0 1
    [ "$(silent "$1" "$node")" = "2 3" ]
    [ "$(silent "$1" "$first")" = "" ]
    # On the node itself all is over as well, with nobody to tell.
    wait_for 15 nothing_runs_on "$job" "$node"
    cluster heal "$node"
    job_wait "$job" 90 COMPLETED FAILED
}

@test "a node is cut off: the ranks on the others end within the deadline and name its ranks" {
    unless_lost_gpus cut_off cut
    echo "$job" >"$JOBS/$name.job"
    echo "$name" >"$BATS_FILE_TMPDIR/cut"
}

@test "both jobs resume, to the bits of an undisturbed run" {
    for name in stopped "$(cat "$BATS_FILE_TMPDIR/cut")"; do
        job_wait "$(cat "$JOBS/$name.job")" 90 COMPLETED
        [ "$(job_restarts "$(cat "$JOBS/$name.job")")" -eq 1 ] || {
            grep '^muster' "$JOBS/$name.log" && return 1
        }
        grep -q 'task.* [01].*: Exited with exit code 69' "$JOBS/$name.log"
        train_equals_reference "$name"
        # What the first attempt left is still there to be read, and the second has left nothing.
        [ ! -e "$JOBS/$name/standing" ]
        cluster run muster-where "$name" >"$JOBS/where"
        cat "$JOBS/where"
        grep -q "of an attempt before the last one" "$JOBS/where"
        grep -q "^job .*, attempt 0: 4 of 4 ranks have a record" "$JOBS/where"
    done
}
