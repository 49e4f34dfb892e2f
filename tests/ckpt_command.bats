#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-ckpt, as people use it: what it says of good and of damaged checkpoints, and what it
# changes and leaves alone.

load lib/places
load lib/wait_for

setup_file() {
    export OMP_NUM_THREADS=1 TZ=UTC
    cd "$BATS_FILE_TMPDIR" || return
    head -c 40000 "$MUSTER_TOP/doc/checkpoint-format.md" >book.txt
    muster-tokens -q -o train.bin --validation=0.2 --validation-output=validation.bin book.txt
    train run --steps 6 --ckpt-every 1
}

# train DIR OPTION…: a tiny GPT-2.
train() {
    muster-train --data train.bin --validation-data validation.bin --validate-every 2 \
        --validate-batches 1 --vocabulary 256 \
        --layers 1 --width 32 --heads 2 --context 16 --global-batch 4 --microbatch 2 \
        --keep-last 100 --ckpt-dir "$@" 2>log ||
        { cat log; return 1; }
}

setup() {
    cd "$BATS_FILE_TMPDIR" || return
    model="model-00001-of-00001.safetensors"
    optimizer="optimizer-00001-of-00001.safetensors"
}

# copy: a copy of the training's directory of this test's own, `d`.
copy() { d=$BATS_TEST_TMPDIR/run && cp -a run "$d"; }

# check STATUS COMMAND…: runs it, shows what it says and holds its status to that.
check() {
    local want=$1
    shift
    run "$@"
    echo "$output"
    [ "$status" -eq "$want" ]
}

# flip FILE BYTE: turns one bit.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N1 "$1")
    # shellcheck disable=SC2059
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# big DIR: a checkpoint of four chunks, from a model of llm.c whose weights are all 0.
big() {
    perl -e 'print pack("l256", 20240326, 3, 16, 50000, 1, 4, 256, 50048)' >"$1.bin"
    truncate -s $((1024 + 4 * (50048 * 256 + 16 * 256 + 12 * 256 * 256 + 15 * 256))) "$1.bin"
    muster-ckpt import "$1.bin" "$1"
}

steps() { (cd "$1" && echo step-*[0-9]); }

@test "the golden checkpoint is listed, shown and verified" {
    check 0 muster-ckpt ls --deep "$MUSTER_TOP/tests/golden/v1"
    [[ ${lines[0]} =~ ^step\ +saved\ +size\ +attempt\ +loss\ +validation\ +pinned\ +valid$ ]]
    [[ ${lines[1]} =~ ^\ +3\ +2026-11-21\ 0.*\ kB\ +2\ +0.166667\ +-\ +-\ +yes$ ]]
    check 0 muster-ckpt show "$MUSTER_TOP/tests/golden/v1" 3
    [[ $output = *"step 3, saved 2026-11-21 0"*" by attempt 2 with 4 ranks; "* ]]
    [[ $output = *" with 4 ranks; loss 0.166667, validation loss -"* ]]
    [[ $output = *"seed 18446744073709551557, next sample 48"* ]]
    [[ $output = *"tensors: 3, 43 parameters"* ]]
    [[ $output =~ transformer.wte.weight\ +F32\ +\[7,5\]\ +master\ m\ v ]]
    [[ $output =~ c_attn.bias\ +BF16\ +\[3\]\ +- ]]
    check 0 muster-ckpt show --json "$MUSTER_TOP/tests/golden/v1/step-00000003/"
    [[ $output = *'"cursor": 48'*'"slots": 8'*'"xxh3_128": '* ]]
    check 0 muster-ckpt verify --deep "$MUSTER_TOP/tests/golden/v1" step-00000003
    [ "$output" = "step-00000003: valid" ]
    for golden in "$MUSTER_TOP"/tests/golden/*/; do
        check 0 muster-ckpt ls --deep "$golden"
        [ "$(grep -c ' yes$' <<<"$output")" -eq "$(ls -d "$golden"step-* | wc -l)" ]
        check 0 muster-ckpt show "$golden"
    done
}

@test "the state of a checkpoint and its values are shown, verified and compared" {
    check 0 muster-ckpt show "$MUSTER_TOP/tests/golden/v2"
    [[ $output = *"tensors: 3, 43 parameters"*"state: 4 tensors, "* ]]
    [[ $output =~ average\ +F32\ +\[4,6\]\ +3\ boxes ]]
    [[ $output =~ updates\ +I64\ +\[\]\ +- ]]
    [[ $output =~ values.*epoch\ +4 ]]
    check 0 muster-ckpt show --json "$MUSTER_TOP/tests/golden/v2"
    python3 -c 'import json, sys
shown = json.load(sys.stdin)
assert shown["values"] == {"epoch": 4, "betas": {"$tuple": [0.9, 0.95]}}
assert {s["name"]: (s["dtype"], s["shape"], s["boxes"]) for s in shown["state"]} == {
    "average": ("F32", [4, 6], 3), "generator": ("U8", [16], 1),
    "nothing": ("F16", [0, 3], 1), "updates": ("I64", [], 1)}' <<<"$output"
    local step=step-00000006
    cp -r "$MUSTER_TOP/tests/golden/v2-boxes" "$BATS_TEST_TMPDIR/v2"
    check 0 muster-ckpt diff --all "$MUSTER_TOP/tests/golden/v2-boxes" "$BATS_TEST_TMPDIR/v2"
    [[ ${lines[-1]} = "identical: all bits of 7 tensors and their optimizer states" ]]
    check 1 muster-ckpt diff "$MUSTER_TOP/tests/golden/v2" "$MUSTER_TOP/tests/golden/v2-boxes"
    [[ $output =~ values.epoch\ +4\ +6 ]]
    [[ ${lines[-1]} = "6 of 7 tensors differ, and so do the values" ]]
    flip "$BATS_TEST_TMPDIR/v2/$step/values.json" 3
    check 65 muster-ckpt verify --deep "$BATS_TEST_TMPDIR/v2"
    [[ $output = *"values.json"* ]]
    # Without its values it is another model to a trainer, and its weights can be exported.
    check 0 muster-ckpt export "$MUSTER_TOP/tests/golden/v2" "$BATS_TEST_TMPDIR/hf"
    ! grep -q average "$BATS_TEST_TMPDIR"/hf/* || false
}

@test "a training is listed with its losses" {
    check 0 muster-ckpt ls run
    [ ${#lines[@]} -eq 7 ]
    [[ ${lines[6]} =~ ^\ +6\ .*\ kB\ +0\ +[0-9.]+\ +.*\ yes$ ]]
    check 0 muster-ckpt ls --json run
    [ "$(grep -c '"valid": true' <<<"$output")" -eq 6 ]
    mkdir "$BATS_TEST_TMPDIR/empty"
    check 0 muster-ckpt ls "$BATS_TEST_TMPDIR/empty"
    [ "$output" = "no checkpoints in $BATS_TEST_TMPDIR/empty" ]
    check 2 muster-ckpt ls "$BATS_TEST_TMPDIR/none"
    [[ $output = *"No such file"* ]]
}

@test "every kind of damage is found where it is, and nothing is changed" {
    copy
    flip "$d/step-00000001/$model" 5000
    flip "$d/step-00000001/$optimizer" 6000
    truncate -s -1 "$d/step-00000002/$optimizer"
    rm "$d/step-00000003/config.json"
    flip "$d/step-00000004/manifest.json" 100
    rm "$d/step-00000005/manifest.json"
    (cd "$d" && find . -type f -exec md5sum {} +) | sort >before
    check 65 muster-ckpt verify --deep "$d"
    size=$(stat -c %s "$d/step-00000001/$model")
    [[ ${lines[0]} = "step-00000001: DAMAGED: $model, bytes 0 to $((size - 1)): chunk 0 does not have its hash" ]]
    [[ ${lines[1]} \
        = "step-00000001: DAMAGED: $optimizer, bytes 0 to "*": chunk 0 does not have its hash" ]]
    [[ ${lines[2]} = "step-00000002: DAMAGED: $optimizer: it has "*" bytes, not "* ]]
    [[ ${lines[3]} \
        = "step-00000003: DAMAGED: config.json: couldn't open it: No such file or directory" ]]
    [[ ${lines[4]} = "step-00000004: DAMAGED: manifest.json: manifest: its text does not have the hash that it names" ]]
    [[ ${lines[5]} \
        = "step-00000005: DAMAGED: manifest.json: couldn't read it: No such file or directory" ]]
    [[ ${lines[6]} = "step-00000006: valid" ]]
    [[ ${lines[7]} = "1 valid, 5 damaged, 0 could not be read" ]]
    (cd "$d" && find . -type f -exec md5sum {} +) | sort | cmp - before
    # Sizes and headers alone: what the hash of the first chunk does not cover is not read.
    check 65 muster-ckpt verify "$d" 1 2 6
    [ "$(grep -c DAMAGED <<<"$output")" -eq 2 ]
    check 0 muster-ckpt verify "$d/step-00000006"
    check 65 muster-ckpt verify --deep --json "$d/step-00000001"
    [[ $output = *'"first_byte": 0'* ]]
    check 0 muster-ckpt ls "$d"
    [ "$(grep -c ' NO: ' <<<"$output")" -eq 5 ]
    # A folder that was set aside is looked at by its name; its manifest is still that of its step.
    mv "$d/step-00000001" "$d/step-00000001.damaged-1"
    check 65 muster-ckpt verify --deep "$d/step-00000001.damaged-1"
    [[ $output = "step-00000001.damaged-1: DAMAGED: $model, bytes 0 to "* ]]
    check 0 muster-ckpt ls "$d"
    [[ $output = *"set aside because of damage: step-00000001.damaged-1" ]]
    mv "$d/step-00000006" "$d/step-00000007"
    check 65 muster-ckpt verify "$d" 7
    [[ $output = *"its manifest is that of step 6"* ]]
}

@test "a damaged chunk in the middle of a large file is named with its bytes" {
    big "$BATS_TEST_TMPDIR/big"
    d=$BATS_TEST_TMPDIR/big/step-00000000
    check 0 muster-ckpt verify --deep "$d"
    flip "$d/$model" $((16777216 + 5))
    flip "$d/$model" $((2 * 16777216 + 4095))
    check 65 muster-ckpt verify --deep "$d"
    [ "${lines[0]}" = "step-00000000: DAMAGED: $model, bytes 16777216 to 33554431: chunk 1 does not have its hash" ]
    [[ ${lines[1]} \
        = "step-00000000: DAMAGED: $model, bytes 33554432 to "*": chunk 2 does not have its hash" ]]
    [ ${#lines[@]} -eq 2 ]
    # Not in what is read without --deep.
    check 0 muster-ckpt verify "$d"
}

# as_nobody COMMAND…: as a user that no file belongs to.
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

@test "a file that the user may not read is no damage, and no reason to try again" {
    [ "$(id -u)" = 0 ] || skip "only root can be another user"
    copy
    chmod -R a+rX "$d" && chmod a+x "$BATS_TEST_TMPDIR" "$BATS_FILE_TMPDIR" "$BATS_SUITE_TMPDIR" \
        "$BATS_RUN_TMPDIR"
    as_nobody test -r "$d/step-00000001/$model" ||
        skip "another user does not reach the tests' folder"
    for file in "$model" "$optimizer" manifest.json; do
        chmod 600 "$d/step-00000001/$file"
        for deep in "" --deep; do
            check 1 as_nobody muster-ckpt verify $deep "$d"
            [[ $output = "step-00000001: UNKNOWN: "*"$file"*": Permission denied"* &&
                $output != *DAMAGED* ]]
            [[ $output = *"5 valid, 0 damaged, 1 could not be read" ]]
        done
        chmod 644 "$d/step-00000001/$file"
    done
    chmod 700 "$d/step-00000002"
    check 1 as_nobody muster-ckpt verify "$d" 2
    # Damage that was found counts before what can't be told.
    truncate -s -1 "$d/step-00000003/$optimizer"
    check 65 as_nobody muster-ckpt verify "$d"
    [[ $output = *"4 valid, 1 damaged, 1 could not be read" ]]
    # The other commands that read it.
    chmod 600 "$d/step-00000001/$model"
    check 1 as_nobody muster-ckpt diff "$d/step-00000001" "$d/step-00000004"
    mkdir -m 777 "$BATS_TEST_TMPDIR/out"
    check 1 as_nobody muster-ckpt export "$d/step-00000001" "$BATS_TEST_TMPDIR/out/model"
    [[ $output = *"$model: Permission denied"* ]]
    chmod 700 "$d"
    check 2 as_nobody muster-ckpt verify "$d"
}

@test "an error of the disk is no damage" {
    strace -o probe true 2>/dev/null || skip "strace can't trace here"
    # From the first read of the manifest on.
    strace -o trace -e trace=read,openat muster-ckpt verify --deep run/step-00000002
    first=$(awk '/manifest.json/ { exit } /^read/ { n++ } END { print n + 1 }' trace)
    check 69 strace -o /dev/null -e trace=read -e inject=read:error=EIO:when="$first"+ \
        muster-ckpt verify --deep run/step-00000002
    [[ $output = *"UNKNOWN"*"Input/output error"* ]]
    # And any one look or read from the first that opens the checkpoint on: it is valid, or it can't
    # be told.
    strace -o trace muster-ckpt verify --deep run/step-00000002
    awk 'match($0, /^[a-z0-9]+\(/) { name = substr($0, 1, RLENGTH - 1); seen[name]++ }
        /"step-00000002"/ { inside = 1 }
        inside && name ~ /^(read|newfstatat)$/ { print name, seen[name] }' trace >points
    [ "$(wc -l <points)" -gt 8 ]
    while read -r name n; do
        run strace -o /dev/null -e trace="$name" -e inject="$name:error=EIO:when=$n" muster-ckpt \
            verify --deep run/step-00000002
        [[ $status$output != 65* && $output != *DAMAGED* ]] || {
            echo "$name $n: $status $output"; return 1
        }
    done <points
}

@test "two trainings of the same kind do not differ, two steps do" {
    train "$BATS_TEST_TMPDIR/again" --steps 6 --ckpt-every 3
    check 0 muster-ckpt diff run/step-00000006 "$BATS_TEST_TMPDIR/again"
    [[ ${lines[-1]} = "identical: all bits of 16 tensors and their optimizer states" ]]
    [[ $output =~ config.operation.ckpt-every\ +\"1\"\ +\"3\" ]]
    check 1 muster-ckpt diff run/step-00000005 run/step-00000006
    [[ ${lines[-1]} = "16 of 16 tensors differ" ]]
    [[ $output \
        =~ transformer.wte.weight\ +[0-9.]+e-0[0-9]\ /\ [0-9.]+e[-+]0[0-9]\ +[0-9.]+e-0[0-9]\ / ]]
    [[ $output =~ ^setting\ +A\ +B ]]
    check 0 muster-ckpt diff --all --json run/step-00000006 run
    [ "$(grep -c '"max_absolute": 0.0' <<<"$output")" -eq 64 ]
    copy
    flip "$d/step-00000006/$optimizer" 6000
    check 65 muster-ckpt diff run "$d"
    [[ $output = *"does not have its hash"* ]]
}

@test "pruning keeps the last, the periodic, the best, the pinned and what is not valid" {
    copy
    flip "$d/step-00000001/manifest.json" 50
    muster-ckpt pin "$d" 2
    check 0 muster-ckpt prune --dry-run --keep-last 1 "$d"
    [ "$(grep -c 'would be removed' <<<"$output")" -eq 3 ]
    [ "$(steps "$d")" = "$(steps run)" ]
    check 0 muster-ckpt prune "$d" --keep-last 1 --keep-every 3
    [[ $output = *"step-00000001: left alone: it is not valid"*"removed 2 of 5 checkpoints"* ]]
    [ "$(steps "$d")" = "step-00000001 step-00000002 step-00000003 step-00000006" ]
    # The directory is left in order: the next owner need not wait.
    grep -q '"ended": true' "$d/owner.json"
    muster-ckpt unpin "$d" step-00000002
    check 0 muster-ckpt prune --json "$d" --keep-last 1
    [ "$(steps "$d")" = "step-00000001 step-00000006" ]
    train "$d" --steps 7 --change steps
    check 0 muster-ckpt prune --keep-last 3 "$d"
    [[ $output = *"removed 0 of 2 checkpoints, 0 B" ]]
}

@test "pruning by validation loss keeps the lowest" {
    copy
    # Validation losses fall in such a short training: 6 is the best, then 4, then 2.
    check 0 muster-ckpt ls --json run
    [ "$(grep -c '"validation_loss": [0-9]' <<<"$output")" -ge 2 ] ||
        skip "this trainer does not record validation losses"
    rm -r "$d/step-00000006"
    check 0 muster-ckpt prune --keep-last 1 --keep-best 2 "$d"
    [ "$(steps "$d")" = "step-00000002 step-00000004 step-00000005" ]
}

@test "a checkpoint that can't be removed does not keep the others" {
    copy
    mkdir "$d/step-00000002/folder" # prune removes files only
    check 1 muster-ckpt prune "$d" --keep-last 1
    [[ $output = *"couldn't remove .removing-step-00000002-"*"/folder: "* ]]
    [[ $output = *"step-00000002: couldn't be removed"*"step-00000005: removed"* ]]
    [[ $output = *"step-00000005: removed"*"removed 4 of 6 checkpoints"* ]]
    [ "$(steps "$d")" = step-00000006 ]
}

@test "nothing is pruned under a training, or when the newest does not verify" {
    copy
    mkfifo go
    "$MUSTER_BUILD/tests/tools/ckpt_writer" race "$d" <go >won 3>&- &
    exec 9>go
    LOOK_EVERY=0.05 wait_for 5 grep -q won won
    check 2 muster-ckpt prune --keep-last 1 "$d"
    [[ $output = *"is in use, or was a moment ago"* ]]
    touch -d '2 minutes ago' "$d/owner.json"
    check 2 muster-ckpt prune --keep-last 1 "$d"
    [[ $output = *"is in use by job"*", pid $!,"* ]]
    [ "$(steps "$d")" = "$(steps run)" ]
    # Looking and pinning is allowed.
    check 0 muster-ckpt pin "$d" 3
    check 0 muster-ckpt ls "$d"
    [ "$(grep -c ' yes  *yes$' <<<"$output")" -eq 1 ]
    exec 9>&-
    wait $! || :
    # Its process is gone, and a service may still be writing for it: not before its heartbeat is
    # old.
    touch "$d/owner.json"
    check 2 muster-ckpt prune --keep-last 1 "$d"
    [ "$(steps "$d")" = "$(steps run)" ]
    touch -d '2 minutes ago' "$d/owner.json"
    # What only reading all bytes tells.
    flip "$d/step-00000006/config.json" 10
    check 65 muster-ckpt prune --keep-last 1 "$d"
    [[ $output \
        = *"nothing was removed, since the newest checkpoint, step-00000006, does not verify"* ]]
    [ "$(steps "$d")" = "$(steps run)" ]
    # What the headers tell: the newest valid one is another, and stays.
    flip "$d/step-00000006/$optimizer" 6000
    check 0 muster-ckpt prune --keep-last 1 "$d"
    [ "$(steps "$d")" = "step-00000003 step-00000005 step-00000006" ]
}

@test "a history tells what ended each attempt and what was done twice" {
    d=$BATS_TEST_TMPDIR/history
    train "$d" --steps 4 --ckpt-every 2
    # An attempt that was killed at step 6 after a checkpoint of step 4: its record has no end.
    train "$d" --steps 6 --ckpt-every 0 --change steps
    rm -r "$d/step-00000006"
    sed -i '$d' "$d/attempts.jsonl"
    train "$d" --steps 8 --ckpt-every 0 --change steps
    check 0 muster-ckpt history "$d"
    [[ ${lines[0]} \
        =~ ^attempt\ +began\ +nodes\ +ranks\ +from\ +last\ +end\ +notice\ +seconds\ +lost\ +why$ ]]
    [[ ${lines[1]} =~ ^\ *0\ .*\ 1\ +fresh\ +4\ +finished\ +-\ +[0-9.]+\ +0.0\ +finished$ ]]
    [[ ${lines[2]} =~ ^\ *1\ .*\ 1\ +4\ +6\ +killed\ +-\ .* ]]
    [[ ${lines[3]} =~ ^\ *2\ .*\ 1\ +4\ +8\ +finished\ .*$ ]]
    [[ ${lines[4]} = "3 attempts, 1 interruption, one in "*" s of training on average; ran "* ]]
    check 0 muster-ckpt history --json "$d"
    [ "$(sed -n 's/.*"seconds_lost": \(.*\),/\1/p' <<<"$output" | sed -n 2p)" != 0.0 ]
    check 2 muster-ckpt history "$BATS_TEST_TMPDIR"
}

@test "a history names the notice that stopped an attempt" {
    d=$BATS_TEST_TMPDIR/stopped
    train "$d" --steps 100000000 &
    # The training itself, not the shell around it.
    LOOK_EVERY=0.05 wait_for 10 grep -qs '"step": 3' "$d/metrics-0.jsonl"
    kill -TERM "$(sed -n 's/.*"pid": \([0-9]*\),.*/\1/p' "$d/owner.json")"
    status=0
    wait $! || status=$?
    check 0 muster-ckpt history "$d"
    [[ ${lines[1]} =~ ^\ *0\ .*\ 1\ +fresh\ +[0-9]+\ +stopped\ +SIGTERM\ +[0-9.]+\ +-\ +. ]]
    [[ ${lines[2]} = "1 attempt, 1 interruption, one in "* ]]
}

@test "what is exported is imported again bit for bit" {
    out=$BATS_TEST_TMPDIR
    check 0 muster-ckpt export run/step-00000004 "$out/hf"
    [ "$(cd "$out/hf" && echo *)" = "config.json model.safetensors" ]
    check 0 muster-ckpt export run --step 4 "$out/shards" --shard-size 16K
    [ "$(ls "$out/shards" | grep -c '^model-0000[1-9]-of-0000[1-9].safetensors$')" -gt 2 ]
    [ -e "$out/shards/model.safetensors.index.json" ]
    for from in hf shards; do
        check 0 muster-ckpt import "$out/$from" "$out/$from.run"
        [[ $output = *"--layers 1 --width 32 --heads 2 --context 16 --vocabulary 256"* ]]
        check 1 muster-ckpt diff --json run/step-00000004 "$out/$from.run"
        # The weights are the same; only the optimizer's states are not there.
        [ "$(grep -c '"weights": {' <<<"$output")" -eq 16 ]
        [ "$(grep -A2 '"weights": {' <<<"$output" | grep -c '"identical": true')" -eq 16 ]
        [ "$(grep -c '"found": "only_a"' <<<"$output")" -eq 48 ]
    done
    check 0 muster-ckpt diff "$out/hf.run" "$out/shards.run"
    check 0 muster-ckpt verify --deep "$out/hf.run"
    check 0 muster-ckpt export "$out/hf.run" "$out/half" --dtype bf16
    [ $((2 * $(stat -c %s "$out/half/model.safetensors"))) \
        -le $(($(stat -c %s "$out/hf/model.safetensors") + 4096)) ]
    grep -q '"torch_dtype": "bfloat16"' "$out/half/config.json"
    # Rounding once more changes nothing.
    muster-ckpt import "$out/half" "$out/half.run"
    muster-ckpt export "$out/half.run" "$out/half2" --dtype bf16
    cmp "$out/half/model.safetensors" "$out/half2/model.safetensors"
    [ -z "$(find "$out" -name '.*' -type d ! -path "$out")" ]
}

@test "an imported model is trained" {
    out=$BATS_TEST_TMPDIR
    muster-ckpt export run "$out/hf"
    muster-ckpt import "$out/hf" "$out/new"
    train "$out/new" --steps 2 --ckpt-every 1
    check 1 muster-ckpt diff "$out/new/step-00000000" "$out/new/step-00000001"
    # It is a beginning of its own: not the resumed training, and not a fresh one.
    train "$out/fresh" --steps 1
    check 1 muster-ckpt diff "$out/new/step-00000001" "$out/fresh"
    check 1 muster-ckpt diff "$out/new/step-00000001" run/step-00000001
}

@test "what can't be imported or exported is refused with the reason" {
    out=$BATS_TEST_TMPDIR
    muster-ckpt export run "$out/hf"
    check 2 muster-ckpt export run "$out/hf"
    [[ $output = *"exists"* ]]
    check 2 muster-ckpt export run "$out/none/hf"
    check 2 muster-ckpt import "$out/hf" run
    [[ $output = *"holds a run already"* ]]
    check 2 muster-ckpt import "$out/nothing" "$out/a"
    : >"$out/hf/pytorch_model.bin"
    mv "$out/hf/model.safetensors" "$out/keep"
    check 65 muster-ckpt import "$out/hf" "$out/a"
    [[ $output = *"pickle"*"save_pretrained"* ]]
    cp "$out/keep" "$out/hf/model.safetensors"
    truncate -s -1 "$out/hf/model.safetensors"
    check 65 muster-ckpt import "$out/hf" "$out/a"
    [[ $output = *"bytes of data"* ]]
    cp "$out/keep" "$out/hf/model.safetensors"
    sed -i 's/"n_layer": 1/"n_layer": 2/' "$out/hf/config.json"
    check 65 muster-ckpt import "$out/hf" "$out/a"
    [[ $output = *"has no tensor transformer.h.1."* ]]
    sed -i 's/"n_layer": 2/"n_layer": 1/; s/gelu_new/relu/' "$out/hf/config.json"
    check 65 muster-ckpt import "$out/hf" "$out/a"
    [[ $output = *'activation_function is "relu"'* ]]
    printf 'x%.0s' $(seq 2000) >"$out/model.bin"
    check 65 muster-ckpt import "$out/model.bin" "$out/a"
    [[ $output = *"no model file of llm.c"* ]]
    [ ! -e "$out/a" ]
}

@test "each command has its help, and wrong usage ends with 2" {
    check 0 muster-ckpt --help
    for command in ls show verify diff prune pin unpin history import export; do
        [[ $output = *"  $command "* ]]
        check 0 muster-ckpt "$command" --help
        [[ $output = "Usage: muster-ckpt $command "*"--json"* ]]
        check 2 muster-ckpt "$command"
        check 2 muster-ckpt "$command" --nonsense
        check 0 muster-ckpt --help
    done
    check 2 muster-ckpt
    check 2 muster-ckpt lss
    check 2 muster-ckpt prune run
    [[ $output = *"--keep-last is missing"* ]]
    check 2 muster-ckpt prune run --keep-last 0
    check 2 muster-ckpt show run 99
    check 2 muster-ckpt show run banana
    check 2 muster-ckpt pin run 99
    check 2 muster-ckpt export run x --dtype fp16
    check 2 muster-ckpt export run x --shard-size 4X
}

@test "a bar is drawn on a terminal, and nowhere else" {
    command -v script >/dev/null || skip "no script(1): apt-get install bsdutils"
    strace -o probe true 2>/dev/null || skip "strace can't trace here"
    big "$BATS_TEST_TMPDIR/big"
    slowly="strace -o /dev/null -e trace=pread64 -e inject=pread64:delay_enter=60000"
    slowly="$slowly muster-ckpt verify --deep $BATS_TEST_TMPDIR/big"
    $slowly 2>err >/dev/null
    [ ! -s err ]
    script -qec "$slowly" typescript >/dev/null
    grep -q 'verify \[#*\.*\] .* of 54.. MB, .*/s, .* s left' typescript
}
