#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh [SECONDS [NAME…]]: builds each fuzz_NAME.c with libFuzzer and runs it from its seeds for that long
# (20). Inputs that it finds go to a folder of its own, not to the seeds. Needs clang; status 77 without libFuzzer.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1-20}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- manifest npy safetensors tokens
compiler=${FUZZ_CC:-clang}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The sources that a harness needs.
sources() {
    case $1 in
    manifest) echo checkpoint/manifest.c common/err.c common/hash.c -ljansson -lxxhash ;;
    npy) echo trainer/npy.c common/err.c ;;
    safetensors) echo checkpoint/safetensors.c common/err.c -ljansson ;;
    tokens) echo trainer/token_file.c common/err.c ;;
    *) echo "fuzz: there is no harness $1" >&2; return 1 ;;
    esac
}

echo 'int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n) { return 0; }' >"$work/probe.c"
"$compiler" -fsanitize=fuzzer -o "$work/probe" "$work/probe.c" 2>"$work/log" || {
    echo "fuzz: $compiler can't build with -fsanitize=fuzzer: apt-get install clang"
    exit 77
}

cd "$top"
for name; do
    mapfile -t files < <(sources "$name" | tr ' ' '\n')
    [ ${#files[@]} -gt 0 ] || exit 2
    "$compiler" -g -O1 -std=gnu11 -I"$top" -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
        -o "$work/fuzz_$name" "tests/fuzz/fuzz_$name.c" "${files[@]}"
    mkdir "$work/found_$name"
    echo "fuzz: $name for $seconds s"
    (cd "$work" && "./fuzz_$name" -max_total_time="$seconds" -max_len=4096 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="${FUZZ_ARTIFACTS:-$PWD}/" "found_$name" "$top/tests/fuzz/seeds/$name") || {
        echo "fuzz: $name failed; the input stands above in base64, or in \$FUZZ_ARTIFACTS where that is set"
        exit 1
    }
done
echo "fuzz: nothing found"
