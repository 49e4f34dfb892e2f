#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The test cluster itself: it is a real Slurm with several nodes, and it leaves nothing behind.

load helpers
load requeue

setup_file() {
    export MUSTER_CLUSTER_GRACE=2 MUSTER_CLUSTER_KILLWAIT=2
    cluster_begin 4
}

setup() { cluster_require; }

# A batch script that says which attempt it is and then only waits.
waiting_job() {
    cat >"$JOBS/wait.sh" <<'END'
#!/bin/bash
echo attempt ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST
sleep 300
END
    job_submit -N4 --exclusive wait.sh
}

# job_begins JOB ATTEMPT SECONDS: until that job's script has begun this attempt, which Slurm does
# not wait for before it calls the job RUNNING.
job_begins() {
    job_wait_attempt "$@" && wait_for "$3" grep -q "^attempt $2 on n\[1-4\]" "$(job_output "$1")"
}

# Everything a cluster could leave on the machine, apart from its own processes and namespaces.
machine() {
    ip -o link | sed 's/^[0-9]*: //; s/@.*//'
    # Those of other tests come and go.
    findmnt -rno TARGET,SOURCE,FSTYPE | grep -v -e ' fuse' -e '/muster-test\.'
    ls -d /var/tmp/muster-cluster* /run/netns/* /sys/fs/cgroup/freezer/muster-* 2>/dev/null || true
    ls -d /dev/shm/muster-[0-9]*/standing-* 2>/dev/null || true # the records of killed ranks
    sha256sum /etc/hosts /etc/resolv.conf /etc/munge/munge.key /etc/slurm/*.conf 2>/dev/null || true
}

# The users go with the machine's last cluster.
others_are_up() { grep -qs ' muster-cluster:' /proc/[0-9]*/mountinfo; }
no_users() { others_are_up || ! getent passwd muster-test1 muster-test2; }

# The ids of the namespaces that the cluster's spaces live in.
namespaces() {
    local pid
    for pid in "$(cluster status dir)"/pid/{ctl,n?}; do
        stat -L -c %i /proc/"$(cat "$pid")"/ns/{net,mnt,uts}
    done
}

# The pids of the cluster's processes, by their mounts.
processes() { grep -ls "$(cluster status dir)/own " /proc/[0-9]*/mountinfo | cut -d/ -f3; }

@test "four nodes are idle, and status says where things are" {
    run cluster status
    [ "$status" -eq 0 ]
    [[ $output = *"state:   up"* ]]
    [ "$(grep -c ' idle$' <<<"$output")" -eq 4 ]
    [ -d "$(cluster status jobs)" ]
}

@test "a command that meets a fault of Slurm's is run again, and no other" {
    local MUSTER_SLURM_FAULTS=$BATS_TEST_TMPDIR/faults words=${SLURM_FAULTS[0]} log
    log=$(cluster status log)/slurmd-n2.log
    run_slurm bash -c 'echo "$1" >>"$2" && [ "$(grep -cF "$1" "$2")" -ge 2 ]' - "$words" "$log"
    [ "$status $(wc -l <"$MUSTER_SLURM_FAULTS")" = "0 1" ]
    run_slurm bash -c 'echo "$1: $1" && exit 3' - "$words"
    [ "$status $(wc -l <"$MUSTER_SLURM_FAULTS")" = "3 5" ]
    # Those of before don't count.
    run_slurm false
    [ "$status $(wc -l <"$MUSTER_SLURM_FAULTS")" = "1 5" ]
}

@test "a node that Slurm drained by a fault of its own is resumed, and no other" {
    local MUSTER_SLURM_FAULTS=$BATS_TEST_TMPDIR/faults log
    log=$(cluster status log)/slurmd-n2.log
    drain() {
        cluster run --user root scontrol update NodeName=n2 State=DRAIN Reason="$1"
        resume_drained
    }
    unkillable() {
        echo "[T] [$1] error: *** STEP $1 STEPD TERMINATED ON n2 AT T" \
            "DUE TO JOB NOT ENDING WITH SIGNALS ***" >>"$log"
    }
    resumed() {
        cluster run --user root scontrol update NodeName=n2 State=DRAIN Reason="Kill task failed"
        no_node_drained
        wait_for 60 node_is n2 idle
        [ "$(wc -l <"$MUSTER_SLURM_FAULTS")" -eq "$1" ]
    }
    # A task that did not end, one whose end was told in vain, and both in the order of the fault.
    drain "Kill task failed"
    unkillable 7.0
    echo "[T] [7.0] error: Failed to send MESSAGE_TASK_EXIT: Connection refused" >>"$log"
    drain "Kill task failed"
    node_is n2 drained
    [ ! -e "$MUSTER_SLURM_FAULTS" ]
    unkillable 7.0
    resumed 1
    # A task that the PMIx server had lost before.
    : >"$log"
    echo "[T] [8.0] error:  mpi/pmix_v4: _errhandler: n2 [1]: pmixp_client_v2.c:211: Error handler" \
        "invoked: status = -61, source = [slurm.pmix.8.0:3]" >>"$log"
    unkillable 8.0
    drain "Kill task failed"
    node_is n2 drained
    echo "[T] [8.0] error: Failed to send MESSAGE_TASK_EXIT: No route to host" >>"$log"
    resumed 2
    drain "the epilog failed"
    node_is n2 drained
    ! no_node_drained || false
    cluster run --user root scontrol update NodeName=n2 State=RESUME
    wait_for 60 all_idle
}

@test "a job that Slurm held since a node still ran it is released, and the node resumed" {
    local MUSTER_SLURM_FAULTS=$BATS_TEST_TMPDIR/faults job
    job=$(job_submit -w n2 --wrap "sleep 600")
    job_wait "$job" 60 RUNNING
    refuse_start n2 "$job"
    runs_again() { resume_drained && job_is "$job" RUNNING && [ "$(job_restarts "$job")" = 1 ]; }
    wait_for 90 runs_again
    [ "$(wc -l <"$MUSTER_SLURM_FAULTS")" -eq 1 ]
    job_end "$job"
    wait_for 60 all_idle
}

@test "a wait goes on for as long as Slurm holds a job that is over" {
    local job stepd MUSTER_PATIENCE=1
    job=$(job_submit -w n2 --wrap "sleep 600")
    job_wait "$job" 60 RUNNING
    stepd_of() { stepd=$(cluster_pids -f "^slurmstepd: \[$1") && [ -n "$stepd" ]; }
    wait_for 60 stepd_of "$job"
    # shellcheck disable=SC2086
    kill -STOP $stepd
    cluster run scancel "$job"
    wait_for 60 completing
    eval "looked() $(declare -f completing | tail -n +2)"
    # It is let go once the limit has passed and the job was looked at.
    completing() {
        looked || return
        # shellcheck disable=SC2086
        kill -CONT $stepd
    }
    wait_for 0 job_is "$job" CANCELLED
    wait_for 60 all_idle
    ! wait_for 0 false || false
}

@test "8 PMIx tasks on 4 nodes exchange values" {
    command -v cc >/dev/null && pkg-config --exists pmix || skip "no C compiler or no libpmix-dev"
    # shellcheck disable=SC2046
    cc -o "$JOBS/ring" "$MUSTER_TOP/tests/cluster/ring.c" $(pkg-config --cflags --libs pmix)
    run_slurm cluster run timeout -k 10 "$HANG" srun -N4 --ntasks-per-node=2 --mpi=pmix ./ring
    echo "$output"
    [ "$status" -eq 0 ]
    for rank in 0 1 2 3 4 5 6 7; do
        grep -qx "rank $rank of 8 read $((100 + (rank + 1) % 8))" <<<"$output"
    done
}

@test "nodes have a name, a /tmp and two GPUs of their own" {
    # srun may have to say on standard error that it waits for the nodes of the job before.
    output=$(cluster run srun -N4 --ntasks-per-node=2 --gpus-per-task=1 \
        bash -c 'touch /tmp/of-$(hostname) came-$SLURM_PROCID;
            until [ "$(ls came-* | wc -l)" = 8 ]; do sleep 0.1; done
            cd /tmp && echo $(ls -d of-*) $(hostname) $CUDA_VISIBLE_DEVICES')
    echo "$output"
    output=${output//of-/}
    [ "$(sort <<<"$output")" \
        = "$(printf '%s\n' 'n1 n1 0' 'n1 n1 1' 'n2 n2 0' 'n2 n2 1' 'n3 n3 0' 'n3 n3 1' 'n4 n4 0' \
        'n4 n4 1')" ]
}

@test "jobs run as one of two unprivileged users, who cannot end each other's" {
    [ "$(cluster run srun -n1 id -un)" = muster-test1 ]
    [ "$(cluster run --user 2 srun -n1 id -un)" = muster-test2 ]
    id=$(waiting_job)
    run cluster run --user 2 scancel "$id"
    [ "$status" -ne 0 ]
    job_end "$id"
}

@test "what root mounts below the job folder is one file system on all nodes" {
    mkdir "$JOBS/small"
    cluster run --user root mount -t tmpfs -o size=1m,mode=1777 small "$JOBS/small"
    cluster run --node n1 touch small/made-on-n1
    run cluster run srun -N4 ls small
    [ "$(sort -u <<<"$output")" = made-on-n1 ]
    run cluster run --node n3 dd if=/dev/zero of=small/zeros bs=1M count=2
    [[ $output = *"No space left"* ]]
    cluster run --user root umount "$JOBS/small"
}

@test "an ondemand job preempts a spot job, which is requeued and runs again" {
    id=$(waiting_job)
    job_begins "$id" 0 20
    job_preempt "$id"
    job_begins "$id" 1 40
    job_end "$id"
}

hardware_address() {
    cluster run --node "$1" ip -o link show "$2" | sed 's/.*link.ether \([0-9a-f:]*\) .*/\1/'
}

@test "a killed node goes down, its job is requeued, and the node can come back" {
    local node bridge
    node=$(hardware_address n3 eth0) bridge=$(hardware_address ctl bridge0)
    [[ $node$bridge =~ ^([0-9a-f]{2}:?){12}$ ]]
    id=$(waiting_job)
    job_begins "$id" 0 20
    dead=$(cat "$(cluster status dir)/pid/n3")
    cluster kill-node n3
    [ -z "$(readlink "/proc/$dead/ns/net")" ]
    wait_for 40 node_is n3 'down*'
    job_wait "$id" 30 PENDING
    cluster start-node n3
    job_begins "$id" 1 40
    job_end "$id"
    run cluster run srun --quiet -w n3 hostname
    [ "$output" = n3 ]
    # Else the others would not reach it until they have forgotten where it was.
    [ "$(hardware_address n3 eth0) $(hardware_address ctl bridge0)" = "$node $bridge" ]
}

@test "a cut node reaches nobody, and everybody once it is healed" {
    reach() { cluster run --node n2 timeout -k 10 2 bash -c ': </dev/tcp/ctl/6817'; }
    reach
    cluster cut n2
    run reach
    [ "$status" -ne 0 ]
    cluster heal n2
    wait_for 10 reach
    wait_for 30 node_is n2 idle
}

@test "connections between two nodes are reset, those with others go on" {
    # A program on n3, and one on n2 and n4 each, whose connection with it stands.
    cluster run --node n3 timeout -k 10 "$HANG" perl -MIO::Socket -e '
        $s = IO::Socket::INET->new(LocalPort => 7778, Listen => 2, ReuseAddr => 1) or die;
        push @c, $s->accept for 1 .. 2;
        select undef, undef, undef, 0.1 until -e "over"' 3>&- &
    serves() { cluster run --node n3 ss -tln | grep -q :7778; }
    wait_for 10 serves
    hold() {
        cluster run --node "$1" timeout -k 10 "$HANG" perl -MIO::Socket -e '
            $c = IO::Socket::INET->new("n3:7778") or die;
            print "connected\n"; STDOUT->flush;
            print defined $c->sysread($_, 1) ? "end" : $!, "\n"' >"$JOBS/held-$1" 3>&- &
        wait_for 10 grep -q connected "$JOBS/held-$1"
    }
    hold n2
    hold n4
    cluster reset n3 n2
    wait_for 10 grep -q 'Connection reset by peer' "$JOBS/held-n2"
    run cluster reset n3 n2
    [ "$status" -eq 1 ]
    [[ $output = *"couldn't reset a connection from n3 to n2"* ]]
    touch "$JOBS/over"
    wait
    [ "$(cat "$JOBS/held-n4")" = $'connected\nend' ]
}

@test "a shaped link carries no more than its rate" {
    head -c 1000000 /dev/urandom >"$JOBS/bytes"
    # Milliseconds to read 1 MB from a program on another node.
    transfer() {
        cluster run --node n1 timeout -k 10 "$HANG" \
            bash -c 'exec 3<>/dev/tcp/n4/7777 || exit 1; cat <&3 | wc -c >got'
    }
    serve() { cluster run --node n4 timeout -k 10 "$HANG" perl -MIO::Socket -e '
        $s = IO::Socket::INET->new(LocalPort => 7777, Listen => 1, ReuseAddr => 1) or die;
        $c = $s->accept;
        open F, "<", "bytes"; local $/; print $c scalar <F>; close $c' 3>&- & }
    listening() { cluster run --node n4 ss -tln | grep -q :7777; }
    cluster shape n4 4mbit 0
    serve
    wait_for 10 listening
    began=${EPOCHREALTIME/./}
    transfer
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    cluster shape n4 off
    [ "$(cat "$JOBS/got")" -eq 1000000 ]
    echo "1 MB at 4 Mbit/s took $took ms"
    # 1 MB less the bucket of 128 kB at 0.5 MB/s.
    [ "$took" -ge 1600 ]
}

@test "jobs outlive a restart of the controller" {
    id=$(waiting_job)
    job_begins "$id" 0 20
    cluster stop-controller
    run timeout -k 10 3 "$MUSTER_TOP/tests/cluster/cluster" run squeue
    [ "$status" -ne 0 ]
    cluster start-controller
    job_is "$id" RUNNING
    job_end "$id"
}

@test "steps load the plugin that is set, with its arguments, until none is" {
    command -v cc >/dev/null && [ -e /usr/include/slurm/spank.h ] ||
        skip "no C compiler or no libslurm-dev"
    cc -shared -fPIC -o "$JOBS/probe.so" "$MUSTER_TOP/tests/cluster/probe.c"
    cluster plugin "$JOBS/probe.so" seen=1 more
    run cluster run srun -N4 printenv PROBE
    [ "$(sort -u <<<"$output")" = seen=1 ]
    cluster plugin
    run cluster run srun -N1 printenv PROBE
    [ "$status" -ne 0 ]
}

@test "a plugin that was built for another release of Slurm is passed over: jobs run, no node is drained" {
    command -v cc >/dev/null && [ -e /usr/include/slurm/spank.h ] ||
        skip "no C compiler or no libslurm-dev"
    cc -DOTHER_RELEASE -shared -fPIC -o "$JOBS/other.so" "$MUSTER_TOP/tests/cluster/probe.c"
    cluster plugin "$JOBS/other.so" seen=1
    run cluster run srun -N4 bash -c 'echo ${PROBE-unset}'
    [ "$status" -eq 0 ]
    [ "$(grep -cx unset <<<"$output")" -eq 4 ]
    cluster run sbatch -W -o /dev/null --wrap true
    cluster plugin
    grep -q "Incompatible Slurm plugin $JOBS/other.so" "$(cluster status log)"/slurmd-n1.log
    [ -z "$(cluster run sinfo -h -t drain,fail,down -o '%n %E')" ]
}

@test "a plugin that the users cannot read is refused" {
    : >"$BATS_TEST_TMPDIR/closed.so"
    chmod 600 "$BATS_TEST_TMPDIR/closed.so"
    run cluster plugin "$BATS_TEST_TMPDIR/closed.so"
    [ "$status" -eq 1 ]
    [[ $output = *"couldn't read the plugin"* ]]
    cluster plugin
}

@test "up starts anew after its processes were killed at random, and after an up that was killed half-way" {
    mapfile -t victims < <(processes | shuf -n 7)
    kill -KILL "${victims[@]}"
    "$MUSTER_TOP/tests/cluster/cluster" up 3 3>&- &
    up=$!
    sleep "0.$((RANDOM % 5))"
    kill -KILL $up
    cluster up 2
    [ "$(cluster status | grep -c ' idle$')" -eq 2 ]
    [ "$(cluster run srun -N2 hostname | sort | tr '\n' ' ')" = "n1 n2 " ]
}

@test "a folder with other things in it is neither used nor removed" {
    mkdir /var/tmp/muster-test-other.$$
    touch /var/tmp/muster-test-other.$$/mine
    MUSTER_CLUSTER_DIR=/var/tmp/muster-test-other.$$ run cluster up
    [ "$status" -eq 1 ]
    MUSTER_CLUSTER_DIR=/var/tmp/muster-test-other.$$ run cluster down
    [ -e /var/tmp/muster-test-other.$$/mine ]
    rm -r /var/tmp/muster-test-other.$$
}

# A job's task on each node, and what its script has started.
four_sleep() {
    [ "$(ps -o args= -p "$(processes | paste -sd ,)" | grep -cE '^(/.*/)?sleep 300$')" = 4 ]
}

@test "down leaves no process, namespace, mount, link, user or file" {
    cluster down
    before=$(machine)
    cluster up 3
    job_submit -N3 --wrap 'setsid sleep 300 & srun sleep 300'
    wait_for 30 four_sleep
    namespaces >"$BATS_TEST_TMPDIR/namespaces"
    ps -eo pid= | tr -d ' ' >"$BATS_TEST_TMPDIR/pids"
    [ -n "$(processes)" ]
    [ "$(wc -l <"$BATS_TEST_TMPDIR/namespaces")" -eq 12 ]
    cluster down
    [ -z "$(processes)" ]
    diff <(echo "$before") <(machine)
    wait_for 20 no_users
    # The kernel gives a number again: what somebody has begun since may have one of them.
    cd "$BATS_TEST_TMPDIR"
    run bash -c 'lsns -rno NS,PID | grep -wFf namespaces | cut -d" " -f2 | grep -xFf pids'
    echo "$output"
    [ -z "$output" ]
}
