#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-generate: a model goes on with a text.

load small_run
bats_require_minimum_version 1.5.0

# Of 25 bytes, so that a context of 32 begins at each of them.
line='the cat sat on the mats. '

# A model that knows one line by heart, and the same in the files of Hugging Face.
setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" || return
    for _ in {1..400}; do printf '%s' "$line"; done >book.txt
    muster-tokens -q -o train.bin book.txt
    muster-train --data train.bin --vocabulary 256 --layers 2 --width 48 --heads 3 --context 32 \
        --global-batch 8 --learning-rate 0.01 --warmup-steps 5 --steps 300 --ckpt-every 150 \
        --ckpt-dir run >train.out 2>&1 || { cat train.out; return 1; }
    muster-ckpt export run exported >/dev/null
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

@test "it goes on with the line that it knows, far beyond its context" {
    for _ in {1..20}; do printf '%s' "$line"; done >long
    muster-generate run -t 0 -p "the cat sat on" -n 200 | tee text
    [ "$(<text)" = "$(head -c $((14 + 200)) long)" ]
    [ "$(wc -c <text)" -eq $((14 + 200 + 1)) ]
    # A prompt that is longer than the context, from a file and from standard input.
    head -c 300 long >prompt
    [ "$(muster-generate run -t 0 --prompt-file prompt -n 60)" = "$(head -c 360 long)" ]
    [ "$(muster-generate run -t 0 --prompt-file - -n 60 <prompt)" = "$(head -c 360 long)" ]
    # A prompt of any bytes.
    [ "$(printf 'a\377b' | muster-generate run --prompt-file - -n 0 | od -An -tx1 | xargs)" = "61 ff 62 0a" ]
    # As numbers of tokens: "sat", which has one way on.
    [ "$(muster-generate run -t 0 --ids -p '115 97,116' -n 3)" = "115 97 116 32 111 110 " ]
}

@test "one seed writes one text, with any number of threads and wherever the model lies" {
    words=(-t 3 --top-p 1 -p the -n 150)
    muster-generate run "${words[@]}" >first 2>speed
    grep -q '^muster-generate: [0-9.]* tokens a second, each of which reads 0.3 MB of weights$' speed
    for more in "--threads 1" "--threads 3" "--seed 1"; do
        # shellcheck disable=SC2086
        muster-generate run -q "${words[@]}" $more | cmp - first
    done
    for model in run/step-00000300 run/step-00000300/ exported; do
        muster-generate "$model" -q "${words[@]}" | cmp - first
    done
    ! muster-generate run "${words[@]}" --seed 2 | cmp -s - first || false
    ! muster-generate run/step-00000150 "${words[@]}" | cmp -s - first || false
    # The first of several is the one.
    muster-generate run "${words[@]}" --count 2 >two
    head -c "$(wc -c <first)" two | cmp - first
    [ "$(wc -c <two)" -eq $((2 * $(wc -c <first))) ]
    ! tail -c "$(wc -c <first)" two | cmp -s - first || false
    [ "$(muster-generate run -q --dtype bf16 -t 0 -p 'the cat' -n 30)" = "${line}the cat sat " ]
}

@test "the text comes as it is written" {
    text=$(timeout "$HANG" bash -c \
        "set +o pipefail; muster-generate run -q -t 0 -p 'the cat' -n 2000000000 | head -c 100")
    [ ${#text} -eq 100 ]
}

@test "a model over BPE tokens writes text" {
    command -v pcre2-config >/dev/null || skip "no PCRE2: apt-get install libpcre2-dev"
    mkdir -p bpe
    python3 "$MUSTER_TOP/tests/lib/small_tokenizer.py" book.txt 12 >bpe/tokenizer.json
    muster-tokens -q -o bpe/train.bin -t bpe book.txt
    muster-train --data bpe/train.bin --vocabulary 320 --layers 2 --width 48 --heads 3 \
        --context 32 --global-batch 8 --learning-rate 0.01 --warmup-steps 5 --steps 300 \
        --ckpt-dir bpe/run >/dev/null 2>&1
    text=$(muster-generate bpe/run --tokenizer bpe -t 0 -p "the cat" -n 40)
    echo "$text"
    [[ $text = "${line}the cat sat on the mats."* ]]
    # Beside the model it is found.
    muster-ckpt export bpe/run bpe/exported >/dev/null
    cp bpe/tokenizer.json bpe/exported
    [ "$(muster-generate bpe/exported -t 0 -p "the cat" -n 40)" = "$text" ]
    run -2 muster-generate run --tokenizer bpe
    [[ $output = *"bpe has 269 tokens, and the model only 256"* ]]
}

@test "what it can't use" {
    run -2 muster-generate
    [[ $output = *"give a checkpoint, or a model of Hugging Face's or llm.c's"* ]]
    run -2 muster-generate nowhere
    [[ $output = *"couldn't find nowhere"* ]]
    mkdir -p empty
    run -65 muster-generate empty
    [[ $output = *"empty"*config.json* ]]
    for words in "--temperature=hot is no number" "--top-p=2 is no number from 0 to 1" \
        "--tokens=-1 is no whole number" "--seed=x is no whole number" "--dtype=fp8: give fp32"; do
        run -2 muster-generate run "${words%%[ :]*}"
        [[ $output = *"$words"* ]]
    done
    run -2 muster-generate run --ids -p "1 256"
    [[ $output = *"\"256\" is no token: give numbers from 0 to 255"* ]]
    run -2 muster-generate run -p a --prompt-file b
    [[ $output = *"give one of --prompt and --prompt-file"* ]]
    run -1 bash -c 'muster-generate run -q -n 5 >/dev/full'
    [[ $output = *"No space left"* ]]
    # A model whose tokens are no bytes, and one that is no GPT-2.
    train small --steps 2 >/dev/null 2>&1
    run -2 muster-generate small
    [[ $output = *"the model's 64 tokens are no bytes: give the --tokenizer that made them"* ]]
    run -0 muster-generate small --ids -p 3 -n 4 -q
    [ "$(wc -w <<<"$output")" -eq 5 ]
    # A byte of the weights has changed.
    cp -r run/step-00000300 damaged
    chmod u+w damaged/model*.safetensors
    printf '\377' | dd of="$(echo damaged/model-*.safetensors)" bs=1 seek=20000 conv=notrunc \
        status=none
    run -65 muster-generate damaged
    echo "$output"
    [[ $output = *damaged* ]]
}
