#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-run as a command, with programs in place of srun and scontrol, and without the plugin's
# words: what it refuses, when it begins a step again, and when it gives up.

bats_require_minimum_version 1.5.0
load lib/places
load lib/wait_for

setup() {
    PATH=$MUSTER_BUILD:${MUSTER_PREFIX:+$MUSTER_PREFIX/bin:}$PATH
    cd "$BATS_TEST_TMPDIR"
    mkdir fakes
    # srun: notes its arguments, and what a restart tells the step; ends as line N of `ends` has it.
    cat >fakes/srun <<'END'
#!/bin/bash
cd "${0%/*}/.."
told="restart=$SLURM_MUSTER_RESTART left=$SLURM_MUSTER_RESTARTS_LEFT out=$SLURM_MUSTER_LEFT_OUT"
echo "$* $told" >>calls
end=$(sed -n "$(wc -l <calls)p" ends)
[ "$end" != killed ] || kill -9 $$
exit "$end"
END
    # scontrol show node LIST, show job ID: what the files have.
    cat >fakes/scontrol <<'END'
#!/bin/bash
cat "${0%/*}/../${*: -2:1}" 2>/dev/null
exit 0
END
    chmod +x fakes/*
    PATH=$PWD/fakes:$PATH
    # A slurmd that answers.
    python3 -c '
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(1000)' >port 3>&- &
    slurmd=$!
    wait_for 20 test -s port
    nodes IDLE IDLE IDLE
    echo 'JobId=7 JobState=RUNNING Restarts=0 PreemptTime=None' >job
    # The plugin's word that it asks for a requeue.
    export MUSTER_ATTEMPT=0
    export SLURM_JOB_ID=7 SLURM_JOB_NODELIST='n[1-3]' SLURM_NTASKS_PER_NODE=2
    unset SLURM_RESTART_COUNT SLURM_STEP_NUM_TASKS SLURM_HET_SIZE SLURM_DISTRIBUTION
}

teardown() { kill "$slurmd"; }

BACK="job 7 asks to go back into the queue"
SILENT="its slurmd does not answer, or Slurm calls it down"

# nodes STATE…: as Slurm has n1, n2, …
nodes() {
    local state i=0
    for state; do
        echo "NodeName=n$((++i)) NodeAddr=127.0.0.1 Port=$(cat port) State=$state"
    done >node
}

# again OPTION…: a run whose srun ends as `ends` says.
again() { muster-run "$@" -- srun --mpi=pmix program; }

# refused TEXT COMMAND…: with status 2, in one line.
refused() {
    local text=$1
    run -2 "${@:2}"
    echo "$output"
    [[ ${lines[-1]} = *"$text"* ]]
    [ ! -e calls ]
}

@test "what it can't use is named, with the remedy, and nothing is started" {
    local hint='give srun and its program after --, as in: muster-run -- srun muster-train'
    refused "$hint" muster-run
    refused "$hint" muster-run -- mpirun program
    for option in -N2 --nodes=2 --ntasks=3 -wn1 --nodelist=n1 -marbitrary; do
        refused "leave $option out of srun's options, since muster-run chooses the nodes" \
            muster-run -- srun $option program
    done
    refused "use another distribution" env SLURM_DISTRIBUTION=arbitrary,x muster-run -- srun program
    run -2 again --restarts=many
    [[ ${lines[0]} = *"--restarts many: not a number from 0 to 100000" ]]
    run -2 again --silence=0
    [[ ${lines[0]} = *"--silence 0: not a number of seconds from 0.1 on" ]]
    refused "SLURM_JOB_ID is not set: muster-run is for the script of a job (sbatch)" \
        env -u SLURM_JOB_ID muster-run -- srun program
    refused "couldn't read SLURM_JOB_ID=x" env SLURM_JOB_ID=x muster-run -- srun program
    refused "couldn't read SLURM_RESTART_COUNT=-1" \
        env SLURM_RESTART_COUNT=-1 muster-run -- srun program
    refused "leave out the srun before it" env SLURM_STEP_NUM_TASKS=2 muster-run -- srun program
    refused "it can't run a heterogeneous job: use srun" \
        env SLURM_HET_SIZE=2 muster-run -- srun program
    refused "(SLURM_TASKS_PER_NODE=2,1): give sbatch --ntasks-per-node" \
        env -u SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE=2,1 muster-run -- srun program
    refused "couldn't read the nodes of the job: 'n[1-'" \
        env SLURM_JOB_NODELIST='n[1-' muster-run -- srun program
    refused "--spares 3: the job has 3 nodes: give sbatch more --nodes, or fewer spares" \
        muster-run --spares=3 -- srun program
    refused "--least 3: the first step has 2 nodes: give at most that" \
        muster-run --spares=1 --least=3 -- srun program
}

@test "a killed step begins again on nodes that answer; a node that Slurm calls down is left out" {
    printf '%s\n' killed killed 0 >ends
    nodes DOWN+DRAIN IDLE IDLE
    run -0 again --spares=1
    echo "$output"
    [[ $output = *"muster-run: n1 is left out of this job's steps: $SILENT"* ]]
    [ "$(grep -c 'beginning the step again on 2 nodes, restart [12] of 10$' <<<"$output")" -eq 2 ]
    diff calls - <<'END'
--nodes=2 --ntasks=4 --nodelist=n1,n2 --mpi=pmix program restart=0 left=10 out=
--nodes=2 --ntasks=4 --nodelist=n2,n3 --overlap --mpi=pmix program restart=1 left=9 out=n1
--nodes=2 --ntasks=4 --nodelist=n2,n3 --overlap --mpi=pmix program restart=2 left=8 out=n1
END
}

@test "a node whose slurmd does not answer is left out, too" {
    printf '%s\n' killed 0 >ends
    kill "$slurmd"
    wait "$slurmd" || :
    python3 -c 'import time; time.sleep(1000)' 3>&- & # for teardown
    slurmd=$!
    run -69 again
    echo "$output"
    [ "$(grep -c " is left out of this job.s steps: $SILENT$" <<<"$output")" -eq 3 ]
    [ "${lines[-1]}" = "muster-run: 0 nodes are left, and at least 2 are needed: $BACK" ]
}

@test "it gives up where Slurm takes the nodes away, or too few are left" {
    printf '%s\n' killed >ends
    for state in "JobState=COMPLETING Restarts=0" "JobState=RUNNING Restarts=1" \
        "JobState=RUNNING Restarts=0 PreemptTime=2026-11-28T10:00:00"; do
        echo "JobId=7 $state" >job
        rm -f calls
        run -69 again
        echo "$output"
        [ "$output" = "muster-run: Slurm is taking the job's nodes away: $BACK" ]
        [ "$(wc -l <calls)" -eq 1 ]
    done
    rm calls
    nodes DOWN IDLE DOWN*
    run -69 again
    echo "$output"
    [ "${lines[-1]}" = "muster-run: 1 node is left, and at least 2 are needed: $BACK" ]
}

@test "an end that is no death is the job's, and so is the last one" {
    for end in 0 1 3 75; do
        echo $end >ends
        rm -f calls
        run -$end again
        [ -z "$output" ]
        [ "$(wc -l <calls)" -eq 1 ]
    done
    rm calls
    printf '%s\n' killed 69 killed >ends
    run -137 again --restarts=2
    echo "$output"
    [ "$(wc -l <calls)" -eq 3 ]
    rm calls
    run -137 again --restarts=0
    [ -z "$output" ]
    # No srun at all.
    rm fakes/srun
    run -1 env PATH="$PWD/fakes:$MUSTER_BUILD:$MUSTER_PREFIX/bin" muster-run -- srun program
    echo "$output"
    [ "$output" = "muster-run: couldn't start srun: No such file or directory" ]
}
