#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Ranks that can't meet: whatever one of them does instead, all end within the deadline, with its name and its node's, and
# nothing is left.

load helpers
load training

setup_file() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    export PLUGIN=$MUSTER_PREFIX/lib/slurm/spank_muster.so
    export MUSTER_CLUSTER_KILLWAIT=2
    [ -e "$PLUGIN" ] || return 0
    cluster_begin 4 --plugin "$PLUGIN"
}

teardown_file() { cluster_end; }

setup() {
    [ -e "$PLUGIN" ] || skip "this build has no plugin: no Slurm headers"
    cluster_require
}

teardown() { cluster_explain; }

# begin NAME SRUN-ARGUMENT…: a step in the background, its output in $JOBS/NAME.
begin() { cluster run timeout 60 srun "${@:2}" >"$JOBS/$1" 2>&1 3>&- & }

# named NAME COUNT WORDS: so many ranks of the step have told exactly this of who is missing.
named() {
    local lines
    lines=$(grep -cE "\] error: rendezvous: couldn't meet $3 did not come\$" "$JOBS/$1")
    [ "$lines" -eq "$2" ] || { echo "$1: $lines ranks, not $2, said: $3" && cat "$JOBS/$1" && return 1; }
}

# Until the steps have told all they have to, and no process of theirs is left, on any node.
nothing_left() { ! pgrep -u muster-test1 -f "$MUSTER_PREFIX/bin/muster-(rdzv|train)|sleep 43.21" >/dev/null; }

@test "a rank that stops, sleeps, dies, ends or miscounts before it has met the others" {
    local rdzv="exec $MUSTER_PREFIX/bin/muster-rdzv -t 3" began=$SECONDS
    # shellcheck disable=SC2016
    local -A does=([stops]='kill -STOP $$' [sleeps]='exec sleep 43.21' [dies]='kill -9 $$' [ends]='exit 0')
    for case in "${!does[@]}"; do
        # Where Slurm does not end the others, the deadline has to; where a rank does not end by itself, Slurm has to.
        [[ $case = sleeps || $case = stops ]] && bad=1 || bad=0
        begin "$case" --muster --kill-on-bad-exit="$bad" -N4 -n4 bash -c "[ \$RANK = 2 ] && { ${does[$case]}; }; $rdzv"
    done
    wait
    for case in "${!does[@]}"; do named "$case" 3 '1 of 4 ranks within 3 s: rank 2 \(on n3\)'; done
    [ $((SECONDS - began)) -lt 25 ]
    begin miscounts --muster -N2 -n2 bash -c "[ \$RANK = 0 ] || export SLURM_STEP_NUM_TASKS=3; $rdzv"
    wait
    grep -q 'couldn.t tell the world size: PMIx says 2, SLURM_STEP_NUM_TASKS says 3' "$JOBS/miscounts"
    grep -q '^muster: rank 1 on n2 exited with status 2, .*; it last said "identity: ' "$JOBS/miscounts"
    grep -q '^muster: rank 2 on n3 was killed by signal 9 (Killed), the first of 4' "$JOBS/dies"
    wait_for 10 nothing_left
}

@test "a node that can't be reached: each of the others names its ranks and no other, with the plugin and without" {
    cat >"$JOBS/meet.sh" <<END
#!/bin/bash
touch up-\$1-\$SLURM_PROCID
until [ -e go ]; do sleep 0.1; done
exec $MUSTER_PREFIX/bin/muster-rdzv -t 4
END
    chmod 755 "$JOBS/meet.sh"
    begin cut --muster -N4 --ntasks-per-node=2 ./meet.sh cut
    begin cut-plain --no-muster --mpi=pmix -N4 --ntasks-per-node=2 ./meet.sh cut-plain
    for rank in 0 1 2 3 4 5 6 7; do wait_for 20 test -e "$JOBS/up-cut-$rank" -a -e "$JOBS/up-cut-plain-$rank"; done
    cluster cut n4
    touch "$JOBS/go"
    began=$SECONDS
    wait_for 12 nothing_left # also on n4, whose ranks can't reach the others, nor Slurm them
    echo "nothing is left after $((SECONDS - began)) s"
    cluster heal n4
    wait
    for case in cut cut-plain; do
        named $case 6 '2 of 8 ranks within 4 s: rank 6 \(on n4\), rank 7 \(on n4\)'
        named $case 2 '6 of 8 ranks within 4 s: rank 0 \(on n1\), rank 1 \(on n1\), rank 2 .*, rank 5 \(on n3\)'
    done
    wait_for 60 node_is n4 idle
}
