#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The number of ranks changes nothing: a model of several buckets, on 1 to 8 ranks and more, with
# accumulation, and steps of enough slots that ranks have unequal shares in several pieces. What is
# compared is the final checkpoint's hashes and the loss curve.

load small_run

setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" && train one >one.out 2>&1
}

setup() {
    cd "$BATS_FILE_TMPDIR" || return
}

# In place of small_run's: 600,000 parameters, which are three buckets, or two with --bucket-mb 25.
train() {
    local dir=$1
    shift
    ${REPLACE-} muster-train --data tokens.u16 --ckpt-dir "$dir" --layers 3 --width 128 --heads 4 \
        --context 16 --vocabulary 64 \
        --global-batch 16 --microbatch 1 --learning-rate 0.003 --min-learning-rate 0.001 \
        --warmup-steps 3 --threads 1 \
        --steps 15 --ckpt-every 0 --rdzv-timeout "$HANG" --collective-timeout "$HANG" "$@"
}

# same_bits DIR DIR STEPS
same_bits() {
    diff <(hashes "$1/step-$(printf %08d "$3")") <(hashes "$2/step-$(printf %08d "$3")")
    diff <(muster-curve "$1") <(muster-curve "$2")
}

# quietly COMMAND…: its output only where it fails.
quietly() { "$@" >out 2>&1 || { cat out && return 1; }; }

@test "canonical: the same bits on each of 1 to 8 ranks with 1 and 2 threads a rank, in two bucket sizes each" {
    local n threads mb
    train few --steps 4 >few.out
    grep -q ' 3 buckets$' few.out
    for n in 1 2 3 4 5 6 7 8; do
        for threads in 1 2; do
            for mb in 1 25; do
                # Each with one of both unless all is searched.
                [ -n "${MUSTER_LONG-}" ] || [ $(((n + threads + mb / 25) % 2)) = 0 ] || continue
                quietly train_world $n "few-$n-$threads-$mb" --steps 4 --threads $threads \
                    --bucket-mb $mb
                grep -q " $((mb == 1 ? 3 : 2)) buckets\$" out
                same_bits few "few-$n-$threads-$mb" 4
                rm -r "few-$n-$threads-$mb"
            done
        done
    done
}

# over_worlds NAME "RANKS RANKS RANKS" OPTION…: six steps by one rank, and two by each of these
# numbers of ranks, have the same bits, with other threads and buckets each time. 76 samples of odd
# sizes: the last step of an epoch is not full.
over_worlds() {
    local name=$1 n step=0
    local sizes=(--data valid.u16 --last-batch pad --width 132 --heads 3 --context 13
        --vocabulary 67 --decay-steps 15 "${@:3}")
    quietly train "$name-one" "${sizes[@]}" --steps 6
    for n in $2; do
        step=$((step + 2))
        quietly train_world "$n" "$name" "${sizes[@]}" \
            --steps $step --change steps --threads $((step / 2)) --bucket-mb $((step * step))
        echo "$name: $n ranks to step $step: $(grep '^step .*/' out | tail -n 1)"
    done
    [ "$step" -eq 6 ]
    same_bits "$name-one" "$name" 6
}

@test "with accumulation, other numbers of slots and odd sizes, and resumed by other numbers of ranks: the same bits" {
    over_worlds four-a-slot "8 3 5" --global-batch 32 --slots 8
    over_worlds two-a-slot "6 4 1" --global-batch 36 --slots 6 --microbatch 3
    over_worlds many "7 2 13" --global-batch 15 --slots 15
    # What identity asks for: another number of slots is another sum.
    quietly train other-slots --data valid.u16 --last-batch pad \
        --width 132 --heads 3 --context 13 --vocabulary 67 --decay-steps 15 \
        --global-batch 32 --slots 16 --steps 6
    ! cmp <(hashes four-a-slot-one/step-00000006) <(hashes other-slots/step-00000006) || false
}

@test "more ranks than slots by default: each gets one, and the run keeps them on any number of ranks" {
    local sizes=(--data valid.u16 --last-batch pad --global-batch 12 --microbatch 1
        --decay-steps 6)
    quietly train_world 6 grown "${sizes[@]}" --steps 2
    grep -q "^  slots  *6 " out
    for n in 2 1; do
        quietly train_world "$n" grown "${sizes[@]}" --steps $((8 - 2 * n)) --change steps
        grep -q "^  slots  *6 " out
    done
    quietly train grown-one "${sizes[@]}" --slots 6 --steps 6
    same_bits grown-one grown 6
    # By itself such a run has fewer.
    quietly train small "${sizes[@]}" --steps 1
    grep -q "^  slots  *4 " out
    # The run can't have more ranks than it began with, unless there are as many slots.
    run train_world 12 small "${sizes[@]}" --steps 2 --change steps
    [ "$status" -eq 2 ]
    [[ $output = *"12 ranks can't share the 4 slots of a step"* ]]
}

@test "what is computed again, at each level on other numbers of ranks, with and without shards, in one run: the same bits" {
    local step=0 level zero n
    quietly train kept --steps 8
    while read -r level n zero; do
        step=$((step + 2))
        quietly train_world "$n" forgot --recompute "$level" --zero "$zero" --steps $step \
            --decay-steps 8 --change steps,decay-steps
        grep -q "^  recompute  *$level " out
    done <<'END'
block 3 1
none 2 1
mlp 1 0
norm 3 0
END
    [ "$step" -eq 8 ]
    same_bits kept forgot 8
}

@test "a bucket of which each rank sums several MB, run by run, with pieces that came early: the same bits" {
    quietly train wide-one --width 256 --vocabulary 8192 --steps 3
    train_world 3 wide --width 256 --vocabulary 8192 --bucket-mb 25 --steps 3 >wide.out || {
        cat wide.out; return 1
    }
    same_bits wide-one wide 3
}

# largest_difference DIR DIR: of the losses of any step.
largest_difference() {
    paste <(muster-curve "$1") <(muster-curve "$2") |
        awk '$1 != $6 { exit 1 } { d = $3 - $8; d = d < 0 ? -d : d; m = d > m ? d : m } END { printf "%.9f\n", m }'
}

@test "native: 8 ranks and 1 have the same loss curve to 1e-5, in other bits" {
    local difference steps=${MUSTER_LONG:+200}
    train native1 --reduction native --steps "${steps:=50}" >native1.out 2>&1
    train_world 8 native8 --reduction native --steps "$steps" >native8.out || {
        cat native8.out; return 1
    }
    grep -q 'the bits of the result depend on the world size' native8.out
    [ "$(muster-curve native8 | wc -l)" -eq "$steps" ]
    difference=$(largest_difference native1 native8)
    echo "largest difference: $difference"
    awk -v d="$difference" 'BEGIN { exit !(d > 0 && d < 1e-5) }'
}

@test "native in bf16: close to fp32, and half the bytes" {
    local difference
    fails 2 "give --reduction native too" train refused --grad-dtype bf16
    train_world 4 native4 --reduction native >native4.out || { cat native4.out; return 1; }
    train_world 4 bf16 --reduction native --grad-dtype bf16 >bf16.out || { cat bf16.out; return 1; }
    grep -q -- '--grad-dtype bf16 rounds the sums on their way' bf16.out
    difference=$(largest_difference native4 bf16)
    echo "largest difference: $difference"
    awk -v d="$difference" 'BEGIN { exit !(d > 1e-6 && d < 0.02) }'
    sent() { sed -n '1s/.*"sent_bytes": \([0-9]*\).*/\1/p' "$1/metrics-0.jsonl"; }
    [ "$(sent native4)" -eq $((2 * $(sent bf16))) ]
    grep -q '"grad_dtype": *"bf16"' bf16/step-00000015/manifest.json
}

@test "a split embedding: the same bits on 1, 3 and 8 ranks, and no other run may take it up" {
    local n
    train split1 --split-embedding >split1.out 2>&1
    awk -v d="$(largest_difference one split1)" 'BEGIN { exit !(d < 1e-4) }'
    for n in 3 8; do
        train_world $n "split$n" --split-embedding --bucket-mb 1 >out || { cat out; return 1; }
        diff <(hashes split1/step-00000015) <(hashes "split$n/step-00000015")
    done
    fails 2 "--split-embedding is off, but the run in this --ckpt-dir was begun with on" train \
        split1 --steps 16 --change steps
}

@test "ranks whose options differ end before the first step, and one line names the option" {
    local rank pids=()
    mkdir -p meet
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 GROUP_RANK=0 \
            GROUP_WORLD_SIZE=1 MUSTER_RDZV_DIR=meet MUSTER_RDZV_ID=differ-$$ \
            REPLACE=exec train differ --bucket-mb $((1 + rank)) >"differ$rank.out" 2>&1 3>&- &
        pids+=($!)
    done
    for rank in 0 1; do
        status=0
        wait "${pids[rank]}" || status=$?
        [ $status -eq 2 ] || { cat differ?.out; return 1; }
    done
    [ "$(cat differ?.out | grep -c 'error: ')" -eq 1 ]
    grep -q "^muster: error: ddp: couldn't train together: bytes of a bucket is 1048576 on rank 0 and 2097152 on rank 1; start all ranks with the same options" differ0.out
}
