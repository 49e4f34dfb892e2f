#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Each system call of a training and of the commands that read its directory fails once. Who can't
# go on says what it could not do, and ends with a status of its own; who goes on has the bits of an
# undisturbed run; and nothing is lost. CI takes every seventh of calls that are many.
# bats file_tags=ci

load small_run

# Each call by its name, with an error that it is known for. Those by which libraries that are not
# ours get memory are not among them: oneDNN does not outlive a lack of it.
errors=(openat=EIO read=EIO pread64=EIO getdents64=EIO newfstatat=ESTALE write=ENOSPC
    pwrite64=ENOSPC fallocate=EDQUOT fsync=EIO renameat=EROFS mkdirat=ENOSPC unlinkat=EIO
    ftruncate=ENOSPC memfd_create=EMFILE socketpair=EMFILE eventfd2=EMFILE clone3=EAGAIN
    sendmsg=ENOBUFS recvmsg=ENOBUFS)
spoken='Input/output error|Stale file handle|No space left|quota exceeded|Read-only file system'
spoken+='|Too many open files|temporarily unavailable|No buffer space'

setup_file() {
    strace -o /dev/null true 2>/dev/null || skip "strace can't trace here"
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" && small whole >whole.out
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# small DIR: four steps, and a checkpoint after the second and the fourth.
small() { train "$1" --steps 4 --ckpt-every 2; }

final() { hashes "$1/step-00000004"; }

# most CALL: how often one process of those in `trace` makes it.
most() {
    awk -v call="$1(" 'index($2, call) == 1 { if (++seen[$1] > most) most = seen[$1] }
        END { print most + 0 }' trace
}

# failing CALL=ERROR N COMMAND…: the command, whose processes each fail in their N-th such call.
# STATUS is its status; its output is in `out` and `err`.
failing() {
    local call=${1%=*} error=${1#*=} n=$2
    shift 2
    STATUS=0
    timeout "$HANG" strace -f -o /dev/null -e trace="$call" \
        -e inject="$call:error=$error:when=$n" "$@" >out 2>err || STATUS=$?
}

# The program did not begin, for which the loader has its own words.
not_begun() { grep -qE 'error while loading shared libraries|initial thread' err; }

complain() { echo "$*: status $STATUS"; cat out err; return 1; }

# for_each_failure CHECK COMMAND…: the command with each call failing once, and then
# CHECK "CALL=ERROR N".
for_each_failure() {
    local check=$1 each n count stride tried=0
    shift
    reset
    UNDISTURBED=0
    strace -f -o trace "$@" >undisturbed 2>/dev/null || UNDISTURBED=$?
    for each in "${errors[@]}"; do
        count=$(most "${each%=*}") stride=1
        [ -n "${MUSTER_LONG-}" ] || [ "$count" -lt 7 ] || stride=7
        for ((n = 1 + tried % stride; n <= count; n += stride)); do
            reset
            failing "$each" "$n" "$@"
            tried=$((tried + 1))
            not_begun || $check "$each, call $n" || return
        done
    done
    echo "# $tried calls failed" >&3
}

# ---- a training ----

reset() { rm -rf run; }

# It says so or has gone on; the next attempt ends as if nothing had been.
training_is_safe() {
    ((STATUS < 80)) || complain "$1" || return
    ((STATUS == 0)) || grep -q '^muster: error: ' err || complain "$1" || return
    ((STATUS == 0)) || small run >again 2>&1 || { cat again; complain "$1, then"; } || return
    diff <(final whole) <(final run) || complain "$1"
}

@test "a training in which a call fails says so or goes on, and loses nothing" {
    read -ra words < <(REPLACE=echo small run)
    for_each_failure training_is_safe "${words[@]}"
}

# ---- what reads its directory ----

# What it says is right, or it says what it could not do.
answer_is_right() {
    ((STATUS < 80)) || complain "$1" || return
    ((STATUS == UNDISTURBED)) && diff -q -I '^speed ' out undisturbed >diff.out ||
        grep -qE "$spoken" out err || complain "$1"
}

reading() {
    reset() { :; }
    for_each_failure answer_is_right "$@"
}

@test "a command that can't read what it was asked for says so" {
    reading muster-ckpt ls whole
    reading muster-ckpt show whole
    reading muster-ckpt verify --deep whole
    reading muster-ckpt history whole
    reading muster-ckpt diff whole/step-00000002 whole/step-00000004
    reading muster-curve whole
    reading muster-eval whole valid.u16
    reading muster-generate whole --prompt a --tokens 4
}
