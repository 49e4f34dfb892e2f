#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Nodes whose user database says other things than the controller's: it does not know the job's
# user, or not all his groups. What a job may do it does by the groups that Slurm sends with it, and
# so do its saves.

load helpers
load training

setup_file() {
    export GROUP=60042 MUSTER_CLUSTER_KILLWAIT=2 MUSTER_CLUSTER_GRACE=5
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    sed '/^muster-test1:/d' /etc/passwd >"$JOBS/passwd-without"
    { cat /etc/group && echo "muster-shared:x:$GROUP:muster-test1"; } >"$JOBS/group-with"
    # Before anybody has asked for the user's groups: Slurm remembers them.
    cluster run --user root mount --bind "$JOBS/group-with" /etc/group
    for node in n1 n2; do
        cluster run --user root --node $node mount --bind "$JOBS/passwd-without" /etc/passwd
    done
    training_begin
}

# shared DIR: a folder that is the user's by that group alone.
shared() { mkdir "$JOBS/$1" && chown "root:$GROUP" "$JOBS/$1" && chmod 2770 "$JOBS/$1"; }

# comes_back NAME NODES: a training on the nodes is put back in its middle, and ends as if nothing
# had been.
comes_back() {
    local id
    id=$(PAUSE_AT=45 train_submit "$1" --wrap-with ./pausing -N2 -w "$2" -- --ckpt-writers node \
        --ckpt-every 20)
    wait_for 60 stands_still "$1" "$id"
    cluster run scontrol requeue "$id"
    job_wait "$id" 120 COMPLETED FAILED
    cat "$JOBS/$1.log"
    [ "$(job_state "$id") $(job_restarts "$id")" = "COMPLETED 1" ]
    [ "$(sed -n 's/.*"event": *"start".*"attempt": *1,.*"step": *\([0-9-]*\).*/\1/p' \
        "$JOBS/$1/attempts.jsonl")" -ge 20 ]
    if grep "couldn't save\|couldn't write" "$JOBS/$1.log"; then false; fi
    muster-ckpt diff "$JOBS/reference" "$JOBS/$1"
    diff <(muster-curve "$JOBS/$1") <(muster-curve "$JOBS/reference")
}

@test "a directory that is the user's by a group, on nodes that know neither the user nor his groups" {
    run cluster run --user root --node n1 getent passwd "$(id -u muster-test1)"
    [ "$status" -ne 0 ]
    shared unknown
    comes_back unknown n1,n2
    grep "lacks group $GROUP, which this one has, and unknown is not the user's own: starting a service of its own" \
        "$JOBS/unknown.log"
    grep "couldn't find the groups of user" "$(cluster status log)/slurmd-n1.log"
}

@test "the same on nodes that know the user, and not that group" {
    shared other
    comes_back other n3,n4
    grep "lacks group $GROUP, which this one has, and other is not the user's own" "$JOBS/other.log"
}

@test "in the user's own directory the node's service is good enough, known or not" {
    comes_back own n2,n3
    if grep "lacks group" "$JOBS/own.log"; then false; fi
}
