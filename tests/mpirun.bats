#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Several ranks on a machine without Slurm: Open MPI's mpirun hosts PMIx for any program. (PRRTE's
# prterun does, too; Debian 12 does not have it.)

load small_run

setup_file() { small_run_begin; }

setup() {
    mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "no mpirun of Open MPI"
    grep -q "^#define HAVE_PMIX" "$MUSTER_BUILD/config.h" || skip "this build has no PMIx"
    cd "$BATS_FILE_TMPDIR" || return
}

launch() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive \
        timeout "$HANG" mpirun --oversubscribe --bind-to none "$@" </dev/null 2>&1 3>&-
}

@test "the ranks of mpirun know each other and meet" {
    run launch -n 4 muster-rdzv
    echo "$output"
    [ "$status" -eq 0 ]
    for k in 0 1 2 3; do grep -qE "^ +$k/4 +$k/4 +0/1 .* pmix +pmix " <<<"$output"; done
}

@test "a PMIx that can't be loaded is named, with the ways to do without it" {
    MUSTER_PMIX_LIBRARY=/nowhere/libpmix.so.2 run launch -n 1 muster-rdzv
    echo "$output"
    [ "$status" -eq 2 ]
    [[ $output = *"rendezvous: couldn't load PMIx"*"/nowhere/libpmix.so.2"*MUSTER_PMIX_LIBRARY* ]]
}

@test "values from none to 64 KiB arrive with one fence each round" {
    local test=$MUSTER_BUILD/tests/unit/test_rdzv
    [ -x "$test" ] || skip "no test_rdzv: MUSTER_BUILD is not a build with its tests"
    run launch -n 5 "$test" values
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a training by mpirun equals that of one process, bit for bit" {
    export -f train
    run launch -n 4 bash -c 'train mpi'
    echo "$output"
    [ "$status" -eq 0 ]
    same_as_whole mpi
}

@test "a rank that does not come is named, and mpirun ends with 69" {
    local mark=3$RANDOM # beside another run of this test
    run launch -n 3 bash -c "[ \$PMIX_RANK != 1 ] || exec sleep $mark; exec muster-rdzv -t 2"
    echo "$output"
    [ "$status" -eq 69 ]
    [[ $output = *"couldn't meet 1 of 3 ranks within 2 s: rank 1 (on $(hostname)) did not come"* ]]
    ! pgrep -f "^sleep $mark" || false
}
