#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the CUDA kernels take of a card, without one.

# bats test_tags=long
@test "no kernel takes more registers, spills or shared memory than in the table" {
    local nvcc
    nvcc=$(sed -n 's/^NVCC = //p' "$MUSTER_BUILD/Makefile")
    [ -n "$nvcc" ] && grep -q '^#define HAVE_CUDA' "$MUSTER_BUILD/config.h" ||
        skip "this build has no CUDA"
    NVCC=$nvcc run python3 "$MUSTER_TOP/tests/ptxas.py"
    echo "$output"
    [ "$status" -ne 77 ] || skip "$output"
    [ "$status" -eq 0 ]
}
