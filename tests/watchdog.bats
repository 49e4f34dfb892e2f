#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# When a collective fails, everybody learns who stands where: ranks that are stopped, that compute
# for too long, that are killed. Without a launcher; tests/cluster/watchdog.bats has whole nodes.

load small_run

# By how much this machine may be slower: the deadlines here are as many times longer, so that no
# rank meets one while it only waits for a processor.
SLOWER=$((${MUSTER_PATIENCE:-3} / 3))

setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR"
    mkdir -m 700 runtime
    mkdir wrapped
    REAL=$(command -v muster-train)
    # Rank 1 may be slow; and there may be no checkpoint directory.
    cat >wrapped/muster-train <<END
#!/bin/bash
arguments=("\$@")
for i in "\${!arguments[@]}"; do
    [ -z "\$NOWHERE" ] || [ "\${arguments[i]}" != --ckpt-dir ] ||
        unset "arguments[i]" "arguments[i + 1]"
done
[ "\$RANK" != 1 ] || export LD_PRELOAD="\$SLOW"
exec $REAL "\${arguments[@]}"
END
    chmod +x wrapped/muster-train
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    export XDG_RUNTIME_DIR=$PWD/runtime
    PIDS=()
}

# shellcheck disable=SC2046
teardown() { kill -9 $(running "${PIDS[@]}") 2>/dev/null || :; }

# stands DIR RANK WORDS: until the record of that rank says so. Tells the line.
stands() { wait_for 10 stood "$@" || { muster-where -a "$1" && return 1; }; }
stood() { muster-where -a "$1" | grep "rank $2 on .*: $3"; }

# all_lost SECONDS RANK…: each of these ranks ends with 69 in that time, longer on a slow machine,
# and has told where it stood.
all_lost() {
    local begin=$EPOCHREALTIME limit=$(($1 * SLOWER)) rank status
    shift
    for rank; do
        wait "${PIDS[rank]}" && status=0 || status=$?
        grep error "rank$rank.out"
        [ $status -eq 69 ] || { echo "rank $rank ended with $status"; return 1; }
        [ "$(grep -c "error: this rank stood: .* of step [0-9]* .*; complete last: .* of step " \
            "rank$rank.out")" -eq 1 ]
    done
    awk -v begin="$begin" -v end="$EPOCHREALTIME" -v limit="$limit" \
        'BEGIN { print end - begin " s"; exit end - begin > limit }'
}

# waiting: of lines as the table has them, the ranks that wait for others.
waiting() {
    sed -n 's/.*\branks\? \([0-9, -]*\) on .*: waiting in .* of step [0-9]* .*/\1/p' | tr -d ' ' |
        tr , '\n' |
        while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done | sort -n | xargs
}

# The lines of the table, which one rank alone prints.
table() { cat rank*.out | sed -n 's/^muster: \[rank [0-9]* on .*\] error:   //p'; }

@test "a rank that is stopped in mid-step: the others end with 69, and tell where all stood" {
    local was='no answer; by its record it was [a-z]* .* of step [0-9]*'
    start_world 4 stopped --steps 100000 --ckpt-every 0 --collective-timeout $((3 * SLOWER))
    wait_step stopped 5
    kill -STOP "${PIDS[2]}"
    # While they wait, anybody can see it.
    stands stopped 1 "waiting in .* of step .* ([0-9]* bytes)"
    [ "$(muster-where -a stopped | grep -c '^  rank [0-3] on ')" -eq 4 ]
    # The deadline, a second for the last words, two for the log; the machine may be busy.
    all_lost 10 0 1 3
    [ "$(cat rank*.out | grep -c 'where the 4 ranks stood:')" -eq 1 ]
    grep -q 'where the 4 ranks stood:' rank0.out
    table
    [ "$(table |
        grep -cE "^rank 2 on .*: $was for ([3-9]|[1-9][0-9])")" \
        -eq 1 ]
    [ "$(table | grep -v 'no answer' | waiting)" = "0 1 3" ]
    # Another that waits for it may have had less from it than this one: then it is missing, too.
    grep -qE 'waiting for (rank [13] on [^ ]+, )*rank 2 on ' rank0.out
    # What was last said is the reason, for the line of srun's user.
    for rank in 0 1 3; do tail -n 1 "rank$rank.out" | grep -q "comm: couldn't complete"; done
    # It is killed, and its record is as it was; so are those of the others.
    kill -9 "${PIDS[2]}"
    muster-where stopped | tee after
    [ "$(waiting <after | sed 's/ 2 / /')" = "0 1 3" ]
    grep -q '4 of 4 ranks have a record' after
    # The job comes back: then they are those of the attempt before. It ends in order, and leaves
    # none.
    start_world 4 stopped --steps 100000 --ckpt-every 0
    wait_log rank0.out '^step  *20/'
    muster-where stopped | grep '4 of 4 ranks have a record'
    kill "${PIDS[@]}"
    end_world || [ $? -eq 75 ]
    muster-where stopped | head -n 1 | grep 'standing-before (of an attempt before the last one)'
    [ ! -e stopped/standing ]
}

@test "rank 0 is stopped: the lowest of the others tells" {
    start_world 3 headless --steps 100000 --ckpt-every 0 --collective-timeout $((2 * SLOWER))
    wait_step headless 5
    kill -STOP "${PIDS[0]}"
    all_lost 9 1 2
    grep -q 'where the 3 ranks stood:' rank1.out
    [ "$(cat rank*.out | grep -c 'where the 3 ranks stood:')" -eq 1 ]
    [ "$(table | grep -c '^rank 0 on .*: no answer; by its record')" -eq 1 ]
}

@test "a rank that computes for longer than the deadline is told from one that is gone" {
    cat >slow.c <<'END'
/* Functions that the training thread may compute with: the first of them that it calls
 * takes twice the deadline, once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void be_slow(void)
{
	static int slept;
	if (slept || getpid() != gettid() || access("go-slow", F_OK) != 0)
		return;
	slept = 1;
	for (int i = 0; i < 40 * atoi(getenv("SLOWER")); i++)
		usleep(100000);
}

#define SLOW(name) \
	float name(float x) \
	{ \
		static float (*real)(float); \
		if (!real) \
			real = (float (*)(float))dlsym(RTLD_NEXT, #name); \
		be_slow(); \
		return real(x); \
	}
SLOW(expf)
SLOW(logf)
SLOW(tanhf)
SLOW(sqrtf)
END
    cc -O2 -fno-builtin -shared -fPIC -o slow.so slow.c -ldl
    export SLOWER
    SLOW=$PWD/slow.so PATH=$PWD/wrapped:$PATH start_world 4 slow --steps 100000 --ckpt-every 0 \
        --collective-timeout $((2 * SLOWER))
    wait_step slow 5
    touch go-slow
    # It ends as well, when it has done what it computes.
    all_lost 20 0 2 3 1
    table
    [ "$(table | grep -c '^rank 1 on .*: computing slot [0-9]* of step [0-9]* for [1-9]')" -eq 1 ]
    [ "$(table | grep -c 'no answer')" -eq 0 ]
}

@test "kill -9: the record is there, in the memory of the node where there is no checkpoint directory" {
    NOWHERE=1 PATH=$PWD/wrapped:$PATH start_world 3 none --steps 100000 --ckpt-every 0
    wait_log rank0.out '^step  *20/'
    muster-where | grep '3 of 3 ranks have a record'
    kill -9 "${PIDS[@]}"
    end_world || [ $? -eq 137 ]
    muster-where -a
    [ "$(muster-where -a |
        grep -c "rank [0-2] on .*, process .*: .* of step [0-9].* for .*; complete last: .* of step")" \
        -eq 3 ]
    [ "$(find runtime -name 'standing-*' | wc -l)" -eq 3 ]
    rm -r runtime/*
    # Who ends in order leaves nothing; also after a failure on which all agreed.
    NOWHERE=1 PATH=$PWD/wrapped:$PATH train none --steps 3
    start_world 2 wrong --steps 3 --validation-data nowhere --validate-every 1
    ! end_world || false
    [ "${STATUSES[0]}" -eq "${STATUSES[1]}" ]
    [ -z "$(find runtime wrong -name '*standing*')" ]
}

@test "where the checkpoint directory is on another file system, a copy there follows" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root, to mount a file system"
    mkdir -p server
    cat >on_server <<'END'
. "$BATS_TEST_DIRNAME/small_run.bash"
mount -t ramfs none server
start_world 2 server/run --steps 100000 --ckpt-every 0
wait_step server/run 20
kill -STOP "${PIDS[1]}"
is_waiting() { muster-where -a server/run | grep 'rank 0 on .*: waiting in '; }
wait_for 10 is_waiting || exit 1
muster-where | grep '2 of 2 ranks have a record' || exit 2
kill -CONT "${PIDS[1]}"
kill "${PIDS[@]}"
end_world
[ "${STATUSES[*]}" = "75 75" ] && [ ! -e server/run/standing ] &&
    [ -z "$(find runtime -name 'standing-*')" ] || exit 3
END
    BATS_TEST_DIRNAME=$BATS_TEST_DIRNAME unshare -m bash on_server 3>&-
}

@test "what is no record is named, and the others are shown" {
    start_world 2 damaged --steps 100000 --ckpt-every 0
    wait_step damaged 5
    kill -9 "${PIDS[@]}"
    end_world || [ $? -eq 137 ]
    head -c 1000 damaged/standing/rank-00001 >damaged/standing/rank-00002
    mkfifo damaged/standing/rank-00003
    run muster-where damaged
    echo "$output"
    [ "$status" -eq 65 ]
    grep -q "2 files in damaged/standing can't be read as a record" <<<"$output"
    grep -q '2 of 2 ranks have a record' <<<"$output"
    fails 65 "couldn't open the folder nowhere" muster-where nowhere
    mkdir -p empty
    fails 0 "no rank has left a record in empty" muster-where empty
    fails 2 "one checkpoint directory" muster-where empty empty
}
