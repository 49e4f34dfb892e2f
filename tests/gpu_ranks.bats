#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Several ranks of muster-train --device cuda where there is no GPU: the program of gpu_train.bats,
# and a stand-in of NCCL between the processes. The bits are those of one rank; a rank that is
# killed comes back to them; a rank that is lost is named. No result of a GPU.

load small_run

setup_file() {
    small_run_prepare
    export MUSTER_CKPTD_PROGRAM=$MUSTER_BUILD/muster-ckptd tools=$MUSTER_BUILD/tests/tools
    ready || return 0
    card_begin || return
    export FAKE_GPUS=4
    # shellcheck disable=SC2086
    train whole $SMALL >whole.out 2>&1
}

ready() { [ -x "$tools/train_shim" ] && grep -q '^#define HAVE_NCCL 1' "$MUSTER_BUILD/config.h"; }

setup() {
    ready || skip "this build has no communicator for GPUs"
    cd "$BATS_FILE_TMPDIR" || return
}

STEPS=8
SMALL="--device cuda --layers 1 --width 32 --heads 2 --context 16 --global-batch 4
    --microbatch 1 --steps $STEPS --ckpt-every 2 --keep-last 0
    --learning-rate 3e-3 --min-learning-rate 3e-4"

last() { printf '%s/step-%08d' "$1" $STEPS; }

# same A B: the final state and the curve, bit for bit.
same() {
    diff <(hashes "$(last "$1")") <(hashes "$(last "$2")")
    diff <(muster-curve "$1") <(muster-curve "$2")
}

@test "2, 3 and 4 ranks have the bits of one, whenever streams run, with --zero 1, and on one card" {
    local step
    # shellcheck disable=SC2086
    {
        FAKE_GPU_STREAMS=1 train_world 2 two $SMALL
        FAKE_GPU_STREAMS=2 train_world 3 three $SMALL --zero 1
        FAKE_GPUS=1 train_world 4 four $SMALL --share-gpu
    }
    same whole two
    same whole four
    # In whatever files, each of them taken while training went on.
    for step in whole/step-*; do muster-ckpt diff "$step" "three/${step##*/}"; done
    diff <(muster-curve whole) <(muster-curve three)
    grep -q 'communicator nccl' rank0.out
    # 512 MiB are NCCL's
    grep -Eq 'memory: this rank needs .*pieces of other ranks and NCCL 53[0-9]\.[0-9] MB' rank0.out
}

@test "the library's sum is near, and its version is part of the numerics" {
    # shellcheck disable=SC2086
    FAKE_GPU_STREAMS=1 train_world 3 native $SMALL --reduction native --grad-dtype bf16
    paste <(muster-curve whole) <(muster-curve native) | awk -v steps=$STEPS '
        { d = $3 / $(NF / 2 + 3) - 1; if (d > 0.02 || d < -0.02) bad = 1 }
        END { exit bad || NR != steps }'
    grep -q '"communicator": *"NCCL 2.28.9"' "$(last native)/manifest.json"
}

@test "killed, and stopped by a notice, on three ranks; resumed on two and on one: the same bits" {
    # shellcheck disable=SC2086
    start_world 3 killed $SMALL
    wait_step killed 3
    kill -9 "${PIDS[1]}"
    end_world || :
    [ "${STATUSES[0]}" = 69 ]
    [ "${STATUSES[2]}" = 69 ]
    grep -q 'rank 1 on .* is gone' rank0.out
    # shellcheck disable=SC2086
    start_world 2 killed $SMALL
    wait_step killed 6
    kill "${PIDS[1]}"
    end_world || [ $? -eq 75 ] || [ "${STATUSES[0]}" -eq 0 ]
    # shellcheck disable=SC2086
    train killed $SMALL >last.out 2>&1
    same whole killed
}

@test "a rank that is stopped ends the run with 69 at the deadline, and is named" {
    # shellcheck disable=SC2086
    start_world 3 stopped $SMALL --collective-timeout $((HANG / 10)) --steps 1000 --ckpt-every 100
    wait_step stopped 2
    kill -STOP "${PIDS[2]}"
    wait "${PIDS[0]}" && false || [ $? -eq 69 ]
    wait "${PIDS[1]}" && false || [ $? -eq 69 ]
    kill -9 "${PIDS[2]}"
    end_world || :
    cat rank0.out rank1.out | grep -q 'nothing was heard of rank 2 on '
}

@test "two ranks on one card are refused without --share-gpu" {
    # shellcheck disable=SC2086
    FAKE_GPUS=1 start_world 2 refused $SMALL
    end_world && false || [ $? -eq 2 ]
}
