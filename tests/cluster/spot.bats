#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A cloud tells a node of its end: every rank of the job stops after the same step, nothing is lost,
# and the job comes back without that node where others are left. Each node has its own metadata
# service.

load helpers
load ../lib/has_torch
load ../lib/python_package
STEPS=144 # whole epochs of the PyTorch training
load training
load pytorch

setup_file() {
    plugin_locate || return 0
    [ -x "$MUSTER_PREFIX/bin/muster-notice" ] || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
    for node in n1 n2 n3 n4; do
        serve $node page 8080
        serve $node azure 8081
    done
}

setup() {
    plugin_require
    [ -x "$MUSTER_PREFIX/bin/muster-notice" ] || skip "this build has no muster-notice: no libcurl"
    wait_for 60 all_idle
    rm -f "$JOBS"/n?-page/page
    export MUSTER_NOTICE=http://127.0.0.1:8080/notice WITHOUT_GPUS=yes
    pace 500 # until the last notice of a test has come
}

teardown() { cluster_explain; }
teardown_file() { cluster_end; }

# serve NODE CLOUD PORT: with its files in $JOBS/NODE-CLOUD.
serve() {
    cp "$MUSTER_TOP/tests/lib/metadata_server.py" "$JOBS/"
    cluster run --user root --node "$1" python3 metadata_server.py "$2" "$1-$2" "$3" \
        >"$JOBS/$1-$2.log" 2>&1 3>&- &
    wait_for 20 test -e "$JOBS/$1-$2/port"
}

# The cloud takes NODE: the page there says so until it is given back.
take() { echo "$1 is taken at noon" >"$JOBS/$1-page/page"; }
give_back() { rm "$JOBS/$1-page/page"; }

left_out() { job_field "$1" ExcNodeList; }
# The names of the nodes that an attempt ran on, with spaces around each.
nodes_of_attempt() {
    local list
    list=$(python3 - "$JOBS/$1/attempts.jsonl" "$2" <<'END'
import json, sys
starts = [r for r in map(json.loads, open(sys.argv[1])) if r["event"] == "start"]
print(starts[int(sys.argv[2])]["nodes"])
END
    )
    echo " $(cluster run scontrol show hostnames "$list" | tr '\n' ' ')"
}

# lost_nothing NAME ATTEMPT: it began after the last step of the attempt before.
lost_nothing() {
    python3 - "$JOBS/$1" "$2" <<'END'
import json, pathlib, sys
folder, attempt = pathlib.Path(sys.argv[1]), int(sys.argv[2])
def steps(n):
    lines = map(json.loads, (folder / f"metrics-{n}.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if "loss" in line]
assert steps(attempt)[0] == steps(attempt - 1)[-1] + 1, (steps(attempt - 1)[-1], steps(attempt)[0])
END
}

@test "a notice on one node: no step is lost, and the job comes back on others" {
    job=$(train_submit other -N2 --exclusive -- --ckpt-every 10000)
    wait_for 60 train_attempt_has other 0 4
    [ "$(nodes_of_attempt other 0)" = " n1 n2 " ]
    # Not where rank 0 is.
    take n2
    job_wait_attempt "$job" 1 60
    wait_for 60 train_attempt_has other 1 4
    give_back n2
    lost_nothing other 1
    nodes=$(nodes_of_attempt other 1)
    [[ $nodes != *" n2 "* ]]
    [ "$(left_out "$job")" = n2 ]
    grep -q "spot notice: this node is taken away (page: n2 is taken at noon)" "$JOBS/other.log"
    grep -q "job $job does not start on n2 again, which is about to be taken away" "$JOBS/other.log"
    # The next attempt lets n2 in again, whose name may be another machine's by then.
    read -r leader _ <<<"$nodes"
    take "$leader"
    job_wait_attempt "$job" 2 60
    wait_for 60 train_attempt_has other 2 1
    give_back "$leader"
    lost_nothing other 2
    [ "$(left_out "$job")" = "$leader" ]
    [[ $(nodes_of_attempt other 2) != *" $leader "* ]]
    pace 0
    job_wait "$job" 120 COMPLETED
    [ "$(train_notices other)" -eq 2 ]
    train_equals_reference other
}

@test "a job that needs every node comes back on all, and a node that its user left out stays so" {
    job=$(train_submit all -N4 --exclusive -- --ckpt-every 10000)
    wait_for 60 train_attempt_has all 0 4
    take n3
    job_wait_attempt "$job" 1 60
    give_back n3
    [ "$(left_out "$job")" = "(null)" ]
    grep -q "job $job may start on n3 again, though it is about to be taken away: partition spot has no other 4 nodes" "$JOBS/all.log"
    pace 0
    job_wait "$job" 120 COMPLETED
    lost_nothing all 1
    train_equals_reference all
    pace 500
    job=$(train_submit users -N2 --exclusive --exclude=n1 -- --ckpt-every 10000)
    wait_for 60 train_attempt_has users 0 4
    [ "$(nodes_of_attempt users 0)" = " n2 n3 " ]
    take n3
    job_wait_attempt "$job" 1 60
    give_back n3
    [ "$(left_out "$job")" = "n1,n3" ]
    wait_for 60 train_attempt_has users 1 1
    cluster run scontrol requeue "$job"
    job_wait_attempt "$job" 2 60
    [ "$(left_out "$job")" = n1 ]
    pace 0
    job_wait "$job" 120 COMPLETED
    train_equals_reference users
}

# bats test_tags=long
@test "azure hears that the node may be taken once the last save is durable" {
    export MUSTER_NOTICE=azure=http://127.0.0.1:8081
    job=$(train_submit ready -N2 --exclusive -- --ckpt-every 10000)
    wait_for 60 train_attempt_has ready 0 4
    echo '[{"EventId": "c-1", "EventType": "Preempt", "Resources": ["vm0"]}]' \
        >"$JOBS/n1-azure/events"
    wait_for 60 test -e "$JOBS/n1-azure/posted"
    rm "$JOBS/n1-azure/events"
    job_wait_attempt "$job" 1 60
    [ "$(cat "$JOBS/n1-azure/posted")" = '{"StartRequests":[{"EventId":"c-1"}]}' ]
    compgen -G "$JOBS/ready/step-*"
    pace 0
    job_wait "$job" 120 COMPLETED
    lost_nothing ready 1
    train_equals_reference ready
}

# bats test_tags=long
@test "a PyTorch training hears of it as well" {
    has_torch || skip "no python3-torch"
    local options=(--samples 384 --batch 24 --workers 1 --every 1000 --epochs $((STEPS / 16)) --sum)
    python_package && pytorch_job
    submit() {
        job=$(job_submit --muster -N2 --ntasks-per-node=2 --exclusive -J "$1" -o "$1.log" job.sh \
            "$1" "${options[@]}" "${@:2}")
    }
    submit python-whole
    job_wait "$job" 300 COMPLETED
    submit python --pause 0.04
    wait_for 60 train_attempt_has python 0 20
    take n2
    job_wait_attempt "$job" 1 60
    give_back n2
    job_wait "$job" 300 COMPLETED
    [ "$(left_out "$job")" = n2 ]
    same python python-whole
}
