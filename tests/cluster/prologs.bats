#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Sites that have Slurm run the job prologs and epilogs in another way than it does by default: what
# that leaves to the checkpoint service, which they start and end. Each test has a cluster of its
# own.

load helpers
load training
export SRUN_OPTIONS= # two ranks share a node

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=3
    plugin_locate || return 0
}

# site CONF [ARGUMENT…]: a cluster with these lines in slurm.conf, and arguments of the plugin.
site() {
    MUSTER_CLUSTER_CONF=$1 cluster_begin 2 --plugin "$PLUGIN" "${@:2}"
}

release_from() {
    [ "$(printf '%s\n' "$1" "$(slurmd -V | grep -o '[0-9.]*$')" | sort -V | head -n 1)" = "$1" ]
}

# What slurmd said at its start; its line is one.
slurmd_said() {
    local log
    for log in "$(cluster status log)"/slurmd-n?.log; do
        grep 'muster: warning: ' "$log"
        [ "$(grep -c 'muster: warning: ' "$log")" -eq 1 ]
        grep -qF "muster: warning: $1" "$log"
    done
}

as_root() { cluster run --user root --node "$@"; }
service() {
    as_root n1 sed -n 's/^pid \([0-9]*\) .*/\1/p' "/run/muster/job-$1/service" 2>/dev/null
}

has_service() { [ -n "$(service "$1")" ]; }

# no_service JOB: the job prolog has run, and there is none.
no_service() { [ -z "$(service "$1")" ] && as_root n1 test ! -e "/run/muster/job-$1/ckptd/socket"; }

waiting() {
    job_submit --muster -w n1 \
        --wrap 'srun bash -c "echo \$SLURMD_NODENAME got \${MUSTER_CKPTD-none}; sleep 1000.5"'
}
stopped() { grep -q '^State:[[:space:]]*T' "/proc/$1/status"; }

# left JOB NODE: a socket as a PMIx server leaves it that died with its node.
left() {
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' \
        "$(cluster status dir)/spool/$2/stepd.slurm.pmix.$1.0"
}
nothing_left() { [ -z "$(as_root "$1" find /run/muster -mindepth 1 -name 'job-*' 2>/dev/null)" ]; }

# train NAME SBATCH-OPTION… -- TRAIN-OPTION…
train() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    cluster run env PATH="$PATH" TRAIN_ARGS="$TRAIN_ARGS" WRAP=./pausing PAUSE_AT=5 \
        PAUSE_IN="${PAUSE_IN-0}" \
        sbatch --parsable --open-mode=append --muster --ntasks-per-node=2 -o "$name.log" \
        "${options[@]}" train.sh "$name" "${@:2}"
}

# comes_back NAME NODES: a training that is preempted saves through its steps' own services, and
# goes on to the same end.
comes_back() {
    local job
    training_begin 2>/dev/null
    job=$(train "$1" "-N$2" --exclusive -- --ckpt-every 100000)
    wait_for 90 stands_still "$1" "$job"
    no_service "$job"
    job_preempt "$job" 0
    job_wait "$job" 180 COMPLETED
    [ "$(job_restarts "$job")" -eq 1 ]
    [ "$(train_notices "$1")" -eq 1 ]
    train_equals_reference "$1"
    no_node_drained
}

@test "an epilog that Slurm kills before drain= is over: a service that its user has stopped has what fits, and the node stays" {
    site PrologEpilogTimeout=30 drain=300
    local name=PrologEpilogTimeout
    ! release_from 25.05 || name=EpilogTimeout
    slurmd_said "epilog-short: $name is 30 s, and the end of a checkpoint service may take drain=300 and 20 s: it is given 10 s"
    id=$(waiting)
    wait_for 30 grep -q "n1 got /run/muster/job-$id/ckptd/socket" "$(job_output "$id")"
    pid=$(service "$id")
    kill -STOP "$pid"
    wait_for 10 stopped "$pid"
    cluster run scontrol requeue "$id"
    job_wait_attempt "$id" 1 60
    no_node_drained
    grep "muster: job $id: .* did not say what it lost, and was killed" \
        "$(cluster status log)/slurmd-n1.log"
    [ ! -d "/proc/$pid" ]
    wait_for 30 has_service "$id"
    job_end "$id"
    wait_for 30 all_idle
    run cluster run muster-doctor
    [[ $output = *"warning: epilog-short: $name is 30 s, "*"drain=10 in plugstack.conf"* ]]
}

@test "no time for a service at all: none is started, and each step starts its own" {
    site PrologEpilogTimeout=12 drain=60
    slurmd_said "epilog-short: "
    grep -q 'is 12 s, so that the job prolog starts no checkpoint service: ' \
        "$(cluster status log)/slurmd-n1.log"
    comes_back short 2
}

@test "PrologFlags=Serial: no service that could hold up other jobs; a training comes back" {
    site PrologFlags=Serial drain=86400
    slurmd_said \
        "prolog-serial: PrologFlags has Serial, so that the job prolog starts no checkpoint service"
    comes_back serial 2
    # Every service of a job is stopped by its user, and the job ends: the next job's prolog does
    # not wait.
    job=$(STEP_MILLISECONDS=100 PAUSE_IN=none train stops -N1 -w n1 -- --ckpt-every 10 \
        --steps 100000)
    wait_for 60 train_attempt_has stops 0 20
    services=$(cluster_pids -x muster-ckptd)
    [ -n "$services" ]
    # shellcheck disable=SC2086
    kill -STOP $services
    cluster run scancel "$job"
    id=$(waiting)
    wait_for 40 grep -q "n1 got " "$(job_output "$id")"
    job_wait "$job" 60 CANCELLED
    job_end "$id"
    run cluster run muster-doctor
    [[ $output = *"warning: prolog-serial: PrologFlags has Serial, "* ]]
}

@test "PrologFlags=RunInJob: no service in the extern step's container; a training comes back" {
    release_from 24.05 || skip "PrologFlags=RunInJob is of Slurm 24.05, and this is $(slurmd -V)"
    site "PrologFlags=RunInJob
UnkillableStepTimeout=20" drain=60
    slurmd_said "prolog-in-job: PrologFlags has RunInJob, so that the job prolog starts no checkpoint service"
    # One node: Slurm 25.05 can't start a job there that has GPUs on several.
    comes_back in-job 1
    run cluster run muster-doctor
    [[ $output = *"warning: prolog-in-job: PrologFlags has RunInJob, "* ]]
    # What prolog and epilog do beside.
    id=$(job_submit --muster --hold -w n2 -n2 --wrap 'srun true')
    left "$id" n1
    left "$id" n2
    cluster run scontrol release "$id"
    job_wait "$id" 60 COMPLETED
    ls "$(cluster status dir)/spool/n1/stepd.slurm.pmix.$id.0"
    run ls "$(cluster status dir)/spool/n2/stepd.slurm.pmix.$id.0"
    [ "$status" -ne 0 ]
    wait_for 20 nothing_left n1
    wait_for 20 nothing_left n2
    no_node_drained
}
