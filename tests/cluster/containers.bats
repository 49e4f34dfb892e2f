#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Steps in containers, as an unprivileged user makes them: what they see of /run is empty, their
# user is root or himself, their processes may have numbers of their own. All the same their saves
# are the job's service's, which outlives them.

load helpers
STEPS=200
export STEP_MILLISECONDS=100 # they are looked at while they train, one after the other
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=5
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
    cat >"$JOBS/contain" <<'END_OF_SCRIPT'
#!/bin/bash
# contain KIND COMMAND…: in a container of that kind. Where there is a folder "inside", it is
# "outside" that is seen there. Process 1 is not the command: unshare(1) of util-linux 2.38 ends
# with 1 where that is killed.
case $1 in
root) options=(--map-root-user) ;;
self) options=(--map-current-user --keep-caps) ;;
pid) options=(--map-current-user --keep-caps --pid --fork --mount-proc) ;;
esac
shift
exec unshare --user --mount "${options[@]}" -- bash -c 'mount -t tmpfs none /run &&
    [ -z "$(ls -A /run)" ] || exit 2
    [ ! -d inside ] || mount --bind outside inside || exit 2
    [ $$ = 1 ] || exec "$@"
    "$@"
    exit $?' contained "$@"
END_OF_SCRIPT
    chmod a+rx "$JOBS/contain"
    # shellcheck disable=SC2046
    cc -std=c99 "$MUSTER_TOP/slurm-examples/ring.c" \
        $(PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig pkg-config --cflags --libs muster) \
        -Wl,-rpath,"$MUSTER_PREFIX/lib" -o "$JOBS/ring"
}

teardown() {
    # shellcheck disable=SC2046
    kill -KILL $(noted "$BATS_TEST_TMPDIR/pids") 2>/dev/null || :
    [ -z "${service-}" ] || kill -CONT "$service" 2>/dev/null || :
    rm -rf "$JOBS/inside"
    cluster_explain
    resume_drained
}

as() { cluster run --user "$1" --node "$2" "${@:3}"; }

# train NAME KIND NODES [OPTION…]: prints the job's id. Slurm's PMIx speaks with nobody who says
# that he is another user: root, too.
train() {
    local nodes=${3//,/ }
    local -x SRUN_OPTIONS=
    [ "$2" != root ] || SRUN_OPTIONS=--mpi=pmi2
    # shellcheck disable=SC2086
    train_submit "$1" --wrap-with "./contain $2" "-N$(wc -w <<<"$nodes")" -w "$3" \
        --ntasks-per-node=2 \
        --gpus-per-task=0 --exclusive -- --ckpt-every 10 --log-level info "${@:4}"
}

# clients NODE JOB: what the job's service there has to say of each of its clients that is
# connected.
clients() {
    as 1 "$1" muster-ckptd --status "/run/muster/job-$2/ckptd/socket" 2>/dev/null |
        grep 'client connected'
}

# wrote NODE JOB: whether the service there has made a checkpoint durable; of several writers'
# services that is the first node's.
wrote() { clients "$1" "$2" | grep -q 'step [0-9]* is durable'; }

# Whether no step has started a service.
no_own_service() { [ -z "$(cluster_pids -f '^([^ ]*/)?muster-ckptd --client-fd')" ]; }

no_trainer() { [ -z "$(cluster_pids -u muster-test1 -x muster-train)" ]; }

# writes NAME JOB NODE ATTEMPT: in that attempt the job's service on the node does.
writes() {
    job_wait_attempt "$2" "$4" 60
    wait_for 60 wrote "$3" "$2" || { cat "$JOBS/$1.log" && return 1; }
    no_own_service
}

# ended NAME JOB DIRECTORY: it was interrupted once, and ended as if it had not been.
ended() {
    job_wait "$2" 180 COMPLETED
    [ "$(job_restarts "$2")" -eq 1 ]
    [ "$(grep -c 'service of its own' "$JOBS/$1.log")" -eq 0 ]
    muster-ckpt diff "$JOBS/reference" "$JOBS/$3" || {
        echo "$3: the final state differs" && return 1
    }
    diff <(muster-curve "$JOBS/$3") <(muster-curve "$JOBS/reference")
}

# both_write ATTEMPT: looks at both at a time, or the one might end while the other is looked at.
both_write() {
    local pid
    writes root "$root" n1 "$1" & pid=$!
    writes self "$self" n3 "$1"
    [ "$(clients n4 "$self" | wc -l)" -eq 2 ]
    wait $pid
}

@test "any user in there: the job's services write before and after a preemption; bit-identical" {
    pace 200 # until both attempts of both have been looked at
    root=$(train root root n1,n2)
    self=$(train self self n3,n4 --ckpt-writers all)
    both_write 0
    job_preempt "$root" 0
    job_preempt "$self" 0
    both_write 1
    pace 0
    ended root "$root" root
    ended self "$self" self
}

@test "the checkpoint directory has another path in there: it is that very directory that is written" {
    cluster run mkdir inside outside
    bound=$(train inside/run root n1,n2)
    writes inside/run "$bound" n1 0
    job_preempt "$bound" 0
    ended inside/run "$bound" outside/run
    [ "$(find "$JOBS/inside" -mindepth 1 -printf '%P\n')" = run.log ]
}

# has_unread NODE PID: whether something that the process has not read yet is in one of its sockets.
has_unread() {
    as root "$1" ss -xHnp state connected | grep "pid=$2," |
        awk '$3 > 0 { found = 1 } END { exit !found }'
}

# stop_before_a_save NODE PID NAME: stops the service there between two saves, the next of which
# then waits in its socket. Where it was stopped before it could answer for the last one, nothing
# comes: it goes on, and this fails.
stop_before_a_save() {
    local look
    kill -STOP "$2"
    if [ -z "$(find "$JOBS/$3" -maxdepth 1 -name '.saving-*')" ]; then
        for ((look = 0; look < 20; look++)); do
            ! has_unread "$1" "$2" || return 0
            sleep 0.2
        done
    fi
    kill -CONT "$2"
    return 1
}

@test "processes with numbers of their own: what was handed over when all of them are killed is durable, and resumed" {
    job=$(train pid pid n1,n2)
    writes pid "$job" n1 0
    service=$(as root n1 sed -n 's/^pid \([0-9]*\) .*/\1/p' "/run/muster/job-$job/service")
    wait_for 60 stop_before_a_save n1 "$service" pid
    newest=$(find "$JOBS/pid" -maxdepth 1 -name 'step-*' | sort | tail -n 1)
    # A save is due every ten steps.
    handed=$((10#${newest##*-} + 10))
    # shellcheck disable=SC2046
    kill -KILL $(cluster_pids -u muster-test1 -x muster-train)
    wait_for 20 no_trainer
    kill -CONT "$service"
    wait_for 60 train_attempt_has pid 1 1
    began=$(sed -n 's/.*"event": *"start".*"attempt": *1[,}].*/&/p' "$JOBS/pid/attempts.jsonl" |
        sed 's/.*"step": *\([0-9]*\).*/\1/')
    echo "step $handed was handed over, began with $began"
    [ "$began" -ge "$handed" ] || { ls -la "$JOBS/pid" && tail -n 60 "$JOBS/pid.log" && return 1; }
    ended pid "$job" pid
}

@test "a program in C with libmuster" {
    cat >"$JOBS/ring.sh" <<'END_OF_SCRIPT'
#!/bin/bash
srun --mpi=pmi2 ./contain root ./ring 400 ring-run
END_OF_SCRIPT
    job=$(job_submit --muster -N2 --ntasks-per-node=1 -w n1,n2 ring.sh)
    job_wait "$job" 30 RUNNING
    wait_for 60 wrote n1 "$job" || { cat "$(job_output "$job")" && return 1; }
    no_own_service
    job_wait "$job" 90 COMPLETED
    muster-ckpt verify "$JOBS/ring-run"
}

@test "another plugin puts the task into its container, before Muster sees it or after" {
    cat >"$JOBS/enter.c" <<'END_OF_SOURCE'
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>
SPANK_PLUGIN(enter, 1)
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	char map[40];
	snprintf(map, sizeof map, "0 %u 1", (unsigned)geteuid());
	/* Or what /proc has of slurmstepd is root's. */
	if (prctl(PR_SET_DUMPABLE, 1) < 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -1;
	int fd = open("/proc/self/uid_map", O_WRONLY);
	return fd < 0 || write(fd, map, strlen(map)) < 0 || close(fd) < 0 ||
		mount("none", "/run", "tmpfs", 0, NULL) < 0 ? -1 : 0;
}
END_OF_SOURCE
    cc -shared -fPIC "$JOBS/enter.c" -o "$JOBS/enter.so"
    conf=$(dirname "$(cluster status conf)")/plugstack.conf
    cp "$conf" "$BATS_TEST_TMPDIR/plugstack"
    echo "required $JOBS/enter.so" >"$BATS_TEST_TMPDIR/enter"
    for order in "enter plugstack" "plugstack enter"; do
        # shellcheck disable=SC2086
        (cd "$BATS_TEST_TMPDIR" && cat $order) >"$conf.new" && mv "$conf.new" "$conf"
        run cluster run srun --quiet --muster -w n1 -n1 bash -c \
            'ls -A /run; id -u; echo "at $MUSTER_CKPTD"; muster-ckptd --status "$MUSTER_CKPTD"'
        cp "$BATS_TEST_TMPDIR/plugstack" "$conf.new" && mv "$conf.new" "$conf"
        echo "$order: $status $output"
        [ "$status" -eq 0 ]
        [ "$(sed -n 1p <<<"$output")" = 0 ]
        [[ $output = *"at /run/muster/job-"*"pid "*", job "* ]]
    done
}

@test "a network of its own: the service is found by its path, where that is mounted" {
    ask='muster-ckptd --status "$MUSTER_CKPTD"'
    run cluster run srun --muster -w n1 -n1 unshare --map-root-user --net bash -c "$ask"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"pid "*", job "* ]]
    run cluster run srun --muster -w n1 -n1 unshare --map-root-user --net --mount \
        bash -c "mount -t tmpfs none /run && $ask"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output = *"ckptd is not there; at its abstract name: Connection refused"* ]]
}

@test "a stranger who has taken the name gets nothing: the step does with a service of its own, and says why" {
    last=$(job_submit -w n1 --wrap true)
    job_wait "$last" 30 COMPLETED
    as 2 n1 env PATH=/usr/bin:/bin python3 -c 'import socket, sys, time
taken = []
for job in range(int(sys.argv[1]) + 1, int(sys.argv[1]) + 4):
    taken.append(socket.socket(socket.AF_UNIX))
    taken[-1].bind("\0/run/muster/job-%d/ckptd/socket" % job)
    taken[-1].listen()
print("listens", flush=True)
time.sleep(1000)' "$last" >"$BATS_TEST_TMPDIR/stranger" 3>&- &
    note_pid $! >>"$BATS_TEST_TMPDIR/pids"
    wait_for 20 grep -q listens "$BATS_TEST_TMPDIR/stranger"
    WRAP="./contain root"
    run train_now strange --muster --mpi=pmi2 -w n1 -n1 --
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'belongs to user 65534, not to 0: starting a service of its own' <<<"$output")" \
        -eq 1 ]
    train_equals_reference strange
    # Who has the path needs no name.
    run cluster run srun --muster -w n1 -n1 bash -c 'muster-ckptd --status "$MUSTER_CKPTD"'
    echo "$output"
    [ "$status" -eq 0 ]
}
