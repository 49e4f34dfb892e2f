#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# No job is lost, and none comes back for ever: whose fault an end was, how often it may be the job's own, which steps count, and a
# controller that is away.

load helpers

setup_file() {
    export REQUEUE=$MUSTER_PREFIX/libexec/muster-requeue
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=6
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    # step.sh COMMAND: a batch script with one step, whose tasks run COMMAND.
    cat >"$JOBS/step.sh" <<'END'
#!/bin/bash
srun $STEP_OPTIONS /bin/bash -c "$1" & wait $!
END
    chmod 755 "$JOBS/step.sh"
}

teardown_file() { cluster_end; }

setup() { plugin_require; }

teardown() { cluster_explain; }

# job SBATCH-ARGUMENT… COMMAND: submits a job with --muster whose tasks run COMMAND; prints its id.
job() { job_submit --muster "${@:1:$#-1}" step.sh "${*: -1}"; }

said() { grep -q -- "$2" "$(job_output "$1")"; }

# restarted_once ID WORDS: it came back once, ended well, and the first attempt's output has the words.
restarted_once() {
    job_wait "$1" 90 COMPLETED
    cat "$(job_output "$1")"
    [ "$(job_restarts "$1")" = 1 ] || return 1
    said "$1" "$2"
}

@test "a rank that fails at a preemption's SIGTERM brings the job back; at anybody else's it does not" {
    # shellcheck disable=SC2016
    fails='[ $MUSTER_ATTEMPT = 0 ] || exit 0; trap "exit 1" TERM; echo ready; sleep 300 & wait'
    taken=$(job -N2 -n4 "$fails")
    wait_for 30 said "$taken" ready
    job_preempt "$taken" 0
    restarted_once "$taken" "exited with status 1 while the job was being preempted: job $taken is put back in the queue after attempt 0"
    told=$(job -N2 -n4 "$fails")
    wait_for 30 said "$told" ready
    cluster run scancel --signal=TERM "$told"
    job_wait "$told" 60 FAILED
    [ "$(job_restarts "$told")" = 0 ]
}

@test "a rank that fails on a node that is being drained brings the job back" {
    # shellcheck disable=SC2016
    id=$(job -N2 -n2 -w n1,n2 '[ $MUSTER_ATTEMPT = 0 ] || exit 0; echo ready; until [ -e drained ]; do sleep 0.1; done; [ $RANK = 0 ] || exit 1; sleep 300')
    wait_for 30 said "$id" ready
    cluster run --user root scontrol update nodename=n2 state=drain reason=test
    touch "$JOBS/drained"
    wait_for 30 said "$id" "exited with status 1 while its node was being drained: job $id is put back in the queue after attempt 0"
    cluster run --user root scontrol update nodename=n2 state=resume
    restarted_once "$id" "put back"
}
