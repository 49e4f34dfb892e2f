# SPDX-License-Identifier: Apache-2.0
# For the bats files that run the unit tests once more under sanitizers.
# shellcheck shell=bash

load lib/places
load lib/wait_for

export MUSTER_TEST_SHARE=50 # of test_damage: one place of this number
unset MUSTER_LONG # every world is tried without sanitizers
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1 OMP_NUM_THREADS=2

# A build shares the machine with all other lanes.
setup_file() {
    [ -z "${BATS_TEST_TIMEOUT-}" ] || export BATS_TEST_TIMEOUT=$((2 * BATS_TEST_TIMEOUT))
}

# build NAME SANITIZERS TARGETS -- OPTIONS: configures and makes a build of its own in NAME.
# Descriptor 3 is bats': closed for each program, so that make's job pipe becomes 3 and 4 and not 5,
# which config.status takes over; not for the shell, which says there that the time is over.
build() {
    local name=$1 sanitizers=$2 targets=() source
    # it has the configure that made the build
    source=$(sed -n 's/^abs_top_srcdir = //p' "$MUSTER_BUILD/Makefile")
    shift 2
    while [ "$1" != -- ]; do targets+=("$1") && shift; done
    mkdir -p "$MUSTER_BUILD/$name"
    cd "$MUSTER_BUILD/$name" || return
    {
        [ config.status -nt "$source/configure" ] ||
            "$source/configure" -q --enable-sanitize="$sanitizers" --without-cuda CFLAGS="-O1 -g1" \
            CXXFLAGS="-O1 -g1" "${@:2}" 3>&-
        make -s -j"$(nproc)" "${targets[@]}" 3>&-
    } >log 2>&1 || {
        tail -n 30 log
        return 1
    }
}

# run_test NAME: runs it where the build has it; shows what it says where it is bad. Sanitizers make
# a program a few times slower.
run_test() {
    local status=0
    [ -x "tests/unit/$1" ] || return 0
    MUSTER_PATIENCE=$((4 * ${MUSTER_PATIENCE:-3})) \
        timeout $((10 * HANG)) "tests/unit/$1" >"$1.out" 2>&1 </dev/null || status=$?
    [ $status -ne 0 ] || return 0
    echo "$1: status $status"
    grep -vE '^(\[ +(RUN|OK) |ok |# rank )' "$1.out" | head -n 40
    return 1
}

# run_tests NAME…: several at a time, since many wait most of theirs.
run_tests() {
    export -f run_test
    printf '%s\n' "$@" | xargs -P 3 -I '{}' bash -c 'run_test {}'
}

# The unit tests of kernels on the host pass without a word of the sanitizer's, and so does
# `kernel_fault` without a fault.
kernels_are_clean() {
    local names
    mapfile -t names < \
        <(find "$MUSTER_TOP/tests/unit" -name 'test_cuda_*.c' -printf '%f\n' | sed 's/\.c$//')
    run_tests "${names[@]}" || return
    ! grep -E 'Sanitizer:|runtime error:' -- test_cuda_*.out || return
    [ "$(tests/tools/kernel_fault none)" = right ]
}

# A fault of a kernel's that its results do not show: told NAME SANITIZER WHAT.
told() {
    run tests/tools/kernel_fault "$1"
    # shellcheck disable=SC2154 # bats' run sets output and status
    echo "$output"
    # shellcheck disable=SC2154
    [ "$status" -ne 0 ]
    [[ $output = *"$2: $3"* ]]
    [[ $output = *samples.cu* ]]
}
