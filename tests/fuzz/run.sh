#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh [SECONDS [NAME…]]: builds each fuzz_NAME.c with libFuzzer and runs it from its
# seeds for that long (20; 0 for the seeds alone). Inputs that it finds go to a folder of its own,
# not to the seeds: $FUZZ_CORPUS/NAME where that is set. What all harnesses are linked with is built
# once, and kept in $FUZZ_BUILD where that is set; `tests/fuzz/run.sh --library` builds it alone.
# Needs clang; status 77 without libFuzzer.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1-20}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || for file in "$top"/tests/fuzz/fuzz_*.c; do
    name=${file##*/fuzz_}
    set -- "$@" "${name%.c}"
done
compiler=${FUZZ_CC:-clang}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#define _GNU_SOURCE 1' >"$work/config.h"
echo 'int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n) { return 0; }' \
    >"$work/probe.c"
"$compiler" -fsanitize=fuzzer -o "$work/probe" "$work/probe.c" 2>"$work/log" || {
    echo "fuzz: $compiler can't build with -fsanitize=fuzzer: apt-get install clang"
    exit 77
}

# As the build says it.
where=(-DBINDIR='"/usr/bin"' -DLIBEXECDIR='"/usr/libexec"')
compile=("$compiler" -g -O1 -std=gnu11 -I"$top" -I"$work" "${where[@]}"
    "-fsanitize=address,undefined" -fno-sanitize-recover=undefined)

# Every source that is no command, needs neither PMIx nor a card and stands in for nothing that a
# build lacks. The linker takes what a harness reaches.
build_library() {
    local archive=$build/libfuzzed.a
    [ ! -e "$archive" ] || return 0
    mkdir -p "$build/objects"
    find checks checkpoint common launch plugin restart runs slurm spot telemetry text \
        trainer/comm/comm_conn.c trainer/cuda/host/gemm_plans.c trainer/data \
        -name '*.c' ! -name '*_missing.c' -exec grep \
        -LZE '^int main|PACKAGE_|REPORT_SOURCES|^#include .*pmix' {} + |
        xargs -0 -P "$(nproc)" -I{} sh -c 'out=$1/$(echo "$2" | tr / _).o; shift 2
            exec "$@" -fsanitize=fuzzer-no-link -c -o "$out" {}' \
            - "$build/objects" {} "${compile[@]}"
    ar rcs "$archive.new" "$build"/objects/*.o
    mv "$archive.new" "$archive"
    rm -r "$build/objects"
}

cd "$top"
build=${FUZZ_BUILD-$work/library}
build_library
[ "$seconds" != --library ] || exit 0
for name; do
    [ -e "tests/fuzz/fuzz_$name.c" ] || { echo "fuzz: there is no harness $name" >&2; exit 2; }
    "${compile[@]}" -fsanitize=fuzzer -o "$work/fuzz_$name" "tests/fuzz/fuzz_$name.c" \
        "$build/libfuzzed.a" -ljansson -lxxhash -lpcre2-8 -lutf8proc -lm
    corpus=${FUZZ_CORPUS-$work/found}/$name
    mkdir -p "$corpus" "$work/place_$name"
    options=(-max_total_time="$seconds" -max_len=4096 -artifact_prefix="${FUZZ_ARTIFACTS:-$work}/")
    [ ! -e "tests/fuzz/dictionaries/$name" ] ||
        options+=(-dict="$top/tests/fuzz/dictionaries/$name")
    [ "$seconds" -gt 0 ] || options+=(-runs=0)
    [ -n "${FUZZ_CORPUS-}" ] || options+=(-verbosity=0)
    echo "fuzz: $name for $seconds s"
    # In a folder of its own, for those that read files.
    (cd "$work/place_$name" &&
        "../fuzz_$name" "${options[@]}" "$corpus" "$top/tests/fuzz/seeds/$name") || {
        echo "fuzz: $name failed; the input stands above in base64, or in \$FUZZ_ARTIFACTS where that is set"
        exit 1
    }
done
echo "fuzz: nothing found"
