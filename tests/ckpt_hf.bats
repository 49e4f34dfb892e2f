#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Checkpoints and Hugging Face: its from_pretrained opens ours and gives our logits, we import its
# models (and llm.c's) and give theirs, and our safetensors parser accepts and refuses what the
# reference does.

load lib/places
load lib/has_torch

# The newest that works with Debian 12's torch 1.13.
transformers=4.49.0

# venv: Debian's torch, and transformers and safetensors of PyPI, kept in the build folder. Says why
# not in `why`.
venv() {
    venv=$MUSTER_BUILD/venv-hf
    [ ! -e "$venv/has-$transformers" ] || return 0
    has_torch || { why="no PyTorch: apt-get install python3-torch" && return 1; }
    rm -rf "$venv"
    /usr/bin/python3 -m venv --system-site-packages "$venv" >venv.log 2>&1 ||
        { why="no virtual environment: apt-get install python3-venv" && return 1; }
    timeout 240 "$venv/bin/pip" install -q --retries 1 "transformers==$transformers" safetensors \
        >venv.log 2>&1 ||
        { why="couldn't get transformers $transformers from PyPI: $(tail -n 1 venv.log)" &&
        return 1; }
    touch "$venv/has-$transformers"
}

setup_file() {
    export OMP_NUM_THREADS=2 HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error why='' venv
    cd "$BATS_FILE_TMPDIR" || return
    venv || return 0
    hf make . || return
    cat "$MUSTER_TOP"/doc/*.md >book.txt
    muster-tokens -q -o train.bin book.txt
    muster-train --data train.bin --vocabulary 256 --layers 2 --width 48 --heads 3 --context 24 \
        --global-batch 4 \
        --microbatch 2 --learning-rate 0.01 --steps 8 --ckpt-every 8 --ckpt-dir run 2>train.log ||
        { cat train.log; return 1; }
}

setup() {
    [ -z "$why" ] || skip "$why"
    cd "$BATS_FILE_TMPDIR" || return
}

hf() { "$venv/bin/python" "$MUSTER_TOP/tests/ckpt_hf.py" "$@" 2>&1; }

logits() { "$MUSTER_BUILD/tests/tools/model_logits" "$@"; }

# same A B: what it prints is shown by bats too.
same() { hf compare "$@" | tee said && grep '^#' said >&3; }

@test "from_pretrained opens a checkpoint of ours, and what is exported of it, and gives our logits" {
    muster-ckpt export run fp32.out --shard-size 40K
    muster-ckpt export run whole.out
    muster-ckpt export run bf16.out --dtype bf16
    cp -r run/step-00000008 ours
    head -c $((4 * 24 * 5)) <(od -An -v -tu1 -w1 book.txt | perl -ne 'print pack("l<", $_)') \
        >ours.tokens
    hf logits ours.tokens ours fp32.out bf16.out
    logits run/step-00000008 ours.tokens ours.logits
    same ours.logits ours/logits.hf
    same ours.logits fp32.out/logits.hf
    # Half the bits give other logits: ours of the same weights.
    muster-ckpt import bf16.out back.run
    logits back.run/step-00000000 ours.tokens back.logits
    same back.logits bf16.out/logits.hf
    [ "$(cksum <back.logits)" != "$(cksum <ours.logits)" ]
    hf bf16 whole.out bf16.out
}

@test "muster-generate goes on as from_pretrained's model does" {
    prompts=("5 99 0 130" 1 "77 77 78" "130 2 64 9 12 33" "100 101" "9 8 7 6 5 4 3")
    for name in fp32 shards bf16 old llmc-fp32.bin; do
        for prompt in "${prompts[@]}"; do
            muster-generate "$name" -q --ids -t 0 -n 8 -p "$prompt" | xargs
        done >ours.ids
        hf greedy "${name/llmc-fp32.bin/fp32}" 8 "${prompts[@]}" | tail -n ${#prompts[@]} >their.ids
        diff their.ids ours.ids
    done
    [ "$(cut -d' ' -f7- ours.ids | sort -u | wc -l)" -gt 2 ]
}

@test "a model of Hugging Face's gives its logits here: one file, shards, bare names, fp32, bf16, fp16" {
    for name in fp32 shards bare old bf16 fp16; do
        muster-ckpt import "$name" "$name.run"
        muster-ckpt verify --deep "$name.run"
        logits "$name.run/step-00000000" tokens "$name.logits"
        same "$name.logits" "$name/logits.hf"
    done
    muster-ckpt diff fp32.run shards.run
    muster-ckpt diff fp32.run bare.run
    muster-ckpt diff fp32.run old.run
    run muster-ckpt import untied untied.run
    [ "$status" -eq 65 ]
    [[ $output = *"lm_head.weight is not the token embedding"* ]]
}

@test "a model of llm.c gives its logits here, fp32 and bf16" {
    muster-ckpt import llmc-fp32.bin llmc-fp32.run
    muster-ckpt import llmc-bf16.bin llmc-bf16.run
    muster-ckpt import fp32 hf-fp32.run
    muster-ckpt import bf16 hf-bf16.run
    muster-ckpt diff llmc-fp32.run hf-fp32.run
    muster-ckpt diff llmc-bf16.run hf-bf16.run
    logits llmc-fp32.run/step-00000000 tokens llmc.logits
    same llmc.logits fp32/logits.hf
    truncate -s -4 llmc-fp32.bin
    run muster-ckpt import llmc-fp32.bin llmc-cut.run
    [ "$status" -eq 65 ]
    [[ $output = *"bytes, and a model of its dimensions"* ]]
}

@test "safetensors' own load_file opens every shard of ours" {
    hf files run/step-00000008 run/step-00000008/*.safetensors | tee said
    muster-ckpt export run more.out --shard-size 30K
    [ "$(ls more.out/model-*.safetensors | wc -l)" -gt 2 ]
    hf files more.out more.out/*.safetensors
}

@test "our parser accepts and refuses what the reference does" {
    hf parser "$MUSTER_BUILD/tests/tools/safetensors_check" | tee said
    grep '^#' said >&3
}
