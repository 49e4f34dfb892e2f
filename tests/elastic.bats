#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The number of ranks changes nothing: a model of several buckets, on 1 to 8 ranks, with accumulation, and steps of 16 slots, so
# that ranks have unequal shares in several pieces. What is compared is the final checkpoint's hashes and the loss curve.

load small_run

setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" && train one >one.out 2>&1
}

setup() {
    several_ranks
    cd "$BATS_FILE_TMPDIR" || return
}

# In place of small_run's: 600,000 parameters, which are two buckets, or three with --bucket-mb 1.
train() {
    local dir=$1
    shift
    ${REPLACE-} muster-train --data tokens.u16 --ckpt-dir "$dir" --layers 3 --width 128 --heads 4 --context 16 --vocabulary 64 \
        --global-batch 16 --microbatch 1 --learning-rate 0.003 --min-learning-rate 0.001 --warmup-steps 3 --threads 1 \
        --steps 15 --ckpt-every 0 --rdzv-timeout 30 --collective-timeout 30 "$@"
}

same_as_one() {
    diff <(hashes "one/step-00000015") <(hashes "$1/step-00000015")
    diff <(muster-curve one) <(muster-curve "$1")
}

@test "canonical: the same bits on 1 to 8 ranks, with 1 and 2 threads a rank and two bucket sizes" {
    local n
    train threads1 --threads 2 --bucket-mb 1 >threads1.out
    grep -q ' 3 buckets$' threads1.out
    grep -q ' 2 buckets$' one.out
    same_as_one threads1
    for n in 2 3 4 5 6 7 8; do
        train_world $n "threads$n" --threads 2 --bucket-mb $((n % 2 * 24 + 1)) >out || { cat out; return 1; }
        train_world $n "world$n" --bucket-mb $(((n + 1) % 2 * 24 + 1)) >out || { cat out; return 1; }
        same_as_one "threads$n"
        same_as_one "world$n"
    done
}

# largest_difference DIR DIR: of the losses of any step.
largest_difference() {
    paste <(muster-curve "$1") <(muster-curve "$2") |
        awk '$1 != $6 { exit 1 } { d = $3 - $8; d = d < 0 ? -d : d; m = d > m ? d : m } END { printf "%.9f\n", m }'
}

@test "native: 8 ranks and 1 have the same loss curve to 1e-5 over 200 steps, in other bits" {
    local difference
    train native1 --reduction native --steps 200 >native1.out 2>&1
    train_world 8 native8 --reduction native --steps 200 >native8.out || { cat native8.out; return 1; }
    grep -q 'the bits of the result depend on the world size' native8.out
    [ "$(muster-curve native8 | wc -l)" -eq 200 ]
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
    fails 2 "--split-embedding is off, but the run in this --ckpt-dir was begun with on" train split1 --steps 16 --change steps
}
