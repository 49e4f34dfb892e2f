#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The NCCL half of libmuster from the program's call to dlopen and back, among processes without a
# GPU: NCCL, the driver and the runtime are tests/fakes/fake_gpu.c, which connects, fails or hangs
# as a case wants. All ranks end in time, with one line.

load lib/places
load lib/wait_for

setup_file() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    export PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig fakes=$BATS_FILE_TMPDIR/fakes cuda='' libdir
    libdir=$(pkg-config --variable=libdir muster)
    for folder in /usr/local/cuda/include /usr/include; do
        [ ! -e "$folder/nccl.h" ] || [ ! -e "$folder/cuda_runtime.h" ] || { cuda=$folder && break; }
    done
    [ -n "$cuda" ] || return 0
    mkdir "$fakes"
    make_fake
    cd "$BATS_FILE_TMPDIR"
    cat >comm.c <<'END'
#include <muster.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* comm SECONDS: a communicator, a gather with it, and its end; one line about each. */
int main(int argc, char **argv)
{
	struct muster *muster;
	struct ncclComm *comm = NULL;
	int64_t all[8], mine;
	double seconds = atof(argv[argc - 1]);
	int status = muster_open(&muster, 20), rank = muster_rank(muster);
	if (!status && getenv("ABSENT") && rank == atoi(getenv("ABSENT")))
		return 0;
	if (!status)
		status = muster_nccl_comm(muster, seconds, &comm);
	mine = rank * 3;
	if (!status)
		status = muster_nccl_wait(muster, comm, ncclAllGather(&mine, all, 1, ncclInt64, comm, NULL),
			NULL, seconds);
	printf("%s\n", !status && all[1] != 3 ? "wrong" : status ? muster_error() : "right");
	if (muster_nccl_end(muster, comm, !status, seconds))
		printf("%s\n", muster_error());
	fflush(stdout);
	if (status != MUSTER_LOST)
		muster_fence(muster, 10);
	muster_close(muster, status != MUSTER_LOST);
	return status;
}
END
    compile comm.c -o comm
    compile -DRING_NCCL "$MUSTER_TOP/slurm-examples/ring.c" -o ring
}

# make_fake [FLAG…]
make_fake() {
    cc "$@" -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -isystem "$cuda" \
        -Wl,-soname,libnccl.so.2 \
        "$MUSTER_TOP/tests/fakes/fake_gpu.c" -o "$fakes/libnccl.so.2"
    for name in libnccl.so libcudart.so libcuda.so.1; do ln -sf libnccl.so.2 "$fakes/$name"; done
}

# As the first comment of ring.c says.
compile() {
    # shellcheck disable=SC2046
    cc -std=c99 -pedantic -Wall -Wextra -Werror -isystem "$cuda" "$@" \
        $(pkg-config --cflags --libs muster) \
        "-L$fakes" -lnccl -lcudart -Wl,-rpath,"$libdir"
}

setup() {
    [ -n "$cuda" ] || skip "no nccl.h and cuda_runtime.h on this machine"
    grep -q '^#define HAVE_NCCL 1' "${MUSTER_BUILD:-$MUSTER_TOP/build}/config.h" ||
        skip "this build of Muster has no NCCL"
    export LD_LIBRARY_PATH=$fakes MUSTER_RDZV_DIR=$BATS_TEST_TMPDIR MUSTER_RDZV_ID=0 \
        FAKE_DIR=$BATS_TEST_TMPDIR
    export MUSTER_CKPTD_PROGRAM=$MUSTER_PREFIX/bin/muster-ckptd
    cd "$BATS_TEST_TMPDIR"
}

# ranks COUNT PROGRAM…: runs that many, each into out-RANK; leaves their statuses in $statuses and
# the time in $seconds.
ranks() {
    local count=$1 rank began=$EPOCHREALTIME pids=()
    shift
    export MUSTER_RDZV_ID=$((MUSTER_RDZV_ID + 1)) # a new run
    rm -f round-* out-*
    for ((rank = 0; rank < count; rank++)); do
        WORLD_SIZE=$count RANK=$rank timeout -s KILL "$HANG" "$@" >"out-$rank" 2>&1 3>&- &
        pids+=($!)
    done
    printf '%s\n' "${pids[@]}" >pids
    statuses=
    for ((rank = 0; rank < count; rank++)); do
        local status=0
        wait "${pids[rank]}" || status=$?
        statuses+="$status "
    done
    seconds=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
    echo "statuses $statuses after $seconds s"
    head -n 20 out-*
}
under() { awk -v s="$seconds" -v limit="$1" 'BEGIN { exit !(s < limit) }'; }
over() { if under "$1"; then return 1; fi; }

# say COUNT LINE: that many ranks say it, and nothing else but how the communicator ended. Whose
# deadline is over first may tell the others, which then say so.
say() {
    sed '/^fake: /d; s/^rendezvous: rank [0-9]* gave up: /rendezvous: /' out-* >said
    [ "$(grep -cFx -- "$2" said)" -eq "$1" ] || return
    [ "$(grep -cvFx -- "$2" said)" -eq 0 ]
}

@test "the example over NCCL: connected slowly, stopped by a notice on one rank, resumed, and the right result" {
    export FAKE_INIT=slow
    (wait_for 10 grep -qs 'begin after' out-0; sleep 0.4; kill -TERM "$(sed -n 2p pids)") 3>&- &
    ranks 3 "$BATS_FILE_TMPDIR/ring" 40 run
    [ "$statuses" = "75 75 75 " ]
    cp out-0 first
    ranks 3 "$BATS_FILE_TMPDIR/ring" 40 run
    [ "$statuses" = "0 0 0 " ]
    step=$(sed -n 's/.*3 ranks begin after step //p' out-0)
    [ "$step" -gt 0 ]
    [ "$step" -lt 40 ]
    for at in "$step" 40; do
        numbers=$(awk -v n="$at" 'BEGIN { a = 1; b = 2; c = 3
            while (n-- > 0) { last = c; c = (c + b) % 1000003; b = (b + a) % 1000003;
                a = (a + last) % 1000003 }
            print a, b, c }')
        grep -qFx "ring: after step $at: $numbers" first out-0
    done
    [ "$(cat out-? | grep '^fake: ' | sort | uniq -c | awk '{ print $1, $3 }')" = "3 destroyed" ]
}

@test "a communicator is made, used and ended; a rank that is slow is waited for" {
    export FAKE_INIT=slow FAKE_RANK=2
    ranks 4 "$BATS_FILE_TMPDIR/comm" 20
    [ "$statuses" = "0 0 0 0 " ]
    say 4 right
    [ "$(cat out-* | grep -cx 'fake: destroyed')" -eq 4 ]
}

@test "what a rank can't do, all log at once: no unique id, too old an NCCL, another rank's GPU" {
    export FAKE_ID=fail
    ranks 4 "$BATS_FILE_TMPDIR/comm" 25
    [ "$statuses" = "1 1 1 1 " ]
    under 8
    say 4 "rank 0 (on $(hostname)): nccl: couldn't make a unique id: system error \
(fake words of no communicator): set NCCL_SOCKET_IFNAME to an interface that all nodes reach"
    export FAKE_ID='' FAKE_INIT=fail FAKE_RANK=1
    ranks 4 "$BATS_FILE_TMPDIR/comm" 25
    [ "$statuses" = "2 2 2 2 " ]
    under 8
    say 4 "rank 1 (on $(hostname)): nccl: couldn't connect to the other ranks: invalid usage \
(fake words): give each rank a GPU of its own, for instance by --gpus-per-task=1"
    [ "$(cat out-* | grep -cx 'fake: aborted')" -eq 4 ]
    make_fake -DFAKE_OLD
    ranks 2 "$BATS_FILE_TMPDIR/comm" 25
    make_fake
    [ "$statuses" = "2 2 " ]
    under 8
    say 2 "rank 0 (on $(hostname)): nccl: couldn't use the NCCL of this node: it has no ncclCommFinalize: install 2.14.3 or newer"
}

@test "a rank that hangs while it connects, or never comes, is named by all others at the deadline" {
    export FAKE_INIT=never FAKE_RANK=2
    ranks 4 "$BATS_FILE_TMPDIR/comm" 1
    [ "$statuses" = "69 69 69 69 " ]
    over 1
    under 8
    say 4 "rank 2 (on $(hostname)): nccl: couldn't connect all 4 ranks within 1 s: set \
NCCL_SOCKET_IFNAME to an interface by which all nodes reach each other, or give a longer timeout"
    [ "$(cat out-* | grep -cx 'fake: aborted')" -eq 4 ]
    export FAKE_INIT='' ABSENT=3
    ranks 4 "$BATS_FILE_TMPDIR/comm" 1
    [ "$statuses" = "69 69 69 0 " ]
    over 1
    under 8
    say 3 "rendezvous: couldn't meet 1 of 4 ranks within 1 s: rank 3 (on $(hostname)) did not come"
}

@test "a gather that a rank never joins ends all at the deadline; what NCCL knows is told at once" {
    export FAKE_GATHER=never
    ranks 3 "$BATS_FILE_TMPDIR/comm" 1
    [ "$statuses" = "69 69 69 " ]
    over 1
    under 8
    say 3 \
        "nccl: couldn't finish a collective within 1 s: a rank is gone, stopped, or in another call"
    [ "$(cat out-* | grep -cx 'fake: aborted')" -eq 3 ]
    export FAKE_GATHER=lost
    ranks 3 "$BATS_FILE_TMPDIR/comm" 25
    [ "$statuses" = "69 69 69 " ]
    under 8
    say 3 "nccl: couldn't go on: remote process exited (fake words)"
    [ "$(cat out-* | grep -cx 'fake: aborted')" -eq 3 ]
}
