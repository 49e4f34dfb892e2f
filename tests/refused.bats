#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a program can't use it names, with what would do in its place: each kind of fault in a file
# that people bring, in a command line, and in a folder that ranks share. Nothing is made of it.

load small_run

setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" || return
    train run --steps 2 --ckpt-every 1 >run.out 2>&1
    muster-ckpt export run exported >/dev/null
    head -c 3000 "$MUSTER_TOP/README.md" >text
    python3 "$MUSTER_TOP/tests/lib/small_tokenizer.py" text 4 >tokenizer.json
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# changed FILE STATEMENTS: prints a file of JSON in which Python's statements have changed `it`.
changed() {
    python3 -c 'import json, sys
it = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(it, sys.stdout)' "$@"
}

@test "a tokenizer of another kind" {
    local parts='
def parts(*before):
    it["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*before, {"type": "ByteLevel"}]}
def split(**change):
    return {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", **change}
'
    while IFS='|' read -r change words; do
        changed tokenizer.json "$parts$change" >other.json
        fails 65 "tokenizer: couldn't use other.json: $words" \
            muster-tokens --tokenizer other.json -o none.bin text
    done <<'END_OF_LIST'
it["truncation"] = {"max_length": 5}|it has truncation or padding
it["model"]["type"] = "Unigram"|its model is "Unigram", not BPE
it["model"]["byte_fallback"] = True|its model has byte_fallback
del it["model"]["merges"]|its model has no vocab or no merges
it["model"]["vocab"]["a"] = -1|the token "a" has no id
it["model"]["vocab"]["日"] = 999|the token "日" is not made of bytes
it["model"]["vocab"].pop("a"); it["model"]["merges"] = []|its vocabulary is not byte-level: a single
it["model"]["merges"][1] = "a zzz"|merge 1 is not one of two tokens
it["normalizer"] = {"type": "Lowercase"}|its normalizer is "Lowercase": NFC or none can be used
it["pre_tokenizer"] = None|it has no pre-tokenizer
it["pre_tokenizer"]["type"] = "Whitespace"|its pre-tokenizer is "Whitespace": ByteLevel, or
it["pre_tokenizer"]["add_prefix_space"] = True|its pre-tokenizer has add_prefix_space
it["pre_tokenizer"]["use_regex"] = False|its pre-tokenizer does not cut the text
parts({"type": "Digits"})|its pre-tokenizer has a part "Digits" before the last one
parts(split(pattern={"String": "a"}))|its pre-tokenizer cuts by another pattern than a Regex
parts(split(behavior="Removed"))|its pre-tokenizer has the behavior "Removed": Isolated can be used
parts(split(invert=True))|its pre-tokenizer has the behavior "Isolated", inverted: Isolated can
parts(split())|its pre-tokenizer cuts the text twice
parts(split(), split())|its pre-tokenizer cuts the text twice
it["added_tokens"][0]["id"] = None|an added token has no content or no id
it["added_tokens"][0]["lstrip"] = True|the added token "<|endoftext|>" has lstrip
it["normalizer"] = {"type": "NFC"}; it["added_tokens"][0]["content"] = "é"|the added token "é" is
END_OF_LIST
    [ ! -e none.bin ]
}

@test "a table that is no .npy file, or not such a one" {
    # npy FILE HEADER SIZE
    npy() {
        python3 -c 'import struct, sys
header = sys.argv[2].encode()
open(sys.argv[1], "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header +
                              bytes(int(sys.argv[3])))' "$@"
    }
    table() {
        fails 65 "$1" muster-train --model mlp --data x.npy --labels y.npy --ckpt-dir none
    }
    local x="{'descr': '<f4', 'fortran_order': False, 'shape': (8, 2), }" word
    local y="{'descr': '|u1', 'fortran_order': False, 'shape': (8,), }"
    npy y.npy "$y" 8
    while IFS='#' read -r from to words; do
        npy x.npy "${x/"$from"/"$to"}" 64
        table "data: couldn't read x.npy: $words"
    done <<'END_OF_LIST'
False#Maybe#no valid .npy header: fortran_order is neither True nor False
False#True#it is in Fortran order; save it in C order
(8, 2)#[8, 2]#no valid .npy header: the shape is not a tuple
(8, 2)#(8, 2, 1, 1, 1, 1, 1, 1, 1)#no valid .npy header: the shape has too many dimensions
(8, 2)#(8; 2)#no valid .npy header: the shape has no end
(8, 2)#(-8, 2)#no valid .npy header: the shape holds something else than lengths
(8, 2)#(99999999999999999999, 2)#no valid .npy header: a length of the shape is too large
(8, 2)#(4294967296, 4294967296)#no valid .npy header: its shape is larger than any file
(8, 2)#(9, 2)#truncated: its shape takes
'descr':#'descr'#no valid .npy header: a key has no value
'descr'#'device'#no valid .npy header: it holds a key that is not known
'shape': (8, 2), }#}#no valid .npy header: descr, fortran_order or shape is missing
, }##no valid .npy header: the dictionary has no end
{##no valid .npy header: no dictionary
'<f4'#[('a', '<f4')]#its elements are records
'<f4'#'>f4'#its elements are '>f4'; little-endian float32, uint8, int32 or int64 is needed
END_OF_LIST
    npy x.npy "${x/<f4/|u1}" 16
    table "data: couldn't use x.npy as features: uint8 in 2 dimensions"
    npy x.npy "${x/(8, 2)/(0, 2)}" 0
    npy y.npy "${y/8/0}" 0
    table "data: couldn't use x.npy: 0 rows of 2 columns"
    npy x.npy "$x" 64
    npy y.npy "$x" 64
    table "data: couldn't use y.npy as classes: float32 in 2 dimensions"
    npy y.npy "${y/8/7}" 7
    table "data: x.npy has 8 rows, but y.npy has 7"
    head -c 5 x.npy >y.npy
    table "data: couldn't read y.npy: wrong magic, not an .npy file"
    { printf '\x93NUMPY\3\0' && head -c 200 x.npy; } >y.npy
    table "data: couldn't read y.npy: version 3.0 of .npy; 1.0 and 2.0 are known"
    [ -z "$(ls -d none/step-* 2>/dev/null)" ]
}

@test "a model of Hugging Face's that is damaged, or no GPT-2" {
    import() { fails 65 "$1" muster-ckpt import model imported; }
    model() { rm -rf model && cp -r exported model; }
    while IFS='|' read -r change words; do
        model
        changed exported/config.json "$change" >model/config.json
        import "config.json: $words"
    done <<'END_OF_LIST'
it["model_type"] = "llama"|model_type is "llama", and muster-train only has "gpt2"
del it["model_type"]|it does not name a model_type
it["n_layer"] = "two"|n_layer is no integer
it["n_layer"] = 0|layers is 0, and must lie between 1 and 1000
it["n_head"] = 3|the width 32 is no multiple of the 3 heads
it["n_inner"] = 100|n_inner is 100, and muster-train only has 4 n_embd, 128
it["layer_norm_epsilon"] = 1e-6|layer_norm_epsilon is 1e-06, and muster-train only has 1e-05
END_OF_LIST
    # header STATEMENTS: the model's file with `it`, its header, changed so.
    header() {
        model
        python3 -c 'import json, struct, sys
data = open("exported/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
it = json.loads(data[8:8 + size])
name = "transformer.ln_f.bias"
bias, nothing = it[name], {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
exec(sys.argv[1])
text = json.dumps(it).encode()
open("model/model.safetensors", "wb").write(
    struct.pack("<Q", len(text)) + text + data[8 + size:])' "$1"
    }
    while IFS='|' read -r change words; do
        header "$change"
        import "${words/TENSOR/tensor transformer.ln_f.bias}"
    done <<'END_OF_LIST'
bias["dtype"] = "F31"|safetensors: TENSOR has no known dtype
bias["shape"] = [32.5]|safetensors: TENSOR has no valid shape
bias["data_offsets"] = [8, 4]|safetensors: TENSOR has no valid data_offsets
bias["shape"] = [31]|safetensors: TENSOR needs 124 bytes and has 128
bias["order"] = "F"|safetensors: TENSOR has more members than dtype, shape and data_offsets
it["__metadata__"] = {"a": 1}|safetensors: __metadata__ entry a is not a string
it["__metadata__"] = []|safetensors: __metadata__ is not an object
bias["dtype"] = "I32"|model: TENSOR is of type I32; F32, F16 and BF16 can be read
bias["shape"] = [16, 2]|model: TENSOR does not have the shape that config.json gives
it["score.weight"] = it.pop(name)|model: model has no TENSOR, which a GPT-2
it["score.weight"] = nothing|model: model/model.safetensors has a tensor score.weight, which no
END_OF_LIST
    model && printf 'short' >model/model.safetensors
    import "model: model/model.safetensors is no safetensors file"
    model && printf '\377\377\377\377\377\377\377\377{}' >model/model.safetensors
    import "is too large"
    model && rm model/model.safetensors
    import "model: model has neither model.safetensors nor model.safetensors.index.json"
    echo '{}' >model/model.safetensors.index.json
    import "model: model/model.safetensors.index.json has no weight_map"
    echo '{"weight_map": {"a": 1}}' >model/model.safetensors.index.json
    import "model: model.safetensors.index.json names no file for tensor a"
    echo '{"weight_map": {"a": "../a"}}' >model/model.safetensors.index.json
    import 'model: model.safetensors.index.json names a file "../a", which is no plain name'
    fails 2 "model: /dev/null is neither a directory nor a file" \
        muster-ckpt import /dev/null imported
    [ ! -e imported ]
}

@test "a model of llm.c's that is damaged, or of another version" {
    # llmc BYTES NUMBER…: its header's first numbers, and so many bytes in all.
    llmc() {
        perl -e '$n = shift; $head = pack("l<*", @ARGV); print $head . "\0" x ($n - length $head)' \
            "$@" >model.bin
    }
    import() { fails 65 "model: model.bin $1" muster-ckpt import model.bin imported; }
    llmc 1024 5 3
    import "is no model file of llm.c: it begins with 5"
    llmc 100 20240326 3
    import "has 100 bytes, too few for a model file of llm.c"
    llmc 1024 20240326 2
    import "has version 2; llm.c's versions 3 (fp32) and 5 (bf16) can be read"
    llmc 1024 20240326 3 16 64 1 2 8 63
    import "has a padded vocabulary of 63 for 64 tokens"
    llmc 1024 20240326 3 16 64 1 2 8 64
    import "has 1024 bytes, and a model of its dimensions "
    llmc 1024 20240326 3 16 64 1 3 8 64
    fails 65 "model.bin: the width 8 is no multiple of the 3 heads" \
        muster-ckpt import model.bin imported
    [ ! -e imported ]
}

@test "command lines that can't be meant" {
    unset SLURM_JOB_ID SLURM_RESTART_COUNT
    while IFS='|' read -r words command; do
        # shellcheck disable=SC2086
        fails 2 "$words" $command
    done <<'END_OF_LIST'
give JOB and ATTEMPT, or --status N alone|muster-requeue
give JOB and ATTEMPT, or --status N alone|muster-requeue --status 1 7 0
--leaving and --held need --node|muster-requeue --leaving 7 0
--final needs --step|muster-requeue --final over 7 0
--deserted needs --running|muster-requeue --deserted 7 0
--running, --runs and --times go with JOB and ATTEMPT alone|muster-requeue --running --step 1 7 0
--bound and --detach don't go together|muster-ckptd --socket s --bound --detach
give one of --socket, --client-fd, --finish, --settle and --status|muster-ckptd --detach
--bound, --job, --detach and --alive go with --socket|muster-ckptd --finish run --detach
no arguments are taken|muster-rdzv now
give the checkpoint directory of a run|muster-top
give one checkpoint directory|muster-top run run
give one model: run is too many|muster-generate run run
--validation and --validation-output go together|muster-tokens -o none.bin --validation 0.1 text
--dtype=fp16: give fp32 or bf16|muster-ckpt export run none --dtype fp16
--shard-size=4X is no size|muster-ckpt export run none --shard-size 4X
export: .. is no name for a new directory|muster-ckpt export run ..
--labels is missing: --model mlp needs the classes|muster-train --model mlp --data tokens.u16
END_OF_LIST
    fails 2 "--validation-labels is missing: give the classes of --validation-data" \
        muster-train --model mlp --data a.npy --labels b.npy --validation-data c.npy
    # A script's last line ends with the script's status whatever there is to say.
    fails 75 "SLURM_JOB_ID is not set: --status is for batch scripts" muster-requeue --status 75
    SLURM_JOB_ID=x fails 75 "SLURM_JOB_ID=x is not a job" muster-requeue --status 75
    SLURM_JOB_ID=1 SLURM_RESTART_COUNT=x fails 75 "SLURM_RESTART_COUNT=x is no count of restarts" \
        muster-requeue --status 75
    fails 2 "--min-learning-rate 0.1 is above --learning-rate 0.01: lower it" \
        train none --min-learning-rate 0.1
    fails 2 "--keep-best 2 has no validation loss to go by" train none --keep-best 2
    fails 65 "fewer than one --global-batch of 4096" train none --global-batch 4096
    [ ! -e none.bin ] && [ -z "$(ls -d none/step-* 2>/dev/null)" ]
}

@test "ranks that see other data, or compute otherwise" {
    # pair NAME [OPTION…]: two ranks, each in a folder of its own; the options are rank 1's.
    pair() {
        local rank options=() pids=()
        for rank in 0 1; do
            (cd "node$rank" && RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 \
                MUSTER_RDZV_DIR=../meet MUSTER_RDZV_ID=$1 REPLACE=exec train "../$1" --steps 2 \
                --data 'part-*.u16' "${options[@]}") >"$1.$rank" 2>&1 3>&- &
            pids+=($!)
            options=("${@:2}")
        done
        statuses=()
        for rank in 0 1; do wait "${pids[rank]}" && statuses+=(0) || statuses+=($?); done
        cat "$1".?
    }
    # says NAME STATUS WORDS: rank 0 does, both end with that, and nothing is saved.
    says() {
        grep -F "$3" "$1.0"
        [ "${statuses[*]}" = "$2 $2" ]
        [ "$2" -eq 0 ] || [ -z "$(ls -d "$1"/step-* 2>/dev/null)" ]
    }
    mkdir node0 node1 meet
    cp tokens.u16 node0/part-0.u16 && cp tokens.u16 node1/part-0.u16
    pair isa --cpu-isa default
    says isa 0 ": bits depend on which rank computes what"
    MUSTER_TRAIN_REQUIRE_IDENTICAL=on pair refused --cpu-isa default
    says refused 65 "; --require-identical refuses that"
    pair traced --trace here.json
    says traced 2 "trace: rank 1 has another --trace or --trace-steps than rank 0"
    while IFS='|' read -r name option words; do
        # shellcheck disable=SC2086
        pair "$name" $option
        says "$name" 2 "settings: $words on rank 0: start all ranks with the same options"
        [ ! -e "$name" ]
    done <<'END_OF_LIST'
seed|--seed 2|--seed is 2 on rank 1 and 1
batch|--global-batch 16|--global-batch is 16 on rank 1 and 8
rate|--learning-rate 0.02|--learning-rate is 0.02 on rank 1 and 0.01
saves|--ckpt-every 7|--ckpt-every is 7 on rank 1 and 20
fresh|--fresh|--fresh is on on rank 1 and off
END_OF_LIST
    tac -s '' valid.u16 >node1/part-0.u16 2>/dev/null || rev valid.u16 >node1/part-0.u16
    pair other
    says other 65 "data: rank 1 and rank 0 see different data under part-*.u16: give all nodes"
    cp tokens.u16 node1/part-0.u16 && cp tokens.u16 node1/part-1.u16
    pair more
    says more 65 "data: rank 1 finds 2 files under part-*.u16, and rank 0 finds 1: give all nodes"
}

@test "a place that holds no checkpoint, and a step that there is not" {
    mkdir empty
    while IFS='|' read -r words command; do
        # shellcheck disable=SC2086
        fails 2 "$words" muster-ckpt $command
    done <<'END_OF_LIST'
checkpoint: empty holds no checkpoint: give a checkpoint directory or a step folder|verify empty
checkpoint: empty holds no checkpoint: give a checkpoint directory or a step folder|diff run empty
checkpoint: empty holds no checkpoint: give a checkpoint directory|export empty nothing
checkpoint: couldn't open nowhere: No such file or directory; give a checkpoint|verify nowhere
checkpoint: couldn't open text: Not a directory; give a checkpoint directory|ls text
checkpoint: run has no step-00000009; muster-ckpt ls run shows the steps that there are|show run 9
checkpoint: run has no step-00000009; muster-ckpt ls run shows the steps that there are|pin run 9
checkpoint: "x" is no step: give a number such as 1000, or step-00001000|pin run x
empty has no record of an attempt: give the checkpoint directory of a training|history empty
run/step-00000001 is a step folder already: leave the steps out|verify run/step-00000001 1
run: give no more than the checkpoint directory|ls run run
END_OF_LIST
    fails 2 "export: the path of OUT is too long" muster-ckpt export run \
        "$(printf 'x%.0s' {1..5000})"
    fails 0 "no checkpoints in empty" muster-ckpt ls empty
    fails 0 "step-00000001: not pinned" muster-ckpt unpin run 1
    fails 0 "removed 0 of 0 checkpoints" muster-ckpt prune empty --keep-last 1
    [ -z "$(ls -A empty)" ] && [ ! -e nothing ]
}

@test "a folder that ranks can't meet in" {
    # meet STATUS WORDS VARIABLE…
    meet() {
        fails "$1" "rendezvous: $2" env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 \
            LOCAL_WORLD_SIZE=2 MUSTER_RDZV_ID=one "${@:3}" muster-rdzv -t 1
    }
    : >file
    mkdir here
    meet 1 "couldn't open MUSTER_RDZV_DIR=nowhere: No such file or directory" \
        MUSTER_RDZV_DIR=nowhere
    meet 1 "couldn't open MUSTER_RDZV_DIR=file: Not a directory" MUSTER_RDZV_DIR=file
    meet 2 "couldn't use MUSTER_RDZV_ID: longer than" MUSTER_RDZV_DIR=here \
        MUSTER_RDZV_ID="$(printf 'x%.0s' {1..300})"
    meet 2 "couldn't tell this run from earlier ones in MUSTER_RDZV_DIR: set MUSTER_RDZV_ID" \
        MUSTER_RDZV_DIR=here MUSTER_RDZV_ID=
    : >here/muster-one-0.0
    meet 1 "couldn't open here/muster-one-0.0: Not a directory" MUSTER_RDZV_DIR=here
    rm here/muster-one-0.0
    meet 69 "couldn't meet 1 of 2 ranks within 1 s: rank 1 did not come" MUSTER_RDZV_DIR=here
    meet 1 "couldn't meet in here/muster-one-0.0: an earlier run met there: set a new " \
        MUSTER_RDZV_DIR=here
    # What a rank that gave up has left, in whole and in part.
    mkdir here/muster-two-0.0
    : >here/muster-two-0.0/abort
    meet 69 "a rank gave up, and here/muster-two-0.0/abort doesn't say why" MUSTER_RDZV_DIR=here \
        MUSTER_RDZV_ID=two
    echo 1 >here/muster-two-0.0/abort && rm here/muster-two-0.0/[^a]*
    meet 69 "rank 1 gave up: it gave no reason" MUSTER_RDZV_DIR=here MUSTER_RDZV_ID=two
    printf '1 no such column\n' >here/muster-two-0.0/abort && rm here/muster-two-0.0/[^a]*
    meet 69 "rank 1 gave up: no such column" MUSTER_RDZV_DIR=here MUSTER_RDZV_ID=two
}

@test "a folder where a file of a checkpoint directory should be, or the other way round" {
    # with STATUS WORDS NAME: the training goes on in a copy in which NAME is another kind of file.
    with() {
        rm -rf other && cp -a run other
        case $3 in
        step-00000003) : >"other/$3" ;;
        *) rm -f "other/$3" && mkdir "other/$3" ;;
        esac
        fails "$1" "$2" train other --steps 3 --ckpt-every 1 --change steps
        [ -e other/step-00000001/manifest.json ]
        [ "$1" -ne 0 ] || muster-ckpt verify other 3
    }
    with 1 "owner: couldn't open other/.owner.lock: Is a directory" .owner.lock
    with 1 "owner: couldn't read other/owner.json: Is a directory" owner.json
    with 65 "attempts: read: couldn't use attempts.jsonl: it is not a regular file" attempts.jsonl
    with 1 "metrics: couldn't create metrics-1.jsonl: Is a directory" metrics-1.jsonl
    with 0 'checkpoint: step-00000003 is saved, but the hint "latest" is not: ' latest
    with 0 "step-00000002 is DAMAGED (manifest.json is no regular file" step-00000002/manifest.json
    with 0 "step-00000003 is DAMAGED (checkpoint: couldn't read step-00000003: Not a directory)" \
        step-00000003
}
