#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-train on one machine: a world of one, and several local processes that meet in a folder.
# What is compared is the final checkpoint's hashes and the merged loss curve: an interrupted run
# must equal the undisturbed one bit for bit.

load small_run

setup_file() { small_run_begin; }

setup() { cd "$BATS_FILE_TMPDIR" || return; }

@test "the loss falls, and every step has its line" {
    local first last
    [ "$(muster-curve whole | wc -l)" -eq 100 ]
    first=$(muster-curve whole | awk 'NR == 1 { print $3 }')
    last=$(muster-curve whole | awk 'END { print $3 }')
    awk -v a="$first" -v b="$last" 'BEGIN { exit !(a > 4 && a < 4.4 && b < 0.8 * a) }'
    [ "$(grep -c '^step ' whole.out)" -eq 100 ]
    grep -q 'identity  ' whole.out
}

@test "on a terminal every step but the last tells how long the rest takes, elsewhere none" {
    command -v script >/dev/null || skip "no script(1): apt-get install bsdutils"
    export -f train
    # Not every shell hands functions on.
    SHELL=/bin/bash script -qec "train watched --steps 20" typescript >/dev/null
    [ "$(grep -c '^step .* ms .*  [0-9][0-9a-z ]* left' typescript)" -eq 19 ]
    run grep ' left' whole.out
    [ "$status" -eq 1 ]
}

@test "a notice stops it with 75, and the next attempt ends bit-identical" {
    local signal pid status attempt=0
    for signal in TERM USR2 INT; do
        REPLACE=exec slowly train notice >>notice.out 2>&1 3>&- &
        pid=$!
        wait_for_lines $((RANDOM % 20 + 1)) notice/metrics-$((attempt++)).jsonl
        kill -s $signal $pid
        kill -s $signal $pid 2>/dev/null || :
        status=0
        wait $pid || status=$?
        [ $status -eq 75 ]
        grep -q "\"notice\".*SIG$signal" notice/attempts.jsonl
    done
    train notice
    same_as_whole notice
}

@test "a kill at random moments: the same bits and the same curve" {
    local pid i
    for i in 1 2 3 4; do
        REPLACE=exec slowly train killed --ckpt-every 7 >>killed.out 2>&1 3>&- &
        pid=$!
        sleep "0.$((RANDOM % 40 + 10))"
        kill -9 $pid 2>/dev/null || :
        wait $pid || :
    done
    train killed
    same_as_whole killed
}

@test "three attempts of a job without progress: the fourth ends with 1 and says why" {
    local attempt pid
    export SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 \
        SLURM_STEP_TASKS_PER_NODE=1 \
        SLURM_CLUSTER_NAME=none SLURMD_NODENAME=n1 MUSTER_ATTEMPT=0
    for attempt in 0 1 2; do
        SLURM_RESTART_COUNT=$attempt REPLACE=exec train loop --steps 100000 --ckpt-every 0 \
            >loop.out 2>&1 3>&- &
        pid=$!
        wait_for_lines 3 loop/metrics-$attempt.jsonl
        kill -9 $pid
        wait $pid || :
    done
    export SLURM_RESTART_COUNT=3
    fails 1 "crash loop: the last 3 attempts of job 77 brought no newer checkpoint" train loop \
        --steps 100000
    export SLURM_JOB_ID=78 SLURM_RESTART_COUNT=0 # somebody has mended it and submits it anew
    train loop --steps 3
}

@test "three attempts that hang until their time is over are a crash loop; three tries in one attempt are not" {
    local attempt pid now=$EPOCHSECONDS
    export SLURM_JOB_ID=79 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 \
        SLURM_STEP_TASKS_PER_NODE=1 \
        SLURM_CLUSTER_NAME=none SLURMD_NODENAME=n1 MUSTER_ATTEMPT=0 SLURM_RESTART_COUNT=0
    mkdir hang
    for attempt in 0 1 2; do
        printf '{"event":"%s","time":%d,"cluster":"none","job":79,"attempt":%d,"step":-1,%s}\n' \
            start $((now + 100 * attempt)) $attempt \
            "\"world_size\":1,\"nodes\":\"n1\",\"limit\":$((now + 100 * attempt + 60)).0" \
            notice $((now + 100 * attempt + 60)) $attempt '"why":"SIGTERM"'
    done >hang/attempts.jsonl
    SLURM_RESTART_COUNT=3 fails 1 \
        "and none was cut short by a notice: look for their errors above, mend them, and start the training again" \
        train hang --steps 3
    # As the preemptions that the same notices would be, had they come early.
    mkdir early
    awk -F'"time":' '/notice/ { split($2, t, ","); sub(/"time":[0-9]*/, "\"time\":" (t[1] - 50)) } { print }' hang/attempts.jsonl \
        >early/attempts.jsonl
    SLURM_RESTART_COUNT=3 train early --steps 3
    # By hand, in an allocation whose time is known.
    for attempt in 1 2 3; do
        SLURM_JOB_END_TIME=$((now + 3600)) REPLACE=exec train tries --steps 100000 --ckpt-every 0 \
            >tries.out 2>&1 3>&- &
        pid=$!
        wait_for_lines 3 tries/metrics-$((attempt - 1)).jsonl
        kill -9 $pid
        wait $pid || :
    done
    [ "$(grep -c "\"limit\":$((now + 3600))" tries/attempts.jsonl)" = 3 ]
    train tries --steps 3
}

@test "worlds of 2, 3, 5 and 8 ranks give the same bits, and say what an uneven share costs" {
    local n
    for n in 2 3 5 8; do
        train_world $n "world$n" >"world$n.out" || { cat "world$n.out"; return 1; }
        same_as_whole "world$n"
    done
    # 8 slots on 3 ranks are 3, 3, 2, in 2 pieces, 2 and 1; on 5 ranks 2, 2, 2, 1, 1, in one piece,
    # 1, 1, 1, 1.
    grep -q '  shares  *some ranks have 3 slots, some 2: 12.5% longer than an even share; ' \
        world3.out
    [ "$(grep -c '^step .*  uneven +12.5%  sent [0-9.]* MB +[0-9.]*%$' world3.out)" -eq 100 ]
    [ "$(grep -c '"uneven": 0.1250, "sent_bytes": ' world3/metrics-0.jsonl)" -eq 100 ]
    [ "$(grep -c '^step .*  uneven +25%$' world5.out)" -eq 100 ]
    ! grep uneven world2.out world8.out || false
    # Eight ranks on a machine of this size wait for each other most of the time.
    grep 'scaling: [0-9]*% of a step waits .*--global-batch' world8.out
    ! grep 'scaling:' whole.out || false
}

@test "a stop and a kill between different world sizes change nothing" {
    interrupt_worlds mixed
    train_world 5 mixed
    same_as_whole mixed
}

@test "a rank that dies makes the others leave with 69, and they say whom they lost" {
    start_world 4 lost --steps 100000 --ckpt-every 0
    wait_step lost 5
    kill -9 "${PIDS[3]}"
    end_world || :
    [ "${STATUSES[*]}" = "69 69 69 137" ]
    grep -q "rank 3" rank0.out
}

@test "threads, bucket size and read-only options change no bit" {
    train operation --threads 3 --bucket-mb 1 --ckpt-every 0 --validation-data valid.u16 \
        --validate-every 50
    diff <(hashes whole/step-00000100) <(hashes operation/step-00000100)
}

@test "validation losses are those of the undisturbed run, at every world size" {
    local pid
    train validated --validation-data valid.u16 --validate-every 10
    [ "$(muster-curve validated | awk 'NF == 7' | wc -l)" -eq 10 ]
    REPLACE=exec slowly train revalidated --validation-data valid.u16 --validate-every 10 \
        >revalidated.out 2>&1 3>&- &
    pid=$!
    wait_step revalidated 25
    kill $pid
    wait $pid || [ $? -eq 75 ]
    train_world 4 revalidated --validation-data valid.u16 --validate-every 10
    diff <(muster-curve validated) <(muster-curve revalidated)
}

@test "saves by seconds and by what they cost: there are some, and they change no bit" {
    train seconds --ckpt-every 0.05s --keep-last 0
    [ "$(saved_steps seconds | wc -l)" -ge 3 ]
    same_as_whole seconds
    train auto --ckpt-every auto --keep-last 0 2>auto.err
    cat auto.err
    [ "$(saved_steps auto | wc -l)" -ge 2 ]
    [ "$(saved_steps auto | head -n 1)" -le 10 ] # the one that measures
    grep -Eq 'checkpoint: one every [0-9]+ s from now on' auto.err
    same_as_whole auto
    # What each has cost is in the metrics, which are a curve all the same.
    [ "$(grep -c '"checkpoint": {"stall": ' auto/metrics-0.jsonl)" \
        -eq "$(saved_steps auto | wc -l)" ]
    train never --ckpt-every 0
    [ "$(saved_steps never)" = 100 ]
}

@test "a finished run says so and ends with 0" {
    cp -r whole finished
    run train finished
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"is finished: step 100 of 100"* ]]
}

@test "another identity is refused with both values, a schedule needs --change" {
    cp -r whole other
    fails 2 "--seed is 7, but the run in this --ckpt-dir was begun with 1" train other --seed 7
    fails 2 "--attention cudnn needs a GPU" train other --attention cudnn
    fails 2 "--layers is 3" train other --layers 3
    perl -e 'print pack("v", $_ % 64) for 0 .. 20000' >other.u16
    fails 2 "--data" train other --data other.u16
    fails 2 "--change steps" train other --steps 104
    train other --steps 104 --change steps
    python3 -c \
        'import json; c = json.load(open("other/step-00000104/manifest.json"))["config"]["changes"]
assert c == [{"step": 100, "name": "steps", "from": "100", "to": "104"}], c'
    mv tokens.u16 moved.u16
    run train other --steps 104 --data moved.u16
    mv moved.u16 tokens.u16
    [ "$status" -eq 0 ]
}

# The bytes of the tensors of a checkpoint's only model file, by name, as little-endian words of
# WIDTH bits in hexadecimal.
model_words() {
    python3 - "$1"/model-00001-of-00001.safetensors "$2" <<'END'
import json, struct, sys
b, n = open(sys.argv[1], "rb").read(), int(sys.argv[2]) // 8
h = struct.unpack("<Q", b[:8])[0]
for name, t in sorted(json.loads(b[8:8 + h]).items()):
    if name != "__metadata__":
        i, j = (8 + h + x for x in t["data_offsets"])
        print(name, *(b[k:k + n][::-1].hex() for k in range(i, j, n)))
END
}

@test "an imported model is where a run begins: its weights in any precision, and nothing else of it" {
    local still=(--learning-rate 0 --min-learning-rate 0 --steps 1)
    for type in F32 BF16 F16; do
        "$MUSTER_BUILD/tests/tools/ckpt_import" whole 100 "imported$type" $type
        fails 2 "--layers is 3, but the imported model in this --ckpt-dir has 2" train \
            "imported$type" --layers 3
        train "imported$type" "${still[@]}" --seed 77 --keep-last 0 >imported.out 2>&1
        grep -q 'begins with the imported model' imported.out
        grep -q '^step 1/1 ' imported.out
    done
    # Nothing was learnt in that one step: the weights are the imported ones, in fp32.
    model_words whole/step-00000100 32 >words
    model_words importedF32/step-00000001 32 | cmp - words
    sed -E 's/ (.{4}).{4}/ \1/g' words >halves
    model_words importedBF16/step-00000000 16 | cmp - halves
    sed -E 's/ (.{4})/ \10000/g' halves >wide
    model_words importedBF16/step-00000001 32 | cmp - wide
    python3 - <(model_words importedF16/step-00000000 16) \
        <(model_words importedF16/step-00000001 32) <<'END'
import struct, sys
for a, b in zip(*(open(f) for f in sys.argv[1:])):
    for half, word in zip(a.split()[1:], b.split()[1:]):
        assert struct.unpack(">e", bytes.fromhex(half)) == \
            struct.unpack(">f", bytes.fromhex(word)), (half, word)
END
    # The moments began at zero: after one step m is 0.1 g and v is 0.05 g².
    python3 - importedF32/step-00000001/optimizer-00001-of-00001.safetensors <<'END'
import array, json, struct, sys
b = open(sys.argv[1], "rb").read()
h = struct.unpack("<Q", b[:8])[0]
t = json.loads(b[8:8 + h])
m, v = (array.array("f", b[slice(*(8 + h + x for x in t[k]["data_offsets"]))]) for k in "mv")
assert max(m) > 1e-4 and all(abs(x * x - 0.2 * y) <= 1e-5 * y + 1e-30 for x, y in zip(m, v))
END
    # From then on it is a run like any other.
    train importedF32 --steps 3 --seed 77 --change steps,learning-rate,min-learning-rate \
        >>imported.out 2>&1
    grep -q 'step 1 from' imported.out
}

@test "--fresh wants a directory without a run" {
    train begun --fresh --steps 2
    fails 2 "holds a run already" train begun --fresh --steps 2
}

@test "other numerics are named and recorded, or refused" {
    cp -r whole numerics
    fails 65 "isa was" train numerics --steps 102 --change steps --cpu-isa default \
        --require-identical
    run train numerics --steps 102 --change steps --cpu-isa default
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"isa was "*", now default"* ]]
    python3 -c 'import json
c = json.load(open("numerics/step-00000102/manifest.json"))["config"]["changes"]
assert [x["name"] for x in c][-1] == "isa", c'
}

@test "a loss that is not finite ends the run with its step and tensor, and nothing of it is saved" {
    local wild=(--learning-rate 1000 --min-learning-rate 1000 --weight-decay 1000 --clip 0
        --warmup-steps 0)
    fails 1 "not finite: " train wild "${wild[@]}" --ckpt-every 1
    grep -Eq 'step [0-9]+: not finite: .*first in the' <<<"$output"
    local last
    last=$(muster-curve wild | awk 'END { print $1 }')
    [ "$last" -lt 100 ]
    [ ! -e "$(printf 'wild/step-%08d' "$last")" ]
    train skipped "${wild[@]}" --on-nonfinite skip
    [ "$(grep -c '"skipped": true' skipped/metrics-0.jsonl)" -gt 0 ]
    [ "$(saved_steps skipped | xargs)" = "60 80 100" ]
}

@test "bad data is named and ends with 65" {
    : >empty.u16
    fails 65 missing.bin train bad1 --data missing.bin
    fails 65 empty.u16 train bad1 --data empty.u16
    perl -e 'print pack("l<256", 20240520, 1, 20000), "ab" x 100' >short.bin
    fails 65 short.bin train bad1 --data short.bin
    perl -e 'print pack("l<256", 20240521, 1, 100), pack("v", 1) x 100' >magic.bin
    perl -e 'print pack("l<256", 20240520, 9, 100), pack("v", 1) x 100' >version.bin
    fails 65 version.bin train bad1 --data version.bin
    perl -e 'print pack("v", $_ == 700 ? 99 : 5) for 0 .. 20000' >vocabulary.u16
    fails 65 vocabulary.u16 train bad1 --data vocabulary.u16 --steps 1000
    grep -q 99 <<<"$output"
    perl -e 'print pack("v", 5) for 0 .. 130' >small.u16
    fails 65 "--global-batch" train bad1 --data small.u16
}

@test "several files are one data set, in the order of their names, whatever names them" {
    head -c 10000 tokens.u16 >part-1.u16
    tail -c +10001 tokens.u16 | head -c 3000 >part-2.u16
    tail -c +13001 tokens.u16 >part-3.u16
    split -b 1000 valid.u16 --additional-suffix .u16 valid-
    fails 65 "valid-ac.u16: its 1 tokens are too few" train shards --data 'part-*.u16' \
        --validation-data 'valid-*.u16' \
        --validate-every 20
    rm -r valid-ac.u16 shards
    train shards --data 'part-*.u16' --steps 20 --validation-data 'valid-*.u16' \
        --validate-every 20 --decay-steps 20 >shards.out
    grep -q ' samples in 3 files, ' shards.out
    train_world 4 listed --data part-3.u16,part-1.u16,part-2.u16 --steps 10 --decay-steps 20
    train_world 2 listed --data 'part-[23].u16,part-1.u16' --steps 20 --decay-steps 20 \
        --change steps
    diff <(hashes shards/step-00000020) <(hashes listed/step-00000020)
    fails 2 "quote a pattern" train listed --data part-1.u16 part-2.u16 part-3.u16 --steps 30 \
        --change steps
    fails 2 "--data has the identity" train listed --data 'part-[12].u16'
    fails 65 "parts-*: no file has a name like that" train listed --data 'parts-*' --steps 30
    perl -e 'print pack("v", 99) x 300' >part-4.u16
    fails 65 "part-4.u16" train other-shards --data 'part-*.u16' --steps 400
    grep -q "token 99 of sample [0-4] " <<<"$output"
}

@test "bad data on one rank in mid-run ends all of them with 65" {
    perl -e 'print pack("v", $_ == 15000 ? 99 : 5) for 0 .. 20000' >late.u16
    run train_world 4 late --data late.u16 --steps 1000 --ckpt-every 0
    echo "$output"
    [ "$status" -eq 65 ]
    ! grep -q "lost" <<<"$output" || false
}

@test "a replica that drifts away is named within as many steps as it is looked for, and nothing more is saved" {
    start_world 3 drift --steps 100000 --ckpt-writers all --ckpt-every 100000 --check-replicas 10
    wait_step drift 25
    python3 "$MUSTER_TOP/tests/tools/flip_bits.py" "${PIDS[1]}"
    ! end_world || return 1
    [ "${STATUSES[*]}" = "1 1 1" ]
    words='the weights of rank 1 on [^ ]* differ from those of the other ranks'
    grep "after step [0-9]*0 $words; after step [0-9]*0 all were equal" rank0.out
    grep 'rank 1 on .*the weights here differ' rank1.out
    [ -z "$(saved_steps drift)" ]
}

@test "more ranks than slots are refused with what fits" {
    run train_world 9 badworld
    echo "$output"
    [ "$status" -eq 2 ]
    [[ $output = *"muster: error: 9 ranks can't share the 8 slots of a step, some would have none: start 1 to 8 ranks"* ]]
}

@test "a rank that never starts is named within the deadline" {
    mkdir -p meet
    export RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MUSTER_RDZV_DIR=meet \
        MUSTER_RDZV_ID=absent-$$
    local began=$SECONDS
    fails 69 "rank 1" train absent --rdzv-timeout 2
    in_time 10 $began
}

@test "a checkpoint directory that can't be used is refused with its name" {
    : >file
    fails 2 file train file
    fails 2 "file/below" train file/below
    # Of several ranks, one says whose fault it is, and once.
    run train_world 2 file/below
    echo "$output"
    [ "$status" -eq 2 ]
    [ "$(grep -c 'rank' <<<"$output")" -eq 1 ]
    grep -q '^muster: error: rank 0 on [^:]*: checkpoint: .* file/below: ' <<<"$output"
}

@test "a damaged checkpoint is set aside and the one before is used" {
    cp -r whole damaged
    rm -r damaged/step-00000100
    printf x | dd of=damaged/step-00000080/"$(cd whole/step-00000080 && ls model-*.safetensors)" \
        bs=1 seek=5000 conv=notrunc
    run train damaged
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"step 60 from"* ]]
    ls -d damaged/step-00000080.damaged-*
    same_as_whole damaged
}

@test "a second run on the same directory is refused while the first lives" {
    local pid
    REPLACE=exec train shared --steps 100000 >shared.out 2>&1 3>&- &
    pid=$!
    wait_step shared 1
    fails 2 shared train shared --steps 100000
    kill $pid
    wait $pid || [ $? -eq 75 ]
}

@test "a disk that is full in mid-run is reported, and training goes on" {
    [ "$(id -u)" = 0 ] || skip "mounting a small file system needs root"
    mkdir -p disk
    run unshare -m \
        bash -c "$(declare -f train wait_for wait_log has_words)
        mount -t tmpfs -o size=6m none disk || exit 99
        train disk/run --steps 1500 --ckpt-every 50 --keep-last 1 >disk.out 2>&1 3>&- & pid=\$!
        wait_log disk.out 'step [0-9]* is durable'
        cat /dev/zero >disk/filler 2>/dev/null
        wait_log disk.out 'save step' || exit 98
        rm disk/filler
        wait \$pid || exit \$?
        muster-curve disk/run | wc -l"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" -eq 1500 ]
    grep -q 'the last good one is step' disk.out
}

@test "a full directory at the start is refused with its name" {
    [ "$(id -u)" = 0 ] || skip "mounting a small file system needs root"
    mkdir -p full
    run unshare -m bash -c "$(declare -f train); mount -t tmpfs -o size=64k none full || exit 99
        cat /dev/zero >full/filler 2>/dev/null; train full/run"
    echo "$output"
    [ "$status" -eq 69 ]
    [[ $output = *full* ]]
}

@test "wrong options are refused in one line with the remedy" {
    fails 2 "did you mean --steps?" train usage --stepz 5
    fails 2 "--heads takes a whole number" train usage --heads x
    fails 2 "--data is missing" muster-train
    run muster-train --stepz 5
    [ ${#lines[@]} -eq 1 ]
    run muster-train --help
    [ "$status" -eq 0 ]
    [[ $output = *--require-identical* ]]
}

@test "a program that can't print what it was asked for says so and fails" {
    local words status
    mkdir -m 700 service
    muster-ckptd --socket service/ckptd.sock --allow-root --detach
    for words in "muster-curve whole" "muster-ckpt ls whole" "muster-ckpt show whole --json" \
        "muster-ckpt history whole" \
        "muster-rdzv" "muster-rdzv --json" "muster-doctor --list" \
        "muster-where whole" "muster-ckptd --status service/ckptd.sock"; do
        status=0
        # shellcheck disable=SC2086
        command $words >/dev/full 2>full.err || status=$?
        echo "$words: $status: $(<full.err)"
        [ $status -eq 1 ]
        grep -q "couldn't write to standard output: No space left on device" full.err
    done
    muster-ckptd --finish service/ckptd.sock
}
