# SPDX-License-Identifier: Apache-2.0
# For the bats files that need a Slurm: start the cluster, submit jobs, wait for them, take their
# nodes away. A file says load helpers, and calls cluster_begin in its setup_file. The other three
# functions that bats calls are here; a file that needs one of its own defines it after that.
# shellcheck shell=bash

# shellcheck source=tests/lib/places.bash
. "${BASH_SOURCE[0]%/*}/../lib/places.bash"
# shellcheck source=tests/lib/wait_for.bash
. "$MUSTER_TOP/tests/lib/wait_for.bash"

cluster() { "$MUSTER_TOP/tests/cluster/cluster" "$@"; }

setup() { plugin_require; }

teardown() {
    cluster_explain
    resume_drained
}

teardown_file() { cluster_end; }

# cluster_begin [N] [--plugin FILE [ARG…]]: for setup_file.
cluster_begin() {
    [ "$(id -u)" = 0 ] || return 0
    cluster up "$@" >&2
    JOBS=$(cluster status jobs)
    export JOBS
}

# For setup, of a file whose tests need no plugin (bats cannot skip from setup_file).
cluster_require() {
    [ "$(id -u)" = 0 ] || skip "the test cluster needs root"
    # Where bats bounds a test, its watchdog is a child of the test's shell: "wait" must not wait
    # for that.
    [ -z "${BATS_killer_pid-}" ] || disown "$BATS_killer_pid"
}

# For setup_file: PLUGIN, this build's. Fails where the cluster is not to be started with it, and
# plugin_require skips the tests.
plugin_locate() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    export PLUGIN=$MUSTER_PREFIX/lib/slurm/spank_muster.so
    [ -e "$PLUGIN" ] && [ "$(id -u)" = 0 ]
}

# For a test in which several ranks on a node are to be healthy: that they share the only CPU is a
# finding of the doctor's.
two_cpus() { [ "$(nproc)" -ge 2 ] || skip "this machine has one CPU"; }

plugin_require() {
    [ -e "$PLUGIN" ] || skip "this build has no plugin: no Slurm headers"
    cluster_require
}

cluster_end() { [ "$(id -u)" != 0 ] || [ -n "${MUSTER_KEEP-}" ] || cluster down; }

# For teardown: what a failed test has left would keep nodes from the next.
job_cancel_left() {
    [ -n "${BATS_TEST_COMPLETED-}" ] || [ ! -e "$PLUGIN" ] ||
        cluster run --user root scancel --user=muster-test1
}

# When the test failed: what is in the queue, how the nodes are, what the nodes called an error, and
# what the cluster's logs, its takers and the newest job's output said last. All of them are kept
# beside the run's own logs.
cluster_explain() {
    local log kept job drained
    [ -z "${BATS_TEST_COMPLETED-}" ] && [ "$(id -u)" = 0 ] || return 0
    cluster run timeout 5 squeue -a -o 'job %i %T on %N (%r)' || :
    cluster status | grep '^node:' || :
    log=$(cluster status log)
    grep -H ' ended with status ' "$log"/*.out || :
    grep -h ' error: ' "$log"/slurmd-n?.log | sort | tail -n 6 || :
    for log in "$JOBS"/taker-*.out "$log"/slurmctld.log "$log"/slurmd-n?.log \
        "$(find "$JOBS" -name 'slurm-*.out' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 |
        cut -d' ' -f2)"; do
        [ -s "$log" ] || continue
        printf -- '--- %s\n' "${log##*/}"
        tail -n 12 "$log"
    done
    # shellcheck disable=SC2034 # bats looks at it after the teardown
    ! lost_script || BATS_TEST_RETRIES=1
    kept=$MUSTER_BUILD/log/$(basename "$BATS_TEST_FILENAME" .bats)-$BATS_TEST_NUMBER-$(date +%H%M%S)
    mkdir -p "$kept" && cp -a "$(cluster status log)" "$kept" &&
        (cd "$JOBS" && find . -maxdepth 2 \( -name '*.out' -o -name '*.log' -o -name '*.jsonl' \) \
            -exec cp --parents -t "$kept" {} +) &&
        echo "all logs of the cluster and of its jobs are kept in $kept"
    # Or the next test would wait for their nodes.
    [ -z "${MUSTER_KEEP-}" ] || return 0
    for job in $(cluster run timeout 5 squeue -ah -o %A); do
        cluster run --user root timeout 20 scancel "$job" || :
    done
    drained=$(cluster run timeout 5 sinfo -ht drain -o %N) && [ -n "$drained" ] &&
        cluster run --user root timeout 20 scontrol update NodeName="$drained" State=RESUME || :
}

# "${BOUNDED[@]}" COMMAND…: under salloc, which takes a killed command for the user's wish and ends
# with 0.
# shellcheck disable=SC2034 # the tests read it
BOUNDED=(bash -c "timeout -k 5 $HANG"' "$@"; exit $?' bounded)

# What Slurm itself gets wrong now and then, and nothing but that, by its own words
# (doc/slurm-releases.md has the causes).
SLURM_FAULTS=(
    "Munge decode failed: Unauthorized credential for client UID"
    "Job credential expired"
)

# slurm_fault WORDS: notes that a test met one; run.sh counts them.
slurm_fault() { printf '%s\n' "$1" >>"${MUSTER_SLURM_FAULTS:-/dev/null}"; }

# How often the daemons and the steps of the nodes have said so.
said_on_nodes() { cat "$(cluster status log)"/slurmd-n*.log | grep -cF "$1" || :; }

# run_slurm COMMAND…: bats' run; and again, three times at most, where the command failed and its
# output, or what the nodes have logged meanwhile, names a fault of Slurm's.
run_slurm() {
    local try fault met
    local -A before
    for try in 1 2 3 4; do
        for fault in "${SLURM_FAULTS[@]}"; do before[$fault]=$(said_on_nodes "$fault"); done
        run "$@"
        met=
        for fault in "${SLURM_FAULTS[@]}"; do
            # shellcheck disable=SC2154 # bats' run sets status and output
            [ "$status" -eq 0 ] ||
                { [[ $output != *"$fault"* ]] &&
                [ "$(said_on_nodes "$fault")" = "${before[$fault]}" ]; } || met=$fault
        done
        [ -n "$met" ] || return 0
        slurm_fault "$met"
        echo "attempt $try met a fault of Slurm's: $met"
    done
}

# told_nobody NODE: whether a step there was taken for unkillable after a task of it had ended, and
# its srun was gone. slurmstepd has tried to tell that srun before, or, where its PMIx server had
# lost the task, after.
told_nobody() {
    awk '/ mpi\/pmix_v4: _errhandler: .* status = -61, / { lost[$2] = 1 }
        /error: Failed to send MESSAGE_TASK_EXIT: / { ended[$2] = 1; found += $2 in late }
        / STEPD TERMINATED ON .* DUE TO JOB NOT ENDING WITH SIGNALS / {
            found += $2 in ended
            if ($2 in lost) late[$2] = 1
        }
        END { exit !found }' "$(cluster status log)/slurmd-$1.log"
}

# resume_drained: for each teardown, and before a look at the nodes, which the job's next attempt
# and the next test need. While a slurmstepd tries to reach an srun that is gone, Slurm may take its
# step for unkillable and drain the node. It also drains one that refuses to start a job which it
# still runs.
resume_drained() {
    local name reason
    [ "$(id -u)" = 0 ] || return 0
    while read -r name reason; do
        case $reason in
        "Kill task failed")
            told_nobody "$name" || continue
            slurm_fault "Kill task failed: slurmstepd could not reach an srun that was gone"
            ;;
        "Duplicate jobid")
            slurm_fault "a job was started again on a node where it still ran, and held"
            ;;
        *) continue ;;
        esac
        cluster run --user root scontrol update "NodeName=$name" State=RESUME </dev/null
    done < <(cluster run sinfo -h -N -t drain -o '%N %E' 2>/dev/null | sort -u)
    release_refused || :
}

# release_refused: a slurmctld that died had not saved yet that a job had begun, or a node was lost
# meanwhile; the job is started again, its node refuses, and Slurm holds the job.
release_refused() {
    local jobs
    grep -qs "Duplicate jobid on nodes .* set to state DRAIN" \
        "$(cluster status log)"/slurmctld.log* || return 1
    mapfile -t jobs < <(cluster run squeue -h -t PENDING -o '%A %r' |
        sed -n 's/ launch failed requeued held$//p')
    [ ${#jobs[@]} -gt 0 ] && cluster run --user root scontrol release "${jobs[@]}"
}

# held_up: for waits that have reached their limit. A slurmstepd may wait for Slurm's clock for
# unkillable steps, though each of its tasks has ended, and its job is COMPLETING for as long; the
# node is drained then, and resumed here.
held_up() {
    local clock end
    release_refused && resume_drained && return 0
    completing || return 1
    clock=$(cluster run scontrol show config |
        sed -n 's/^UnkillableStepTimeout *= \([0-9]*\) .*/\1/p')
    end=$((SECONDS + ${clock:-180} + HANG))
    while completing && [ $SECONDS -lt $end ]; do sleep 1; done
    resume_drained
}
completing() { [ -n "$(cluster run squeue -h -t COMPLETING)" ]; }

# lost_script: whether a job of which nobody has told yet never began, since slurmd removed its
# script just then: every two minutes it looks for scripts of jobs that do not run on its node.
lost_script() {
    local job jobs logs
    logs=$(cluster status log)
    mapfile -t jobs < <(cat "$logs"/slurmd-n*.log |
        sed -n 's|.* \[\([0-9]*\)\.batch\] error: execve(): .*/slurm_script: No such.*|\1|p')
    for job in "${jobs[@]}"; do
        ! grep -qx "$job" "$logs/lost-scripts" 2>/dev/null || continue
        grep -q "_handle_stray_script: Purging .*/job0*$job/slurm_script" "$logs"/slurmd-n*.log ||
            continue
        echo "$job" >>"$logs/lost-scripts"
        slurm_fault "slurmd removed the script of a job that was beginning"
        return 0
    done
    return 1
}

# lost_gpus JOB: whether Slurm gave the job's next attempt no GPUs, which it may do where one of its
# nodes has just been set DOWN. That attempt's srun has failed then, and with it the job; or it has
# come to its end without GPUs.
lost_gpus() {
    grep -qE -e "_step_get_gres_cnt JobId=$1 node offset invalid" \
        -e "gres/gpu: job $1 dealloc of node .* bad node_offset" \
        "$(cluster status log)/slurmctld.log" &&
        slurm_fault "the next attempt of a job whose node had died got no GPUs"
}

# unless_lost_gpus FUNCTION NAME: runs FUNCTION NAME-1, which takes $node from a job of that name,
# $job, and waits for the job's end; again under a new name where that met lost_gpus, the third time
# without GPUs, which can't be lost then. $name is the last one.
# shellcheck disable=SC2154 # FUNCTION sets node and job
unless_lost_gpus() {
    local try
    for try in 1 2 3; do
        name=$2-$try
        [ $try -lt 3 ] || local -x WITHOUT_GPUS=yes
        "$1" "$name"
        lost_gpus "$job" || return 0
        cat "$JOBS/$name.log"
        # It takes the GPUs of that attempt's nodes for used until it starts again.
        cluster stop-controller && cluster start-controller
        wait_for 60 node_is "$node" idle
    done
}

# ended_by_hang STATUS: whether that is timeout's word on an srun of several components which may
# have hung after the end of its tasks. Before 24.05.4 each component stops the one abort agent of
# Slurm's PMIx plugin without a lock, and may wait for a thread that is gone.
ended_by_hang() {
    local release
    [ "$1" -eq 124 ] || [ "$1" -eq 137 ] || return 1
    release=$(srun --version | grep -o '[0-9.]*$')
    [ "$release" != 24.05.4 ] &&
        [ "$(printf '%s\n' "$release" 24.05.4 | sort -V | head -n 1)" = "$release" ] &&
        slurm_fault "an srun of several components hung after the end of its tasks"
}

# job_submit [--user 2] SBATCH-ARGUMENT…: prints the job's id. The working folder is $JOBS.
job_submit() {
    local -a user=()
    [ "$1" != --user ] || { user=(--user "$2") && shift 2; }
    cluster run "${user[@]}" sbatch --parsable --open-mode=append "$@"
}

# job_field ID NAME: one value of scontrol's description of a job, such as Restarts, ExitCode,
# NodeList, Reason.
job_field() {
    local shown
    shown=" $(cluster run scontrol -o show job "$1")" || :
    [[ $shown != *" $2="* ]] || { shown=${shown#*" $2="} && echo "${shown%%[[:space:]]*}"; }
}

# job_state ID: PENDING, RUNNING, COMPLETING, COMPLETED, FAILED, CANCELLED, …
job_state() { job_field "$1" JobState; }

# job_has_step ID: whether Slurm knows a step of the job's: an srun that is about to make one gives
# up where the controller is away. The plugin's muster-skip does not count.
job_has_step() {
    cluster run squeue -h -s -j "$1" -o '%i %j' | grep -v ' muster-skip$' | grep -q '\.[0-9][0-9]* '
}

# job_restarts ID: how often the job was put back, less what Slurm adds from 24.05 on: the attempt
# after a preemption may end well, and is taken for one more answer to that preemption (the job
# then runs once more, and a training says that it has finished).
job_restarts() {
    local added
    added=$(awk -v job="JobId=$1" '$0 ~ job " WEXITSTATUS 0" { ended = 1; next }
        ended && $0 ~ "_job_complete: requeue " job " " { n++ }
        $0 ~ job " " { ended = 0 } END { print n + 0 }' \
        "$(cluster status log)/slurmctld.log")
    echo $(($(job_field "$1" Restarts) - added))
}

# job_output ID: the path of the job's output.
job_output() { printf '%s/slurm-%s.out' "$JOBS" "$1"; }

# Whether the job's state is one of those named.
job_is() { [[ " ${*:2} " = *" $(job_state "$1") "* ]]; }

# Whether the job runs its attempt ATTEMPT (0 for the first). One look: it may be put back between
# two.
job_runs_attempt() {
    local shown
    shown=$(cluster run scontrol -o show job "$1")
    [[ $shown = *" JobState=RUNNING "* && $shown = *" Restarts=$2 "* ]]
}
job_left_attempt() { ! job_runs_attempt "$@"; }

# job_watch ID SECONDS ATTEMPT STATE…: until the job is in one of these states, in its attempt
# ATTEMPT, or in any. One scontrol looks as often as it takes; it ends with the subshell.
job_watch() (
    trap - DEBUG # bats' takes more time than all else here
    end=$((SECONDS + $2 * ${MUSTER_PATIENCE:-3})) again=
    coproc scontrol { cluster run scontrol -o 2>&1; }
    while echo "show job $1" >&"${scontrol[1]}"; do
        if [ $SECONDS -ge $end ]; then
            [ -z "$again" ] && held_up || exit 1
            again=yes end=$((SECONDS + $2 * ${MUSTER_PATIENCE:-3}))
        fi
        shown=
        until [[ $shown = *" JobState="* || $shown = *" error: "* ]]; do
            read -r -t 60 shown <&"${scontrol[0]}" || exit 1
        done
        state=${shown#*" JobState="}
        if [[ " ${*:4} " = *" ${state%% *} "* && ( $3 = any || $shown = *" Restarts=$3 "* ) ]]; then
            exit 0
        fi
        # A pause, and the further lines of a job of several components.
        while read -r -t 0.1 shown <&"${scontrol[0]}"; do :; done
    done
    exit 1
) 2>/dev/null

# job_wait ID SECONDS STATE…
job_wait() {
    job_watch "$1" "$2" any "${@:3}" || { echo "job $1 is $(job_state "$1"), not $*"; return 1; }
}

# job_wait_attempt ID ATTEMPT SECONDS: until that attempt runs.
job_wait_attempt() {
    job_watch "$1" "$3" "$2" RUNNING || {
        echo "job $1 is $(job_state "$1"), restarts $(job_field "$1" Restarts), not running" \
            "attempt $2"
        return 1
    }
}

# taker_submit SECONDS SBATCH-ARGUMENT…: an ondemand job that preempts for its nodes and holds them
# for so long; prints its id.
taker_submit() {
    cluster run sbatch --parsable -p ondemand --exclusive -o taker-%j.out "${@:2}" --wrap "sleep $1"
}

# job_preempt ID [HOLD]: a taker gets all nodes of a running job for HOLD (1) seconds; returns once
# it has them. A job preempts only what it needs, so it asks for all nodes of the cluster.
job_preempt() {
    local nodes taker
    nodes=$(job_field "$1" NumNodes)
    taker=$(taker_submit "${2:-1}" -N "$nodes" -w "$(job_field "$1" NodeList)") || return 1
    job_wait "$taker" "${PREEMPT_DEADLINE:-90}" RUNNING COMPLETED
}

# job_end ID…: cancels jobs and waits until they are gone from their nodes.
job_end() {
    local id
    for id; do cluster run --user root scancel "$id" 2>/dev/null; done
    for id; do job_wait "$id" 60 CANCELLED COMPLETED FAILED TIMEOUT NODE_FAIL || return 1; done
}

# let_go PIPE…: programs that wait, each at a pipe in $JOBS that it made, for a line.
let_go() {
    local pipe
    for pipe; do wait_for 20 test -p "$JOBS/$pipe" && echo >"$JOBS/$pipe" || return 1; done
}

# cluster_pids PGREP-ARGUMENT…: those that pgrep finds in this cluster. Others may be up on the
# machine, and jobs of all run as the same users.
cluster_pids() {
    local pid
    for pid in $(pgrep "$@"); do
        ! grep -qs " ${JOBS%/jobs}/own " "/proc/$pid/mountinfo" || echo "$pid"
    done
}

# Whether a node's state, as sinfo prints it, is the one given ("idle", "down*", …).
node_is() { [ "$(cluster run sinfo -h -p spot -n "$1" -o %T)" = "$2" ]; }
# No node is out of use. A known fault of Slurm's own may come in this moment.
no_node_drained() {
    resume_drained && [ -z "$(cluster run sinfo -h -t drain,fail,down -o '%n %E')" ]
}
# Whether Slurm has no job left, and nobody asks for one's requeue any more.
all_over() { [ -z "$(cluster run squeue -h)$(cluster_pids -f muster-requeue)" ]; }
all_idle() { [ "$(cluster run sinfo -h -p spot -o %T | sort -u)" = idle ]; }

# Seconds within which a node is idle again whose ranks have asked those of the three others in
# vain. From 25.05.4 on slurmd waits for its slurmstepd, and that for its PMIx server, which tries
# each node 7 times, one after the other: 31.5 s of pauses, and 2 s a try where nothing answers.
# Then slurmd looks every 10 s (doc/slurm-releases.md).
export GIVING_UP=150
