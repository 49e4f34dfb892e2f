#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --zero 1: each rank has its share of the moments, and nothing else changes: not a bit of weights, moments, losses or norms,
# whoever saved and whoever resumes.

load small_run

setup_file() {
    small_run_begin
    several_ranks
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# The same tensors, moments and curve as the undisturbed run of one rank, in whatever files.
equal_to_whole() {
    muster-ckpt diff whole/step-00000100 "$1/step-00000100"
    diff <(muster-curve whole) <(muster-curve "$1")
}

@test "worlds of 1, 3 and 8 ranks have the bits of a run without it" {
    local n
    for n in 1 3 8; do
        train_world $n "zero$n" --zero 1 --bucket-mb $((n % 3 * 12 + 1)) >"zero$n.out" || { cat "zero$n.out"; return 1; }
        equal_to_whole "zero$n"
    done
}

@test "saved with it and resumed without, and the other way round, on other numbers of ranks" {
    interrupt_worlds mixed --zero 1
    train_world 5 mixed --zero 1 >mixed.out || { cat mixed.out; return 1; }
    grep -F 'resume: step ' mixed.out | grep -F ' with 3 ranks'
    equal_to_whole mixed
}

# moments PID: bytes of memory that a rank has for the moments, in the set of arenas that is there whole but for those of others.
moments() {
    python3 - "$1" <<'END'
import glob, os, sys
sets = [os.stat(fd) for fd in glob.glob(f"/proc/{sys.argv[1]}/fd/*") if "muster-snapshot" in os.readlink(fd)]
largest = max(sets, key=lambda s: s.st_blocks)
print(largest.st_blocks * 512 - largest.st_size // 3)
END
}

@test "the moments take a fourth of their memory on each of four ranks, and no more anywhere" {
    local pid here all=0 whole
    start_world 4 big --zero 1 --width 256 --layers 4 --steps 100000 --ckpt-every 0
    wait_step big 3
    whole=$(python3 -c 'import os, sys, glob
print(max(os.stat(f).st_size for f in glob.glob(f"/proc/{sys.argv[1]}/fd/*") if "muster-snapshot" in os.readlink(f)) * 2 // 3)' "${PIDS[0]}")
    for pid in "${PIDS[@]}"; do
        here=$(moments "$pid")
        echo "rank with $here of $whole bytes"
        all=$((all + here))
        # a block of each of the two moments to either side, in each of two buckets
        [ $((here * 4)) -gt $((whole - 4 * 4 * 262144)) ]
        [ $((here * 4)) -lt $((whole + 4 * 4 * 262144)) ]
    done
    [ "$all" -ge "$((whole - 65536))" ]
    [ "$all" -le "$((whole + 4 * 65536))" ]
    kill "${PIDS[0]}"
    end_world >big.out || [ $? -eq 75 ]
    whole=$(awk '/ memory of a rank / { print $5 }' big.out)
    here=$(awk '/ memory of a rank / { print $8 }' big.out)
    echo "$whole MB weights, $here MB moments"
    awk -v w="$whole" -v m="$here" 'BEGIN { exit !(m > 0.45 * w && m < 0.55 * w) }'
}

@test "a step that is left out, and what does not go with it" {
    local wild=(--learning-rate 1000 --min-learning-rate 1000 --weight-decay 1000 --clip 0 --warmup-steps 0)
    train skipped "${wild[@]}" --on-nonfinite skip >skipped.out 2>&1
    train_world 2 skipped2 --zero 1 "${wild[@]}" --on-nonfinite skip >skipped2.out
    [ "$(grep -c '"skipped": true' skipped2/metrics-0.jsonl)" -gt 0 ]
    muster-ckpt diff skipped/step-00000100 skipped2/step-00000100
    fails 1 "not finite: " train_world 2 wild --zero 1 "${wild[@]}"
    grep -Eq 'step [0-9]+: not finite: .*first in the' <<<"$output"
    fails 2 "leave --reduction native out" train refused --zero 1 --reduction native
    fails 2 "leave one of them out" train refused --zero 1 --split-embedding
    fails 2 "leave --ckpt-writers out" train refused --zero 1 --ckpt-writers rank0
}
