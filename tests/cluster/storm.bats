#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Storms: whatever happens to a training, and whenever, it comes to its end with the same bits.
# tests/storm.sh has others.

load helpers
load ../lib/has_torch
load ../lib/python_package
COUNT=${MUSTER_LONG:+60}
read -r COUNT SEED NAME <<<"${MUSTER_STORM:-${COUNT:-10} 844 train}"
load training
load pytorch
load ring
load storm

setup_file() {
    # The suite's limit is for one test of seconds, and a storm has so many disturbances.
    export BATS_TEST_TIMEOUT=$(((300 + 20 * COUNT) * ${MUSTER_PATIENCE:-3}))
    plugin_locate || :
}

setup() {
    plugin_require
    [ -x "$MUSTER_BUILD/tests/tools/nfs_like" ] && [ -w /dev/fuse ] ||
        skip "no file system of the tests: install libfuse3-dev"
    export MUSTER_CLUSTER_GRACE=30 MUSTER_CLUSTER_KILLWAIT=5
    MUSTER_CLUSTER_CONF=$'SlurmctldHost=n4(10.77.0.14)\nSlurmctldTimeout=10' \
        cluster_begin 4 --plugin "$PLUGIN"
    cluster start-backup n4
}

teardown() {
    cluster_explain
    cluster_end
}

@test "a storm that was drawn once: the training ends with the same bits" {
    storm "$COUNT" "$SEED" "$NAME"
}

# bats test_tags=long
@test "a storm over moments that are shared out" { storm 10 2 zero; }

# bats test_tags=long
@test "a storm over a writer on each node" { storm 10 3 writers; }

# bats test_tags=long
@test "a storm over a training of other sizes each time" { storm 10 4 elastic; }

# bats test_tags=long
@test "a storm over a PyTorch training" {
    has_torch || skip "no python3-torch"
    storm 10 5 python
}

# bats test_tags=long
@test "a storm over a C program" { storm 10 6 ring; }
