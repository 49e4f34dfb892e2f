#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What runs as root on a node does no harm: whatever fails in a hook of the plugin, the job has its
# own result, no node is drained, slurmstepd lives and nothing is left; whatever a hostile user
# sets, plants, stops or kills, it is bounded; and what is started for a user has nothing of root's.

load helpers

setup_file() {
    export FAULTY=${MUSTER_BUILD-}/tests/tools/.libs/spank_faulty.so
    export MUSTER_CLUSTER_KILLWAIT=2 MUSTER=1
    # Slurm takes seconds to launch with ten thousand variables.
    export MUSTER_CLUSTER_CRED_EXPIRE=60
    plugin_locate || return 0
    cluster_begin 2 --plugin "$PLUGIN"
    # fails.sh: two tasks on two nodes say their rank; the first ends with 7.
    printf '#!/bin/sh\necho "ran ${RANK-none} of ${WORLD_SIZE-none}"\n[ "$SLURM_PROCID" != 0 ] || exit 7\nsleep 0.5\n' \
        >"$JOBS/fails.sh"
    chmod 755 "$JOBS/fails.sh"
}

teardown() {
    # shellcheck disable=SC2046
    kill -KILL $(noted "$BATS_TEST_TMPDIR/pids") 2>/dev/null || :
    cluster_explain
    resume_drained
}

# Whether a command fails; a bare "!" would not fail the test.
not() { ! "$@"; }

as() { cluster run --user "$1" --node "$2" "${@:3}"; }
srun() { cluster run timeout "$HANG" srun "$@"; }
idle() { node_is n1 idle && node_is n2 idle; }
nothing_left() {
    [ -z "$(for node in n1 n2; do as root $node find /run/muster -mindepth 1 2>/dev/null; done)" ]
}
nodes_log() { cat "$(cluster status log)"/slurmd-n?.log; }
# Whether none of our programs runs on a node of this cluster.
no_services() { [ -z "$(cluster_pids -f '^([^ ]*/)?muster-(ckptd|requeue|first-node)')" ]; }

# plugin WORD FILE [ARG…]: as `cluster plugin`, with WORD (optional or required) in front.
plugin() {
    local conf
    conf=$(dirname "$(cluster status conf)")/plugstack.conf
    echo "$*" >"$conf.new" && mv "$conf.new" "$conf"
}

# fault HOOK:CALL RESULT: a step while that call fails in that hook, of a plugin that is `required`:
# its tasks run, the first with status 7, which is what srun ends with ("runs"); or they end with 2
# and a line of ours ("stops").
fault() {
    local began=$SECONDS
    plugin required "$FAULTY" drain=5 "fault=$1"
    run srun -N2 -n2 --kill-on-bad-exit=0 ./fails.sh
    echo "--- $1: $status after $((SECONDS - began)) s"
    echo "$output"
    case $2 in
    runs) [[ $status -eq 7 && $output = *"ran 0 of 2"* && $output = *"ran 1 of 2"* ]] || return 1 ;;
    stops)
        [[ $status -eq 2 && $output = *"error: muster: "* && $output != *"ran "* ]] || return 1
        ;;
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
    # Where root can't remove the folder it stays, and that is logged; the service ends all the
    # same.
    for call in unlinkat fchown; do
        fault epilog:$call runs
        wait_for 20 idle
        [ "$(as root n1 ls /run/muster)" = "$(as root n2 ls /run/muster)" ]
        nodes_log | grep -q \
            "couldn't remove /run/muster/$(as root n1 ls /run/muster): Read-only file system"
        wait_for 10 no_services
        as root n1 rm -r /run/muster
        as root n2 rm -r /run/muster
    done
}

# service NODE JOB: the pid of a job's service, as root has noted it.
service() {
    as root "$1" sed -n 's/^pid \([0-9]*\) .*/\1/p' "/run/muster/job-$2/service" 2>/dev/null
}
has_service() { kill -0 "$(service "$1" "$2")" 2>/dev/null; }

# is_plain_user PID USER: whether the process, or the file with its /proc/PID/status, has that
# user's ids and groups, no capability, and no way to another.
is_plain_user() {
    local status uid gid
    status=$(tr -s '\t ' ' ' <"$1")
    uid=$(id -u "$2") gid=$(id -g "$2")
    grep -qx "Uid: $uid $uid $uid $uid" <<<"$status" &&
        grep -qx "Gid: $gid $gid $gid $gid" <<<"$status" || return 1
    [ "$(sed -n 's/^Groups: \(.*[0-9]\) *$/\1/p' <<<"$status")" = "$(id -G "$2")" ] || return 1
    [ "$(grep -cE '^Cap(Inh|Prm|Eff|Amb): 0+$' <<<"$status")" -eq 4 ] &&
        grep -qx 'NoNewPrivs: 1' <<<"$status"
}

@test "what is started for a user has nothing of root's: no id, group, capability, descriptor, folder or variable" {
    cat >"$JOBS/probe" <<END
#!/bin/sh
cp /proc/\$\$/status $JOBS/seen.status
tr '\\0' '\\n' </proc/\$\$/environ >$JOBS/seen.environ
{ readlink /proc/\$\$/cwd; cat /proc/\$\$/oom_score_adj;
    ps -o sid= -p \$\$ | tr -d ' '; echo \$\$; } >$JOBS/seen.rest
(ls -l /proc/\$\$/fd >$JOBS/seen.ls)
exit 0
END
    chmod 755 "$JOBS/probe"
    plugin optional "$PLUGIN" "requeue=$JOBS/probe"
    conf=$(cluster status conf)
    run srun -w n1 -n1 "--export=ALL,SLURM_CONF=$JOBS/evil,LD_PRELOAD=,SECRET=1" ./fails.sh
    echo "$output"
    [ "$status" -eq 7 ]
    cat "$JOBS"/seen.*
    is_plain_user "$JOBS/seen.status" muster-test1
    # Not the task's configuration, which could name libraries.
    [ "$(sort "$JOBS/seen.environ" | grep -v '^PWD=')" \
        = "$(printf '%s\n' PATH=/usr/bin:/bin "SLURM_CONF=$conf")" ]
    mapfile -t rest <"$JOBS/seen.rest"
    [ "${rest[0]} ${rest[1]}" = "/ 0" ]
    [ "${rest[2]}" = "${rest[3]}" ]
    # 10 is the shell's own: the script. (A pipe after ls would be another for a moment, and so
    # would its output outside of a subshell.)
    sed -n 's/.* \([0-9]*\) -> /\1 /p' "$JOBS/seen.ls" >"$JOBS/seen.fd"
    [ "$(wc -l <"$JOBS/seen.fd")" -ge 3 ]
    not grep -vE '^(0 /dev/null|[12] pipe:.*|10 .*/probe)$' "$JOBS/seen.fd"

    # Nor can another process of the user's take a helper over.
    as 1 n1 "$MUSTER_PREFIX/libexec/muster-requeue" --settle=60 --deadline=4242 1 0 \
        >/dev/null 2>&1 3>&- &
    helper() { cluster_pids -f '^[^ ]*muster-requeue --settle=60 --deadline=4242' | grep .; }
    wait_for 10 helper
    pid=$(helper)
    run as 1 n1 ls "/proc/$pid/fd"
    [[ $status -ne 0 && $output = *"Permission denied"* ]]
    run as 1 n1 strace -qq -o /dev/null -p "$pid"
    [[ $status -ne 0 && $output = *"Operation not permitted"* ]]
    kill "$pid"

    plugin optional "$PLUGIN"
    id=$(job_submit -N1 -w n1 --wrap 'sleep 1000')
    job_wait "$id" 20 RUNNING
    wait_for 10 has_service n1 "$id"
    pid=$(service n1 "$id")
    is_plain_user "/proc/$pid/status" muster-test1
    [ "$(readlink "/proc/$pid/cwd") $(cat "/proc/$pid/oom_score_adj")" = "/ 0" ]
    [ "$(tr '\0' '\n' <"/proc/$pid/environ" | sort)" \
        = "$(printf '%s\n' PATH=/usr/bin:/bin "SLURM_CONF=$conf")" ]
    [ -z "$(find "/proc/$pid/fd" -mindepth 1 -printf '%l\n' |
        grep -vE '^(/dev/null|/dev/log|socket:.*|pipe:.*|anon_inode:.*|/run/muster/job-[0-9]+/ckptd)$')" ]
    job_end "$id"
}

@test "no file that a user names is looked at by root" {
    # All that runs below slurmd on that node, from the prolog to the epilog.
    slurmd=$(cat "$(dirname "$(cluster status conf)")/../pid/slurmd-n1")
    strace -f -q -p "$slurmd" -e trace=%file -o "$BATS_TEST_TMPDIR/files" 2>/dev/null 3>&- &
    tracer=$!
    note_pid $tracer >>"$BATS_TEST_TMPDIR/pids"
    wait_for 10 traced "$slurmd"
    evil=$JOBS/evil-place/x
    export HOME=$evil MUSTER_CKPTD=$evil MUSTER_CKPTD_PROGRAM=$evil MUSTER_RDZV_DIR=$evil \
        MUSTER_LAST_WORDS=$evil MUSTER_DEFAULTS=$evil \
        MASTER_ADDR=$evil MUSTER_PREFLIGHT=$evil SLURM_RESTART_COUNT=$evil MUSTER_JOB_TASKS=$evil
    run srun -w n1 -n1 \
        "--export=ALL,SLURM_CONF=$evil,SLURM_JOB_NODELIST=$evil,SLURM_MUSTER_LAUNCHER=$evil" \
        /bin/sh -c 'exit 7'
    echo "$output"
    wait_for 20 node_is n1 idle
    kill $tracer && wait $tracer || :
    [ "$(grep -c 'muster-ckptd' "$BATS_TEST_TMPDIR/files")" -gt 0 ]
    [ "$(grep -c 'spank_muster.so' "$BATS_TEST_TMPDIR/files")" -gt 0 ]
    not grep evil-place "$BATS_TEST_TMPDIR/files"
}

@test "ten thousand variables, large values, control characters and percent signs change nothing" {
    # A name that ends a line, one that a printf would read, and terminal codes.
    odd=$'line\nmuster: 100%n%s\e[31m\x01'
    hostile() {
        python3 - "$@" <<'END'
import os, sys
odd = "line\nmuster: 100%n%s\x1b[31m\x01"
env = dict(os.environ)
env.update({"HOSTILE_%d" % i: odd for i in range(10000)})
env.update({odd: odd, "%n%n%s": odd, "LARGE_1": "%n" * 60000, "LARGE_2": "x" * 120000,
            "SLURM_HOSTILE": "[" * 100000})
os.execvpe(sys.argv[1], sys.argv[1:], env)
END
    }
    run_slurm hostile "$MUSTER_TOP/tests/cluster/cluster" run timeout $((3 * HANG)) \
        srun -J "$odd" -N2 -n2 --kill-on-bad-exit=0 ./fails.sh
    echo "$output" | cut -c1-300 | head -n 30
    [[ $status -eq 7 && $output = *"ran 0 of 2"* && $output = *"ran 1 of 2"* ]]
    # What a task is told by its user's variables is its user's; a bad number is an error of one
    # line.
    for own in MASTER_ADDR MASTER_PORT JAX_COORDINATOR_PORT OMP_NUM_THREADS MUSTER_PREFLIGHT \
        MUSTER_DEFAULTS MUSTER_CKPTD \
        CUDA_VISIBLE_DEVICES; do
        odds=${odds-},$own=$odd
    done
    run srun -w n2 -n1 "--export=ALL$odds" ./fails.sh
    [[ $status -eq 7 && $output = *"ran 0 of 1"* ]] || { echo "$output" && return 1; }
    run srun -w n2 -n1 "--export=ALL,MASTER_ADDR=$(head -c 100000 /dev/zero | tr '\0' %)" ./fails.sh
    [[ $status -eq 2 && $output = *"couldn't use MASTER_ADDR"* ]]
    [ -z "$(nodes_log | grep -aE $'muster.*(\e|\x01)')" ]
    no_node_drained
}

# stop_helpers FILE: while the file is there, each helper of an epilog on this cluster is stopped as
# soon as it is seen.
stop_helpers() {
    local pid
    while [ -e "$1" ]; do
        for pid in $(cluster_pids -u muster-test1 -f '^[^ ]*muster-ckptd --finish'); do
            kill -STOP "$pid"
        done
        sleep 0.05
    done
}

@test "a user who stops the service and the helpers holds up his step for 10 s and his node for drain=, no longer" {
    printf '#!/bin/sh\necho $$ >"%s/stopped"\nkill -STOP $$\n' "$JOBS" >"$JOBS/stops"
    chmod 755 "$JOBS/stops"
    plugin optional "$PLUGIN" drain=2 "requeue=$JOBS/stops"
    id=$(job_submit -N1 -w n1 --wrap 'sleep 1000')
    job_wait "$id" 20 RUNNING
    wait_for 10 has_service n1 "$id"
    kill -STOP "$(service n1 "$id")"
    touch "$BATS_TEST_TMPDIR/stopping"
    stop_helpers "$BATS_TEST_TMPDIR/stopping" 3>&- &
    note_pid $! >>"$BATS_TEST_TMPDIR/pids"
    cluster run scancel "$id"
    began=$SECONDS
    run srun -w n2 -n1 ./fails.sh
    echo "$output"
    echo "the step took $((SECONDS - began)) s"
    [[ $status -eq 7 && $output = *"it took more than 10 s"* ]]
    in_time 16 $began
    # it is nobody's child, and may be a corpse for a moment
    wait_for 5 not kill -0 "$(cat "$JOBS/stopped")"
    # drain, what the helper gets on top, and what the service gets to leave in.
    wait_for $((began + 25 - SECONDS)) node_is n1 idle
    rm "$BATS_TEST_TMPDIR/stopping"
    wait_for 10 no_services
    wait_for 10 nothing_left
    no_node_drained
}

@test "a full /run, or one of somebody else in the place of ours: the job runs without a service" {
    plugin optional "$PLUGIN"
    for fault in full foreign link; do
        case $fault in
        full)
            as root n1 sh -c 'rm -rf /run/muster; i=0; mount -o remount,nr_inodes=40 /run
                while mkdir /run/fill-$i 2>/dev/null; do i=$((i + 1)); done'
            ;;
        foreign) as root n1 sh -c 'mkdir /run/muster && chown muster-test1 /run/muster' ;;
        link) as root n1 sh -c "ln -s $JOBS /run/muster" ;;
        esac
        run srun -w n1 -n1 ./fails.sh
        echo "$fault: $status $output"
        [[ $status -eq 7 && $output = *"ran 0 of 1"* ]]
        wait_for 20 node_is n1 idle
        as root n1 sh -c 'rm -rf /run/muster /run/fill-*; mount -o remount,nr_inodes=0 /run'
        no_node_drained
    done
    nodes_log | grep -q "was not started.*couldn't make /run/muster.*: No space left on device"
    nodes_log | grep -q "was not started.*couldn't trust /run/muster"
    [ -z "$(find "$JOBS" -name 'job-*')" ]
}
