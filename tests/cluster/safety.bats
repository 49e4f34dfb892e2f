#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What runs as root on a node does no harm: whatever fails in a hook of the plugin, the job has its own result, no node is
# drained, slurmstepd lives and nothing is left; whatever a hostile user sets, plants, stops or kills, it is bounded; and what is
# started for a user has nothing of root's.

load helpers

setup_file() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    export PLUGIN=$MUSTER_PREFIX/lib/slurm/spank_muster.so FAULTY=${MUSTER_BUILD-}/tests/tools/.libs/spank_faulty.so
    export MUSTER_CLUSTER_KILLWAIT=2 MUSTER=1
    [ -e "$PLUGIN" ] || return 0
    cluster_begin 2 --plugin "$PLUGIN"
    [ "$(id -u)" = 0 ] || return 0
    # fails.sh: two tasks on two nodes say their rank; the first ends with 7.
    printf '#!/bin/sh\necho "ran ${RANK-none} of ${WORLD_SIZE-none}"\n[ "$SLURM_PROCID" != 0 ] || exit 7\nsleep 0.5\n' >"$JOBS/fails.sh"
    chmod 755 "$JOBS/fails.sh"
}

teardown_file() { cluster_end; }

setup() {
    [ -e "$PLUGIN" ] || skip "this build has no plugin: no Slurm headers"
    cluster_require
}

teardown() {
    [ ! -e "$BATS_TEST_TMPDIR/pids" ] || kill -KILL $(cat "$BATS_TEST_TMPDIR/pids") 2>/dev/null || :
    cluster_explain
}

as() { cluster run --user "$1" --node "$2" "${@:3}"; }
srun() { cluster run timeout 60 srun "$@"; }
no_node_drained() { [ -z "$(cluster run sinfo -h -t drain,fail,down -o '%n %E')" ]; }
idle() { node_is n1 idle && node_is n2 idle; }
nothing_left() { [ -z "$(as root n1 find /run/muster -mindepth 1 2>/dev/null)$(as root n2 find /run/muster -mindepth 1 2>/dev/null)" ]; }
nodes_log() { cat "$(cluster status log)"/slurmd-n?.log; }
# Whether none of our programs runs on a node of this cluster: others may be up.
no_services() {
    local pid
    for pid in $(pgrep -f '^([^ ]*/)?muster-(ckptd|requeue|first-node)'); do
        ! grep -qs "$(cluster status dir)/own " "/proc/$pid/mountinfo" || return 1
    done
}

# plugin WORD FILE [ARG…]: as `cluster plugin`, with WORD (optional or required) in front.
plugin() {
    local conf
    conf=$(dirname "$(cluster status conf)")/plugstack.conf
    echo "$*" >"$conf.new" && mv "$conf.new" "$conf"
}

# fault HOOK:CALL RESULT: a step while that call fails in that hook, of a plugin that is `required`: its tasks run, the first with status
# 7, which is what srun ends with ("runs"); or they end with 2 and a line of ours ("stops").
fault() {
    local began=$SECONDS
    plugin required "$FAULTY" drain=5 "fault=$1"
    run srun -N2 -n2 --kill-on-bad-exit=0 ./fails.sh
    echo "--- $1: $status after $((SECONDS - began)) s"
    echo "$output"
    case $2 in
    runs) [[ $status -eq 7 && $output = *"ran 0 of 2"* && $output = *"ran 1 of 2"* ]] || return 1 ;;
    stops) [[ $status -eq 2 && $output = *"error: muster: "* && $output != *"ran "* ]] || return 1 ;;
    esac
    no_node_drained
}

@test "a failure in srun or slurmstepd, in whatever hook: the step has its own result or says why not, and no node is drained" {
    [ -e "$FAULTY" ] || skip "MUSTER_BUILD is not a build with its tests"
    fault srun_init:spank_option_register runs
    fault srun_init:calloc runs
    fault srun_post_opt:socket runs
    fault srun_post_opt:spank_job_control_setenv runs
    fault stepd_init:spank_option_register stops
    fault post_opt:spank_get_item stops
    fault post_opt:spank_getenv stops
    fault post_opt:mmap runs
    fault post_opt:memfd_create runs
    fault post_opt:dlsym runs
    fault user_init:mmap runs
    fault task_init:spank_getenv stops
    fault task_init:spank_setenv stops
    fault task_exit:spank_get_item runs
    fault task_exit:socket runs
    fault task_exit:fork runs
    [[ $output = *"couldn't fork"* ]]
    fault task_exit:setresuid runs
    [[ $output = *"its privileges can't be dropped"* ]]
    fault task_exit:execve runs
    [[ $output = *"it took too long"* ]]
    wait_for 20 idle
    wait_for 20 nothing_left
    wait_for 5 no_services
}

@test "a failure in the prolog or the epilog: the job runs, the next one has the node, nothing is left" {
    [ -e "$FAULTY" ] || skip "MUSTER_BUILD is not a build with its tests"
    for call in spank_get_item mkdirat fchown socket fork calloc getpwuid_r setresuid; do
        fault prolog:$call runs
    done
    nodes_log | grep -q "was not started.*couldn't make /run/muster: No space left on device"
    nodes_log | grep -q "was not started.*its privileges can't be dropped"
    fault prolog:execve runs
    nodes_log | grep -q "was not started.*it took too long"
    for call in fork setresuid; do
        fault epilog:$call runs
    done
    wait_for 20 idle
    wait_for 20 nothing_left
    # Where root can't remove the folder it stays, and that is said; the service ends all the same.
    for call in unlinkat fchown; do
        fault epilog:$call runs
        wait_for 20 idle
        [ "$(as root n1 ls /run/muster)" = "$(as root n2 ls /run/muster)" ]
        nodes_log | grep -q "couldn't remove /run/muster/$(as root n1 ls /run/muster): Read-only file system"
        wait_for 10 no_services
        as root n1 rm -r /run/muster
        as root n2 rm -r /run/muster
    done
}
