#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The unit tests of what has threads of its own once more, under a sanitizer: no data race.
# bats file_tags=ci

load lib/sanitize

# OpenMP's library is not built for this sanitizer: without it, and only what makes threads of its
# own.
threaded="test_prefetch test_log test_shard test_shard_write test_ckpt test_ckptd_client
    test_ckptd_writers test_flight test_spot_watch"

communicating="test_comm test_comm_reduce test_comm_failure test_comm_reason"

# `shim` is a make of its own: beside another one both would make the same libraries.
@test "a build with the thread sanitizer" {
    # shellcheck disable=SC2046,SC2086
    build sanitize-thread thread muster-ckptd muster-train \
        $(printf 'tests/unit/%s ' $communicating test_trace test_ddp_zero $threaded) \
        -- --disable-openmp
    build sanitize-thread thread shim -- --disable-openmp
}

# The communicator's threads and those that wait for them. It mostly waits, so the others run beside
# it; the deadlines of its cases are those of a program that runs at full speed, so that here only
# what the sanitizer says counts, to the last case.
communicate() {
    local name
    for name in test_trace test_ddp_zero; do
        timeout $((10 * HANG)) "tests/unit/$name" >"$name.out" 2>&1 </dev/null ||
            tail -n 30 "$name.out"
    done
    for name in $communicating; do
        CMOCKA_MESSAGE_OUTPUT=TAP timeout $((10 * HANG)) "tests/unit/$name" >"$name.out" 2>&1 \
            </dev/null || :
        grep -A 30 'Sanitizer:' "$name.out" || :
        [ "$(grep -cE '^(not )?ok ' "$name.out")" -eq "$(sed -n 's/^1\.\.//p' "$name.out")" ] ||
            return
    done
}

@test "data races" {
    cd "$MUSTER_BUILD/sanitize-thread"
    communicate 3>&- &
    # shellcheck disable=SC2086
    run_tests $threaded
    wait $!
    ! grep -E 'Sanitizer:' -- *.out || false
}

# Each thread of a block is a fiber, and to switch between them orders nothing: only what the kernel
# waits for does.
@test "data races of kernels on the host" {
    cd "$MUSTER_BUILD/sanitize-thread"
    kernels_are_clean
    [ "$(tests/tools/kernel_fault none-in-a-warp)" = right ]
    told no-barrier ThreadSanitizer 'data race'
    told no-warp-barrier ThreadSanitizer 'data race'
    told blocks-share ThreadSanitizer 'data race'
}

# Prefetch, communication, saver and service, with weights that come while layers are computed and
# statistics are written.
@test "data races of whole runs that share the moments" {
    load small_run
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$MUSTER_BUILD/sanitize-thread:$PATH
    train_world 2 shared --zero 1 --width 128 --layers 3 --bucket-mb 1 --split-embedding \
        --steps 8 --ckpt-every 3 --check-replicas 2 --validation-data valid.u16 --validate-every 4 \
        --trace shared.json --trace-steps 2-7 --rdzv-timeout 60 --collective-timeout 60
    [ "${STATUSES[*]}" = "0 0" ]
    ! grep 'Sanitizer:' rank*.out || false
}
