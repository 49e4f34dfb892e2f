#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# PyTorch trainings with the Python package on a real Slurm: 2 nodes with 2 ranks each, in --long
# with 4, loader workers beside them, preempted and killed.

load ../lib/has_torch
load ../lib/python_package
load helpers
load ../lib/documents
load training
load restart
load pytorch

setup_file() {
    export MUSTER_CLUSTER_GRACE=30
    plugin_locate && has_torch || return 0
    cluster_begin 2 --plugin "$PLUGIN"
    pytorch_job
    export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    python_package
}

setup() {
    has_torch || skip "no python3-torch"
    plugin_require
}

teardown() {
    cluster_explain
    resume_drained
    job_cancel_left
}

OPTIONS=(--samples 384 --batch 24 --workers 2 --every 7) # an epoch is 16 steps
STEPS=48
EACH=${MUSTER_LONG:+4} && EACH=${EACH:-2} # ranks a node

submit() { job_submit --muster -N2 --ntasks-per-node="$EACH" --exclusive job.sh "$@"; }

# disturb JOB NAME KIND…: each kind at a moment of its own; waits for the attempt that follows. No
# step ends beyond that moment before its notice or its death, or the training might be over.
disturb() {
    local job=$1 name=$2 kind attempt=0 rank pid step
    for kind in "${@:3}"; do
        step=$(($(train_step "$name") + 2 + RANDOM % 4))
        pace 0 $((step + 4))
        wait_for 120 train_has_step "$name" $step
        echo "$kind after step $(train_step "$name")"
        case $kind in
        preempt) job_preempt "$job" 0 ;;
        kill)
            rank=$((RANDOM % (2 * EACH)))
            read -r _ pid < <(train_rank "$job" $rank python3)
            kill -KILL "$pid"
            ;;
        esac
        attempt=$((attempt + 1))
        job_wait_attempt "$job" $attempt 120
    done
    pace 0
    job_wait "$job" 180 COMPLETED
    cat "$(job_output "$job")"
}

# undisturbed NAME OPTION…
undisturbed() {
    local job
    job=$(submit "$@") && job_wait "$job" 120 COMPLETED
}

# The undisturbed training that the others are held against.
sum_whole() {
    [ -e "$JOBS/sum-whole" ] || undisturbed sum-whole "${OPTIONS[@]}" --epochs 3 --sum --workers 0
}

# No step was done again after a preemption: each attempt begins where the one before stopped.
@test "gradients added in rank order: preempted and killed, the same bits" {
    sum_whole
    pace 0 1
    job=$(submit sum "${OPTIONS[@]}" --epochs 3 --sum --pause 0.1 --writers node)
    disturb "$job" sum preempt kill
    same sum sum-whole
    [ "$(grep -c 'DataLoader worker' "$(job_output "$job")")" -eq 0 ]
    stopped=$(sed -n 's/^muster: stops after step \([0-9]*\): SIGTERM on rank .*/\1/p' \
        "$(job_output "$job")")
    grep -q "^rank $((2 * EACH - 1)) begins after step $stopped\$" "$(job_output "$job")"
    # The first rank of each node wrote its part.
    ls "$JOBS"/sum/step-*/part-00002-of-00002.json
    # An attempt's record says why it ended.
    grep -q '"event": *"end".*"why": *"SIGTERM".*"status": *75' "$JOBS/sum/attempts.jsonl"
}

@test "a rank dies under muster-run: the step begins again within its job, with the same bits" {
    sum_whole
    pace 0 14
    job=$(LAUNCHER="muster-run --" submit again "${OPTIONS[@]}" --epochs 3 --sum --pause 0.1)
    wait_for 120 has_saved again 0
    read -r _ pid < <(train_rank "$job" 1 python3)
    kill -KILL "$pid"
    pace 0
    job_wait "$job" 180 COMPLETED
    cat "$(job_output "$job")"
    [ "$(job_restarts "$job")" -eq 0 ]
    [ "$(started again restart)" = "0 1" ]
    same again sum-whole
}

# bats test_tags=long
@test "DDP: five preemptions and three killed ranks, each sample once, and losses within 1e-5" {
    STEPS=160
    undisturbed ddp-whole "${OPTIONS[@]}" --epochs 10 --workers 0
    pace 0 1
    job=$(submit ddp "${OPTIONS[@]}" --epochs 10 --pause 0.1 --writers all)
    # Never three failures in a row without progress: the job would end.
    disturb "$job" ddp preempt kill preempt preempt kill preempt kill preempt
    same ddp ddp-whole 1e-5
}

@test "the README's example: preempted and back, and it learns" {
    cp -r "$MUSTER_TOP/slurm-examples" "$JOBS/"
    line=$(commands cluster "$MUSTER_TOP/README.md" | grep '^srun .*torch_muster.py')
    [ -n "$line" ]
    line=${line//\/shared\//} && line=${line/python3//usr/bin/python3}
    printf '#!/bin/bash\n%s --epochs 60 &\nwait $!\n' "$line" >"$JOBS/readme.sh"
    job=$(job_submit --muster -N2 --ntasks-per-node=2 --gpus-per-task=1 --exclusive readme.sh)
    wait_for 90 train_has_step torch1 40
    job_preempt "$job" 0
    job_wait_attempt "$job" 1 90
    job_wait "$job" 120 COMPLETED
    cat "$(job_output "$job")"
    grep -q '^epoch 60 of 60, 4 ranks, loss ' "$(job_output "$job")"
    # It learns, and no epoch is done twice. One that ends with the step after which the job stops
    # has no line.
    stopped=$(sed -n 's/^muster: stops after step \([0-9]*\):.*/\1/p' "$(job_output "$job")")
    awk -v lines=$((stopped % 32 == 0 ? 59 : 60)) '
        /^epoch/ { last = $NF; if (!first) first = last; if (seen[$2]++) exit; n++ }
        END { exit !(4 * last < first && n == lines) }' "$(job_output "$job")"
}

# The plugin's service outlives the step: what was handed over is not lost. In an allocation,
# which the end of a killed step does not end.
# bats test_tags=long
@test "all ranks killed right after a save was handed over, 50 times: nothing is lost" {
    cat >"$JOBS/killed.sh" <<'END'
#!/bin/bash
for ((n = 0; n < 50; n++)); do
    timeout -k 10 $HANG srun --kill-on-bad-exit=0 /usr/bin/python3 program.py --run killed \
        --samples 4000 --batch 10 --workers 1 --every 1000 --die-after $((1 + n % 3))
done
exit 0
END
    chmod a+rx "$JOBS/killed.sh"
    run cluster run salloc --muster -N1 -n2 ./killed.sh
    echo "$output"
    [ "$status" -eq 0 ]
    expected=0
    for ((n = 0; n < 50; n++)); do
        grep -q "^rank 1 begins after step $expected\$" <<<"$output" || {
            echo "no attempt began after step $expected"; return 1
        }
        expected=$((expected + 1 + n % 3))
    done
    muster-ckpt verify --deep "$JOBS/killed"
    [ "$(muster-ckpt ls "$JOBS/killed" | grep -c "$((expected))\b")" -ge 1 ]
}
