#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --trace: one file with all ranks' spans on one time axis, whenever the run ends in order; and what
# metrics say of communication.

load small_run

setup_file() { small_run_prepare; }

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# check_trace FILE RANKS FIRST LAST SLOTS: it is whole and consistent; prints how many spans it has.
check_trace() { python3 "$MUSTER_TOP/tests/tools/check_trace.py" "$@"; }

@test "three ranks, two slots and buckets each: every span is there, nested, and in time" {
    valid=(--validation-data valid.u16 --validate-every 2)
    train_world 3 traced --steps 6 --width 128 --context 64 --vocabulary 8192 --bucket-mb 1 \
        --ckpt-every 2 \
        --trace traced.json --trace-steps 2-5 "${valid[@]}"
    check_trace traced.json 3 2 5 8 several
    grep -q 'steps 2 to 5 are in traced.json, [0-9]* spans' rank0.out
    # The same bits with and without.
    train plain --steps 6 --width 128 --context 64 --vocabulary 8192 --ckpt-every 2 "${valid[@]}"
    diff <(muster-curve plain) <(muster-curve traced)
    # Rank 0's line says the same of a step as its spans do.
    python3 - <<'END'
import json
lines = {l["step"]: l for l in map(json.loads, open("traced/metrics-0.jsonl")) if "loss" in l}
# How far they are apart; below 1 is near enough. A process that the machine holds up between two
# looks at the clock is so in single steps, so it has to be near in three of the four.
apart = {"step": [], "busy": [], "waited": []}
spans = [e for e in json.load(open("traced.json"))["traceEvents"]
         if e["ph"] == "X" and e["pid"] == 0]
for step in 2, 3, 4, 5:
    whole = next(e for e in spans if e["name"] == f"step {step}")
    inside = [e for e in spans if e["args"]["step"] == step and e["ts"] >= whole["ts"]
        and e["ts"] + e["dur"] <= whole["ts"] + whole["dur"]]
    busy = sum(e["dur"] for e in inside if e["tid"] == 1) / 1e3
    waited = sum(e["dur"] for e in inside if e["name"] == "wait") / 1e3
    line = lines[step]
    print(step, line["milliseconds"], whole["dur"] / 1e3, "communication",
          line["communication_milliseconds"], busy,
          "exposed", line["exposed_milliseconds"], waited)
    apart["step"].append(abs(line["milliseconds"] - whole["dur"] / 1e3))
    told = line["communication_milliseconds"]
    apart["busy"].append(max((busy - told) / 0.5, (told - busy * 1.2) / 2))
    apart["waited"].append(abs(line["exposed_milliseconds"] - waited))
    assert 0 <= line["exposed_milliseconds"] <= line["milliseconds"]
assert all(sorted(a)[2] < 1 for a in apart.values()), apart
END
}

@test "the first ten steps are the default; one rank alone; a run that is shorter" {
    train alone --steps 12 --trace alone.json >alone.out
    check_trace alone.json 1 1 10 8
    train alone --steps 15 --change steps --trace later.json
    check_trace later.json 1 13 15 8
}

@test "a notice ends the run within the steps: the file has those that were done" {
    start_world 2 noticed --steps 100000 --trace noticed.json --trace-steps 3-90000
    wait_step noticed 5
    [ ! -e noticed.json ]
    kill -TERM "${PIDS[@]}"
    end_world || [ $? -eq 75 ]
    last=$(muster-curve noticed | tail -n 1 | cut -d' ' -f1)
    check_trace noticed.json 2 3 "$last" 8
    [ -d "noticed/step-$(printf %08d "$last")" ]
}

@test "--comm none computes without exchanging, replay exchanges without computing, and the trace tells both" {
    # measure MODE OPTION…: two ranks, no directory.
    measure() {
        local mode=$1 rank pids=()
        shift
        export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MUSTER_RDZV_DIR=meet MUSTER_RDZV_ID=$$-$EPOCHREALTIME
        mkdir -p meet
        for rank in 0 1; do
            RANK=$rank LOCAL_RANK=$rank muster-train --data tokens.u16 --layers 2 --width 128 \
                --heads 2 --context 64 \
                --vocabulary 8192 --global-batch 8 --microbatch 1 --threads 1 --steps 4 \
                --bucket-mb 1 --comm "$mode" \
                --trace "$mode.json" "$@" >"$mode$rank.out" 2>&1 3>&- &
            pids+=($!)
        done
        for rank in "${pids[@]}"; do wait "$rank"; done
        [ "$(grep -c "not trained: --comm $mode" "${mode}0.out")" -eq 4 ]
    }
    for more in --slots=8 --zero=1 "--reduction=native"; do
        measure none "$more"
        measure replay "$more"
        python3 - <<'END'
import collections, json
spans = {}
for mode in "none", "replay":
    spans[mode] = [e for e in json.load(open(mode + ".json"))["traceEvents"] if e["ph"] == "X"]
compute = [e for e in spans["none"] if e["name"].startswith("backward of layer")]
ready = collections.Counter((e["pid"], e["args"]["step"], e["name"]) for e in spans["none"]
    if e["name"].startswith("ready: bucket"))
steps, buckets = range(1, 5), {name.split()[-1] for _, _, name in ready}
assert len(buckets) > 2 and len(compute) == 2 * 4 * 4 * (2 + 2 * 4), (buckets, len(compute))
assert all(ready[rank, step, f"ready: bucket {k}"] == 1
           for rank in (0, 1) for step in steps for k in buckets), ready
moved = {e["name"] for e in spans["none"]
         if e["tid"] == 1 and e["args"].get("bytes") and "bucket" in e["name"]}
assert not moved, moved
# Something is ready before the last layer is done.
first = next(e for e in spans["none"] if e["name"] == "ready: bucket 0"
             and e["pid"] == 0 and e["args"]["step"] == 2)
last = max(e["ts"] for e in compute if e["pid"] == 0 and e["args"]["step"] == 2)
assert first["args"]["ready"] < last, (first, last)
assert not any(e["name"].startswith(("backward", "forward")) for e in spans["replay"])
sent = collections.Counter()
for e in spans["replay"]:
    if e["name"].split(": ")[-1].startswith(("bucket", "sum of bucket", "weights of bucket")):
        sent[e["pid"], e["args"]["step"], e["name"].split()[-1]] += e["args"].get("bytes", 0)
assert all(sent[rank, step, k] > 0 for rank in (0, 1) for step in steps for k in buckets), sent
# What bench/overlap.sh makes of them.
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["MUSTER_TOP"] + "/bench")
from overlap_trace import Bound, Trace
bound = Bound([Trace("none.json")], [Trace("replay.json")])
assert len(bound.times) == len(bound.ready) == len(buckets) \
    and min(bound.times.values()) >= 0, bound.times
assert 0 < min(bound.ready.values()) < bound.computing < bound.step \
    and bound.communicating > 0 and bound.behind > 0, vars(bound)
END
    done
    fails 2 "--comm none measures a step and trains no model, so there is nothing for --ckpt-dir" \
        train kept --comm none
    # Ranks of which only one computes would spoil each other's sums.
    export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MUSTER_RDZV_DIR=meet MUSTER_RDZV_ID=$$-$EPOCHREALTIME
    small=(--data tokens.u16 --layers 1 --width 64 --heads 2
        --context 64 --vocabulary 64 --global-batch 8 --microbatch 1 --threads 1)
    RANK=1 LOCAL_RANK=1 muster-train "${small[@]}" --comm replay >apart1.out 2>&1 3>&- &
    RANK=0 LOCAL_RANK=0 fails 2 "--comm is 0 on rank 0 and 2 on rank 1" muster-train "${small[@]}" \
        --check-replicas 0
    wait $! && return 1 || [ $? -eq 2 ]
}

@test "ranks that are to trace something else each are told apart" {
    export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MUSTER_RDZV_DIR=meet MUSTER_RDZV_ID=$$-$EPOCHREALTIME
    mkdir -p meet
    RANK=1 LOCAL_RANK=1 train apart --trace apart.json --trace-steps 2-3 >apart1.out 2>&1 3>&- &
    RANK=0 LOCAL_RANK=0 fails 2 "rank 1 has another --trace or --trace-steps than rank 0" train \
        apart --trace apart.json
    wait $! && return 1 || [ $? -eq 2 ]
}

@test "what can't be is an error at once, and a full disk costs the trace only" {
    fails 2 "trace: couldn't create nowhere/t.json.part: No such file" train wrong \
        --trace nowhere/t.json
    fails 2 '--trace-steps 3-5 has no file' train wrong --trace-steps 3-5
    fails 2 '--trace-steps "5-3" is no range' train wrong --trace t.json --trace-steps 5-3
    [ ! -e t.json.part ]
    train early --steps 3 --trace early.json --trace-steps 50-60 >early.out 2>&1
    grep -q 'none of the steps 50 to' early.out
    [ ! -e early.json ]
    [ ! -e early.json.part ]
    ln -s /dev/full full.json.part
    train full --steps 3 --trace full.json >full.out 2>&1
    grep -q "trace: couldn't write full.json: No space left on device; the training goes on" \
        full.out
    [ ! -e full.json ]
}

@test "muster-curve --scaling: one rank against two, and what it refuses" {
    train scale1 --steps 20 >/dev/null 2>&1
    train_world 2 scale2 --steps 20 >/dev/null 2>&1
    run muster-curve --scaling --bars --skip 5 --json scaling.json --svg scaling.svg scale1 scale2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[1]} =~ ^' '+1\ +[0-9]+\ +1\.00\ +100\.0% && ${lines[2]} =~ ^' '+2' ' &&
        ${lines[4]} = *' 100.0%' ]]
    python3 -c 'import json; r = json.load(open("scaling.json"))["runs"]
assert [(x["ranks"], x["steps"]) for x in r] == [(1, 15), (2, 15)]
assert r[0]["efficiency"] == 1 and r[1]["communication_milliseconds"] > 0'
    fails 65 \
        "scale2: scaling: metrics-0.jsonl has 20 steps with all numbers, of which the first 20" \
        muster-curve --scaling --skip 20 scale2
    fails 65 "couldn't open the folder nowhere" muster-curve --scaling scale1 nowhere
    fails 1 "couldn't write nowhere/x.json: No such file" muster-curve --scaling \
        --json nowhere/x.json scale1
    fails 1 "couldn't write nowhere/x.svg: No such file" muster-curve --scaling \
        --svg nowhere/x.svg scale1
    fails 69 "couldn't write /dev/full: No space left" muster-curve --scaling --svg /dev/full \
        scale1
    python3 - <<'END'
import xml.etree.ElementTree as tree
texts = "".join(tree.parse("scaling.svg").getroot().itertext())
assert all(word in texts for word in ("ranks", "speedup", "perfect", "measured", "100.0%")), texts
END
    fails 1 "draw: there is no gnuplot: install it" env PATH="$BATS_TEST_TMPDIR" \
        "$(command -v muster-curve)" --scaling --svg none.svg scale1
    [ ! -e none.svg ]
    fails 2 "give one checkpoint directory" muster-curve scale1 scale2
    fails 2 "--json, --svg and --bars go with --scaling" muster-curve --bars scale1
    fails 2 "--skip x is no number" muster-curve --scaling --skip x scale1
}
