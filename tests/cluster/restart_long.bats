#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-run for long: one allocation in which the step begins again 40 times; and the end of the
# node that muster-run itself is on.
# bats file_tags=long

bats_require_minimum_version 1.5.0
load helpers
RESTARTS=40
STEPS=$((12 * RESTARTS))
load training
load restart
TRAIN_ARGS+=" --validation-data train.bin --validate-every 1 --validate-batches 1"

setup_file() {
    # The suite's limit is for one test of seconds, and here is one of so many restarts.
    export BATS_TEST_TIMEOUT=$(((300 + 20 * RESTARTS) * ${MUSTER_PATIENCE:-3}))
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=5
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
}

setup() {
    plugin_require
    pace 200
    wait_for 60 all_idle
}

teardown() {
    cluster_explain
    # shellcheck disable=SC2046
    kill -CONT $(services) 2>/dev/null || :
    [ -n "${BATS_TEST_COMPLETED-}" ] || [ -z "${node-}" ] ||
        cluster start-node "$node" >/dev/null 2>&1 || :
}

services() { cluster_pids -x muster-ckptd; }

# step_now NAME: the last step of the newest attempt that has one; 0 for none.
step_now() {
    local file line
    file=$(printf '%s\n' "$JOBS/$1"/metrics-*.jsonl | sort -V | tail -n 1)
    line=$(grep '^{"step": [0-9]*, "loss".*}$' "$file" 2>/dev/null | tail -n 1)
    line=${line#*\"step\": } && line=${line%%,*} && echo "${line:-0}"
}

# has_begun RESTART RANK: whether the step that was begun again so often has that rank; sets $pid.
# shellcheck disable=SC2154 # start sets job
has_begun() {
    read -r _ pid < <(train_rank "$job" "$2") &&
        grep -qsxz "SLURM_MUSTER_RESTART=$1" "/proc/$pid/environ"
}

# kill_ranks RESTART RANK…: at once.
kill_ranks() {
    local rank pid pids=()
    for rank in "${@:2}"; do
        wait_for 60 has_begun "$1" "$rank" || return
        pids+=("$pid")
    done
    kill -9 "${pids[@]}"
}

# stands NAME RANK: what it does.
stands() {
    muster-where -a "$JOBS/$1" 2>/dev/null | sed -n "s/^  rank $2 on [^;]*Z: \([^;]*\).*/\1/p"
}

# --- disturbances of the training "many", in the step that was begun again RESTART times ---

# go STEPS: so many further ones than before may end.
go() { last=$((last + $1)) && pace 20 $last; }

a_rank() { go 5 && kill_ranks "$1" $((1 + RANDOM % 7)); }
rank_0() { go 5 && kill_ranks "$1" 0; }
two_ranks() {
    local rank=$((RANDOM % 8))
    go 5 && kill_ranks "$1" $rank $(((rank + 1 + RANDOM % 7) % 8))
}

# A save can't end while the checkpoint services are stopped. Where the one before has not ended
# either, the step after this one does not.
in_a_save() {
    local next pids
    mapfile -t pids < <(services)
    kill -STOP "${pids[@]}"
    next=$((($(step_now many) / 5 + 1) * 5))
    go 5
    wait_for 60 saves many $next
    [ ! -e "$JOBS/many/step-$(printf %08d $next)" ] || { echo "step $next was saved"; return 1; }
    kill_ranks "$1" $((1 + RANDOM % 7))
    kill -CONT "${pids[@]}"
}
# saves NAME STEP: whether its save has begun.
saves() {
    local doing
    doing=$(stands "$1" 0)
    [[ $doing = *" save of step $2 "* ]] ||
        { [[ $doing =~ \ step\ ([0-9]+)\  ]] && [ "${BASH_REMATCH[1]}" -gt "$2" ]; }
}

# Rank 0 does not end its step, and the others wait for it in the validation after it.
in_validation() {
    local rank=$((1 + RANDOM % 7))
    wait_for 60 is_held many
    wait_for 60 validates many $rank
    kill_ranks "$1" $rank
}
is_held() { [ "$(step_now "$1")" -eq $last ]; }
validates() { [[ $(stands "$1" "$2") = *" validation "* ]]; }

in_bootstrap() {
    pace 20 1
    kill_ranks "$1" $((1 + RANDOM % 7))
}

# goes_on_from NAME RESTART: the step that was begun again so often has made a newer checkpoint than
# that from which it began.
goes_on_from() {
    local restarts
    read -ra restarts < <(started "$1" restart 2>/dev/null) && [ ${#restarts[@]} -gt 0 ] &&
        [ "${restarts[-1]}" = "$2" ] && has_saved "$1" $((${#restarts[@]} - 1))
}

@test "40 restarts in one allocation: ranks die in all moments, and the bits are as undisturbed" {
    local kinds=(a_rank rank_0 two_ranks in_a_save in_validation in_bootstrap) restart kind last=0
    RANDOM=2718
    # Up to each death there are 5 to 10 steps, and a save, that no step before had.
    go 6
    LAUNCHER="muster-run --restarts=$RESTARTS --" start many
    for ((restart = 0; restart < RESTARTS; restart++)); do
        kind=${kinds[restart % 6]}
        [ "$kind" = in_bootstrap ] || wait_for 60 goes_on_from many $restart
        echo "restart $restart, step $(train_step many): $kind"
        "$kind" $restart
        go 5
    done
    wait_for 60 goes_on_from many $RESTARTS
    [ $last -lt "$STEPS" ]
    ends_in_place many
    # Those that died in the bootstrap, each before all else, may have left no record.
    began=$(started many restart | tr ' ' '\n')
    [ -z "$(sort <<<"$began" | uniq -d)" ]
    diff <(awk '$1 % 6 != 5' <<<"$began") <(seq 0 $RESTARTS | awk '$1 % 6 != 5')
    [ "$(started many world_size | tr ' ' '\n' | sort -u)" = 8 ]
    [ "$(grep -c '^muster-run: .*: beginning the step again on 4 nodes' "$JOBS/many.log")" \
        -eq $RESTARTS ]
    muster-ckpt verify --deep "$JOBS/many"
    wait_for 60 all_over
    no_node_drained
}

# batch_host_dies NAME SBATCH-OPTION…
batch_host_dies() {
    start "$1" "${@:2}"
    node=$(job_field "$job" BatchHost)
    cluster kill-node "$node"
    wait_for 120 job_left_attempt "$job" 0
    cluster start-node "$node"
    pace 0
    job_wait "$job" 240 COMPLETED
    [ "$(job_restarts "$job")" -eq 1 ]
    [ "$(started "$1" attempt)" = "0 1" ]
    train_equals_reference "$1"
    wait_for 60 all_over
    no_node_drained
}

@test "the batch host dies: Slurm puts the job back, and the bits are the same" {
    batch_host_dies host
}

@test "the batch host dies of a job that goes on without it (--no-kill): the job is put back" {
    batch_host_dies alone --no-kill
}
