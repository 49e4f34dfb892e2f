#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A save is killed at each of its system calls, and each of its calls is made to fail: whatever happens while step 3 is
# saved, the newest checkpoint that verifies is that of step 3 or of step 2, and the next save goes well.

setup() {
    : "${MUSTER_TOP:=$BATS_TEST_DIRNAME/..}" "${MUSTER_BUILD:=$MUSTER_TOP/build}"
    writer=$MUSTER_BUILD/tests/tools/ckpt_writer
    cd "$BATS_TEST_TMPDIR" || return
    strace -o probe true 2>/dev/null || skip "strace can't trace here"
    "$writer" save before 1 2
}

teardown() { [ -z "${place-}" ] || rm -rf --one-file-system "$place"; }

# fresh: `run` is the directory with steps 1 and 2, as before step 3 is saved. Its owner is gone.
fresh() { rm -rf run && cp -a before run; }

# points TRACE SET…: the calls between the marks of ckpt_writer, as "NAME OCCURRENCE" with the occurrence counted from
# the start of the process, as strace counts; only those of SET if it is given.
points() {
    awk -v set=" ${*:2} " '
        /^close\(1000000\)/ { inside = 1; seen["close"]++; next }
        /^close\(1000001\)/ { inside = 0 }
        match($0, /^[a-z0-9_]+\(/) {
            name = substr($0, 1, RLENGTH - 1)
            seen[name]++
            if (inside && (set == "  " || index(set, " " name " ")))
                print name, seen[name]
        }' "$1"
}

# The newest checkpoint that verifies, found by the next attempt; what it says is in `said`.
newest() { "$writer" newest run 2>said; }

# complain WHERE: the directory after a fault at WHERE.
complain() { echo "$*"; ls -la run run/*; cat said; return 1; }

@test "killed at any system call, a save leaves step 3 or step 2" {
    fresh
    strace -o trace "$writer" save run 3 3
    points trace >points
    local tried=0 kept=0 name when found
    while read -r name when; do
        fresh
        strace -o /dev/null -e trace="$name" -e inject="$name:signal=KILL:when=$when" "$writer" save run 3 3 >/dev/null 2>&1 &&
            complain "not killed at $name $when"
        found=$(newest) || complain "killed at $name $when"
        [ "$found" = 3 ] || [ "$found" = 2 ] || complain "killed at $name $when: $found"
        ! ls -d run/*damaged* run/.saving-* run/.removing-* 2>/dev/null || complain "killed at $name $when"
        "$writer" save run 4 4 && [ "$(newest)" = 4 ] || complain "killed at $name $when, then saved"
        tried=$((tried + 1))
        [ "$found" = 2 ] && kept=$((kept + 1))
    done <points
    echo "# killed at $tried points: $kept times step 2 was the newest, $((tried - kept)) times step 3" >&3
    # Both outcomes were seen, and the commit lies between them.
    [ "$tried" -gt 60 ] && [ "$kept" -gt 30 ] && [ "$kept" -lt "$tried" ]
}

@test "with any call failing, a save says so or succeeds, and leaves step 3 or step 2" {
    fresh
    strace -o trace "$writer" save run 3 3
    points trace openat mkdirat fallocate write pwrite64 fsync close renameat unlinkat getdents64 read >points
    local tried=0 failed=0 name when error status found
    while read -r name when; do
        for error in EIO ENOSPC; do
            fresh
            status=0
            strace -o /dev/null -e trace="$name" -e inject="$name:error=$error:when=$when" "$writer" save run 3 3 \
                >out 2>&1 || status=$?
            [ $status -eq 0 ] || [ $status -eq 69 ] || { cat out; complain "$name $when $error: status $status"; }
            ! ls -d run/.saving-* 2>/dev/null || complain "$name $when $error: left behind"
            [ $status -eq 0 ] || grep -q "Input/output error\|No space left" out || complain "$name $when $error: $(cat out)"
            found=$(newest) || complain "$name $when $error"
            [ $status -ne 0 ] || [ "$found" = 3 ] || complain "$name $when $error: said to be saved, but $found"
            [ "$found" = 3 ] || [ "$found" = 2 ] || complain "$name $when $error: $found"
            ! ls -d run/*damaged* 2>/dev/null || complain "$name $when $error"
            tried=$((tried + 1))
            [ $status -eq 0 ] || failed=$((failed + 1))
        done
    done <points
    echo "# made $tried calls fail: $failed saves were given up, $((tried - failed)) went on" >&3
    [ "$tried" -gt 100 ] && [ "$failed" -gt 60 ]
}

# kill_at kills all threads and processes of a save at once. In memory where possible: the disk itself has no part in this.
@test "killed at 1,000 random moments, saves by threads, with O_DIRECT and by four writers leave step 3 or step 2" {
    local kill_at=$MUSTER_BUILD/tests/tools/kill_at way n calls status found tried=0 new=0
    place=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "$BATS_TEST_TMPDIR")" muster-kill.XXXXXX)
    cp -a before "$place" && cd "$place"
    RANDOM=4711
    for way in "1 4 direct" "1 4 buffered" "4 1 direct" "4 3 direct"; do
        fresh
        # shellcheck disable=SC2086
        for ((calls = 20; ; calls += 20)); do
            fresh
            status=0
            "$kill_at" $calls "$writer" save run 3 3 $way >/dev/null 2>&1 || status=$?
            [ $status -eq 137 ] || break
        done
        [ $status -eq 0 ] || complain "$way: status $status"
        for ((n = 0; n < 250; n++)); do
            fresh
            # shellcheck disable=SC2086
            "$kill_at" $((RANDOM % calls + 1)) "$writer" save run 3 3 $way >/dev/null 2>&1 || :
            found=$(newest) || complain "$way: $n"
            [ "$found" = 3 ] || [ "$found" = 2 ] || complain "$way: $n: $found"
            ! compgen -G 'run/*damaged*' && ! compgen -G 'run/.[sr]*ing-*' || complain "$way: $n"
            tried=$((tried + 1))
            [ "$found" = 2 ] || new=$((new + 1))
        done
    done
    echo "# killed at $tried random moments: $((tried - new)) times step 2 was the newest, $new times step 3" >&3
    [ $tried -eq 1000 ] && [ $new -gt 100 ] && [ $new -lt 900 ]
}

@test "all is on the disk before the rename that commits, and the rename before the next step" {
    fresh
    strace -o trace "$writer" save run 3 3
    # Every file written is synced after its last write and closed before the first rename of step 3; so is its folder;
    # the directory is synced before anything follows.
    awk '
        function fd_of(line) { match(line, /\([0-9]+/); return substr(line, RSTART + 1, RLENGTH - 1) }
        /^close\(1000000\)/ { inside = 1 }
        !inside || committed { if (committed && !after) { after = $0 }; next }
        /^mkdirat\(.*\.saving-/ { made = 1 }
        /^openat\(.*\.saving-.*= [0-9]+$/ && made { folder = $NF }
        /^openat\(.*O_CREAT.*= [0-9]+$/ { state[$NF] = "open"; state[fd_of($0)] = "changed"; files++ }
        /^renameat\(.*"manifest.json"/ { state[fd_of($0)] = "changed" }
        /^(write|pwrite64)\(/ { state[fd_of($0)] = "written" }
        /^fsync\(/ { state[fd_of($0)] = "synced" }
        /^close\(/ { fd = fd_of($0); if (fd in state && state[fd] != "synced") bad = $0 }
        /^renameat\(.*\.saving-.*"step-/ { committed = 1; dir = fd_of($0) }
        END {
            for (fd in state) if (state[fd] != "synced") bad = fd
            exit !(committed && files == 5 && state[folder] == "synced" && !bad && after ~ "^fsync[(]" dir "[)]")
        }' trace || {
        sed -n '/close(1000000/,/close(1000001/p' trace
        return 1
    }
}

@test "an I/O error that passes is retried, one that stays ends with 69, and neither is taken for damage" {
    local name when status found tried=0
    "$writer" save before 3 3
    fresh
    strace -o trace "$writer" newest run
    while read -r name when; do
        fresh
        found=$(strace -o /dev/null -e trace="$name" -e inject="$name:error=EIO:when=$when" "$writer" newest run 2>said) ||
            { grep -q "Input/output error" said && found=3; } || complain "$name $when"
        [ "$found" = 3 ] && ! ls -d run/*damaged* 2>/dev/null || complain "$name $when: $found"
        tried=$((tried + 1))
    done < <(points trace openat read pread64)
    echo "# failed $tried calls of a load" >&3
    [ "$tried" -gt 10 ]
    # For good: every read from the first one behind the mark, of small files and of chunks.
    for name in read pread64; do
        when=$(points trace $name | head -n 1)
        fresh
        status=0
        strace -o /dev/null -e trace=$name -e inject="$name:error=EIO:when=${when#* }+" "$writer" newest run >out 2>&1 ||
            status=$?
        cat out
        [ $status -eq 69 ]
        [ -d run/step-00000003 ] && ! ls -d run/*damaged* 2>/dev/null
    done
}

@test "a full disk and a read-only one are told of and cost nothing" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    mkdir small
    unshare -m bash -c '
        set -e
        mount -t tmpfs -o size=160k none small
        "$0" save small 1 2
        dd if=/dev/zero of=small/filler bs=1k count=100 2>/dev/null || true
        status=0; "$0" save small 3 3 2>out || status=$?
        cat out; [ $status -eq 69 ]; grep -q "No space left" out
        rm small/filler
        [ "$("$0" newest small)" = 2 ]
        "$0" save small 4 4
        mount -o remount,ro small
        status=0; "$0" save small 5 5 2>out || status=$?
        cat out; [ $status -eq 69 ]; grep -q "Read-only file system" out
        mount -o remount,rw small
        [ "$("$0" newest small)" = 4 ]' "$writer"
}
