#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Ranks that meet without Slurm's PMIx: over PMI2 (srun --mpi=pmi2), and over the PMIx of an mpirun
# in a job.

load helpers
STEPS=60
load training

setup_file() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    export RDZV=$MUSTER_PREFIX/bin/muster-rdzv MUSTER_CLUSTER_KILLWAIT=2
    cluster_begin 4
    training_begin
}

setup() { cluster_require; }

step() { run cluster run timeout "$HANG" srun --mpi=pmi2 "$@" && echo "$output"; }

# rows RANK NODE…: whether the table has these rows, and no others.
rows() {
    local world=$#
    for node; do
        grep -qE "^ +$((world - $#))/$world .* $node +pmi2 +pmi2 " <<<"$output" ||
            { echo "rank $((world - $#)) is not on $node"; return 1; }
        shift
    done
    [ "$(grep -cE '^ +[0-9]+/[0-9]+ ' <<<"$output")" -eq "$world" ]
}

@test "8 ranks on 4 nodes, in order, in turn, and of a heterogeneous job" {
    step -N4 --ntasks-per-node=2 "$RDZV"
    [ "$status" -eq 0 ]
    rows n1 n1 n2 n2 n3 n3 n4 n4
    step -N4 -n5 --distribution=cyclic "$RDZV" --provider pmi2
    [ "$status" -eq 0 ]
    rows n1 n2 n3 n4 n1
    step -N1 -n2 "$RDZV" : -N2 -n3 "$RDZV"
    [ "$status" -eq 0 ]
    rows n1 n1 n2 n2 n3
}

@test "values from none to 64 KiB arrive, and a rank that stays away later is named" {
    local test=$MUSTER_BUILD/tests/unit/test_rdzv
    [ -x "$test" ] || skip "no test_rdzv: MUSTER_BUILD is not a build with its tests"
    step -N4 -n5 "$test" values
    [ "$status" -eq 0 ]
    step -N4 -n5 --distribution=cyclic "$test" "rank 2 (on n3) did not come"
    [ "$(grep -c 'named the lost one' <<<"$output")" -eq 4 ]
}

@test "ranks that never come are named with their nodes within the deadline, and nothing is left" {
    local began=$SECONDS
    # One of two on a node; all of a node; one that comes late is not blamed.
    step --kill-on-bad-exit=1 -N4 --ntasks-per-node=2 bash -c "case \$SLURM_PROCID in
        2 | 6 | 7) exec sleep 1234 ;; 5) sleep 1 ;; esac; exec $RDZV -t 5"
    in_time 15 $began
    [ "$(grep -c "couldn't meet 3 of 8 ranks within 5 s: rank 2 (on n2), rank 6 (on n4), rank 7 (on n4) did not come" \
        <<<"$output")" -eq 5 ]
    [ "$(grep -c '^muster: ' <<<"$output")" -eq 5 ]
    [[ $output = *"Exited with exit code 69"* ]]
    [ -z "$(cluster_pids -u muster-test1 -f 'sleep 1234|muster-rdzv')" ]
}

@test "a training over PMI2 equals that of one rank, bit for bit" {
    # Where Slurm can't deliver a fence's end to a node at once it tries again for 15 s, and the
    # other ranks wait for those there.
    # shellcheck disable=SC2086
    step --kill-on-bad-exit=1 -N4 --ntasks-per-node=2 --export=ALL,OMP_WAIT_POLICY=passive \
        muster-train --data train.bin \
        --ckpt-dir pmi2 $TRAIN_ARGS --rendezvous pmi2 --rdzv-timeout 60
    [ "$status" -eq 0 ]
    train_equals_reference pmi2
}

@test "the server serves one program of a task, and says so to the next" {
    step -N1 -n2 bash -c "$RDZV && exec $RDZV"
    [ "$status" -eq 2 ]
    rows n1 n1
    [ "$(grep -c 'it serves one program of a task: start each with an srun of its own' \
        <<<"$output")" -eq 1 ]
    # A step with another type of MPI inside such a step has no part in it.
    step --overlap -N1 -n2 \
        bash -c "[ \$SLURM_PROCID != 0 ] || exec srun --overlap --mpi=none -n2 $RDZV"
    [ "$status" -eq 2 ]
    [[ $output = *"started without PMIx"*"--mpi=pmi2"* ]]
}

@test "the ranks of an mpirun in a job meet over its own PMIx" {
    mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "no mpirun of Open MPI"
    printf '#!/bin/bash\nexec timeout %d mpirun -n 4 --oversubscribe %s\n' "$HANG" "$RDZV" \
        >"$JOBS/mpirun.sh"
    job_wait "$(job_submit -N2 --ntasks-per-node=2 -o mpirun.out mpirun.sh)" 60 COMPLETED
    cat "$JOBS/mpirun.out"
    [ "$(grep -cE '^ +[0-3]/4 +[01]/2 +[01]/2 +n[12] +pmix +pmix ' "$JOBS/mpirun.out")" -eq 4 ]
}

# Where mpirun itself runs, Open MPI counts a node, too.
@test "the ranks of an mpirun outside of the job's nodes number these alone" {
    mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "no mpirun of Open MPI"
    run cluster run timeout -k 10 "$HANG" salloc -N2 --ntasks-per-node=2 \
        "${BOUNDED[@]}" mpirun -n 4 "$RDZV"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cE '^ +[0-3]/4 +[01]/2 +[01]/2 +n[12] +pmix +pmix ' <<<"$output")" -eq 4 ]
}
