#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --zero 1: each rank has its share of the moments, and nothing else changes: not a bit of weights,
# moments, losses or norms, whichever ranks saved it and whichever resume.

load small_run

setup_file() {
    small_run_begin
    cat >slow_rank0 <<'END'
#!/bin/bash
# Each write to a socket of rank 0 takes 5 ms longer, or $DELAY us, as on a slow link; what it
# computes does not.
[ "$RANK" = 0 ] || exec "$@"
exec strace -f --seccomp-bpf -qq -o /dev/null -e trace=writev,sendmsg,sendto \
    -e inject=writev,sendmsg,sendto:delay_enter=${DELAY-5000} "$@"
END
    chmod +x slow_rank0
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# In place of small_run's: 600,000 parameters, which are three buckets, or two with --bucket-mb 25.
# Run by $WRAP where that is set.
train() {
    local dir=$1
    shift
    # shellcheck disable=SC2086
    ${REPLACE-} ${WRAP-} muster-train --data tokens.u16 --ckpt-dir "$dir" --layers 3 --width 128 \
        --heads 4 \
        --context 8 --vocabulary 64 --global-batch 8 --microbatch 1 --learning-rate 0.003 \
        --min-learning-rate 0.001 \
        --warmup-steps 3 --threads 1 \
        --steps 100 --ckpt-every 20 --rdzv-timeout "$HANG" --collective-timeout "$HANG" "$@"
}

# The same tensors, moments and curve as the undisturbed run of one rank, in whatever files.
equal_to_whole() {
    muster-ckpt diff whole/step-00000100 "$1/step-00000100"
    diff <(muster-curve whole) <(muster-curve "$1")
}

@test "worlds of 1, 3, 5 and 8 ranks have the bits of a run without it" {
    local n
    for n in 1 3 5 8; do
        train_world $n "zero$n" --zero 1 --bucket-mb $((n % 3 * 12 + 1)) >"zero$n.out" || {
            cat "zero$n.out"; return 1
        }
        equal_to_whole "zero$n"
    done
}

@test "ranks that do not follow each other on their nodes are killed; others resume them" {
    export PER_NODE=2 MUSTER_IFNAME=lo
    CYCLIC=1 slowly start_world 6 dealt --zero 1
    wait_step dealt 45
    kill -9 "${PIDS[@]}"
    end_world || :
    CYCLIC=1 slowly start_world 4 dealt --zero 1
    wait_step dealt 75
    kill "${PIDS[3]}"
    end_world || [ $? -eq 75 ]
    train_world 4 dealt --zero 1
    equal_to_whole dealt
}

@test "a split embedding's two sums have one owner: the bits of one rank" {
    local n
    train split --split-embedding --vocabulary 2000 --steps 20 >split.out 2>&1
    for n in 2 5; do
        train_world $n "split$n" --split-embedding --zero 1 --vocabulary 2000 --bucket-mb 1 \
            --steps 20 >out ||
            { cat out; return 1; }
        muster-ckpt diff split/step-00000020 "split$n/step-00000020"
        diff <(muster-curve split) <(muster-curve "split$n")
    done
}

@test "saved with it and resumed without, and the other way round, on other numbers of ranks" {
    interrupt_worlds mixed --zero 1
    train_world 5 mixed --zero 1 >mixed.out || { cat mixed.out; return 1; }
    grep -F 'resume: step ' mixed.out | grep -F ' with 3 ranks'
    equal_to_whole mixed
}

@test "weights travel while the next step computes, and a step says what it waited" {
    WRAP=./slow_rank0 train_world 2 traced --zero 1 --layers 6 --bucket-mb 1 --steps 5 \
        --ckpt-every 4 --trace traced.json \
        --trace-steps 2-5
    python3 - <<'END'
import json
lines = {l["step"]: l for l in map(json.loads, open("traced/metrics-0.jsonl")) if "loss" in l}
spans = [e for e in json.load(open("traced.json"))["traceEvents"] if e["ph"] == "X"]
end = lambda e: e["ts"] + e["dur"]
inside = lambda e, whole: whole["ts"] <= e["ts"] and end(e) <= end(whole)
shared = lambda e, f: max(0, min(end(e), end(f)) - max(e["ts"], f["ts"]))
apart, overlap = [], []
for rank in 0, 1:
    mine = sorted((e for e in spans if e["pid"] == rank), key=lambda e: e["ts"])
    steps = {step: next(e for e in mine if e["name"] == f"step {step}") for step in range(2, 6)}
    for step, whole in steps.items():
        waits = [e for e in mine if e["name"] == "wait" and inside(e, whole)]
        weights = [e for e in mine if "weights of bucket" in e["name"]
                   and e["args"]["step"] == step]
        buckets = [int(e["name"].split()[-1]) for e in weights]
        assert buckets == sorted(range(len(buckets)), reverse=True) and len(buckets) > 4, buckets
        # What is saved and what ends the run is whole; otherwise they come when the step is over.
        assert all(inside(e, whole) for e in weights) == (step >= 4), step
        if rank == 0:
            waited, line = sum(e["dur"] for e in waits) / 1e3, lines[step]
            print(step, "exposed", line["exposed_milliseconds"], "waited", waited)
            apart.append(abs(line["exposed_milliseconds"] - waited))
            assert line["exposed_milliseconds"] <= line["milliseconds"]
        if step not in (3, 4):
            continue
        forward = next(e for e in mine if e["name"] == "forward" and inside(e, whole))
        gates = [e for e in waits if inside(e, forward)]
        before = [e for e in mine if "weights of bucket" in e["name"]
                  and e["args"]["step"] == step - 1]
        assert len(gates) > 1 and end(before[-1]) <= end(gates[-1])
        computing = sum(shared(e, forward) - sum(shared(e, gate) for gate in gates) for e in before)
        print("rank", rank, "step", step, "computed", computing / 1e3,
              "ms of its forward pass while weights travelled")
        # The first layer is computed while weights of later ones have not even begun to travel.
        overlap.append(computing > 0 and before[-1]["ts"] > end(gates[0]))
# Who is held up by the machine between two looks at the clock is so in single steps.
assert sorted(apart)[len(apart) // 2] < 1, apart
assert any(overlap), overlap
END
    train plain --layers 6 --steps 5 --ckpt-every 4
    muster-ckpt diff plain/step-00000005 traced/step-00000005
}

@test "a rank killed while weights travel: the others say so, and other ranks go on" {
    rm -f rank*.out
    export DELAY=5000
    # Where the kill comes late, they wait for a later step already: then the link is slower.
    until grep "couldn't complete exchange of weights of bucket [0-2] of step 3 " rank0.out \
        rank2.out; do
        rm -rf killed
        WRAP=./slow_rank0 start_world 3 killed --zero 1 --bucket-mb 1 --ckpt-every 2
        wait_step killed 3 # said when the weights of this step have begun to travel
        kill -9 "${PIDS[1]}"
        end_world || [ $? -eq 69 ]
        [ "${STATUSES[*]}" = "69 137 69" ]
        # In an exchange, or between two.
        grep -E "(couldn't complete|after) exchange of .* of step " rank0.out rank2.out
        DELAY=$((DELAY * 2))
    done
    train_world 4 killed --zero 1 >killed.out || { cat killed.out; return 1; }
    grep -F 'resume: step 2 from killed' killed.out
    equal_to_whole killed
}

# moments PID: bytes of memory that a rank has for the moments, in the set of arenas that is there
# whole but for those of others.
moments() {
    python3 - "$1" <<'END'
import glob, os, sys
sets = [os.stat(fd) for fd in glob.glob(f"/proc/{sys.argv[1]}/fd/*")
        if "muster-snapshot" in os.readlink(fd)]
largest = max(sets, key=lambda s: s.st_blocks)
print(largest.st_blocks * 512 - largest.st_size // 3)
END
}

# share_of RANKS DIR: starts that many, and compares what each has with the RANKS-th part of all
# moments; leaves the least and the most of it, in bytes, in $least and $most.
share_of() {
    local pid here all=0 whole blocks
    start_world "$1" "$2" --zero 1 --width 256 --layers 4 --bucket-mb 25 --steps 100000 \
        --ckpt-every 0
    wait_log rank0.out '^step .* loss'
    least='' most=''
    whole=$(python3 -c 'import os, sys, glob
mapped = [f for f in glob.glob(f"/proc/{sys.argv[1]}/fd/*")
        if "muster-snapshot" in os.readlink(f)]
print(max(os.stat(f).st_size for f in mapped) * 2 // 3)' "${PIDS[0]}")
    for pid in "${PIDS[@]}"; do
        here=$(moments "$pid")
        echo "rank with $here of $whole bytes"
        all=$((all + here))
        # a block of each of the two moments to either side, in each of two buckets
        blocks=$((4 * 262144))
        [ $((here * $1)) -gt $((whole - $1 * blocks)) ]
        [ $((here * $1)) -lt $((whole + $1 * blocks)) ]
        [ -n "$least" ] && [ "$least" -le "$here" ] || least=$here
        [ -n "$most" ] && [ "$most" -ge "$here" ] || most=$here
    done
    [ "$all" -ge "$((whole - 65536))" ]
    [ "$all" -le "$((whole + $1 * 65536))" ]
    kill "${PIDS[0]}"
    end_world >"$2.out" || [ $? -eq 75 ]
}

@test "the moments take a fourth of their memory on each of four ranks, and no more anywhere" {
    local line
    share_of 4 big # and once more, after a resume on fewer
    share_of 3 big
    # The report at the start has these: pages of 4096 bytes are shared at both ends of a run.
    line=$(sed -n 's/^ *memory of a rank .* weights, \(.*\) MB moments.*/\1/p' big.out)
    echo "said: $line MB; measured: $least to $most bytes"
    awk -v said="$line" -v least="$least" -v most="$most" 'BEGIN {
        n = split(said, word)
        exit !((n == 3 || n == 1) && word[1] * 1e6 > least - 2e5 && word[1] * 1e6 < least + 1e5 &&
            word[n] * 1e6 > most - 2e5 && word[n] * 1e6 < most + 1e5) }'
}

@test "a rank that does not find the checkpoint is named" {
    mkdir empty
    cat >elsewhere <<'END'
#!/bin/bash
[ "$RANK" = 0 ] || set -- "$@" --ckpt-dir empty
exec "$@"
END
    chmod +x elsewhere
    train_world 2 seen --zero 1 --steps 3 >seen.out
    WRAP=./elsewhere fails 65 "rank 1 on" train_world 2 seen --zero 1 --steps 6 \
        --change steps,decay-steps
    grep -F "couldn't read this rank's share of step 3 in empty, which rank 0 has verified" \
        <<<"$output"
}

# damage STEP: a byte in the moments that rank 1 keeps.
damage() {
    python3 - "$1"/optimizer-00002-of-*.safetensors <<'END'
import os, sys
with open(sys.argv[1], "r+b") as file:
    file.seek(os.path.getsize(sys.argv[1]) // 2)
    byte = file.read(1)
    file.seek(-1, 1)
    file.write(bytes([byte[0] ^ 1]))
END
}

@test "damage that another rank finds: the checkpoint before; in its view only: it is named" {
    train_world 2 hurt --zero 1 >hurt.out
    cp -r hurt here
    cp -r hurt view
    damage hurt/step-00000100
    train_world 2 hurt --zero 1 >hurt.out
    grep "resume: step 80 from hurt" hurt.out
    [ -d hurt/step-00000100.damaged-1 ]
    equal_to_whole hurt
    damage view/step-00000100
    cat >wrap <<'END'
#!/bin/bash
[ "$RANK" = 0 ] || set -- "$@" --ckpt-dir view
exec "$@"
END
    chmod +x wrap
    WRAP=./wrap fails 65 "rank 1 on" train_world 2 here --zero 1
    grep -F "couldn't read this rank's share of step 100 in view, which rank 0 has verified" \
        <<<"$output"
    muster-ckpt verify --deep here/step-00000100
}

@test "a step that is left out, and what does not go with it" {
    local wild=(--learning-rate 1000 --min-learning-rate 1000 --weight-decay 1000 --clip 0
        --warmup-steps 0)
    train skipped "${wild[@]}" --on-nonfinite skip >skipped.out 2>&1
    train_world 2 skipped2 --zero 1 "${wild[@]}" --on-nonfinite skip >skipped2.out
    [ "$(grep -c '"skipped": true' skipped2/metrics-0.jsonl)" -gt 0 ]
    muster-ckpt diff skipped/step-00000100 skipped2/step-00000100
    fails 1 "not finite: " train_world 2 wild --zero 1 "${wild[@]}"
    grep -Eq 'step [0-9]+: not finite: .*first in the' <<<"$output"
    fails 2 "leave --reduction native out" train refused --zero 1 --reduction native
    fails 2 "leave --ckpt-writers out" train refused --zero 1 --ckpt-writers rank0
}
