#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-eval: the loss of a model on token files.

load small_run
bats_require_minimum_version 1.5.0

# A run whose validations muster-eval must meet; valid.u16 has 31 sequences of 32 and 8 tokens more.
setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" || return
    train run --steps 40 --microbatch 2 --validation-data valid.u16 --validate-every 20 \
        >train.out 2>&1 || { cat train.out; return 1; }
    muster-ckpt export run exported >/dev/null
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# member NAME: of the JSON object on standard input.
member() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# bits ARGUMENT…: the bits of the loss of muster-eval.
bits() { muster-eval --json --microbatch 2 "$@" | member loss_bits; }

# validation DIR STEP: those of the run's validation.
validation() {
    sed -n "s/.*\"step\": $2, .*\"validation_loss_bits\": \"\([0-9a-f]*\)\".*/\1/p" \
        "$1"/metrics-*.jsonl | grep .
}

@test "its loss is the validation loss of the run, bit for bit" {
    [ "$(bits run/step-00000020 valid.u16)" = "$(validation run 20)" ]
    [ "$(validation run 20)" != "$(validation run 40)" ]
    for more in "" "--threads 1" "--threads 3" "--sequences 31" "--sequences 99" "--context 32"; do
        # shellcheck disable=SC2086
        [ "$(bits run valid.u16 $more)" = "$(validation run 40)" ]
    done
    [ "$(bits exported valid.u16)" = "$(validation run 40)" ]
    # The first sequences, of several files, and with the default microbatch.
    head -c 460 valid.u16 >valid-1.u16
    tail -c +461 valid.u16 >valid-2.u16
    train part --steps 20 --validation-data "valid-?.u16" --validate-every 20 \
        --validate-batches 2 --microbatch 4 >/dev/null 2>&1
    for data in valid-1.u16,valid-2.u16 "valid-?.u16" "valid-1.u16 valid-2.u16"; do
        # shellcheck disable=SC2086
        [ "$(muster-eval --json part $data --sequences 16 | member loss_bits)" = \
            "$(validation part 20)" ]
    done
}

@test "its loss is that of the formulas in double precision" {
    /usr/bin/python3 -c 'import numpy' 2>/dev/null || skip "no NumPy: apt-get install python3-numpy"
    for context in 32 31 7 1; do
        theirs=$(/usr/bin/python3 "$MUSTER_TOP/tests/eval_reference.py" exported valid.u16 $context)
        ours=$(muster-eval exported valid.u16 --context $context --json | member loss)
        echo "$context: $ours, $theirs"
        python3 -c 'import sys; a, b = map(float, sys.argv[1:]); assert 0 < abs(a - b) < 1e-6 * b' \
            "$ours" "$theirs"
    done
}

@test "it says what was counted, and what was left out" {
    run -0 muster-eval run valid.u16 --threads 2
    echo "$output"
    [[ ${lines[0]} =~ ^loss\ +[0-9]\.[0-9]{6}\ nats\ per\ token$ ]]
    loss=$(awk '{ print $2 }' <<<"${lines[0]}")
    python3 -c 'import math, sys; a, b = map(float, sys.argv[1:]); assert abs(math.exp(a) / b - 1) < 1e-5' \
        "$loss" "$(awk '/^perplexity/ { print $2 }' <<<"$output")"
    [ "${lines[2]}" = "tokens         992, 31 of 31 sequences of 32" ]
    [ "${lines[3]}" = "left out       8 tokens at the end of the file, which fill no sequence" ]
    [[ ${lines[4]} =~ ^speed\ +[0-9]+\ tokens/s\ with\ 2\ threads$ ]]
    [ ${#lines[@]} -eq 5 ]
    run -0 muster-eval run valid.u16 tokens.u16 -n 3 --json
    [ "$(member tokens <<<"$output")" -eq 96 ]
    # 1,001 and 20,001 tokens: the first of each file is never predicted.
    [ "$(member left_out <<<"$output")" -eq $((1000 % 32 + 20000 % 32)) ]
    [[ $output != *bits_per_byte* ]]
    # Each token of a file that sequences fill exactly.
    head -c $((2 * (5 * 32 + 1))) valid.u16 >full.u16
    run -0 muster-eval run full.u16
    [[ $output = *"tokens         160, 5 of 5 sequences of 32"* && $output != *"left out"* ]]
}

@test "a model of bytes has bits per byte, and a terminal shows a bar" {
    cat "$MUSTER_TOP"/doc/*.md >book.txt
    muster-tokens -q -o book.bin book.txt
    muster-train --data book.bin --vocabulary 256 --layers 1 --width 16 --heads 1 --context 16 \
        --global-batch 4 --steps 2 --ckpt-dir bytes >/dev/null 2>&1
    muster-eval bytes book.bin -n 500 --json >result
    python3 - <<'END'
import json, math
r = json.load(open("result"))
assert abs(r["bits_per_byte"] * math.log(2) / r["loss"] - 1) < 1e-6 and r["loss"] < 6
END
    [[ $(muster-eval bytes book.bin -n 500) = *"bits per byte  "[78].* ]]
    command -v script >/dev/null || skip "no script: apt-get install bsdutils"
    script -qec "muster-eval bytes book.bin" /dev/null >typescript
    grep -q "eval \[#*\.*\] .* tokens, .* tokens/s, " typescript
}

@test "what it can't use" {
    fails 2 "give a model and the token files" muster-eval run
    fails 2 "--context 33 is more than the model's 32 positions: give 32 or less" \
        muster-eval run valid.u16 --context 33
    for words in "--sequences=0 is no whole number from 1" "--microbatch=x is no whole number" \
        "--threads=-1 is no whole number"; do
        fails 2 "$words" muster-eval run valid.u16 "${words%% *}"
    done
    fails 2 "it is auto, avx512, avx2 or default" muster-eval run valid.u16 --cpu-isa mmx
    fails 2 "couldn't find nowhere: No such file or directory; give a checkpoint, a Hugging Face" \
        muster-eval nowhere valid.u16
    fails 65 "nothing.u16: No such file" muster-eval run nothing.u16
    : >empty.u16
    fails 65 "couldn't read empty.u16: the file is empty" muster-eval run empty.u16
    head -c 64 valid.u16 >short.u16
    fails 65 "its 32 tokens are too few for one sample of 32 and the token after it: give a longer \
file, or a smaller --context" muster-eval run short.u16
    muster-eval run short.u16 --context 31
    # One line, though more sequences follow the one that it can't use.
    perl -e 'print pack("v", $_ == 40 ? 64 : 3) for 0 .. 200' >large.u16
    fails 65 "muster-eval: data: token 64 of sample 1 (place 8) in large.u16 is out of the \
vocabulary of 64: give the data whose tokens the model has" muster-eval run large.u16
    # shellcheck disable=SC2154 # bats' run sets lines
    [ ${#lines[@]} -eq 1 ]
    muster-eval run large.u16 -n 1
    # A byte of the weights has changed; and weights that are not finite.
    cp -r run/step-00000040 damaged
    chmod u+w damaged/model*.safetensors
    printf '\377' | dd of="$(echo damaged/model-*.safetensors)" bs=1 seek=20000 conv=notrunc \
        status=none
    fails 65 damaged muster-eval damaged valid.u16
    cp -r exported infinite
    python3 - <<'END'
data = bytearray(open("infinite/model.safetensors", "rb").read())
data[-4:] = b"\0\0\x80\x7f"
open("infinite/model.safetensors", "wb").write(data)
END
    fails 65 "weights of the model are not finite" muster-eval infinite valid.u16
    run -1 bash -c 'muster-eval run valid.u16 >/dev/full'
    [[ $output = *"No space left"* ]]
}
