#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Ranks that can't meet: whatever one of them does instead, all end within the deadline, with its
# name and its node's, and nothing is left. And Slurm's daemons, killed while the ranks meet: the
# job goes on, or resumes.

load helpers
STEPS=60
load training

setup_file() {
    export MUSTER_CLUSTER_KILLWAIT=2
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
    cat >"$JOBS/rank.sh" <<'END'
#!/bin/bash
# rank.sh CASE PROGRAM ARGUMENT…: what a rank does instead, or before.
case=$1 && shift
held() { mkfifo "held-$case-$SLURM_PROCID" && read -r _ <"held-$case-$SLURM_PROCID"; }
touch "up-$case-$SLURM_PROCID-${SLURM_RESTART_COUNT:-0}"
case $case:$SLURM_PROCID in
stops:2) kill -STOP $$ ;;
sleeps:2) exec sleep 1000 ;;
dies:2) kill -9 $$ ;;
ends:2) exit 0 ;;
miscounts:2) export SLURM_STEP_NUM_TASKS=3 ;;
connecting:3 | accepting:0) export LD_PRELOAD=$PWD/at_connection.so AT_CONNECTION=19 ;;
killed:2) export LD_PRELOAD=$PWD/at_connection.so AT_CONNECTION=9 ;;
taken*:0) export LD_PRELOAD=$PWD/asks_late.so ;;
late:0) held ;;
late:*) export LD_PRELOAD=$PWD/notes.so ;;
cut*) held ;;
meets*:3) [ "${SLURM_RESTART_COUNT:-0}" != 0 ] || held ;;
esac
exec "$@"
END
    cat >"$JOBS/at_connection.c" <<'END'
/* The process gets a signal at the first connection that is made with what was exchanged in the
 * rendezvous. Only the communicator listens on an address of the node's own, and connects to other
 * nodes than rank 0's. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RANK_0 "10.77.0.11"

static volatile int listener = -1;

int listen(int fd, int backlog)
{
	struct sockaddr_in own = { 0 };
	if (getsockname(fd, (struct sockaddr *)&own, &(socklen_t){ sizeof own }) == 0 &&
		own.sin_family == AF_INET &&
		own.sin_addr.s_addr != htonl(INADDR_ANY) && own.sin_addr.s_addr != htonl(INADDR_LOOPBACK))
		listener = fd;
	return syscall(SYS_listen, fd, backlog);
}

int connect(int fd, const struct sockaddr *to, socklen_t size)
{
	in_addr_t address = to->sa_family == AF_INET
		? ((const struct sockaddr_in *)to)->sin_addr.s_addr : htonl(INADDR_LOOPBACK);
	if (address != htonl(INADDR_LOOPBACK) && address != inet_addr(RANK_0))
		kill(getpid(), atoi(getenv("AT_CONNECTION")));
	return syscall(SYS_connect, fd, to, size);
}

int accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
	if (fd == listener)
		kill(getpid(), atoi(getenv("AT_CONNECTION")));
	return syscall(SYS_accept4, fd, from, size, flags);
}
END
    cat >"$JOBS/asks_late.c" <<'END'
/* A process that has all answers is through before this process asks for any. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

int PMIx_Get_nb(const void *rank, const char *key, const void *info,
	size_t count, void *answer, void *arg)
{
	static int (*real)(const void *, const char *, const void *, size_t, void *, void *);
	if (!real)
		real = dlsym(RTLD_NEXT, "PMIx_Get_nb");
	static int late;
	if (strncmp(key, "muster-fence.", 13) == 0 && !late++)
		sleep(2);
	return real(rank, key, info, count, answer, arg);
}
END
    cc -shared -fPIC -o "$JOBS/asks_late.so" "$JOBS/asks_late.c"
    cat >"$JOBS/notes.c" <<'END'
/* Notes by files that the key was asked for by PMIx, and that twenty connections were tried. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void note(const char *what)
{
	char name[64];
	snprintf(name, sizeof name, "%s-%s", what, getenv("SLURM_PROCID"));
	close(open(name, O_CREAT | O_WRONLY, 0644));
}

int connect(int fd, const struct sockaddr *to, socklen_t size)
{
	static int tried;
	if ((to->sa_family == AF_INET || to->sa_family == AF_INET6) && ++tried == 20)
		note("tried");
	return syscall(SYS_connect, fd, to, size);
}

int PMIx_Get_nb(const void *rank, const char *key, const void *info,
	size_t count, void *answer, void *arg)
{
	static int (*real)(const void *, const char *, const void *, size_t, void *, void *);
	if (!real)
		real = dlsym(RTLD_NEXT, "PMIx_Get_nb");
	if (strcmp(key, "muster-key") == 0)
		note("asked");
	return real(rank, key, info, count, answer, arg);
}
END
    cc -shared -fPIC -o "$JOBS/notes.so" "$JOBS/notes.c"
    chmod 755 "$JOBS/rank.sh"
    cc -shared -fPIC -o "$JOBS/at_connection.so" "$JOBS/at_connection.c"
}

setup() {
    plugin_require
    wait_for "$GIVING_UP" all_idle # or the steps of the test before keep those of this one waiting
}

# step CASE SRUN-ARGUMENT… -- PROGRAM…: one in the background whose ranks do CASE; its output is in
# $JOBS/CASE.out.
step() {
    local case=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    cluster run timeout "$HANG" srun "${options[@]}" ./rank.sh "$case" "${@:2}" >"$JOBS/$case.out" \
        2>&1 3>&- &
}

# meet CASE SECONDS SRUN-ARGUMENT…: with muster-rdzv. train CASE SECONDS SRUN-ARGUMENT…: with
# muster-train.
meet() { step "$1" "${@:3}" -- muster-rdzv -t "$2"; }
# shellcheck disable=SC2086
train() {
    step "$1" "${@:3}" -- muster-train --data train.bin $TRAIN_ARGS --rdzv-timeout "$2" \
        --collective-timeout 20
}

# named CASE RANKS WORDS: each of these ranks, a pattern, has told exactly this of who is missing.
# muster-train adds a remedy.
REMEDY=": look at what it does there; --rdzv-timeout waits longer, srun's --exclude leaves a node out"
named() {
    local rank text
    for rank in $2; do
        text=$(sed -nE "s/^muster: \[rank $rank on n[1-4]\] error: (.*: )?rendezvous: couldn't meet //p" "$JOBS/$1.out")
        # shellcheck disable=SC2053
        [[ ${text%"$REMEDY"} = $3" did not come" ]] ||
            { echo "$1: rank $rank told '$text', not: $3" && cat "$JOBS/$1.out" && return 1; }
    done
}

# gave_up CASE NODES: srun saw a rank on one of NODES, a pattern, end by itself, since others did
# not come. The first one that does may have the others killed before they get there: by
# --kill-on-bad-exit, or by Slurm's PMIx server.
gave_up() { grep -q "^srun: error: n$2: task.*: Exited with exit code 69" "$JOBS/$1.out"; }

# Whether no process of the ranks is left, on any node.
nothing_left() {
    local pid
    for pid in $(pgrep -x 'muster-train|muster-rdzv|hold|sleep|rank.sh'); do
        [ ! "/proc/$pid/cwd" -ef "$JOBS" ] || return 1
    done
}

# Slurm's server asks one that is not up yet again after 0.5, 1, 2, 4 … seconds, and answers nobody
# meanwhile.
@test "without a key from the plugin nobody asks rank 0's node by PMIx before rank 0 is there" {
    step late --mpi=pmix -N4 -n4 -- muster-rdzv -t 60
    wait_for 40 ls "$JOBS"/tried-{1,2,3}
    run ls "$JOBS"/asked-*
    [ "$status" -ne 0 ]
    let_go held-late-0
    wait $! || { cat "$JOBS/late.out"; return 1; }
    ls "$JOBS"/asked-{1,2,3}
}

@test "a rank that stops, sleeps, dies, ends or miscounts before it has met the others" {
    # Where Slurm does not end the others, the deadline has to; where a rank does not end by itself,
    # Slurm has to.
    for case in stops sleeps; do meet $case 3 --muster --kill-on-bad-exit=1 -N4 -n4; done
    for case in dies ends; do meet $case 3 --muster --kill-on-bad-exit=0 -N4 -n4; done
    wait
    wait_for 5 nothing_left
    for case in stops sleeps dies ends; do
        named $case "0 1 3" "1 of 4 ranks within 3 s: rank 2 (on n3)"
        gave_up $case "[124]"
    done
    grep -q '^muster: rank 2 on n3 was killed by signal 9 (Killed), the first of 4' "$JOBS/dies.out"
    meet miscounts 3 --muster -N4 -n4
    wait
    grep -q 'couldn.t determine the world size: PMIx says 4, SLURM_STEP_NUM_TASKS says 3' \
        "$JOBS/miscounts.out"
    grep -q '^muster: rank 2 on n3 exited with status 2, .*; it last said "identity: ' \
        "$JOBS/miscounts.out"
}

@test "muster-train: the same" {
    for case in stops sleeps; do train $case 4 --muster --kill-on-bad-exit=1 -N4 -n4; done
    train dies 4 --muster --kill-on-bad-exit=0 -N4 -n4
    train miscounts 4 --muster -N4 -n4
    wait
    wait_for 5 nothing_left
    for case in stops sleeps dies; do
        named $case "0 1 3" "1 of 4 ranks within 4 s: rank 2 (on n3)"
        gave_up $case "[124]"
    done
    grep -q '^muster: rank 2 on n3 was killed by signal 9 (Killed), the first of 4' "$JOBS/dies.out"
    grep -q '^muster: rank 2 on n3 exited with status 2, .*; it last said "identity: ' \
        "$JOBS/miscounts.out"
}

# silent CASE RANK NODE: each of the others that told why it ended waited for that rank, or for
# those that did. The first that ends has the others killed, who may not have told yet. A rank that
# had all it needs of the first all-gather waits in the second, for those that wait for that rank as
# well; all say then of which rank they heard nothing.
silent() {
    grep "^muster: \[rank [^$2] on n[1-4]\] error: comm: " "$JOBS/$1.out" >"$JOBS/told"
    ! grep -vE " waiting for rank $2 on $3(, .*; nothing was heard of rank $2 on $3)?\$" \
        "$JOBS/told" || { cat "$JOBS/$1.out"; return 1; }
    gave_up "$1" "[^${3#n}]"
}

@test "muster-train: a rank that stops or dies after the rendezvous, while they connect" {
    # Higher ranks connect to lower ones, which accept once they exchange something.
    for case in connecting accepting; do train $case 4 --muster --kill-on-bad-exit=1 -N4 -n4; done
    train killed 4 --muster --kill-on-bad-exit=0 -N4 -n4
    wait
    wait_for 5 nothing_left
    silent connecting 3 n4
    silent accepting 0 n1
    # Slurm's PMIx ends the others.
    grep -q '^muster: rank 2 on n3 was killed by signal 9 (Killed), the first of 4' \
        "$JOBS/killed.out"
}

@test "a node that can't be reached: each of the others names its ranks and no other, with the plugin and without" {
    local ours='2 of 8 ranks within 4 s: rank 6 (on n4), rank 7 (on n4)' \
        theirs='6 of 8 ranks within 4 s: rank 0 (on n1)'
    for rank in 1 2 3 4 5; do theirs+=", rank $rank (on n$((rank / 2 + 1)))"; done
    train cut 4 --muster -N4 --ntasks-per-node=2
    meet cut-plain 4 --no-muster --mpi=pmix -N4 --ntasks-per-node=2
    for rank in 0 1 2 3 4 5 6 7; do
        wait_for 20 test -e "$JOBS/up-cut-$rank-0" -a -e "$JOBS/up-cut-plain-$rank-0"
    done
    cluster cut n4
    let_go held-cut{,-plain}-{0..7}
    wait_for 12 nothing_left # also on n4, whose ranks can't reach the others, nor Slurm them
    cluster heal n4
    wait
    for case in cut cut-plain; do
        named $case "0 1 2 3 4 5" "$ours"
        named $case "6 7" "$theirs"
        gave_up $case "[123]"
    done
    wait_for "$GIVING_UP" node_is n4 idle
}

# Rank 0 asks later than the others are answered: none leaves before it has heard of all.
@test "another user listens where rank 0 would: the ranks ask each other, with the plugin and without, and tell him nothing" {
    cat >"$JOBS/listen.py" <<'END'
import os, resource, selectors, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (14000, 14000))
ports, heard = selectors.DefaultSelector(), {}
for port in range(20000, 32000):
    one = socket.socket(socket.AF_INET6)
    try:
        one.bind(("::", port))
        one.listen()
        ports.register(one, selectors.EVENT_READ)
    except OSError:
        pass # somebody else has it
open("listens", "w").close()
while not os.path.exists("go-listen"):
    for key, _ in ports.select(0.1):
        one = key.fileobj
        if one not in heard:
            try:
                caller, _ = one.accept()
            except OSError:
                continue
            heard[caller] = b""
            ports.register(caller, selectors.EVENT_READ)
            continue
        try:
            said = one.recv(1 << 16)
        except OSError:
            said = b""
        heard[one] += said
        if not said:
            ports.unregister(one)
with open("heard", "w") as file:
    file.writelines(f"{said.hex()}\n" for said in heard.values())
END
    cluster run --user 2 --node n1 bash -c "cd $JOBS && exec timeout $HANG python3 listen.py" 3>&- &
    wait_for 30 test -e "$JOBS/listens"
    local steps=()
    meet taken 20 --muster -N4 --ntasks-per-node=2 && steps+=($!)
    meet taken-plain 20 --no-muster --mpi=pmix -N4 --ntasks-per-node=2 && steps+=($!)
    for step in "${steps[@]}"; do
        wait "$step" || { cat "$JOBS"/taken{,-plain}.out && return 1; }
    done
    touch "$JOBS/go-listen"
    wait
    for case in taken taken-plain; do
        cat "$JOBS/$case.out"
        [ "$(grep -cE '^ +[0-7]/8 .* pmix ' "$JOBS/$case.out")" -eq 8 ]
        grep -q 'port .* (TCP)' "$JOBS/$case.out"
    done
    # Each a challenge (doc/bootstrap.md).
    [ "$(wc -l <"$JOBS/heard")" -ge 7 ]
    [ -z "$(grep -vxE '(4d474332.{32})?' "$JOBS/heard")" ] || { cat "$JOBS/heard" && return 1; }
    [ "$(grep -c 4d474332 "$JOBS/heard")" -ge 7 ]
}

# The task of a step of ./hold on a node.
hold_task() {
    local pid
    for pid in $(pgrep -x hold); do
        [ ! "/proc/$pid/cwd" -ef "$JOBS" ] || ! tr '\0' '\n' <"/proc/$pid/environ" |
            grep -qx "SLURMD_NODENAME=$1" || { echo "$pid" && return; }
    done
    echo "no task of ./hold runs on $1" >&2
    return 1
}
has_ended() { ! grep -qs '^State:[[:space:]]*[A-Y]' "/proc/$1/status"; }

# against_muster NAME: $JOBS/NAME is $JOBS/NAME.c with libmuster.
# shellcheck disable=SC2046
against_muster() {
    (export PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig &&
        cc -Wall -Werror "$JOBS/$1.c" $(pkg-config --cflags --libs muster) \
        -Wl,-rpath,"$(pkg-config --variable=libdir muster)" -o "$JOBS/$1")
}

# server_of NODE: the slurmstepd of the step of ./hold there, in which Slurm's PMIx server lives.
server_of() { sed -n 's/^PPid:[[:space:]]*//p' "/proc/$(hold_task "$1")/status"; }

@test "the PMIx servers hang: ranks that all come meet; where one does not come, the others say who is missing, or whose server hangs" {
    cat >"$JOBS/hold.c" <<'END'
#include <muster.h>
#include <stdio.h>
#include <unistd.h>

static void await(const char *file)
{
	while (access(file, F_OK) != 0)
		usleep(50000);
}

static void note(const char *what, int rank)
{
	char name[24];
	snprintf(name, sizeof name, "%s-%d", what, rank);
	fclose(fopen(name, "w"));
}

int main(void)
{
	struct muster *muster;
	int all[3], rc;
	if (muster_open(&muster, 3) != MUSTER_OK)
		return 1;
	const int rank = muster_rank(muster);
	note("met", rank);
	await("go-hold");
	for (int round = 0; round < 300; round++) {
		int mine = 1000 * round + rank;
		if (muster_allgather(muster, &mine, all, sizeof mine, 60) != MUSTER_OK)
			return 1;
		for (int i = 0; i < 3; i++)
			if (all[i] != 1000 * round + i)
				return 1;
	}
	note("gathered", rank);
	await(rank == 2 ? "go-late" : "go-on");
	rc = muster_put(muster, "key", "value", 5) == MUSTER_OK ? muster_fence(muster, 0) : MUSTER_LOST;
	fprintf(stderr, "rank %d: %d: %s\n", rank, rc, muster_error());
	muster_close(muster, rc == MUSTER_OK);
	return rc;
}
END
    against_muster hold
    step hold --muster --kill-on-bad-exit=0 -N3 -n3 -- ./hold
    for rank in 0 1 2; do wait_for 20 test -e "$JOBS/met-$rank"; done
    servers=("$(server_of n1)" "$(server_of n2)" "$(server_of n3)")
    task=$(hold_task n2)
    kill -STOP "${servers[@]}"
    touch "$JOBS/go-hold"
    for rank in 0 1 2; do wait_for 60 test -e "$JOBS/gathered-$rank"; done
    kill -CONT "${servers[0]}" "${servers[2]}"
    touch "$JOBS/go-on"
    wait_for 10 grep -q \
        "^rank 0: .*couldn't meet 2 of 3 ranks within 3 s: rank 1 (on n2), rank 2 (on n3) did not" \
        "$JOBS/hold.out"
    wait_for 10 has_ended "$task"
    touch "$JOBS/go-late"
    kill -CONT "${servers[1]}"
    wait
    cat "$JOBS/hold.out"
    grep -q "^rank 1: .*couldn't put .*: the PMIx server of this node gave no answer within 3 s" \
        "$JOBS/hold.out"
}

@test "a rank loses the bootstrap as it comes to a fence, and as it is to hear of its end: all get all values by PMIx" {
    cat >"$JOBS/gathers.c" <<'END'
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	struct muster *muster;
	char first[16], mine[32], all[4][32];
	if (muster_open(&muster, 10) != MUSTER_OK)
		return 1;
	const int rank = muster_rank(muster);
	snprintf(first, sizeof first, "kept by %d", rank);
	if (muster_put(muster, "first", first, strlen(first)) != MUSTER_OK)
		return 2;
	for (int round = 0; round < 12; round++) {
		memset(mine, 0, sizeof mine);
		snprintf(mine, sizeof mine, "%d of %d", round, rank);
		if (muster_allgather(muster, mine, all, sizeof mine, 0) != MUSTER_OK) {
			fprintf(stderr, "%s\n", muster_error());
			return 3;
		}
		for (int i = 0; i < 4; i++) {
			snprintf(mine, sizeof mine, "%d of %d", round, i);
			if (strcmp(all[i], mine) != 0)
				return 4;
		}
	}
	for (int i = 0; i < 4; i++) {
		void *value;
		size_t size;
		snprintf(first, sizeof first, "kept by %d", i);
		if (muster_get(muster, i, "first", &value, &size) != MUSTER_OK || strcmp(value, first) != 0)
			return 5;
		free(value);
	}
	muster_close(muster, 1);
	printf("rank %d has all\n", rank);
	return 0;
}
END
    against_muster gathers
    cat >"$JOBS/cuts.c" <<'END'
/* $CUT_RANK's connection with the bootstrap ends before or after the fifth message on it ($CUT). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_cut(int fd)
{
	static int messages;
	struct sockaddr_in6 to;
	socklen_t size = sizeof to;
	const char *rank = getenv("SLURM_PROCID"), *cut = getenv("CUT_RANK");
	if (!rank || !cut || strcmp(rank, cut) != 0
		|| getpeername(fd, (struct sockaddr *)&to, &size) != 0
		|| (to.sin6_family != AF_INET && to.sin6_family != AF_INET6)
		|| ntohs(to.sin6_port) < 20000 || ntohs(to.sin6_port) >= 32000)
		return 0;
	return ++messages == 5;
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
	int cuts = is_cut(fd), before = strcmp(getenv("CUT") ? getenv("CUT") : "", "before") == 0;
	if (cuts && before)
		shutdown(fd, SHUT_RDWR);
	ssize_t sent = syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
	if (cuts && !before)
		shutdown(fd, SHUT_RDWR);
	if (cuts)
		close(open(before ? "cut-before" : "cut-after", O_CREAT | O_WRONLY, 0644));
	return sent;
}
END
    cc -Wall -Werror -shared -fPIC "$JOBS/cuts.c" -o "$JOBS/cuts.so"
    for cut in before after; do
        run cluster run env LD_PRELOAD="$JOBS/cuts.so" CUT=$cut CUT_RANK=2 timeout "$HANG" \
            srun --muster -N4 -n4 ./gathers
        echo "$output"
        [ "$status" -eq 0 ]
        [ "$(grep -c '^rank [0-3] has all' <<<"$output")" -eq 4 ]
        [ -e "$JOBS/cut-$cut" ]
    done
}

# Whether the controller has written down what it knew when the file was made.
is_saved() { [ "$(cluster status dir)/controller/job_state" -nt "$1" ]; }

# submit_meeting NAME: a training of four ranks on two nodes; rank 3 of its first attempt comes
# when it is let go.
submit_meeting() {
    train_submit "$1" --wrap-with "./rank.sh $1" -N2 --exclusive -- \
        --ckpt-every 20 --rdzv-timeout 90
}

# is_up NAME ATTEMPT: whether all of its ranks have been started.
is_up() { for rank in 0 1 2 3; do [ -e "$JOBS/up-$1-$rank-$2" ] || return 1; done; }

last_node() { cluster run scontrol show hostnames "$(job_field "$1" NodeList)" | tail -n 1; }

@test "while the ranks meet, slurmctld is killed, a slurmd is killed and comes back, another stays away" {
    stays=$(submit_meeting meets-stays)
    leaves=$(submit_meeting meets-leaves)
    for name in meets-stays meets-leaves; do wait_for 40 is_up $name 0; done
    touch "$JOBS/now"
    cluster run scontrol update "jobid=$stays" comment=held # so that there is something to write
    wait_for 15 is_saved "$JOBS/now"
    back=$(last_node "$stays") away=$(last_node "$leaves")
    cluster kill-controller
    cluster kill-slurmd "$back"
    cluster kill-slurmd "$away"
    cluster start-slurmd "$back"
    cluster start-controller
    [ "$(job_state "$stays") $(job_state "$leaves")" = "RUNNING RUNNING" ]
    let_go held-meets-stays-3
    job_wait "$stays" 60 COMPLETED
    [ "$(job_field "$stays" Restarts)" -eq 0 ]
    train_equals_reference meets-stays
    # Slurm promises that a job whose node fails is put back, and runs elsewhere.
    job_wait "$leaves" 90 COMPLETED
    grep "JobId=$leaves " "$(cluster status log)/slurmctld.log" |
        grep -q "due to failure of node $away"
    [ "$(job_restarts "$leaves")" -ge 1 ]
    [ -e "$JOBS/up-meets-leaves-3-1" ]
    train_equals_reference meets-leaves
    cluster start-slurmd "$away"
    wait_for "$GIVING_UP" node_is "$away" idle
}
