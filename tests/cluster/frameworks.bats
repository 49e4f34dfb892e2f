#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What is built over attach() and over the checkpoint service, with the newest PyTorch, on a real
# Slurm: 2 nodes, each run preempted twice. It comes to the same result as undisturbed.
# bats file_tags=long

load ../lib/newest
load ../lib/python_package
load helpers
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=60
    plugin_locate || return 0
    cluster_begin 2 --plugin "$PLUGIN"
    cp "$MUSTER_TOP"/tests/python/{*_program,stand}.py "$JOBS/"
    cat >"$JOBS/job.sh" <<'END'
#!/bin/bash
# job.sh "RANKS…" PROGRAM NAME OPTION…: the first attempt has the first of these numbers of ranks.
read -ra ranks <<<"$1"
attempt=${SLURM_RESTART_COUNT:-0}
count=${ranks[attempt < ${#ranks[@]} ? attempt : ${#ranks[@]} - 1]}
srun -N$((count < 2 ? 1 : 2)) -n "$count" "$PYTHON" "$2" --run "$3" "${@:4}" &
wait $!
END
    chmod a+rx "$JOBS/job.sh"
    export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    python_package
}

setup() {
    plugin_require
    PYTHON=$(newest_python) || [[ $BATS_TEST_DESCRIPTION = *"from PyPI" ]] || skip "no PyTorch"
    export PYTHON
}

teardown() {
    cluster_explain
    resume_drained
    job_cancel_left
}

@test "PyTorch and what is over it, from PyPI" { why=$(newest_torch) || skip "$why"; }

submit() { job_submit --muster -N2 --exclusive job.sh "$@"; }

# The number of the newest checkpoint of NAME; -1 for none.
saved_step() {
    local newest
    newest=$(cd "$JOBS" && compgen -G "$1/step-*" | sort | tail -n 1) || :
    [ -z "$newest" ] || newest=$((10#${newest##*-}))
    echo "${newest:--1}"
}
has_saved() { [ "$(saved_step "$1")" -ge "$2" ]; }

# preempt JOB NAME ATTEMPT: once the attempt before has saved; until ATTEMPT runs.
preempt() {
    local step
    step=$(($(saved_step "$2") + 5))
    over() { has_saved "$2" "$step" || job_is "$1" FAILED COMPLETED; }
    wait_for 240 over "$@"
    has_saved "$2" $step || { cat "$(job_output "$1")" && return 1; }
    job_preempt "$1" 0
    job_wait_attempt "$1" "$3" 120
}

job_ends_well() {
    job_wait "$1" 400 COMPLETED FAILED
    cat "$(job_output "$1")"
    job_is "$1" COMPLETED
}

# preempted_twice NAME RANKS PROGRAM OPTION…: leaves what it told in `told`. Attempts that are to be
# preempted wait for that (tests/python/stand.py).
preempted_twice() {
    local name=$1 job attempt
    job=$(PREEMPTED=2 submit "$2" "$3" "$name" --pause 0.4 "${@:4}")
    for attempt in 1 2; do
        preempt "$job" "$name" $attempt
    done
    job_ends_well "$job"
    told=$(grep -o 'ends: .*' "$(job_output "$job")" | sort -u)
    # Each stop had the status that brings the job back.
    [ "$(grep -c '"event": *"end".*"status": *75' "$JOBS/$name/attempts.jsonl")" -eq 2 ]
    [ "$(grep -c '"event": *"end".*"status": *0' "$JOBS/$name/attempts.jsonl")" -eq 1 ]
    muster-ckpt verify --deep "$JOBS/$name"
}

# undisturbed RANKS PROGRAM OPTION…: leaves what it told in `expected`.
undisturbed() {
    local job
    job=$(submit "$1" "$2" undisturbed "${@:3}") && job_ends_well "$job"
    expected=$(grep -o 'ends: .*' "$(job_output "$job")" | sort -u)
    rm -rf "$JOBS/undisturbed"
    [ -n "$expected" ]
}

same() {
    undisturbed "$2" "$3"
    preempted_twice "$@"
    diff <(echo "$expected") <(echo "$told")
}

# Of two ranks: how DistributedDataParallel adds the gradients of more depends on its buckets, which
# it makes anew after an attempt's first step.
@test "Accelerate, preempted twice: the same bits" { same accelerate 2 accelerate_program.py; }

@test "Lightning, preempted twice: the same bits and losses" {
    same lightning 2 lightning_program.py
}

@test "Hugging Face's Trainer, preempted twice: the same bits and losses" {
    same trainer 2 transformers_program.py
}

@test "TorchTitan, preempted twice: the same bits" { same torchtitan 2 torchtitan_program.py; }

@test "canonical, from 8 ranks to 3 to 5 over two preemptions: the bits of one rank" {
    undisturbed 1 canonical_program.py --steps 60 --every 5
    preempted_twice canonical "8 3 5" canonical_program.py --steps 60 --every 5
    # Each rank tells its process as well.
    [ "$(grep -o 'ends: [^ ]* [^ ]*' <<<"$told" | sort -u)" = "${expected% in *}" ]
}

@test "FSDP2 over DCP, preempted twice, on 4, 2 and 8 ranks: what is read is what was saved" {
    local job attempt
    job=$(PREEMPTED=2 submit "4 2 8" dcp_program.py dcp --pause 0.4 --steps 40 --every 4)
    for attempt in 1 2; do
        preempt "$job" dcp $attempt
    done
    job_ends_well "$job"
    [ "$(grep -c '"event": *"end".*"status": *75' "$JOBS/dcp/attempts.jsonl")" -eq 2 ]
    # All ranks of both later attempts read the state that all of the one before had saved last.
    [ "$(grep -o 'read step .*' "$(job_output "$job")" | sort -u | wc -l)" -eq 2 ]
    [ "$(grep -c ' read step ' "$(job_output "$job")")" -eq $((2 + 8)) ]
    grep -o 'read step .*' "$(job_output "$job")" | sort -u | sed 's/^read/saves/' |
        while read -r line; do grep -qF "$line" "$(job_output "$job")" || exit 1; done
    muster-ckpt verify --deep "$JOBS/dcp"
}
