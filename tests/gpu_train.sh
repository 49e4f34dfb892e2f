#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The parts of tests/gpu.sh that train on the GPU: gpu_train.sh train|share|torch|python prints TAP.
# Each check is a process of its own with its own limit, so that one that hangs takes no other with
# it.
# What is compared is each byte of the last checkpoint, and the loss curve.
#   GPU_PROGRAMS   folder of muster-train, muster-ckptd, muster-ckpt, muster-curve and muster-tokens
#   GPU_WORK       an empty folder for the runs
#   GPU_BENCH, GPU_OUT   for torch: bench/train-gpu.sh, and where its figures go
#   GPU_PYTHON     for python: the folder of test_gpu.py
#   GPU_CHECKS     names of checks: these alone
#   GPU_SMALL, GPU_LARGE   the options of the two models; GPU_CHECK_SECONDS, the limit of one check
set -u -o pipefail

train_checks=(small_twice small_killed small_saved_each_step fp32_like_the_cpu bf16_like_fp32
    tf32_like_fp32 recomputed
    graphs large_twice large_killed tuned)
share_checks=(small_on_2_ranks small_on_3_ranks small_on_4_ranks small_zero_on_2_ranks
    four_ranks_killed_two_go_on one_rank_lost
    large_on_2_ranks large_on_4_ranks)
python_checks=(killed_while_saves_are_under_way
    weights_and_moments_on_one_to_three_ranks
    from_four_ranks_to_three_to_one with_autocast_and_a_scaler)

# Steps enough to be killed amid them; 124 million parameters.
read -ra small \
    <<<"${GPU_SMALL:---layers 2 --width 128 --heads 2 --context 64 --steps 300 --ckpt-every 50 \
    --global-batch 8 --microbatch 2}"
read -ra large \
    <<<"${GPU_LARGE:---layers 12 --width 768 --heads 12 --context 1024 --vocabulary 50257 \
    --steps 40 --ckpt-every 10 --global-batch 32 --microbatch 8}"
[[ " ${small[*]} " = *" --vocabulary "* ]] || small+=(--vocabulary 256)
both=(--learning-rate 0.001 --min-learning-rate 0.0001 --warmup-steps 3 --slots 4 --keep-last 2
    --rdzv-timeout 60 --collective-timeout 60)
export PATH=$GPU_PROGRAMS:$PATH OMP_WAIT_POLICY=passive
export MUSTER_CKPTD_PROGRAM=$GPU_PROGRAMS/muster-ckptd
unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_RDZV@}"

# --- the checks' words ---

# complain WORDS…: ends the check with them.
complain() {
    echo "$*"
    exit 1
}

# Ends the check as skipped, with the reason.
skip() {
    echo "$*"
    exit 77
}

# option NAME OPTIONS…: the value of --NAME among them.
option() {
    local name=--$1
    while [ $# -gt 1 ]; do
        [ "$1" != "$name" ] || { echo "$2" && return; }
        shift
    done
}

# train DIR OPTION…: one rank, or one of several; its output goes to DIR.log. With REPLACE=exec it
# is the process itself.
train() {
    local dir=$1
    shift
    mkdir -p "$dir"
    ${REPLACE-} muster-train --data train.bin --ckpt-dir "$dir" --device cuda "${both[@]}" "$@" \
        >>"$dir.log${RANK+.$RANK}" 2>&1
}

# whole DIR OPTION…: a run that nobody disturbs.
whole() { train "$@" || complain "$1 ended with status $?: $(tail -n 3 "$1.log")"; }

# The run that the others are held against, made where it isn't there yet.
need() {
    local name=$1
    shift
    [ -e "$name.done" ] || { rm -rf "$name" "$name.log" && whole "$name" "$@" && : >"$name.done"; }
}

last_step() { printf step-%08d "$(option steps "$@")"; }

# same_bits DIR DIR OPTIONS…: all tensors that they ended with, the optimizer's too, and all losses.
same_bits() {
    local a=$1 b=$2 step
    shift 2
    step=$(last_step "$@")
    muster-ckpt diff "$a/$step" "$b/$step" || complain "$a and $b end with other bits"
    diff <(muster-curve "$a") <(muster-curve "$b") >"$b.diff" ||
        complain "the losses of $a and $b differ: $(sed -n 2p "$b.diff")"
    [ "$(muster-curve "$a" | wc -l)" -eq $((10#${step#step-})) ] ||
        complain "the loss curve of $a isn't whole"
}

# near BOUND DIR DIR: the largest |a/b - 1| of their losses; both fall.
near() {
    local found
    found=$(paste <(muster-curve "$2") <(muster-curve "$3") | awk -v bound="$1" '
        $1 != $6 { print "steps " $1 " and " $6 " beside each other"; failed = 1; exit }
        { d = $3 / $8 - 1; d = d < 0 ? -d : d; if (d > most) { most = d; at = $1 }
          if (NR == 1) first = $8; last = $8 }
        END { if (failed) exit 1
            printf "%d losses, off by %.3g at most (step %d), %.4f to %.4f\n",
                NR, most, at, first, last
            exit !(NR > 1 && most <= bound && last < first - 0.05) }') ||
        complain "$2 against $3, at most $1: $found"
    echo "$found"
}

# wait_for SECONDS COMMAND…
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}

# Whether a checkpoint is there, or the run is over.
saved_or_over() { [ -d "$1" ] || ! kill -0 "$2" 2>/dev/null; }

# Whether the attempt took up a step, and not the last one.
went_on() {
    local from
    from=$(sed -n 's/.*resume: step \([0-9]*\) from .*/\1/p' "$1" | tail -n 1)
    [ "${from:-0}" -gt 0 ] && [ "$from" -lt "$2" ] ||
        complain "it didn't go on in mid-run: ${from:-no step} of $2"
}

first_save() { printf step-%08d "$(option ckpt-every "$@")"; }

# Both start a run in the background; the pids of its ranks are in PIDS.
start_one() {
    # shellcheck disable=SC2209
    REPLACE=exec train "$@" &
    PIDS=($!)
}

# start_world N DIR OPTION…: ranks that share the card and meet in a folder.
start_world() {
    local n=$1 rank
    export MUSTER_RDZV_DIR=$PWD/meet MUSTER_RDZV_ID=$$-$EPOCHREALTIME WORLD_SIZE=$1 \
        LOCAL_WORLD_SIZE=$1
    shift
    mkdir -p meet
    PIDS=()
    for ((rank = 0; rank < n; rank++)); do
        # shellcheck disable=SC2209
        RANK=$rank LOCAL_RANK=$rank REPLACE=exec train "$@" --share-gpu &
        PIDS+=($!)
    done
}

# The statuses of all ranks, once they are gone.
end_all() {
    local pid
    STATUSES=()
    for pid in "${PIDS[@]}"; do
        wait "$pid"
        STATUSES+=($?)
    done
}

# hit RANKS STATUSES START… : kills these ranks (by place) of a run when its first checkpoint is
# there, and expects all of them to end so. A run that came to its end before that is begun anew.
hit() {
    local victims=$1 wanted=$2 dir=$4 options=("${@:5}") try rank
    [ "$3" = start_one ] || dir=$5 options=("${@:6}")
    for ((try = 0; try < 5; try++)); do
        rm -rf "$dir" "$dir".log*
        "${@:3}"
        wait_for 60 saved_or_over "$dir/$(first_save "${options[@]}")" "${PIDS[0]}"
        for rank in $victims; do kill -9 "${PIDS[rank]}" 2>/dev/null; done
        end_all 2>/dev/null
        # After the last step its service saves what it was handed, whichever process is killed.
        [ "$(muster-curve "$dir" | wc -l)" -ge "$(option steps "${options[@]}")" ] || break
        wait_for 10 test -d "$dir/$(last_step "${options[@]}")"
    done
    [ "${STATUSES[*]}" = "$wanted" ] ||
        complain "they ended with ${STATUSES[*]}, not $wanted: $(tail -qn 2 "$dir".log*)"
}

killed() { hit 0 137 start_one "$@"; }

# --- one rank ---

needs_small() { need small "${small[@]}"; }
needs_large() { need large "${large[@]}"; }

small_twice() {
    needs_small
    whole small-again "${small[@]}"
    same_bits small small-again "${small[@]}"
}

small_killed() {
    needs_small
    killed small-killed "${small[@]}"
    whole small-killed "${small[@]}"
    went_on small-killed.log "$(option steps "${small[@]}")"
    same_bits small small-killed "${small[@]}"
}

small_saved_each_step() {
    needs_small
    whole small-saved "${small[@]}" --ckpt-every 1 --keep-last 2
    same_bits small small-saved "${small[@]}"
}

# The same steps in fp32: rounding differs, nothing else does.
fp32_like_the_cpu() {
    local steps=(--steps 50 --decay-steps 50 --ckpt-every 0)
    need fp32 "${small[@]}" "${steps[@]}" --precision fp32
    whole cpu "${small[@]}" "${steps[@]}" --precision fp32 --device cpu
    near 1e-4 fp32 cpu
}

bf16_like_fp32() {
    local steps=(--steps 50 --decay-steps 50 --ckpt-every 0)
    need fp32 "${small[@]}" "${steps[@]}" --precision fp32
    whole bf16 "${small[@]}" "${steps[@]}" --precision bf16
    near 0.01 bf16 fp32
}

tf32_like_fp32() {
    local steps=(--steps 50 --decay-steps 50 --ckpt-every 0)
    need fp32 "${small[@]}" "${steps[@]}" --precision fp32
    whole tf32 "${small[@]}" "${steps[@]}" --precision tf32
    near 0.005 tf32 fp32
}

recomputed() {
    local what
    needs_small
    for what in norm mlp block; do
        whole small-$what "${small[@]}" --recompute $what
        same_bits small small-$what "${small[@]}"
    done
}

# The algorithms of the products, as a checkpoint keeps them.
products() { grep '"products"' "$1/manifest.json"; }

# What was measured before the kill is used again after it.
tuned() {
    local first
    killed small-tuned "${small[@]}" --tune
    first=$(products "small-tuned/$(first_save "${small[@]}")")
    whole small-tuned "${small[@]}" --tune
    went_on small-tuned.log "$(option steps "${small[@]}")"
    [ "$first" = "$(products "small-tuned/$(last_step "${small[@]}")")" ] ||
        complain "other algorithms than before: $(grep -h 'tune:\|GEMM plans' small-tuned.log)"
    # Other algorithms round otherwise, which grows from step to step.
    local steps=(--steps 50 --decay-steps 50 --ckpt-every 0)
    need fp32 "${small[@]}" "${steps[@]}" --precision fp32
    whole tuned "${small[@]}" "${steps[@]}" --tune
    near 0.01 tuned fp32
}

graphs() {
    local way
    needs_small
    for way in on off; do
        whole small-graphs-$way "${small[@]}" --cuda-graph $way
        same_bits small small-graphs-$way "${small[@]}"
    done
}

large_twice() {
    needs_large
    whole large-again "${large[@]}"
    same_bits large large-again "${large[@]}"
    rm -rf large-again
}

large_killed() {
    needs_large
    killed large-killed "${large[@]}"
    whole large-killed "${large[@]}"
    went_on large-killed.log "$(option steps "${large[@]}")"
    same_bits large large-killed "${large[@]}"
    rm -rf large-killed
}

# --- several ranks on the one card ---

# world N DIR OPTION…: to its end.
world() {
    start_world "$@"
    end_all
    [[ ${STATUSES[*]} =~ ^0( 0)*$ ]] ||
        complain "$1 ranks ended with ${STATUSES[*]}: $(tail -qn 2 "$2.log".*)"
}

small_on_2_ranks() { small_on 2; }
small_on_3_ranks() { small_on 3; }
small_on_4_ranks() { small_on 4; }

small_on() {
    needs_small
    world "$1" "small-$1" "${small[@]}"
    same_bits small "small-$1" "${small[@]}"
}

small_zero_on_2_ranks() {
    needs_small
    world 2 small-zero "${small[@]}" --zero 1
    same_bits small small-zero "${small[@]}"
}

four_ranks_killed_two_go_on() {
    needs_small
    hit "0 1 2 3" "137 137 137 137" start_world 4 small-fewer "${small[@]}"
    world 2 small-fewer "${small[@]}"
    went_on small-fewer.log.0 "$(option steps "${small[@]}")"
    same_bits small small-fewer "${small[@]}"
}

# One is killed: the others end with 69, and all four go on.
one_rank_lost() {
    needs_small
    hit 2 "69 69 137 69" start_world 4 small-lost "${small[@]}" --collective-timeout 10
    world 4 small-lost "${small[@]}"
    went_on small-lost.log.0 "$(option steps "${small[@]}")"
    same_bits small small-lost "${small[@]}"
}

large_on_2_ranks() { large_on 2; }
large_on_4_ranks() { large_on 4; }

large_on() {
    needs_large
    world "$1" "large-$1" "${large[@]}" --ckpt-every 0
    same_bits large "large-$1" "${large[@]}"
    rm -rf "large-$1"
}

# --- another program ---

# 200 steps on the same data and weights, 32 samples each: what it says is the last line.
losses_like_pytorch() {
    local said=bench.log status
    bash "$GPU_BENCH" --only 124M --curve 200 --batch 32 --microbatch 32 --torch 32,default,flash \
        --limit $((limit - 5)) \
        --out "$GPU_OUT" >$said 2>&1
    status=$?
    tail -n 12 $said
    [ $status -ne 77 ] || skip "$(tail -n 1 $said)"
    [ $status -eq 0 ] && grep -q 'train-gpu-124M-curves' $said ||
        complain "the losses are not PyTorch's: status $status"
}

# --- the Python package ---

killed_while_saves_are_under_way() { in_python "${FUNCNAME[0]}"; }
weights_and_moments_on_one_to_three_ranks() { in_python "${FUNCNAME[0]}"; }
from_four_ranks_to_three_to_one() { in_python "${FUNCNAME[0]}"; }
with_autocast_and_a_scaler() { in_python "${FUNCNAME[0]}"; }

in_python() {
    cd "$GPU_PYTHON" && MUSTER_TEST_MEMORY=$GPU_WORK \
        python3 -m unittest "test_gpu.OnGpu.test_$1" || complain "test_gpu.OnGpu.test_$1 failed"
}

# --- the run of a part ---

# Arithmetic, to learn from: some 2 MB.
make_data() {
    awk 'BEGIN {
        for (i = 1; i <= 60000; i++) {
            a = i * 7919 % 997; b = i * 104729 % 89; print a " times " b " is " a * b "."
        }
    }' >text
    muster-tokens -o train.bin.new text >tokens.log 2>&1 && mv train.bin.new train.bin
}

# report NUMBER NAME STATUS: its line of TAP, and what it said.
report() {
    local said=$2.out
    case $3 in
    0) echo "ok $1 - $2" && tail -n 1 "$said" | sed 's/^/# /' && return ;;
    77) echo "ok $1 - $2 # SKIP $(tail -n 1 "$said")" && return ;;
    124 | 137) echo "not ok $1 - $2" && echo "# cut after $limit s" ;;
    *) echo "not ok $1 - $2" ;;
    esac
    sed 's/^/# /' "$said" | tail -n 12
}

run_checks() {
    local number=0 name status
    # shellcheck disable=SC2086
    [ -z "${GPU_CHECKS-}" ] || set -- $GPU_CHECKS
    echo "1..$#"
    [ -n "${GPU_BENCH-}${GPU_PYTHON-}" ] || make_data || {
        echo "Bail out! couldn't make the data: $(tail -n 1 tokens.log)" && exit 1
    }
    for name; do
        number=$((number + 1))
        timeout -k 5 "$limit" bash "${BASH_SOURCE[0]}" check "$name" >"$name.out" 2>&1 &
        child=$!
        wait $child
        status=$?
        child=
        report $number "$name" $status
    done
}

limit=${GPU_CHECK_SECONDS:-60} child=
mkdir -p "$GPU_WORK" && cd "$GPU_WORK" || exit 1
# A limit of the part's ends the check as well.
trap '[ -z "$child" ] || kill -TERM $child; exit 143' TERM INT
case $1 in
check) "$2" ;;
train) run_checks "${train_checks[@]}" ;;
share) run_checks "${share_checks[@]}" ;;
torch) run_checks losses_like_pytorch ;;
python) run_checks "${python_checks[@]}" ;;
*) echo "gpu_train.sh: no part '$1'" >&2 && exit 2 ;;
esac
