#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The part of tests/gpu.sh that trains through Slurm, with a muster-train that computes on the CPU
# in place of a card's.

load helpers

setup() {
    cluster_require
    [ -x "$MUSTER_BUILD/muster-requeue" ] ||
        skip "this build has no muster-requeue: no Slurm headers"
    mkdir "$BATS_TEST_TMPDIR/bin"
    for name in ckptd ckpt curve tokens requeue; do
        ln -s "$MUSTER_BUILD/muster-$name" "$BATS_TEST_TMPDIR/bin/"
    done
    cat >"$BATS_TEST_TMPDIR/bin/muster-train" <<END
#!/bin/bash
args=()
while [ \$# -gt 0 ]; do
    case \$1 in
    --device) shift 2 && continue ;;
    --share-gpu) shift && continue ;;
    esac
    args+=("\$1") && shift
done
export STEP_MILLISECONDS=10 LD_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/slow_steps.so
exec "$MUSTER_BUILD/muster-train" "\${args[@]}" --device cpu --threads 1
END
    chmod +x "$BATS_TEST_TMPDIR/bin/muster-train"
    export GPU_PROGRAMS=$BATS_TEST_TMPDIR/bin GPU_CLUSTER=$MUSTER_TOP/tests/cluster \
        GPU_SLURM_STEPS=600
    export GPU_JOB=$MUSTER_TOP/slurm-examples/train-no-plugin.sbatch
    export GPU_SMALL="--layers 1 --width 32 --heads 1 --context 32 --global-batch 8 --microbatch 1"
}

# Whichever test was stopped in it.
teardown() { cluster down || :; }

slurm_part() {
    run timeout $((3 * HANG)) bash "$MUSTER_TOP/tests/gpu_slurm.sh"
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
