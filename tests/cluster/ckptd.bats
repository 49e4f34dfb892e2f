#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The checkpoint service of a job: who it is, that it outlives the step and not the job, and that
# what was handed over to it reaches the disk before anybody else gets the nodes. All of it with a
# drain longer than UnkillableStepTimeout, which has to be enough for slurmstepd itself: it tries
# for some seconds to tell an srun that was killed before it of its tasks' end.

load helpers
STEPS=150
load training
export SRUN_OPTIONS= # four ranks share a node of two GPUs

setup_file() {
    export MUSTER_CLUSTER_GRACE=3 MUSTER_CLUSTER_KILLWAIT=2
    export UNKILLABLE=$((10 * ${MUSTER_PATIENCE:-3} / 3))
    export MUSTER_CLUSTER_CONF="UnkillableStepTimeout=$UNKILLABLE" DRAIN=drain=$((6 * UNKILLABLE))
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN" "$DRAIN"
    training_begin 2>/dev/null
    cat >"$JOBS/held" <<'END'
#!/bin/bash
# A rank of the first attempt begins when the services of its job are held: it might have saved
# before.
gate=held-$SLURM_JOB_ID-$SLURM_PROCID
[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || { mkfifo "$gate" && read -r _ <"$gate"; }
exec "$@"
END
    chmod a+rx "$JOBS/held"
}

teardown() {
    # A strace whose service was killed in a held fsync does not heed SIGTERM.
    # shellcheck disable=SC2046
    kill -KILL $(tracers) 2>/dev/null || :
    cluster_explain
    resume_drained
}

as() { cluster run --user "$1" --node "$2" "${@:3}"; }

# service NODE JOB: the pid of a job's service, as root has noted it.
service() {
    as root "$1" sed -n 's/^pid \([0-9]*\) .*/\1/p' "/run/muster/job-$2/service" 2>/dev/null
}
has_service() { kill -0 "$(service "$1" "$2")" 2>/dev/null; }

# Whether nothing of any service is left on any node.
nothing_left() {
    local node
    [ -z "$(cluster_pids -x muster-ckptd)" ] || return 1
    for node in n1 n2 n3 n4; do
        [ -z "$(as root "$node" find /run/muster -mindepth 1 2>/dev/null)" ] || return 1
    done
}

# hold JOB NODE…: from now on no fsync of the job's services on these nodes comes to an end, until
# they are released or killed.
hold() {
    local job=$1 node pid
    for node in "${@:2}"; do
        pid=$(service "$node" "$job")
        strace -f -p "$pid" -o /dev/null -e trace=fsync,fdatasync \
            -e inject=fsync,fdatasync:delay_enter=1000s 2>/dev/null 3>&- &
        note_pid $! >>"$BATS_TEST_TMPDIR/held-$job"
        wait_for 10 traced "$pid"
    done
}
# tracers [JOB]: what holds those of the job, or all.
# shellcheck disable=SC2086
tracers() { noted "$BATS_TEST_TMPDIR"/held-${1-*}; }
# release [JOB]: those of the job, or all.
# shellcheck disable=SC2046
release() { kill $(tracers "$@") 2>/dev/null || :; }

node_log() { grep "muster: job $2: " "$(cluster status log)/slurmd-$1.log"; }
service_was_started() { node_log "$1" "$2" | grep 'its checkpoint service is process'; }
saving() { [ -n "$(find "$JOBS/$1" -maxdepth 1 -name '.saving-*' 2>/dev/null)" ]; }
idle() { ! saving "$1"; }
# Whether rank 0 has handed over the save that is being written: with several writers it may be the
# last.
handed_over() {
    local step
    step=$(find "$JOBS/$1" -maxdepth 1 -name '.saving-step-*' |
        sed 's/.*\.saving-step-0*\([0-9]*\)-.*/\1/' | head -n 1)
    [ -n "$step" ] && grep -q "rank 0 on .*checkpoint: step $step is handed over" "$JOBS/$1.log"
}
saved() { [ -n "$(find "$JOBS/$1" -maxdepth 1 -name 'step-*' 2>/dev/null)" ]; }
no_trainer() { [ -z "$(cluster_pids -u muster-test1 -f "muster-train .*--ckpt-dir $1 ")" ]; }

# The step that attempt ATTEMPT of a run began with, and when it did.
began_with() { began "$1" "$2" step; }
began() { sed -n "s/.*\"event\": *\"start\".*\"attempt\": *$2[,}].*/&/p" "$JOBS/$1/attempts.jsonl" |
    sed "s/.*\"$3\": *\([0-9.-]*\).*/\1/"; }

waiting() {
    job_submit --muster "$@" \
        --wrap 'srun --overlap bash -c "echo \$SLURMD_NODENAME \$MUSTER_CKPTD; sleep 1000.5"'
}

@test "one service a node: the user's, with no privilege, deaf to signals; nobody else gets at it" {
    id=$(waiting -N2 -w n1,n2)
    socket=/run/muster/job-$id/ckptd/socket
    both_told() { [ "$(grep -cs "^n[12] $socket\$" "$(job_output "$id")")" = 2 ]; }
    wait_for 30 both_told
    [ "$(as root n1 find /run/muster -printf '%M %u %g %P\n' | sort)" \
        = "$(printf '%s\n' "-rw------- root root job-$id/batch-host" \
        "-rw------- root root job-$id/larger-step" "-rw------- root root job-$id/service" \
        "drwxr-xr-x root root " "drwxr-xr-x root root job-$id" \
        "drwxr-xr-x root root job-$id/ckptd" \
        "srw------- muster-test1 muster-test1 job-$id/ckptd/socket")" ]
    for node in n1 n2; do
        pid=$(service $node "$id")
        status=$(tr -s '\t ' ' ' <"/proc/$pid/status")
        grep -qxE "Uid:( $(id -u muster-test1)){4}" <<<"$status"
        [ "$(grep -cE '^Cap(Inh|Prm|Eff|Amb): 0+$' <<<"$status")" -eq 4 ]
        grep -qx 'NoNewPrivs: 1' <<<"$status"
        [ "$(ps -o sid= -p "$pid" | tr -d ' ')" = "$pid" ]
        for signal in TERM INT HUP USR1 USR2; do kill -$signal "$pid"; done
    done
    has_service n1 "$id"
    has_service n2 "$id"
    as 1 n1 muster-ckptd --status "$socket" | grep -q "job $id"

    # The second user, and the first user's other processes.
    run as 2 n1 muster-ckptd --status "$socket"
    [ "$status" -ne 0 ]
    for user in 1 2; do
        run as $user n1 ls "/proc/$(service n1 "$id")/fd"
        [[ $status -ne 0 && $output = *"Permission denied"* ]]
        run as $user n1 ln -s "$JOBS" "/run/muster/job-$((id + 1))"
        [[ $status -ne 0 && $output = *"Permission denied"* ]]
        run as $user n1 mv "/run/muster/job-$id/ckptd" "/run/muster/job-$id/mine"
        [[ $status -ne 0 && $output = *"Permission denied"* ]]
    done

    # The user can put nothing there, nor take his socket away: /run would be his to fill.
    for command in 'touch file' 'mkdir folder' 'ln -s / root' 'mkfifo pipe' 'rm -f socket' \
        'mv socket mine' 'chmod 777 .'; do
        run as 1 n1 sh -c "cd /run/muster/job-$id/ckptd && $command"
        [[ $status -ne 0 && $output = *"ermi"* ]] || {
            echo "$command: $status $output" && return 1
        }
    done
    # What is there all the same harms nobody when root empties the folder.
    mkdir "$JOBS/others" && echo theirs >"$JOBS/others/file" && chown -R muster-test2 "$JOBS/others"
    as root n1 sh -c "cd /run/muster/job-$id/ckptd && ln -s $JOBS/others link && ln -s /etc etc &&
        mkdir -p a/b && ln -s / a/b/root && mkfifo pipe && chmod 0 a/b && chown -R muster-test1 a"
    cluster run scancel "$id"
    wait_for 20 nothing_left
    [ "$(cat "$JOBS/others/file") $(stat -c %U "$JOBS/others")" = "theirs muster-test2" ]
    [ -e /etc/passwd ]
    node_log n1 "$id" | grep -q 'its checkpoint service has ended'
    no_node_drained
}

@test "a job has one when it asked for Muster, in whatever way; leftovers of a node that died are not in its way" {
    show='echo got $MUSTER_CKPTD'
    run cluster run srun --muster bash -c "$show"
    [[ $output = *"got /run/muster/job-"*/ckptd/socket* ]]
    run env MUSTER=1 "$MUSTER_TOP/tests/cluster/cluster" run srun bash -c "$show"
    [[ $output = *"got /run/muster/job-"* ]]
    run cluster run salloc --muster srun bash -c "$show"
    [[ $output = *"got /run/muster/job-"* ]]
    run cluster run srun bash -c "$show"
    [[ $output = *got* && $output != */run/muster* ]]
    run env MUSTER=1 "$MUSTER_TOP/tests/cluster/cluster" run srun --no-muster bash -c "$show"
    [[ $output = *got* && $output != */run/muster* ]]
    cluster plugin "$PLUGIN" default=on
    run cluster run srun bash -c "$show"
    [[ $output = *"got /run/muster/job-"* ]]
    # One from outside is not taken for this job's own, and a service that can't be started fails
    # nothing.
    cluster plugin "$PLUGIN" ckptd=/nonexistent
    run cluster run srun --muster --export=ALL,MUSTER_CKPTD=/run/muster/job-1/ckptd/socket \
        bash -c "$show"
    cluster plugin "$PLUGIN" "$DRAIN"
    [[ $output = *got* && $output != */run/muster* ]]
    grep -q "was not started.*couldn't start /nonexistent" "$(cluster status log)"/slurmd-n?.log
    no_node_drained
    wait_for 10 nothing_left

    id=$(waiting -N2 -w n1,n2)
    next=$((id + 1))
    job_wait "$id" 20 RUNNING
    wait_for 10 has_service n2 "$id"
    pid=$(service n2 "$id")
    cluster kill-node n2
    wait_for 10 test ! -d "/proc/$pid"
    cluster run --user root scancel "$id"
    cluster start-node n2
    as root n2 sh -c "mkdir -p /run/muster/job-$next/ckptd/deep &&
        ln -s $JOBS/others /run/muster/job-$next/ckptd/link &&
        echo pid 1 start 0 attempt 0 >/run/muster/job-$next/service &&
        chmod 0755 /run/muster /run/muster/job-$next"
    [ "$(waiting -N2 -w n1,n2)" = "$next" ]
    wait_for 20 service_was_started n2 "$next"
    has_service n2 "$next"
    [ -z "$(as root n2 find "/run/muster/job-$next" -name deep)" ]
    wait_for 20 job_is "$id" CANCELLED
    job_end "$next"
    wait_for 20 nothing_left
}

# The run ended by itself with the state and the curve of the undisturbed one, however its files are
# cut.
equals_reference() {
    muster-ckpt diff "$JOBS/reference" "$JOBS/$1" || {
        echo "$1: the final state differs"; return 1
    }
    diff <(muster-curve "$JOBS/$1") <(muster-curve "$JOBS/reference")
    [ -z "$(find "$JOBS/$1" -maxdepth 1 -name '.saving-*' -o -maxdepth 1 -name '*.damaged-*')" ]
}

# train [--held] [--pausing] NAME NODES TASKS WRITERS [OPTION…]: submits a training on those nodes,
# that many tasks on each. Prints the job's id. With --held its services are; with --pausing its
# rank 0 stands still after some steps, until Slurm sends SIGCONT and SIGTERM to it.
train() {
    local wrap='' held=''
    [ "$1" != --held ] || { held=yes wrap=./held && shift; }
    [ "$1" != --pausing ] || { wrap+=" ./pausing" && shift; }
    local nodes=${2//,/ } node job rank
    # shellcheck disable=SC2086
    job=$(train_submit "$1" --wrap-with "$wrap" "-N$(wc -w <<<"$nodes")" -w "$2" \
        "--ntasks-per-node=$3" --gpus-per-task=0 --exclusive -- \
        --ckpt-writers "$4" --ckpt-slots 1 --log-level debug "${@:5}")
    for node in $nodes; do wait_for 20 has_service "$node" "$job" >&2; done
    if [ -n "$held" ]; then
        # shellcheck disable=SC2086
        hold "$job" $nodes >&2
        for ((rank = 0; rank < $3 * $(wc -w <<<"$nodes"); rank++)); do
            let_go "held-$job-$rank" >&2
        done
    fi
    echo "$job"
}

newest() { find "$JOBS/$1" -maxdepth 1 -name 'step-*' | sort | tail -n 1 | sed 's/.*step-0*//'; }

# Whether the attempt has begun, for which Slurm may have to be helped.
has_begun() { train_attempt_has "$@" || { resume_drained && train_attempt_has "$@"; }; }

# resumed NAME JOB STEP: the next attempt has begun with that checkpoint.
resumed() {
    wait_for 60 has_begun "$1" 1 1
    [ "$(began_with "$1" 1)" -eq "$3" ] || { cat "$JOBS/$1/attempts.jsonl"; return 1; }
    [ "$(job_restarts "$2")" -eq 1 ]
    no_node_drained
}

# It ends as if nothing had been.
ends_as_reference() { job_wait "$2" 90 COMPLETED && equals_reference "$1"; }

# take NODES: an ondemand job that needs them; prints its id.
take() {
    local nodes=${1//,/ }
    # shellcheck disable=SC2086
    taker_submit 0 "-N$(wc -w <<<"$nodes")" -w "$1"
}

# killed_in_grace NAME JOB TAKER: a save that takes longer than the grace time is under way when
# Slurm kills the step.
killed_in_grace() {
    wait_for 30 saving "$1"
    wait_for 30 no_trainer "$1"
    ! saved "$1" || false
    [ "$(job_state "$3")" = PENDING ]
    cluster run "$MUSTER_PREFIX/libexec/muster-requeue" --running "$2" 0
}

# taken_when_durable NAME TAKER: a job that sees the other one start sees the checkpoint. Prints its
# step.
taken_when_durable() {
    job_wait "$2" 60 RUNNING COMPLETED >&2
    newest "$1" | grep .
}

@test "the whole step is killed while one service, or two, write: durable before anybody starts, resumed, bit-identical" {
    one=$(train --held --pausing one n1,n2 1 rank0 --ckpt-every 100000)
    four=$(train --held --pausing four n3,n4 2 all --ckpt-every 100000)
    wait_for 60 stands_still one "$one"
    wait_for 60 stands_still four "$four"
    take_one=$(take n1,n2)
    take_four=$(take n3,n4)
    killed_in_grace one "$one" "$take_one"
    killed_in_grace four "$four" "$take_four"
    sleep "$UNKILLABLE" # Slurm may no longer wait for a step, but does for what is no step
    release
    step_one=$(taken_when_durable one "$take_one")
    step_four=$(taken_when_durable four "$take_four")
    resumed one "$one" "$step_one"
    resumed four "$four" "$step_four"
    ends_as_reference one "$one"
    ends_as_reference four "$four"
}

# From here on Slurm tracks steps with cgroups, where this machine has them.
# bats test_tags=long
@test "proctrack/cgroup: a service is in no step's group" {
    mkdir "$BATS_FILE_TMPDIR/training"
    (cd "$JOBS" && cp -a train.bin train.sh pausing held reference "$BATS_FILE_TMPDIR/training")
    MUSTER_CLUSTER_PROCTRACK=cgroup cluster up 4 --plugin "$PLUGIN" "$DRAIN" || why=$output
    [ -z "${why-}" ] || cluster up 4 --plugin "$PLUGIN" "$DRAIN"
    cp -a "$BATS_FILE_TMPDIR"/training/* "$JOBS"
    grep -q ProctrackType=proctrack/cgroup "$(cluster status conf)" ||
        skip "no freezer of cgroup version 1 that may be used"
    id=$(waiting -N2 -w n1,n2)
    wait_for 20 grep -q "n2 /run" "$(job_output "$id")"
    grep -q "freezer.*/job_$id/step_" \
        "/proc/$(cluster_pids -u muster-test1 -f '^sleep 1000.5$' | head -n 1)/cgroup"
    if grep step_ "/proc/$(service n1 "$id")/cgroup"; then false; fi
    job_end "$id"
    wait_for 20 nothing_left
}

# kill_trainer NAME JOB: SIGKILL for rank 0 as soon as it has handed over what services write.
kill_trainer() {
    local pid
    wait_for 60 eval "train_rank $2 0 >/dev/null"
    read -r _ pid < <(train_rank "$2" 0)
    wait_for 60 handed_over "$1"
    kill -KILL "$pid"
}

# kill_unsaved NAME JOB: the same in a run that has no checkpoint before.
kill_unsaved() {
    kill_trainer "$@"
    ! saved "$1" || return 1
    release "$2"
}

@test "trainers killed right after the hand-over, and steps at the end of their grace time: all is durable and resumed from" {
    grace_one=$(train --held --pausing grace-one n1 2 rank0 --ckpt-every 100000)
    grace_four=$(train --held --pausing grace-four n2 4 all --ckpt-every 100000)
    wait_for 60 stands_still grace-one "$grace_one"
    wait_for 60 stands_still grace-four "$grace_four"
    take_one=$(take n1)
    take_four=$(take n2)
    one=$(train --held killed-one n3 2 rank0 --ckpt-every 40)
    four=$(train --held killed-four n4 4 all --ckpt-every 40)
    kill_unsaved killed-one "$one" 3>&- &
    kill_unsaved killed-four "$four"
    wait $!
    killed_in_grace grace-one "$grace_one" "$take_one"
    release "$grace_one"
    killed_in_grace grace-four "$grace_four" "$take_four"
    release "$grace_four"
    step_one=$(taken_when_durable grace-one "$take_one")
    step_four=$(taken_when_durable grace-four "$take_four")
    resumed killed-one "$one" 40
    resumed killed-four "$four" 40
    resumed grace-one "$grace_one" "$step_one"
    resumed grace-four "$grace_four" "$step_four"
    ends_as_reference killed-four "$four"
    ends_as_reference grace-one "$grace_one"
    ends_as_reference grace-four "$grace_four"
}

@test "a drain shorter than the write: told, no node drained, and the job comes back from the checkpoint before" {
    cluster plugin "$PLUGIN" drain=1
    job=$(train --pausing short n1 2 rank0 --ckpt-every 5 --steps 5000)
    wait_for 60 stands_still short "$job"
    wait_for 10 saved short
    wait_for 10 idle short
    step=$(newest short)
    # No file of the save after it is complete when the drain is over: the next attempt would commit
    # that.
    hold "$job" n1
    read -r _ pid < <(train_rank "$job" 0)
    kill -CONT "$pid"
    kill_trainer short "$job"
    resumed short "$job" "$step"
    node_log n1 "$job"
    node_log n1 "$job" | grep -q 'error.* lost: step [0-9]* '
    job_end "$job"
}
