# SPDX-License-Identifier: Apache-2.0
# For the bats files that train on this machine, without a launcher: a model so small that a hundred
# steps take a second, the run of it that nobody disturbs, and local processes that meet in a
# folder.
# shellcheck shell=bash

# shellcheck source=tests/lib/places.bash
. "${BASH_SOURCE[0]%/*}/lib/places.bash"
# shellcheck source=tests/lib/wait_for.bash
. "${BASH_SOURCE[0]%/*}/lib/wait_for.bash"
LOOK_EVERY=0.02

# For setup_file: the environment and the data.
small_run_prepare() {
    export PATH=$MUSTER_BUILD:$PATH OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_RDZV@}"
    perl -e 'print pack("v", (7 * $_ + int($_ / 50)) % 64) for 0 .. 20000' \
        >"$BATS_FILE_TMPDIR/tokens.u16"
    perl -e 'print pack("v", (7 * $_ + int($_ / 50)) % 64) for 5000 .. 6000' \
        >"$BATS_FILE_TMPDIR/valid.u16"
}

# For setup_file: these, and the undisturbed run in "whole".
small_run_begin() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" && train whole >whole.out 2>&1
}

# For setup_file: the muster-train of machines without a GPU, over libraries in the place of a
# card's.
card_begin() {
    local tools=$MUSTER_BUILD/tests/tools
    cd "$BATS_FILE_TMPDIR" || return
    mkdir bin card
    ln -s "$tools/train_shim" bin/muster-train
    ln -s "$tools/.libs/fake_driver.so" card/libcuda.so.1
    ln -s "$tools/.libs/fake_cublaslt.so" \
        "card/$(grep -ao 'libcublasLt\.so\.[0-9]*' "$tools/train_shim" | head -n 1)"
    export PATH=$BATS_FILE_TMPDIR/bin:$PATH LD_LIBRARY_PATH=$BATS_FILE_TMPDIR/card
}

# One rank of a training of the small model in directory $1. In the background with REPLACE=exec, so
# that $! is its pid.
train() {
    local dir=$1
    shift
    ${REPLACE-} muster-train --data tokens.u16 --ckpt-dir "$dir" --layers 2 --width 32 --heads 2 \
        --context 32 --vocabulary 64 \
        --global-batch 8 --microbatch 1 --learning-rate 0.01 --min-learning-rate 0.001 \
        --warmup-steps 3 --threads 1 \
        --steps 100 --ckpt-every 20 --rdzv-timeout "$HANG" --collective-timeout "$HANG" "$@"
}

# slowly COMMAND…: one rank alone, or rank 0 of those that it starts, sleeps after each step, so
# that a hundred of them take two seconds on any machine: for a run that is interrupted.
slowly() { STEP_MILLISECONDS=20 LD_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/slow_steps.so "$@"; }

# train_world N DIR OPTION…: N ranks on this machine; the status of rank 0, once all are gone. Their
# pids are in PIDS.
train_world() {
    start_world "$@"
    end_world
}

# With PER_NODE=M they are told that M of them share a node, with CYCLIC=1 that these do not
# follow each other.
start_world() {
    local n=$1 rank meeting=$$-$EPOCHREALTIME
    local per=${PER_NODE:-$n}
    shift
    PIDS=()
    rm -f rank*.out
    mkdir -p meet
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$((CYCLIC ? rank / (n / per) : rank % per)) \
            LOCAL_WORLD_SIZE=$per GROUP_RANK=$((CYCLIC ? rank % (n / per) : rank / per)) \
            GROUP_WORLD_SIZE=$((n / per)) MUSTER_RDZV_DIR=meet MUSTER_RDZV_ID=$meeting \
            REPLACE=exec train "$@" >"rank$rank.out" 2>&1 3>&- &
        PIDS+=($!)
    done
}

# Waits for all ranks; STATUSES are their exit statuses.
end_world() {
    local pid
    STATUSES=()
    for pid in "${PIDS[@]}"; do
        wait "$pid" && STATUSES+=(0) || STATUSES+=($?)
    done
    cat rank*.out
    return "${STATUSES[0]}"
}

# interrupt_worlds DIR OPTION…: four ranks with the options are stopped, and then three without them
# are killed.
interrupt_worlds() {
    slowly start_world 4 "$@"
    wait_step "$1" 30
    kill "${PIDS[2]}"
    end_world || [ $? -eq 75 ]
    [ "${STATUSES[*]}" = "75 75 75 75" ]
    slowly start_world 3 "$1"
    wait_step "$1" 62
    kill -9 "${PIDS[@]}"
    end_world || :
}

# Name and hash of every tensor file of a checkpoint.
hashes() {
    python3 - "$1/manifest.json" <<'END'
import json, sys
for f in json.load(open(sys.argv[1]))["files"]:
    if f["name"].endswith(".safetensors"):
        print(f["name"], f["xxh3_128"])
END
}

same_as_whole() {
    diff <(hashes "whole/step-00000100") <(hashes "$1/step-00000100")
    diff <(muster-curve whole) <(muster-curve "$1")
}

# wait_step DIR STEP: until any attempt in DIR has done that step. In vain, it shows what the ranks
# said.
wait_step() { wait_for 20 has_step "$@" || { tail -n 3 rank*.out && return 1; }; }
has_step() { cat "$1"/metrics-*.jsonl 2>/dev/null | grep -q "\"step\": $2,"; }

# wait_for_lines N FILE: until it has that many.
wait_for_lines() { wait_for 10 has_lines "$@"; }
has_lines() { [ -e "$2" ] && [ "$(wc -l <"$2")" -ge "$1" ]; }

# wait_log FILE WORDS: until the log has them.
wait_log() { wait_for 20 has_words "$@" || { tail "$1" && return 1; }; }
has_words() { grep -q -- "$2" "$1" 2>/dev/null; }

# fails STATUS WORDS COMMAND…: the command ends with that status, and its output has the words.
fails() {
    local want=$1 words=$2
    shift 2
    run "$@"
    # shellcheck disable=SC2154 # bats' run sets status and output
    echo "$output"
    # shellcheck disable=SC2154
    [ "$status" -eq "$want" ] || { echo "status $status, not $want"; return 1; }
    grep -qF -- "$words" <<<"$output" || { echo "nothing said: $words"; return 1; }
}

# Steps of the checkpoints that a run has left, one a line.
saved_steps() { (cd "$1" && ls -d step-????????) | sed 's/step-0*//'; }

# samples DIR: the steps and texts of all attempts; two lines of a step where texts differ.
samples() {
    python3 - "$1"/metrics-*.jsonl <<'END'
import json, sys
found = set()
for name in sys.argv[1:]:
    for line in open(name, encoding="utf-8"):
        if line.endswith("\n") and "sample" in (record := json.loads(line)):
            found.add((record["step"], record["sample"]))
for step, text in sorted(found):
    print(step, text)
END
}

# sample_line: what muster-generate writes, as a sample text has it.
sample_line() {
    python3 -c '
import sys, unicodedata
names = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
def form(char):
    if char in names or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp"):
        return names.get(char, char)
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
text = sys.stdin.buffer.read()[:-1].decode("utf-8", "surrogateescape")
print("".join(map(form, text)))'
}
