#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The unit tests once more under sanitizers: no byte outside an object, no leak, no undefined behaviour, no data race.
# bats file_tags=ci

load lib/wait_for

# test_model_bits and test_ops_threads run what test_model and test_ops run, for many numbers of threads: minutes here.
too_long=" test_model_bits test_ops_threads "

setup_file() {
    : "${MUSTER_TOP:=$BATS_TEST_DIRNAME/..}" "${MUSTER_BUILD:=$MUSTER_TOP/build}"
    source=$(sed -n 's/^abs_top_srcdir = //p' "$MUSTER_BUILD/Makefile") # it has the configure that made the build
    export source MUSTER_TOP MUSTER_BUILD
    export MUSTER_TEST_SHARE=50 # of test_damage: one in so many
    export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
    export TSAN_OPTIONS=halt_on_error=1 OMP_NUM_THREADS=2
}

# Descriptor 3 is bats': closed, so that make's job pipe becomes 3 and 4 and not 5, which config.status takes over.
# build NAME SANITIZERS TARGETS -- OPTIONS: configures and makes a build of its own in NAME.
build() {
    local name=$1 sanitizers=$2 targets=()
    shift 2
    while [ "$1" != -- ]; do targets+=("$1") && shift; done
    mkdir -p "$MUSTER_BUILD/$name"
    cd "$MUSTER_BUILD/$name"
    {
        [ config.status -nt "$source/configure" ] ||
            "$source/configure" -q --enable-sanitize="$sanitizers" --without-cuda CFLAGS="-O1 -g1" CXXFLAGS="-O1 -g1" "${@:2}"
        make -s -j"$(nproc)" "${targets[@]}"
    } >log 2>&1 3>&- || {
        tail -n 30 log
        return 1
    }
}

# run_tests NAME…: runs them where the build has them; shows what the bad ones say.
run_tests() {
    local name bad=0
    for name; do
        [[ $too_long != *" $name "* ]] && [ -x "tests/unit/$name" ] || continue
        timeout $((10 * HANG)) "tests/unit/$name" >"$name.out" 2>&1 </dev/null || {
            echo "$name: status $?"
            grep -vE '^\[ +(RUN|OK) ' "$name.out" | head -n 40
            bad=1
        }
    done
    return $bad
}

# Apart from the runs, so that each has the time of a test.
@test "a build with the address sanitizer" {
    build sanitize-address address,undefined check TESTS= --
}

@test "addresses, leaks and undefined behaviour" {
    cd "$MUSTER_BUILD/sanitize-address"
    mapfile -t names < <(basename -s .c "$MUSTER_TOP"/tests/unit/test_*.c | grep -v '^test_cuda_')
    run_tests "${names[@]}"
    # A service that ends by one is replaced, and its test goes on.
    ! grep -E 'Sanitizer:|runtime error:' -- *.out || false
}

# Over stand-ins of CUDA's runtime and libraries: without CUDA's headers these have nothing to run.
device="test_comm_nccl test_cuda_ops test_cuda_repeat test_cuda_tune test_ddp_cuda test_offload test_ops_cuda test_remote test_step_cuda"

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

# OpenMP's library is not built for this sanitizer: without it, and only what makes threads of its own.
threaded="test_prefetch test_log test_shard test_shard_write test_ckpt test_ckptd_writers test_standing"

# `shim` is a make of its own: beside another one both would make the same libraries.
@test "a build with the thread sanitizer" {
    # shellcheck disable=SC2046,SC2086
    build sanitize-thread thread muster-ckptd muster-train \
        $(printf 'tests/unit/%s ' test_comm test_comm_failure test_trace test_ddp_zero $threaded) -- --disable-openmp
    build sanitize-thread thread shim -- --disable-openmp
}

@test "data races" {
    cd "$MUSTER_BUILD/sanitize-thread"
    communicate 3>&- &
    # shellcheck disable=SC2086
    run_tests $threaded
    wait $!
    ! grep -E 'Sanitizer:' -- *.out || false
}

# A fault of a kernel's that its results do not show: told NAME SANITIZER WHAT.
told() {
    run tests/tools/kernel_fault "$1"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output = *"$2: $3"* ]]
    [[ $output = *samples.cu* ]]
}

@test "addresses of kernels on the host" {
    cd "$MUSTER_BUILD/sanitize-address"
    mapfile -t names < <(basename -s .c "$MUSTER_TOP"/tests/unit/test_cuda_*.c)
    run_tests "${names[@]}"
    ! grep -E 'Sanitizer:|runtime error:' -- test_cuda_*.out || false
    [ "$(tests/tools/kernel_fault none)" = right ]
    told past-end AddressSanitizer heap-buffer-overflow
    told shared-past-end AddressSanitizer use-after-poison
}

# Each thread of a block is a fiber, and to switch between them orders nothing: only what the kernel waits for does.
@test "data races of kernels on the host" {
    cd "$MUSTER_BUILD/sanitize-thread"
    mapfile -t names < <(basename -s .c "$MUSTER_TOP"/tests/unit/test_cuda_*.c)
    run_tests "${names[@]}"
    ! grep -E 'Sanitizer:' -- test_cuda_*.out || false
    [ "$(tests/tools/kernel_fault none)" = right ]
    [ "$(tests/tools/kernel_fault none-in-a-warp)" = right ]
    told no-barrier ThreadSanitizer 'data race'
    told no-warp-barrier ThreadSanitizer 'data race'
    told blocks-share ThreadSanitizer 'data race'
}

# Prefetch, communication, saver and service, with weights that come while layers are computed and statistics are written.
@test "data races of whole runs that share the moments" {
    load small_run
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$MUSTER_BUILD/sanitize-thread:$PATH
    several_ranks
    export TSAN_OPTIONS="$TSAN_OPTIONS suppressions=$MUSTER_TOP/tests/lib/tsan-gloo.txt"
    train_world 2 shared --zero 1 --width 128 --layers 3 --bucket-mb 1 --split-embedding --steps 8 --ckpt-every 3 --check-replicas 2 \
        --validation-data valid.u16 --validate-every 4 --trace shared.json --trace-steps 2-7 --rdzv-timeout 60 --collective-timeout 60
    [ "${STATUSES[*]}" = "0 0" ]
    ! grep 'Sanitizer:' rank*.out || false
}

# The communication thread, Gloo's and those that wait for them. It mostly waits, so the others run beside it; the deadlines of its
# cases are those of a program that runs at full speed, so that here only what the sanitizer says counts, to the last case.
communicate() {
    local name
    for name in test_comm test_comm_failure; do
        TSAN_OPTIONS="$TSAN_OPTIONS suppressions=$MUSTER_TOP/tests/lib/tsan-gloo.txt" CMOCKA_MESSAGE_OUTPUT=TAP \
            timeout $((10 * HANG)) "tests/unit/$name" >"$name.out" 2>&1 </dev/null || :
    done
    TSAN_OPTIONS="$TSAN_OPTIONS suppressions=$MUSTER_TOP/tests/lib/tsan-gloo.txt" timeout $HANG tests/unit/test_trace >test_trace.out 2>&1 \
        </dev/null || tail -n 30 test_trace.out
    TSAN_OPTIONS="$TSAN_OPTIONS suppressions=$MUSTER_TOP/tests/lib/tsan-gloo.txt" timeout $HANG tests/unit/test_ddp_zero >test_ddp_zero.out \
        2>&1 </dev/null || tail -n 30 test_ddp_zero.out
    for name in test_comm test_comm_failure; do
        grep -A 30 'Sanitizer:' "$name.out" || :
        [ "$(grep -cE '^(not )?ok ' "$name.out")" -eq "$(sed -n 's/^1\.\.//p' "$name.out")" ] || return
    done
}
