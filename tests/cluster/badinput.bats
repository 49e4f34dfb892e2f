#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Checkpoint directories that can't be used, each with its line and its exit status; and disks that
# fail in mid-run.

load helpers
STEPS=160
load training

setup_file() {
    export MUSTER_CLUSTER_KILLWAIT=2
    plugin_locate || return 0
    cluster_begin 2 --plugin "$PLUGIN"
    training_begin 2>/dev/null
}

# The step of the newest line that rank 0 printed; unlike the metrics, it goes on when the disk of
# the run does not.
log_step() { sed -n 's/^step *\([0-9]*\)\/.*/\1/p' "$JOBS/$1.log" | tail -n 1; }

# small_disk NAME OPTIONS: the run NAME has a file system of its own, on all nodes.
small_disk() {
    mkdir -p "$JOBS/$1"
    cluster run --user root mount -t tmpfs -o "mode=1777,$2" none "$JOBS/$1"
}

# Root, so that a reserve for root is used up as well.
fill() { cluster run --user root sh -c 'cat /dev/zero >"$1/filler"' - "$1" 2>/dev/null || :; }

@test "a checkpoint directory that can't be written, or is on a full disk, is refused at the start" {
    mkdir "$JOBS/locked"
    refused 2 "couldn't create a file in locked: Permission denied" locked --muster -N2 -n4 --
    refused 2 "couldn't make locked/below: Permission denied" locked/below --muster -N2 -n4 --
    # While rank 3 is late the others ask for it by PMIx. They wait for nobody who might still ask
    # when all fail together, or Slurm would kill them, and the status of the step would be 137.
    printf '#!/bin/bash\n[ "$SLURM_PROCID" != 3 ] || sleep 2\nexec "$@"\n' >"$JOBS/late"
    chmod a+rx "$JOBS/late"
    WRAP=./late refused 2 "couldn't make locked/below: Permission denied" locked/below --muster \
        -N2 -n4 --
    small_disk full size=64k
    fill full
    refused 69 "couldn't write in full/run: No space left on device" full/run --muster -N2 -n4 --
}

# Whether rank 0 has printed that many steps; unlike the metrics, they go on when the run's disk
# does not.
log_at() { [ "$(log_step "$1")" -ge "$2" ] 2>/dev/null; }

# disk_fails NAME REASON: break_NAME spoils the disk of the running job $job. Each save that fails
# is told, the last good checkpoint stays, training goes on; after mend_NAME it saves again, and
# ends as a run with a good disk. While it is looked at, it goes no further than step 120.
disk_fails() {
    local name=$1 reason=$2 good
    wait_for 60 log_at "$name" 25
    "break_$name"
    wait_for 30 log_has "$name" 3 "couldn't save step .*$reason"
    good=$(sed -n 's/.*the last good one is step \([0-9]*\).*/\1/p' "$JOBS/$name.log" | sort -u)
    echo "last good $good; the disk is mended at step $(log_step "$name")"
    [ "$(wc -l <<<"$good")" -eq 1 ]
    cluster run test -s "$name/step-$(printf %08d "$good")/manifest.json"
    [ "$(job_state "$job")" = RUNNING ]
    "mend_$name"
    before=$(grep -c 'is durable' "$JOBS/$name.log")
    pace 50
    wait_for 30 log_has "$name" $((before + 2)) "is durable"
    job_wait "$job" 60 COMPLETED
    [ "$(job_restarts "$job")" -eq 0 ]
    # The disk is mounted in the cluster's namespaces only.
    cluster run cp -a "$name" "$name-end"
    train_equals_reference "$name-end"
    ! compgen -G "$JOBS/$name-end/.removing-*" || false
}

break_filling() { fill filling; }
mend_filling() { cluster run --user root rm filling/filler; }

@test "a disk that fills in mid-run: saves fail aloud, then go on" {
    small_disk filling size=12m
    pace 50 120
    job=$(train_submit filling -N2 -- --ckpt-every 10 --log-level info)
    disk_fails filling "No space left on device"
}

# A file system can't be remounted read-only while the metrics are open, so the calls of rank 0's
# checkpoint service answer as on one that the kernel has made so after an error: in mid-save, so
# that something stays that could not be removed then. A save first renames what one before it may
# have left: that has to work once, or no folder would be made.
break_readonly() {
    local pid
    pid=$(sed -n 's/.*checkpoint: the service is pid \([0-9]*\);.*/\1/p' "$JOBS/readonly.log" |
        tail -n 1)
    strace -f -p "$pid" -o /dev/null -e trace=mkdirat,renameat,fsync,unlinkat \
        -e inject=fsync,unlinkat:error=EROFS -e inject=mkdirat,renameat:error=EROFS:when=2+ \
        2>/dev/null 3>&- &
    tracer=$!
}
mend_readonly() { kill "$tracer" && wait "$tracer" || :; }

@test "a disk that becomes read-only in mid-run: saves fail aloud, then go on" {
    pace 50 120
    job=$(train_submit readonly -N2 -- --ckpt-every 10 --log-level info)
    disk_fails readonly "Read-only file system"
}
