#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The build itself: what is left out leaves a working trainer, and a distribution builds, installs
# and uninstalls.

load lib/places

# A source tree without a configured build in it, which every other build needs.
setup() {
    source=$BATS_TEST_TMPDIR/source
    mkdir -p "$source"
    (cd "$MUSTER_TOP" && git ls-files -z | tar --null -T - -cf -) | tar -C "$source" -xf -
    unset CMOCKA_MESSAGE_OUTPUT MAKEFLAGS
}

# bats test_tags=ci
@test "without Slurm, PMIx, oneDNN and CUDA there is a trainer that trains" {
    cd "$source" && ./autogen.sh >/dev/null 2>&1
    mkdir build && cd build
    ../configure --without-slurm --without-pmix --without-dnnl --without-cuda --without-bpe \
        --without-dygraphs --without-ncurses --enable-werror --disable-dependency-tracking \
        >configure.out
    grep -q 'Slurm (plugin) ...... no' configure.out
    make -s -j"$(nproc)" 2>make.err || { cat make.err; return 1; }
    ./muster-tokens -o train.bin ../LICENSE
    ./muster-train --data train.bin --ckpt-dir run --model gpt2 --layers 1 --width 32 --heads 2 \
        --context 32 \
        --vocabulary 256 --global-batch 4 --microbatch 4 --steps 3 --warmup-steps 1
    [ -e run/step-00000003/manifest.json ]
    # Text is all that it prints, also on a terminal.
    script -qec "./muster-top run" /dev/null </dev/null >top.out
    grep -q '^step  *3 of 3 ' top.out
    # What is not built says so, with the remedy.
    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 run ./muster-rdzv --provider pmix \
        --timeout 1
    [ "$status" -eq 2 ]
    [[ $output = *PMIx* ]]
    run ./muster-tokens -o other.bin --tokenizer tokenizer.json ../LICENSE
    [ "$status" -eq 2 ]
    [[ $output = *"this build has no BPE tokenizers; install libpcre2-dev and libutf8proc-dev"* ]]
    [ ! -e other.bin ] && [ ! -e muster-report ]
}

# bats test_tags=ci
@test "the kernels compile for every GPU that is built for by default" {
    cd "$source" && ./autogen.sh >/dev/null 2>&1
    mkdir build && cd build
    ../configure --disable-dependency-tracking >configure.out
    grep -q '^ *CUDA \.* yes' configure.out || skip "no CUDA: nvcc or its runtime is missing"
    make -j"$(nproc)" libcudakernels.a V=1 >make.out 2>&1 || { tail -30 make.out; return 1; }
    ! grep -i warning make.out || false
    grep -q 'code=sm_80 .*code=sm_90 .*code=compute_90 ' make.out
}

# bats test_tags=ci
@test "make distcheck: the distribution is whole and cleans up after itself" {
    cd "$source" && ./autogen.sh >/dev/null 2>&1
    mkdir build && cd build
    ../configure --without-cuda --disable-dependency-tracking >configure.out
    # The tests have run, or will; MAKEFLAGS as an argument would keep "TESTS=" from the makes
    # below.
    MAKEFLAGS=-j$(nproc) make distcheck TESTS= check_PROGRAMS= \
        AM_DISTCHECK_CONFIGURE_FLAGS="--without-cuda --disable-dependency-tracking CFLAGS=-O0" \
        >distcheck.out 2>&1 || { tail -30 distcheck.out; return 1; }
    grep -q 'ready for distribution' distcheck.out || { tail -5 distcheck.out; return 1; }
}

@test "an installation has documents and examples, and make uninstall leaves none of its files" {
    : "${MUSTER_BUILD:?the build folder}"
    local root=$BATS_TEST_TMPDIR/root documents
    make -s -C "$MUSTER_BUILD" install DESTDIR="$root" >"$BATS_TEST_TMPDIR/out" 2>&1 ||
        { cat "$BATS_TEST_TMPDIR/out"; return 1; }
    documents=$root$MUSTER_PREFIX/share/doc/muster
    [ -x "$documents/examples/first-minute.sh" ]
    # As in the sources: what the README names is where it says, but for the name of the examples.
    [ -e "$documents/README.md" ]
    for path in $(grep -o ']([A-Za-z][A-Za-z0-9./_-]*)' "$documents/README.md" | tr -d '()]'); do
        echo "$path"
        [ -e "$documents/$path" ]
    done
    # Each program and manual is in one of Debian's packages.
    while read -r path; do
        echo "$path"
        grep -qxhF "usr/$path" "$MUSTER_TOP"/debian/*.{install,manpages}
    done < <(cd "$root$MUSTER_PREFIX" && find bin share/man -type f)
    # What Python leaves beside the package goes, too.
    mkdir "$root$MUSTER_PREFIX/share/muster/python/muster/__pycache__"
    touch "$root$MUSTER_PREFIX/share/muster/python/muster/__pycache__/run.cpython-311.pyc"
    make -s -C "$MUSTER_BUILD" uninstall DESTDIR="$root"
    run find "$root" ! -type d -o -name muster
    echo "$output"
    [ -z "$output" ]
}

# A copy of the sources with one line more: LINE at the end of FILE.
changed_sources() {
    rm -rf "$BATS_TEST_TMPDIR/changed" && mkdir "$BATS_TEST_TMPDIR/changed"
    # shellcheck disable=SC2086
    (cd "$MUSTER_TOP" && tar -cf - HACKING.md $ROOMS) | tar -C "$BATS_TEST_TMPDIR/changed" -xf -
    echo "$2" >>"$BATS_TEST_TMPDIR/changed/$1"
}

ROOMS="common order text telemetry slurm launch checks plugin runs doctor checkpoint lib trainer"

@test "each room includes only what lies below it" {
    cd "$MUSTER_TOP"
    run python3 tests/lib/rooms.py .
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    # What the table does not allow is named: an arrow upwards, a circle of headers, a source
    # outside all rooms.
    local file line told
    while IFS='~' read -r file line told; do
        changed_sources "$file" "$line"
        run python3 tests/lib/rooms.py "$BATS_TEST_TMPDIR/changed"
        echo "$output"
        [ "$status" -eq 1 ]
        [[ $output = *"$told"* ]]
    done <<'EOF'
common/err.c~#include "launch/rdzv.h"~common/err.c includes launch/rdzv.h, which common may not
checkpoint/load/ckpt.h~#include "checkpoint/save/ckpt_save.h"~/ckpt.h includes checkpoint/save/
common/err.h~#include "common/opt.h"~common/err.h includes itself by way of others
trainer/other.c~int x;~trainer/other.c is in no room
HACKING.md~| `common/` | | `lib` |~common may include itself by way of others
EOF
}

@test "the walks of HACKING.md go through files and functions that are there" {
    cd "$MUSTER_TOP"
    run python3 tests/lib/walks.py .
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    # What is not there is named, and so is a wrong count.
    local change told
    while IFS='~' read -r change told; do
        changed_sources HACKING.md ''
        sed -i "$change" "$BATS_TEST_TMPDIR/changed/HACKING.md"
        run python3 tests/lib/walks.py "$BATS_TEST_TMPDIR/changed"
        echo "$output"
        [[ $output = *"$told"* ]]
    done <<'EOF'
s/`ident_decide`/`ident_guess`/~no ident_guess in common/ident.c
s/`adamw_run`/`adamw_walk`/~no adamw_walk in trainer/cpu/kernels_rows.h
s|`trainer/comm/comm_run.c`|`trainer/comm/comm_walk.c`|~there is no trainer/comm/comm_walk.c
s/^[0-9]* hops through/99 hops through/~99 hops through
/^| 3 | /d~hop 4 follows hop 2
EOF
}

# Threads and programs start without our signals, or with none blocked. Foreign headers are kept in
# one place.
@test "threads, programs and foreign headers are each in one place" {
    cd "$MUSTER_TOP"
    # shellcheck disable=SC2086
    {
        [ "$(grep -rlE 'pthread_create|posix_spawnp? *\(' --include=*.c --include=*.cc $ROOMS |
            sort)" = \
            $'common/spawn.c\ncommon/thread.c' ]
        [ "$(grep -rlE 'slurm/spank\.h' --include=*.[ch] $ROOMS | grep -v '^plugin/spank_')" = "" ]
        [ "$(grep -rl '<pmix' --include=*.[ch] $ROOMS)" = launch/pmix_library.h ]
        [ "$(grep -rlE '<nccl' --include=*.[ch] $ROOMS |
            grep -vE '^launch/nccl_|^trainer/comm/comm_nccl')" = "" ]
    }
}

# What the host's compiler would not understand, or would understand otherwise than nvcc.
@test "kernels use CUDA through what the shim has, too" {
    cd "$MUSTER_TOP"
    run grep -nE '<<<|__shared__|__launch_bounds__|\<asm\>|# *include <(cuda|mma|coop)' \
        trainer/cuda/kernels/*.cu tests/shim/*.cu
    echo "$output"
    [ -z "$output" ]
    for kernel in trainer/cuda/kernels/*.cu; do
        grep -q "$kernel" trainer/cuda/kernels/kernels.mk || {
            echo "$kernel is not built" && return 1
        }
    done
    # No sum may depend on an order.
    cat >"$BATS_TEST_TMPDIR/sum.cu" <<<'#include "trainer/cuda/kernels/launch.h"
        void integers(unsigned int *p) { atomicAdd(p, 1u); }
        #ifdef FLOATS
        void floats(float *p) { atomicAdd(p, 1.0f); }
        #endif'
    c++ -std=c++17 -x c++ -fsyntax-only -I. -Itests/shim "$BATS_TEST_TMPDIR/sum.cu"
    run c++ -std=c++17 -x c++ -fsyntax-only -DFLOATS -I. -Itests/shim "$BATS_TEST_TMPDIR/sum.cu"
    [ "$status" -ne 0 ]
    [[ $output = *"no sum may depend on its order"* ]]
}

@test "without the plugin the tests that start it are skipped" {
    local files first
    mapfile -t files < <(grep -l -- --plugin "$MUSTER_TOP"/tests/cluster/*.bats)
    # One of each file, since its setup is that of all.
    first=$(for file in "${files[@]}"; do grep -m 1 '^@test' "$file"; done |
        sed 's/^@test "\(.*\)" {.*/\1/; s/[][\.*^$()+?{}|]/\\&/g' | paste -sd '|')
    mkdir "$BATS_TEST_TMPDIR/prefix"
    run env -i PATH="$PATH" HOME="$HOME" MUSTER_TOP="$MUSTER_TOP" \
        MUSTER_PREFIX="$BATS_TEST_TMPDIR/prefix" \
        "$BATS_ROOT/bin/bats" --tap -f "^($first)\$" "${files[@]}"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#files[@]}" -gt 12 ]
    [ "$(grep -c '# skip this build has no plugin: no Slurm headers$' <<<"$output")" \
        -eq "${#files[@]}" ]
    [ "${lines[0]}" = "1..${#files[@]}" ]
}
