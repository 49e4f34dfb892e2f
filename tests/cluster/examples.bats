#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Every command of README.md and doc/ that needs a cluster does what it says, as it is pasted
# (torch_muster.py's in pytorch.bats).

load ../lib/has_torch
load helpers
load ../lib/documents
STEPS=200
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=30
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
    cp -r "$MUSTER_TOP/slurm-examples" "$JOBS/"
    mkdir -m 777 "$JOBS/shared"
    # Debian's python3, which has PyTorch, wherever this shell finds another one.
    EXAMPLE_PATH=$MUSTER_PREFIX/bin:$(dirname "$(command -v sbatch)"):/usr/bin:/bin
    export EXAMPLE_PATH OMP_WAIT_POLICY=passive
}

teardown() {
    cluster_explain
    resume_drained
    job_cancel_left
}

# The lines that submit a script.
lines() { commands cluster "$MUSTER_TOP/doc/guide/trainer.md"; }

# paste SCRIPT: the line for that script; prints the job's id. /shared is a folder of this cluster.
paste_line() {
    local line
    line=$(lines | grep "slurm-examples/$1\$") || return 1
    # shellcheck disable=SC2086 # none or several
    cluster run env PATH="$EXAMPLE_PATH" TRAIN_ARGS="$TRAIN_ARGS" SBATCH_OUTPUT=slurm-%j.out \
        ${SLOW-} bash -c \
        "${line//\/shared/$JOBS\/shared}" | sed -n 's/^Submitted batch job //p' | grep .
}

# The same run, as far as its folder tells.
finished() { job_wait "$1" 90 COMPLETED && train_equals_reference "shared/$2"; }

@test "the manual has a line for every script, and no other" {
    diff <(lines | sed 's/.*slurm-examples\///' | sort) \
        <(cd "$MUSTER_TOP/slurm-examples" && ls ./*.sbatch | cut -c3- | sort)
}

@test "what is left: each command as it is pasted" {
    mapfile -t left < <(commands cluster "${DOCUMENTS[@]}" |
        grep -v '^export \|^srun .*torch_\|sbatch slurm-examples/' | sort -u)
    [ ${#left[@]} -ge 2 ]
    for line in "${left[@]}"; do
        echo "$line"
        run cluster run env PATH="$EXAMPLE_PATH" timeout -k 10 $((2 * HANG)) \
            bash -c "${line//\/shared/$JOBS\/shared}"
        echo "$output"
        # muster-doctor has something to say of this machine.
        [ "$status" -eq 0 ] || [[ $line = *muster-doctor* && $status = [13] ]]
        [[ $line != *muster-rdzv* ]] || [ "$(grep -cE '^ +[0-7]/8 ' <<<"$output")" -eq 8 ]
    done
    # The README's line for a training is one of the manual's, with validation data.
    commands cluster "$MUSTER_TOP/README.md" |
        grep -q "$(lines | grep -o 'sbatch .*train-spot.sbatch')"
}

@test "ranks" {
    id=$(paste_line ranks.sbatch)
    job_wait "$id" 60 COMPLETED
    cat "$(job_output "$id")"
    [ "$(grep -cE '^ +[0-7]/8 .* pmix ' "$(job_output "$id")")" -eq 8 ]
    for k in 0 1 2 3 4 5 6 7; do
        grep -q "^$k: rank $k of 8, local $((k % 2)) of 2, node $((k / 2)) (n$((k / 2 + 1))), meeting at 10.77.0.11:" \
            "$(job_output "$id")"
    done
}

@test "one node, several, several that may be taken away, a spare one: the same bits" {
    for name in node nodes spot restart; do
        id=$(paste_line train-$name.sbatch)
        finished "$id" $name
    done
}

@test "a run for each learning rate, each another" {
    id=$(paste_line train-array.sbatch)
    wait_for 90 array_ended "$id"
    [ "$(cat "$JOBS"/shared/rates/rate-*/curve.txt | grep -c "^ *$STEPS ")" -eq 4 ]
    [ "$(tail -qn 1 "$JOBS"/shared/rates/rate-*/curve.txt | awk '{ print $3 }' | sort -u | wc -l)" \
        -eq 4 ]
}
array_ended() { [ -z "$(cluster run squeue -h -j "$1" 2>/dev/null)" ]; }

@test "a scaling study: table, JSON and plot say what the metrics say" {
    # The last of its three steps is the one whose trace is left: eight ranks on four nodes.
    TRAIN_ARGS+=" --trace shared/scaling/trace.json"
    id=$(paste_line scaling.sbatch)
    job_wait "$id" 120 COMPLETED
    python3 "$MUSTER_TOP/tests/tools/check_trace.py" "$JOBS/shared/scaling/trace.json" 8 1 10 8
    for k in 0 1 2 3 4 5 6 7; do
        grep -q "\"process_name\", \"args\": {\"name\": \"rank $k on n$((k / 2 + 1))\"}" \
            "$JOBS/shared/scaling/trace.json"
    done
    cat "$(job_output "$id")"
    grep -q '^ranks  tokens/s  speedup  efficiency ' "$(job_output "$id")"
    [ "$(grep -cE '^ +[248]  #+\.*  [0-9.]+%$' "$(job_output "$id")")" -eq 3 ]
    [ "$(grep -oE '>[0-9.]+%<' "$JOBS/shared/scaling/scaling.svg" | wc -l)" -eq 3 ]
    python3 - "$JOBS/shared/scaling" "$(job_output "$id")" <<'END2'
import json, re, statistics, sys
runs = json.load(open(sys.argv[1] + "/scaling.json"))["runs"]
table = [line.split() for line in open(sys.argv[2]) if re.match(r" +\d+ +\d+ +\d+\.\d\d +\d", line)]
assert [run["ranks"] for run in runs] == [2, 4, 8] == [int(row[0]) for row in table], (runs, table)
for run, row, nodes in zip(runs, table, (1, 2, 4)):
    lines = [json.loads(line) for line in open(f"{sys.argv[1]}/nodes-{nodes}/metrics-0.jsonl")]
    lines = [line for line in lines if "loss" in line][10:]
    median = lambda of: statistics.median(map(of, lines))
    near = lambda a, b: abs(a - b) <= 1e-6 * abs(b) + 1e-9
    assert len(lines) == run["steps"] > 100 and {line["ranks"] for line in lines} == {run["ranks"]}
    assert near(run["tokens_per_second"], median(lambda l: l["tokens_per_second"]))
    for name in "milliseconds", "communication_milliseconds", "exposed_milliseconds":
        assert near(run[name], median(lambda l: l[name])), (name, run)
    # All communication may be hidden.
    assert run["communication_milliseconds"] > 0 and run["exposed_milliseconds"] >= 0, run
    assert near(run["hidden_milliseconds"],
        median(lambda l: max(l["communication_milliseconds"] -
            l["exposed_milliseconds"], 0)))
    assert near(run["speedup"], run["tokens_per_second"] / runs[0]["tokens_per_second"])
    assert near(run["efficiency"], run["speedup"] * 2 / run["ranks"])
    # The file has fewer digits than the table was rounded from: a half may go either way.
    shown = [run["tokens_per_second"], 100 * run["efficiency"], run["milliseconds"]] + [
        run[k + "_milliseconds"] for k in ("communication", "hidden", "exposed")]
    for text, value, digits in zip(row[1:2] + row[3:], shown, (0, 1, 1, 2, 2, 2)):
        text = text.rstrip("%")
        assert abs(float(text) - value) <= 0.5001 * 10 ** -digits \
            and len(text.partition(".")[2]) == digits, (text, value, row)
END2
}

@test "from four nodes to the three that are left, and the same bits" {
    # So that it is not over before a node is taken.
    id=$(SLOW="LD_PRELOAD=$JOBS/slow_steps.so STEP_MILLISECONDS=50" paste_line train-elastic.sbatch)
    wait_for 60 train_attempt_has shared/elastic 0 5
    [ "$(job_field "$id" NumNodes)" = 4 ]
    taker=$(taker_submit 1000 -N1)
    job_wait_attempt "$id" 1 60
    job_is "$taker" RUNNING
    finished "$id" elastic
    ranks=$(sed -n 's/.*"event": *"start".*"world_size": *\([0-9]*\).*/\1/p' \
        "$JOBS/shared/elastic/attempts.jsonl" | xargs)
    echo "ranks of the attempts: $ranks"
    # Fewer nodes than three, where the epilog on another was not through yet. (job_restarts says
    # what a third one is.)
    [[ $ranks = 8\ [246]* ]]
    # Six ranks have one or two of the eight slots each.
    [[ $ranks != *6 ]] || grep -q '^step .*  uneven +50%$' "$(job_output "$id")"
    [ "$(job_restarts "$id")" = 1 ]
    job_end "$taker"
}

# ---- PyTorch ----

need_torch() { has_torch || skip "no python3-torch"; }

# torch_alike FILE FILE: the same epoch, step, weights and optimizer state. Not to the last bit: DDP
# sums its first step after a start in buckets of another shape.
torch_alike() {
    (cd "$JOBS" && /usr/bin/python3 - "$@" <<'END2'
import sys, torch
a, b = (torch.load(name) for name in sys.argv[1:])
assert (a["epoch"], a["step"]) == (b["epoch"], b["step"])
flat = [torch.cat([t.flatten() for t in s["model"].values()] +
                  [t.flatten() for state in s["optimizer"]["state"].values()
                   for t in state.values()]) for s in (a, b)]
difference = (flat[0] - flat[1]).abs().max().item()
print("largest difference", difference)
assert len(flat[0]) > 6000 and difference < 1e-5
END2
    )
}

@test "a PyTorch script by plain srun, and preempted in the middle: the same result" {
    need_torch
    line=$(commands cluster "${DOCUMENTS[@]}" | grep '^srun .*torch_ddp.py')
    [ -n "$line" ]
    line="${line/--checkpoint/--epochs 6 --checkpoint}"
    local ranks=8 each=2
    [ -n "${MUSTER_LONG-}" ] || ranks=4 each=1
    line=${line/--ntasks-per-node=2/--ntasks-per-node=$each}
    run cluster run env PATH="$EXAMPLE_PATH" OMP_NUM_THREADS=1 timeout -k 10 $((2 * HANG)) \
        bash -c "${line//\/shared\//}"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "^epoch . of 6, $ranks ranks, loss " <<<"$output")" -eq 6 ]
    # it learns
    awk '/^epoch/ { last = $NF; if (!first) first = last } END { exit !(4 * last < first) }' \
        <<<"$output"
    export OMP_NUM_THREADS=1
    id=$(cluster run env PATH="$EXAMPLE_PATH" CKPT="$JOBS/shared/ddp.pt" \
        SCRIPT=slurm-examples/torch_ddp.py \
        sbatch --parsable --ntasks-per-node=$each slurm-examples/torch-ddp.sbatch --epochs 6)
    wait_for 90 grep -q '^epoch 2 of 6' "$(job_output "$id")"
    job_preempt "$id" 0
    job_wait_attempt "$id" 1 60
    job_wait "$id" 90 COMPLETED
    cat "$(job_output "$id")"
    grep -q '^resumed at epoch ' "$(job_output "$id")"
    # Every rank has saved with its loader's workers, which SIGTERM reached too.
    [ "$(grep -c 'DataLoader worker' "$(job_output "$id")")" -eq 0 ]
    [ "$(job_restarts "$id")" = 1 ]
    torch_alike ddp.pt shared/ddp.pt
}

# ---- what the administrator copies ----

@test "the line of plugstack.conf is one that the plugin takes" {
    read -r kind file arguments < <(grep -v '^#' "$MUSTER_TOP/slurm-examples/plugstack.conf")
    [ "$kind $file" = "optional spank_muster.so" ]
    # shellcheck disable=SC2086
    cluster plugin "$PLUGIN" $arguments
    run cluster run srun --muster -n1 printenv RANK
    cluster plugin "$PLUGIN"
    [ "$status $output" = "0 0" ]
}

@test "Slurm takes the lines of slurm.conf" {
    mine=$JOBS/slurm-try.conf
    keys=$(grep -v '^#' "$MUSTER_TOP/slurm-examples/slurm.conf" | sed -n 's/=.*//p' | sort -u |
        paste -sd '|')
    {
        grep -vE "^($keys)=" "$(cluster status conf)"; cat "$MUSTER_TOP/slurm-examples/slurm.conf"
    } >"$mine"
    # The cluster's munge is not where the machine's is.
    sed -i "s|^AuthInfo=|&socket=$(cluster status dir)/own/munge.socket,|" "$mine"
    run cluster run bash -c "SLURM_CONF=$mine sinfo -h -o %P"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output != *error* ]]
    echo 'NoSuchKey=1' >>"$mine"
    run cluster run bash -c "SLURM_CONF=$mine sinfo -h -o %P"
    [ "$status" -ne 0 ]
}
