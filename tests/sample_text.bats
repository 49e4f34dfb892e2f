#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-train --sample-every: lines of text that the model writes while it is trained.

load small_run
bats_require_minimum_version 1.5.0

setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" || return
    bytes plain >plain.out 2>&1
    bytes whole --keep-last 0 --sample-every 10 >whole.out 2>&1 || { cat whole.out; return 1; }
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# The small model with bytes as its tokens, most of which are control characters.
bytes() { train "$@" --vocabulary 256; }
many_bytes() { start_world "$@" --vocabulary 256; }

@test "a line every ten steps, in the log and in the metrics" {
    samples whole | tee lines
    [ "$(cut -d' ' -f1 lines | xargs)" = "$(seq 10 10 100 | xargs)" ]
    sed -n 's/^step *\([0-9]*\)\/100  sample: /\1 /p' whole.out | diff - lines
    # At the end it knows the line that the data repeats, and at step 10 it did not.
    grep -qF '100 \x11\x18\x1f&-4;\x02\t' lines
    ! grep -qF '10 \x11\x18\x1f&-4;\x02\t' lines || false
    ! grep -q 'sample:' plain.out || false
    [ -z "$(samples plain)" ]
}

@test "each line is what muster-generate writes with the checkpoint of its step" {
    for step in 20 40 60 80 100; do
        folder=whole/step-$(printf %08d $step)
        [ "$(samples whole | sed -n "s/^$step //p")" = \
            "$(muster-generate -q "$folder" -n 64 | sample_line)" ]
    done
    bytes asked --steps 20 --sample-every 20 --sample-prompt '!"$ \a' --sample-tokens 9 \
        --validation-data valid.u16 --validate-every 20 >/dev/null 2>&1
    [ "$(samples asked)" = "20 $(muster-generate -q asked -p '!"$ \a' -n 9 | sample_line)" ]
}

@test "it changes no bit of the training, and nothing else of what is written" {
    diff <(hashes plain/step-00000100) <(hashes whole/step-00000100)
    diff <(muster-curve plain) <(muster-curve whole)
    diff <(muster-curve --export csv plain | head -n 1) <(muster-curve --export csv whole |
        head -n 1)
}

@test "a run that is stopped and killed, on any number of ranks, writes the same lines" {
    slowly many_bytes 4 cut --sample-every 10
    wait_step cut 32
    kill "${PIDS[2]}"
    end_world || [ $? -eq 75 ]
    [ "${STATUSES[*]}" = "75 75 75 75" ]
    slowly many_bytes 3 cut --sample-every 10
    wait_step cut 62
    kill -9 "${PIDS[@]}"
    end_world || :
    many_bytes 2 cut --sample-every 10 --zero 1
    end_world
    [ "$(ls cut/metrics-*.jsonl | wc -l)" -eq 3 ]
    diff <(samples whole) <(samples cut)
    diff <(muster-curve whole) <(muster-curve cut)
    muster-ckpt diff whole/step-00000100 cut/step-00000100
}

@test "with --zero 1 the line is that of all ranks' weights" {
    many_bytes 3 zero --zero 1 --sample-every 5 --steps 40
    end_world
    many_bytes 1 one --sample-every 5 --steps 40
    end_world
    [ "$(samples one | wc -l)" -eq 8 ]
    diff <(samples one) <(samples zero)
}

@test "a resume writes the line that a stop left out" {
    # As one does that comes between a step and its line.
    bytes late --steps 20 --ckpt-every 20 >/dev/null 2>&1
    [ -z "$(samples late)" ]
    bytes late --steps 30 --change steps --sample-every 20 >late.out 2>&1
    [ "$(samples late)" = "20 $(muster-generate -q late/step-00000020 -n 64 | sample_line)" ]
}

@test "a model over BPE tokens writes text" {
    command -v pcre2-config >/dev/null || skip "no PCRE2: apt-get install libpcre2-dev"
    for _ in {1..400}; do printf 'the cat sat on the mats. '; done >book.txt
    mkdir -p bpe/run
    python3 "$MUSTER_TOP/tests/lib/small_tokenizer.py" book.txt 12 >bpe/tokenizer.json
    muster-tokens -q -o bpe/train.bin -t bpe book.txt
    small=(--data bpe/train.bin --vocabulary 320 --layers 2 --width 48 --heads 3 --context 32
        --global-batch 8 --learning-rate 0.01 --warmup-steps 5 --steps 100 --ckpt-dir bpe/run)
    muster-train "${small[@]}" --sample-every 100 --tokenizer bpe --sample-prompt "the cat" \
        --sample-tokens 30 >/dev/null 2>&1
    text=$(samples bpe/run)
    echo "$text"
    asked=(--tokenizer bpe -p "the cat" -n 30)
    [ "$text" = "100 $(muster-generate -q bpe/run "${asked[@]}" | sample_line)" ]
    [[ $text = "100 the cat "*"mat"* ]]
    # In the checkpoint directory it is found.
    cp bpe/tokenizer.json bpe/run
    muster-train "${small[@]}" --change steps --steps 101 --sample-every 100 \
        --sample-prompt "the cat" --sample-tokens 30 >/dev/null 2>&1
    [ "$(samples bpe/run)" = "$text" ]
}

@test "weights that write no text are a warning, and the training goes on" {
    # So large that their products are no numbers.
    muster-ckpt export whole broken >/dev/null
    python3 - <<'END'
data = bytearray(open("broken/model.safetensors", "rb").read())
size = int.from_bytes(data[:8], "little")
data[8 + size:] = b"\xe6\xb1\x61\x7f" * ((len(data) - 8 - size) // 4)
open("broken/model.safetensors", "wb").write(data)
END
    muster-ckpt import broken numberless
    bytes numberless --steps 2 --sample-every 1 --on-nonfinite skip >numberless.out 2>&1 ||
        { cat numberless.out; return 1; }
    [ "$(grep -c 'step [12]: no sample text: the model.s logits are not numbers; the training' \
        numberless.out)" -eq 2 ]
    [ -z "$(samples numberless)" ]
}

@test "what it can't write is one line before the first step, on all ranks" {
    fails 2 "the model's 64 tokens are no bytes: give the --tokenizer that made them, or leave \
--sample-every out" train small --sample-every 5
    fails 2 "--sample-prompt is for the text that --sample-every writes: give that too" \
        train small --sample-prompt a
    fails 65 "couldn't open nowhere.json: No such file or directory" \
        bytes small --sample-every 5 --tokenizer nowhere.json
    start_world 2 small --sample-every 5
    end_world || :
    [ "${STATUSES[*]}" = "2 2" ]
    [ "$(cat rank*.out | grep -c "tokens are no bytes")" -eq 1 ]
    ! cat small/metrics-*.jsonl | grep . || false
}
