#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What C programs get from libmuster, on a real Slurm.

load helpers

setup_file() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    export EXCHANGE=$MUSTER_BUILD/tests/unit/test_nccl_exchange
    export MUSTER_CLUSTER_GRACE=30 MUSTER_CLUSTER_KILLWAIT=5
    cluster_begin 4 --plugin "$MUSTER_PREFIX/lib/slurm/spank_muster.so"
}

teardown_file() { cluster_end; }

setup() { cluster_require; }

teardown() { cluster_explain; }

srun() { cluster run timeout 60 srun "$@"; }

@test "the NCCL unique id of rank 0 reaches all ranks over PMIx" {
    [ -x "$EXCHANGE" ] || skip "no test_nccl_exchange: MUSTER_BUILD is not a build with its tests"
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$EXCHANGE" share
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cE '^id [0-9a-f]{256}$' <<<"$output")" -eq 8 ]
    [ "$(grep '^id' <<<"$output" | sort -u | wc -l)" -eq 1 ]
    [[ $output != *"id 000000000000"* ]]
}

@test "a rank that can't take part in NCCL is named by all, with its node, at once" {
    [ -x "$EXCHANGE" ] || skip "no test_nccl_exchange: MUSTER_BUILD is not a build with its tests"
    local began=$SECONDS
    run srun --mpi=pmix --kill-on-bad-exit=0 -N4 -n4 "$EXCHANGE" fail
    echo "$output"
    [ $((SECONDS - began)) -lt 15 ]
    [ "$(grep -c '^rank 1 (on n2): nccl: couldn.t find a GPU: ask for one$' <<<"$output")" -eq 4 ]
}
