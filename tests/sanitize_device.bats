#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The unit tests of what computes on a GPU once more under the address sanitizer, over stand-ins of
# CUDA's runtime and libraries: without CUDA's headers these have nothing to run.
# bats file_tags=ci

load lib/sanitize

device="test_comm_nccl test_cuda_ops test_cuda_repeat test_cuda_tune test_ddp_cuda test_ops_cuda
    test_device_snapshot test_device_memory test_step_cuda"

@test "a build with CUDA and the address sanitizer" {
    grep -q '^#define HAVE_CUBLAS' "$MUSTER_BUILD/config.h" || skip "this build computes on no GPU"
    # shellcheck disable=SC2086,SC2046
    build sanitize-device address,undefined $(printf 'tests/unit/%s ' $device) -- --with-cuda
}

@test "addresses, leaks and undefined behaviour of what computes on a GPU" {
    [ -d "$MUSTER_BUILD/sanitize-device" ] || skip "this build computes on no GPU"
    cd "$MUSTER_BUILD/sanitize-device"
    # shellcheck disable=SC2086
    run_tests $device
    ! grep -E 'Sanitizer:|runtime error:|SKIP' -- *.out || false
}
