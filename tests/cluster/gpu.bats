#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The part of tests/gpu.sh that trains through Slurm, with a muster-train that computes on the CPU
# in place of a card's.

load helpers

setup() {
    cluster_require
    [ -x "$MUSTER_BUILD/muster-requeue" ] ||
        skip "this build has no muster-requeue: no Slurm headers"
    pack
    # Of the test's: all users can reach what is here, and the build folder they may not.
    cp "$MUSTER_BUILD/muster-train" "$MUSTER_BUILD/tests/tools/.libs/slow_steps.so" lib/
    cat >bin/muster-train <<END
#!/bin/bash
args=()
while [ \$# -gt 0 ]; do
    case \$1 in
    --device) shift 2 && continue ;;
    --share-gpu) shift && continue ;;
    esac
    args+=("\$1") && shift
done
lib=\$(dirname "\$0")/../lib
export STEP_MILLISECONDS=10 LD_PRELOAD=\$lib/slow_steps.so
exec "\$lib/muster-train" "\${args[@]}" --device cpu --threads 1
END
    export GPU_PROGRAMS=$PWD/bin GPU_LIBRARIES=$PWD/lib GPU_CLUSTER=$PWD/tests/cluster
    export GPU_JOB=$PWD/train-no-plugin.sbatch GPU_SLURM_STEPS=600
    export GPU_SMALL="--layers 1 --width 32 --heads 1 --context 32 --global-batch 8 --microbatch 1"
}

# What the tarball has, unpacked, is the current folder: the part needs nothing else.
pack() {
    local build=$BATS_TEST_TMPDIR/build name
    mkdir -p "$build/tests/unit" && cp "$(type -P true)" "$build/tests/unit/test_gpu_none"
    for name in train ckptd ckpt curve tokens requeue; do
        ln -s "$MUSTER_BUILD/muster-$name" "$build/"
    done
    MUSTER_BUILD=$build "$MUSTER_TOP/tests/gpu.sh" --pack "$BATS_TEST_TMPDIR/gpu.tar.xz"
    cd "$BATS_TEST_TMPDIR" && tar -xf gpu.tar.xz && cd muster-gpu
}

# Whichever test was stopped in it.
teardown() { cluster down || :; }

slurm_part() {
    run timeout $((3 * HANG)) env -u MUSTER_TOP -u MUSTER_BUILD bash gpu_slurm.sh
    echo "$output"
}

@test "two ranks through Slurm and PMIx, preempted and requeued: the bits of one rank" {
    slurm_part
    [ "$status" = 0 ]
    [ "${lines[-1]}" = "ok 1 - preempted_and_requeued" ]
}

@test "a second attempt that differs is told" {
    sed -i '/^exec/i [ "${SLURM_RESTART_COUNT:-0}" = 0 ] || args+=(--learning-rate 0.002 --change learning-rate)' \
        "$GPU_PROGRAMS/muster-train"
    slurm_part
    [ "$status" = 1 ]
    [[ $output == *"not ok 1 - preempted_and_requeued"* ]]
    [[ $output == *"two ranks, preempted, end with other bits than one"* ]]
}
