#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-train --device cuda, as a user runs it, where there is no GPU: tests/tools/train_shim is
# the program with its kernels on the host, and stand-ins for the driver, the CUDA runtime and
# cuBLASLt that do what their documentation says. What is seen here is the way of the data and of
# the errors, and no result of a GPU.
# bats file_tags=ci

load small_run

setup_file() {
    small_run_prepare
    export MUSTER_CKPTD_PROGRAM=$MUSTER_BUILD/muster-ckptd tools=$MUSTER_BUILD/tests/tools
    [ -x "$tools/train_shim" ] || return 0
    card_begin || return
    tables
    gpt2 whole >whole.out 2>&1
}

setup() {
    [ -x "$tools/train_shim" ] || skip "this build has no CUDA"
    cd "$BATS_FILE_TMPDIR" || return
}

STEPS=12

# Heads of 16 columns take the tensor cores' attention; a step has four slots.
GPT2=(--device cuda --layers 1 --width 32 --heads 2 --context 16 --global-batch 4 --microbatch 1
    --ckpt-every 4 --keep-last 0
    --learning-rate 3e-3 --min-learning-rate 3e-4)

# gpt2 DIR OPTION…: in bf16 on the GPU, unless an option says otherwise.
gpt2() {
    local dir=$1
    shift
    train "$dir" "${GPT2[@]}" --steps $STEPS "$@"
}

# gpt2_ranks N DIR OPTION…: on N ranks; as train_world.
gpt2_ranks() {
    local n=$1 dir=$2
    shift 2
    several_gpus
    train_world "$n" "$dir" "${GPT2[@]}" --steps $STEPS "$@"
}

several_gpus() { grep -q muster-fake-nccl "$tools/train_shim" || skip "this build has no NCCL"; }

# Five features of 96 samples, four classes.
tables() {
    python3 - <<'END'
import struct
def npy(name, descr, shape, data):
    h = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode()
    h += b" " * (63 - (10 + len(h)) % 64) + b"\n"
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h + data)
rows = [[((37 * i + 11 * k + 5 * i * i * k) % 101 - 50) / (20 * k + 30) for k in range(5)]
        for i in range(96)]
npy("x.npy", "<f4", (96, 5), b"".join(struct.pack("<5f", *r) for r in rows))
npy("y.npy", "<i4", (96,), struct.pack("<96i", *(int(abs(r[0] + r[1]) * 3) % 4 for r in rows)))
END
}

mlp() {
    local dir=$1
    shift
    ${REPLACE-} muster-train --device cuda --model mlp --data x.npy --labels y.npy \
        --hidden 24 --classes 4 --global-batch 16 --microbatch 2 \
        --threads 1 --learning-rate 0.01 --steps $STEPS --ckpt-every 4 --keep-last 0 \
        --ckpt-dir "$dir" "$@"
}

normal() { mlp "$@" --batchnorm --microbatch 8; }

last() { printf '%s/step-%08d' "$1" $STEPS; }

# same A B: the final state and the curve, bit for bit.
same() {
    diff <(hashes "$(last "$1")") <(hashes "$(last "$2")")
    diff <(muster-curve "$1") <(muster-curve "$2")
}

# near BOUND A B: each loss of the one by that of the other.
near() {
    paste <(muster-curve "$2") <(muster-curve "$3") | awk -v bound="$1" -v steps=$STEPS '
        { d = $3 / $(NF / 2 + 3) - 1; d = d < 0 ? -d : d; if (d > most) most = d;
          if ($1 != $(NF / 2 + 1) || d > bound) bad = 1 }
        END { print "at most " most " apart in " NR " steps"; exit bad || NR != steps }'
}

# one_line STATUS WORDS COMMAND…: ends so, with one line of an error, which has the words.
one_line() {
    fails "$@"
    [ "$(grep -c 'muster: error: ' <<<"$output")" -eq 1 ]
}

# manifest DIR EXPRESSION: of the newest step's manifest, m.
manifest() {
    python3 -c 'import json, sys; m = json.load(open(sys.argv[1] + "/manifest.json")); print(eval(sys.argv[2]))' "$(last "$1")" "$2"
}

@test "GPT-2 and MLP have the CPU's loss curve in each precision, and the same bits in each order of threads and blocks" {
    local model precision order=0 bound
    for model in gpt2 mlp normal; do
        $model $model-cpu --device cpu >$model-cpu.out 2>&1
        for precision in fp32 tf32 bf16; do
            bound=1e-5
            [ $precision != bf16 ] || bound=1e-2
            $model $model-$precision --precision $precision >$model-$precision.out 2>&1
            grep -q "numerics  *cuda-$precision, NVIDIA H200, 132 multiprocessors, CUDA .*, cuBLASLt 13.0.1, build " \
                $model-$precision.out
            near $bound $model-cpu $model-$precision
            order=$((order % 4 + 1))
            FAKE_GPU_ORDER=$order FAKE_GPU_STREAMS=$((order % 3)) $model $model-$precision-again \
                --precision $precision >again.out 2>&1
            same $model-$precision $model-$precision-again
        done
    done
    awk 'NR == 1 { first = $3 } END { exit !(first > 4 && first < 4.4 && $3 < 0.95 * first) }' \
        <(muster-curve gpt2-bf16)
    same whole gpt2-bf16 # what auto is on a GPU
}

# whose DIR WORDS: the newest step's record names cuDNN ("cuDNN"), or does not ("").
whose() {
    [ "$(manifest "$1" '"cuDNN" if "cuDNN 9.0.0" in m["numerics"]["libraries"] else ""')" = "$2" ]
}

@test "auto takes cuDNN's attention where it is there and steady, and goes on with whose the checkpoint is" {
    whose whole ""
    FAKE_CUDNN=steady gpt2 cudnn-theirs >cudnn-theirs.out 2>&1
    whose cudnn-theirs cuDNN
    near 1e-2 whole cudnn-theirs
    FAKE_CUDNN=unsteady gpt2 cudnn-unsteady --log-level debug >cudnn-unsteady.out 2>&1
    grep -q "attention: Muster's own: cuDNN's attention comes to other bits each time" \
        cudnn-unsteady.out
    same whole cudnn-unsteady
    FAKE_CUDNN=steady gpt2 cudnn-told --attention own >cudnn-told.out 2>&1
    same whole cudnn-told
    FAKE_CUDNN=steady gpt2 cudnn-exact --precision tf32 >cudnn-exact.out 2>&1
    whose cudnn-exact ""
    # A run that was begun without it.
    gpt2 cudnn-begun >cudnn-begun.out 2>&1
    rm -r cudnn-begun/step-00000008 "$(last cudnn-begun)"
    FAKE_CUDNN=steady gpt2 cudnn-begun >>cudnn-begun.out 2>&1
    same whole cudnn-begun
    # And one that was begun with it, where it is not any more.
    FAKE_CUDNN=steady gpt2 cudnn-lost >cudnn-lost.out 2>&1
    rm -r cudnn-lost/step-00000008 "$(last cudnn-lost)"
    gpt2 cudnn-lost >>cudnn-lost.out 2>&1
    grep -q "resume: the numerics differ, so bits may: libraries was .*cuDNN" cudnn-lost.out
    fails 2 "couldn't load cuDNN" gpt2 cudnn-asked --attention cudnn
    FAKE_CUDNN=steady gpt2 cudnn-asked --attention cudnn >cudnn-asked.out 2>&1
    same cudnn-theirs cudnn-asked
}

@test "all ranks have the same attention, also where only one has cuDNN's" {
    FAKE_CUDNN=steady gpt2_ranks 2 cudnn-both --share-gpu
    whose cudnn-both cuDNN
    FAKE_CUDNN=steady@1 gpt2_ranks 2 cudnn-one --share-gpu
    whose cudnn-one ""
    FAKE_CUDNN=steady@0 gpt2_ranks 2 cudnn-other --share-gpu >cudnn-other.out
    cat cudnn-other.out
    whose cudnn-other ""
    grep -q "attention: all ranks compute with Muster's own: rank 1 can't with cuDNN's" \
        cudnn-other.out
    same whole cudnn-one
    same whole cudnn-other
}

# needs FILE: MB of the card's memory.
needs() {
    sed -n 's/^muster: memory: this rank needs \([0-9.]*\) MB of its GPU, of which .*/\1/p' "$1"
}

@test "what is computed again has the same bits and needs less memory, and fits where the rest does not" {
    local STEPS=3 level before=none deep=(--layers 3 --width 64 --microbatch 4)
    gpt2 deep-none "${deep[@]}" >deep-none.out 2>&1
    for level in norm mlp block; do
        gpt2 deep-$level "${deep[@]}" --recompute $level >deep-$level.out 2>&1
        same deep-none deep-$level
        echo "$level: $(needs deep-$level.out) MB, $before: $(needs deep-$before.out) MB"
        before=$level
    done
    awk "BEGIN { exit !($(needs deep-block.out) < $(needs deep-mlp.out) &&
        $(needs deep-mlp.out) < $(needs deep-none.out)) }"
    FAKE_GPU_MEMORY=$(awk "BEGIN { print int($(needs deep-block.out) * 1e6 + 5e4) }")
    export FAKE_GPU_MEMORY
    one_line 2 "or --recompute block (of GPT-2) needs less for activations" gpt2 none "${deep[@]}"
    gpt2 tight-block "${deep[@]}" --recompute block >tight-block.out 2>&1
    same deep-none tight-block
}

@test "what the model writes from weights on a GPU is what its checkpoint writes, and changes no bit" {
    local dir step
    gpt2 silent --vocabulary 256 >silent.out 2>&1
    gpt2 telling --vocabulary 256 --sample-every 4 --cuda-graph on >telling.out 2>&1
    same silent telling
    [ "$(samples telling | wc -l)" -eq 3 ]
    for step in 4 8 12; do
        dir=telling/step-$(printf %08d $step)
        [ "$(samples telling | sed -n "s/^$step //p")" = \
            "$("$MUSTER_BUILD/muster-generate" -q "$dir" -n 64 | sample_line)" ]
    done
    FAKE_GPUS=2 gpt2_ranks 2 telling-two --vocabulary 256 --sample-every 4 --zero 1
    diff <(samples telling) <(samples telling-two)
}

@test "killed at random moments and stopped by a notice: the same bits and the same curve, with validation" {
    local pid i
    gpt2 valid --validation-data valid.u16 --validate-every 3 --validate-batches 2 >valid.out 2>&1
    [ "$(muster-curve valid | awk 'NF == 7' | wc -l)" -eq $((STEPS / 3)) ]
    diff <(hashes "$(last whole)") <(hashes "$(last valid)")
    for i in 1 2 3; do
        REPLACE=exec gpt2 killed --ckpt-every 2 --validation-data valid.u16 --validate-every 3 \
            --validate-batches 2 \
            >>killed.out 2>&1 3>&- &
        pid=$!
        wait_for_lines $((RANDOM % 3 + 1)) killed/metrics-$((i - 1)).jsonl
        kill -9 $pid 2>/dev/null || :
        wait $pid || :
    done
    REPLACE=exec gpt2 killed --validation-data valid.u16 --validate-every 3 --validate-batches 2 \
        >>killed.out 2>&1 3>&- &
    pid=$!
    wait_for_lines 1 killed/metrics-3.jsonl
    kill $pid
    wait $pid || [ $? -eq 75 ]
    gpt2 killed --validation-data valid.u16 --validate-every 3 --validate-batches 2 >>killed.out \
        2>&1
    same valid killed
    grep -q 'resume: step [0-9]* from' killed.out
}

# saved DIR: the steps that are there have the bits that they have in the run that saved each.
saved() {
    local step
    for step in "$1"/step-*; do diff <(hashes "every/${step##*/}") <(hashes "$step"); done
}

@test "what is copied out while training goes on is the state of its step, also where nothing can be pinned" {
    local streams
    gpt2 every --ckpt-every 1 >every.out 2>&1
    grep -q 'with room for 2 at once in pinned memory' every.out
    [ "$(grep -Ec 'step [0-9]+ is durable: .*; training stood still for [0-9.]+ s' every.out)" \
        -eq $STEPS ]
    [ "$(ls -d every/step-* | wc -l)" -eq $STEPS ]
    same whole every
    for streams in 1 2; do
        # The copies take as long as several steps.
        FAKE_GPU_STREAMS=$streams FAKE_GPU_UNREADY=2000 gpt2 late$streams --ckpt-every 1 \
            --ckpt-slots $streams >late.out 2>&1
        saved late$streams
        same whole late$streams
        FAKE_GPU_STREAMS=$streams FAKE_GPU_PINS=$((streams - 1)) gpt2 ring$streams --ckpt-every 1 \
            >ring.out 2>&1
        [ "$(grep -c "the memory of the snapshots can't be pinned: cudaHostRegister of " \
            ring.out)" -eq 1 ]
        ! grep 'in pinned memory' ring.out || false
        saved ring$streams
        same whole ring$streams
    done
}

@test "killed while a save is being copied: it is none, the one before is good" {
    local pid
    cp -r whole torn
    rm -rf torn/step-000000{08,12}
    FAKE_GPU_STREAMS=1 FAKE_GPU_UNREADY=1000000 REPLACE=exec gpt2 torn --ckpt-every 6 \
        --log-level debug >torn.out 2>&1 3>&- &
    pid=$!
    wait_log torn.out 'giving away the state after step 6'
    sleep 0.2
    kill -9 $pid
    wait $pid || :
    ! grep 'step 6 is handed over' torn.out || false
    [ "$(ls -d torn/step-* torn/.saving-* 2>/dev/null)" = torn/step-00000004 ]
    gpt2 torn >>torn.out 2>&1
    same whole torn
}

@test "its checkpoints are like any others, and say on what and by which algorithms they were computed" {
    muster-ckpt verify whole
    muster-ckpt diff "$(last whole)" "$(last whole)"
    muster-ckpt export whole exported >export.out
    [ -s exported/model.safetensors ]
    [ -s exported/config.json ]
    [ "$(manifest whole 'm["numerics"]["device"] + ", " + m["numerics"]["card"]')" \
        = "cuda-bf16, NVIDIA H200, 132 multiprocessors" ]
    # Each of GPT-2's products once.
    manifest whole 'm["numerics"]["products"]' | tr ';' '\n' >products
    [ "$(wc -l <products)" -gt 10 ]
    [ -z "$(sed 1d products | cut -d' ' -f1-6 | sort | uniq -d)" ]
    # The CPU goes on from it, with a word on each thing that is different.
    cp -r whole moved
    one_line 2 "--precision is fp32, but the run in this --ckpt-dir was begun with bf16" gpt2 \
        moved \
        --device cpu --steps 13 --change steps
}

@test "the algorithms of the manifest are used again, unless the card or the library is another one" {
    cp -r whole again
    FAKE_CUBLAS_SKIP=1 gpt2 other >other.out 2>&1
    [ "$(manifest whole 'm["numerics"]["products"]')" != \
        "$(manifest other 'm["numerics"]["products"]')" ]
    rm -rf again/step-000000{08,12}
    FAKE_CUBLAS_SKIP=1 gpt2 again --tune >again.out 2>&1 # there is nothing left to choose
    ! grep 'numerics differ' again.out || false
    [ "$(manifest whole 'm["numerics"]["products"]')" \
        = "$(manifest again 'm["numerics"]["products"]')" ]
    same whole again
    rm -rf again/step-00000012
    FAKE_GPU_NAME="NVIDIA H100 PCIe" fails 65 \
        "card was NVIDIA H200, 132 multiprocessors, now NVIDIA H100 PCIe" gpt2 again \
        --require-identical
    FAKE_GPU_NAME="NVIDIA H100 PCIe" gpt2 again >card.out 2>&1
    other='NVIDIA H100 PCIe, 132 multiprocessors'
    grep "were chosen for NVIDIA H200, 132 multiprocessors, and this is $other; they are chosen anew" card.out
    grep 'numerics differ, so bits may: card was NVIDIA H200' card.out
    rm -rf again/step-00000012
    FAKE_CUBLAS_VERSION=130102 gpt2 again >library.out 2>&1
    grep 'are those of cuBLASLt 130001, and this is 130102; they are chosen anew' library.out
}

@test "what has no card that it can use is told in one line, or computes on the CPU where that may be" {
    LD_LIBRARY_PATH='' one_line 2 "this node has no CUDA driver (libcuda.so.1: cannot open" gpt2 \
        none
    FAKE_GPUS=0 one_line 2 "none is visible to this task (CUDA_VISIBLE_DEVICES is not set)" gpt2 \
        none
    CUDA_VISIBLE_DEVICES='' one_line 2 \
        "none is visible to this task (CUDA_VISIBLE_DEVICES is empty)" gpt2 none
    CUDA_VISIBLE_DEVICES=GPU-gone one_line 2 \
        "none is visible to this task (CUDA_VISIBLE_DEVICES is GPU-gone)" gpt2 none
    FAKE_GPU_CAPABILITY=75 one_line 2 \
        "NVIDIA H200 has compute capability 7.5, and at least 8.0 is needed" gpt2 none
    FAKE_GPU_CUDA=12040 one_line 2 \
        "the driver of this node supports CUDA 12.4, and this program was built with" gpt2 none
    FAKE_GPU_ERROR=802 one_line 1 \
        "cuInit says CUDA_ERROR_SYSTEM_NOT_READY (802): its fabric manager does not run yet" gpt2 \
        none
    FAKE_GPU_ERROR=802 one_line 1 "its fabric manager does not run yet" gpt2 none --device auto
    [ ! -e none/attempts.jsonl ] || [ -z "$(ls -d none/step-* 2>/dev/null)" ]
    # auto takes the card that there is, and says what it computes on.
    grep -q 'numerics  *cuda-bf16, ' whole.out
    gpt2 auto --device auto --steps 1 | grep -q 'numerics  *cuda-bf16, '
    CUDA_VISIBLE_DEVICES='' gpt2 auto-cpu --device auto --steps 1 | grep -q 'numerics  *cpu-'
    LD_LIBRARY_PATH='' gpt2 auto-driver --device auto --steps 1 | grep -q 'numerics  *cpu-'
    LD_LIBRARY_PATH='' one_line 2 "the CPU computes with --precision fp32 only" gpt2 none \
        --device auto --precision bf16
}

@test "memory: what does not fit is refused before anything is begun, and what turns out to be too little is told" {
    local needed
    needed=$(needs whole.out)
    # What it says that it needs is enough.
    FAKE_GPU_MEMORY=$(awk "BEGIN { print int($needed * 1e6 + 5e4) }") gpt2 tight >tight.out 2>&1
    same whole tight
    FAKE_GPU_MEMORY=$(awk "BEGIN { print int($needed * 1e6 - 5e4) }") \
        one_line 2 "memory: this run doesn't fit into its GPU: it needs $needed MB (weights " \
        gpt2 none
    grep -q 'MB are free: a smaller --microbatch .* needs less for activations' <<<"$output"
    # Another program takes most of it meanwhile: whatever comes first for which there is no room.
    FAKE_GPU_MEMORY=100000000 FAKE_GPU_TAKEN=80000000 \
        one_line 2 \
        "memory: couldn't get 33.6 MB on the GPU for the workspace of the matrix products" gpt2 none
    FAKE_GPU_MEMORY=100000000 FAKE_GPU_TAKEN=66000000 one_line 2 \
        "on the GPU for the arenas of the training" gpt2 none
    grep -q 'a smaller --microbatch.* needs less' <<<"$output"
    ! grep -q '^step ' <<<"$output" || false
}

@test "an error of the GPU in mid-run ends it with what failed where, nothing wrong is saved, and it is resumed bit-identical" {
    local works work step streams=0
    FAKE_GPU_WORKS=works gpt2 counted --ckpt-every 1 >counted.out 2>&1
    read -r works <works
    # The first of all, one in a step, and one of the last three: the copies of the last save.
    # Streams at once, late and at random.
    for work in 1 $((works / 5 + RANDOM % (works / 2))) $((works - RANDOM % 3)); do
        rm -rf broken
        echo "kernel or copy $work of $works, streams $streams"
        FAKE_GPU_STREAMS=$((streams++)) FAKE_GPU_FAIL=$work run gpt2 broken --ckpt-every 1
        echo "$output" | grep error:
        [ "$status" -eq 1 ] || {
            [ "$status" -eq 69 ] && grep 'error: step 12 could not be saved: ' <<<"$output"
        }
        grep -q 'cuda: couldn.t run cuda.*(.*): unspecified launch failure (cudaErrorLaunchFailure, trainer/cuda/' <<<"$output"
        for step in broken/step-*; do
            [ ! -e "$step" ] || muster-ckpt diff "counted/${step##*/}" "$step" >difference || {
                cat difference; return 1
            }
        done
        gpt2 broken >broken.out 2>&1
        same whole broken
    done
}

@test "a loss that is not finite ends the run with its tensor, or the step is left out" {
    local wild=(--learning-rate 1000 --min-learning-rate 1000 --weight-decay 1000 --clip 0
        --warmup-steps 0 --precision fp32)
    fails 1 "not finite: " gpt2 wild "${wild[@]}" --ckpt-every 1 --steps 100
    grep -Eq 'step [0-9]+: not finite: .*first in the' <<<"$output"
    gpt2 skipped "${wild[@]}" --steps 40 --on-nonfinite skip >skipped.out
    [ "$(grep -c '"skipped": true' skipped/metrics-0.jsonl)" -gt 0 ]
    muster-ckpt verify skipped
}

@test "the part of the card's peak that is used is in each line, where the peak is known" {
    [ "$(grep -c '^step .*  ms  *[0-9.]*  MFU  *0.0%' whole.out)" -eq $STEPS ]
    [ "$(grep -c '"mfu": [0-9.e-]*[1-9]' whole/metrics-0.jsonl)" -eq $STEPS ]
    FAKE_GPU_NAME=Unknown gpt2 unknown --steps 2 >unknown.out
    ! grep MFU unknown.out || false
    ! grep mfu unknown/metrics-0.jsonl || false
}

@test "one to four ranks give the same bits, on cards of their own or sharing one, with and without --zero 1 and graphs" {
    several_gpus
    FAKE_GPUS=2 gpt2_ranks 2 two --cuda-graph on >two.out || { cat two.out; return 1; }
    same whole two
    grep -q 'communicator nccl' two.out
    FAKE_GPU_STREAMS=1 gpt2_ranks 3 three --share-gpu --cuda-graph off >three.out || {
        cat three.out; return 1
    }
    same whole three
    FAKE_GPU_STREAMS=2 gpt2_ranks 4 four --share-gpu --cuda-graph on --zero 1 --check-replicas 3 \
        >four.out ||
        { cat four.out; return 1; }
    muster-ckpt diff "$(last whole)" "$(last four)"
    diff <(muster-curve whole) <(muster-curve four)
}

@test "two ranks on one card without --share-gpu are refused, and both are named" {
    several_gpus
    gpt2_ranks 2 refused || [ $? -eq 2 ]
    [ "${STATUSES[*]}" = "2 2" ]
    grep 'error: device: ranks 0 and 1 on .* have the same GPU, GPU-01' rank0.out
    [ ! -e refused/attempts.jsonl ]
    FAKE_GPUS=2 gpt2_ranks 3 refused || [ $? -eq 2 ]
    grep 'error: rank 2 on .*: device: couldn.t choose a GPU: this task has local rank 2 of 3 on .*, and sees 2 GPUs' rank0.out
}

@test "a rank that is killed, and one whose card fails, end all of them in time with their names; resumed bit-identical" {
    several_gpus
    start_world 3 lost "${GPT2[@]}" --steps $STEPS --share-gpu --ckpt-every 1
    wait_step lost 3
    kill -9 "${PIDS[2]}"
    end_world >lost.out || :
    [ "${STATUSES[*]}" = "69 69 137" ] || { cat lost.out; return 1; }
    grep -q "rank 2 on" rank0.out
    FAKE_GPU_FAIL=500@1 gpt2_ranks 2 lost --share-gpu --ckpt-every 1 >failed.out || :
    echo "${STATUSES[*]}" && grep error: failed.out
    # By the fault of the step, or by the communicator, whichever tells it first.
    [[ ${STATUSES[*]} =~ ^(1|69)\ (1|69)$ ]]
    grep 'rank 1 on .*error: step [0-9]*: cuda: couldn.t run .*unspecified launch failure' rank1.out
    grep 'error: .*rank 1' rank0.out
    gpt2_ranks 2 lost --share-gpu >resumed.out
    same whole lost
}
