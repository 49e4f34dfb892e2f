#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The unit tests once more under sanitizers: no byte outside an object, no leak, no undefined
# behaviour.
# bats file_tags=ci

load lib/sanitize
load lib/has_torch

# test_model_bits and test_ops_threads run what test_model and test_ops run, for many numbers of
# threads: minutes here.
too_long="test_model_bits test_ops_threads"

# Apart from the runs, so that each has the time of a test.
@test "a build with the address sanitizer" {
    build sanitize-address address,undefined check TESTS= --
}

@test "addresses, leaks and undefined behaviour" {
    cd "$MUSTER_BUILD/sanitize-address"
    mapfile -t names < \
        <(find "$MUSTER_TOP/tests/unit" -name 'test_*.c' -printf '%f\n' | sed 's/\.c$//' |
        grep -v '^test_cuda_' | grep -vxF "${too_long// /$'\n'}")
    run_tests "${names[@]}"
    # A service that ends by one is replaced, and its test goes on.
    ! grep -E 'Sanitizer:|runtime error:' -- *.out || false
}

@test "addresses of kernels on the host" {
    cd "$MUSTER_BUILD/sanitize-address"
    kernels_are_clean
    told past-end AddressSanitizer heap-buffer-overflow
    told shared-past-end AddressSanitizer use-after-poison
}

# The leaks there are Python's own.
@test "libmuster under PyTorch" {
    has_torch || skip "no PyTorch: apt-get install python3-torch"
    cd "$MUSTER_TOP/tests/python"
    export MUSTER_LIBRARY=$MUSTER_BUILD/sanitize-address/.libs/libmuster.so.0
    export MUSTER_CKPTD_PROGRAM=$MUSTER_BUILD/sanitize-address/muster-ckptd
    export PYTHONPATH=$MUSTER_TOP/python PYTHONDONTWRITEBYTECODE=1
    # In a fork of a process of several threads GCC 12's allocator may be locked for good: workers
    # are those of a server that has one thread.
    export FORK_BY=forkserver
    run env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1 \
        MUSTER_PATIENCE=$((4 * ${MUSTER_PATIENCE:-3})) \
        /usr/bin/python3 -m unittest -v test_objects test_order test_run.One \
        test_run.Several.test_a_notice_to_one_rank_stops_all_after_the_same_step
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output != *Sanitizer:* ]]
    [[ $output != *"runtime error:"* ]]
    [[ $output = *"Ran "* && $output != *skipped* ]]
}
