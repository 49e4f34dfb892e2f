#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A save is killed at each of its system calls, and each of its calls is made to fail: whatever
# happens while step 3 is saved, the newest checkpoint that verifies is that of step 3 or of step 2,
# and the next save goes well. So is the next attempt, while it finishes a save that was left
# complete.

load lib/places

setup() {
    writer=$MUSTER_BUILD/tests/tools/ckpt_writer
    kill_at=$MUSTER_BUILD/tests/tools/kill_at
    # In memory where possible: the disk itself has no part in this.
    place=$(mktemp -d -p "$MUSTER_TEST_MEMORY" muster-kill.XXXXXX)
    cd "$place" || return
    strace -o probe true 2>/dev/null || skip "strace can't trace here"
    "$writer" save before 1 2
}

teardown() { rm -rf --one-file-system "$place"; }

# fresh: `run` is the directory with steps 1 and 2, as before step 3 is saved. Its owner is gone.
fresh() { rm -rf run && cp -a before run; }

# points TRACE SET…: the calls between the marks of ckpt_writer, as "NAME OCCURRENCE" with the
# occurrence counted from the start of the process, as strace counts; only those of SET if it is
# given. How often the heap grows (brk) differs from run to run.
points() {
    awk -v set=" ${*:2} " '
        /^close\(1000000\)/ { inside = 1; seen["close"]++; next }
        /^close\(1000001\)/ { inside = 0 }
        match($0, /^[a-z0-9_]+\(/) {
            name = substr($0, 1, RLENGTH - 1)
            seen[name]++
            if (inside && name != "brk" && (set == "  " || index(set, " " name " ")))
                print name, seen[name]
        }' "$1"
}

# The newest checkpoint that verifies, found by the next attempt; what it says is in `said`.
newest() { "$writer" newest run 2>said; }

# complain WHERE: the directory after a fault at WHERE.
complain() { echo "$*"; ls -la run run/*; cat said; return 1; }

# bats test_tags=long
@test "killed at any system call, a save leaves step 3 or step 2" {
    fresh
    strace -o trace "$writer" save run 3 3
    points trace >points
    local tried=0 kept=0 name when found
    while read -r name when; do
        fresh
        strace -o /dev/null -e trace="$name" -e inject="$name:signal=KILL:when=$when" "$writer" \
            save run 3 3 >/dev/null 2>&1 &&
            complain "not killed at $name $when"
        found=$(newest) || complain "killed at $name $when"
        [ "$found" = 3 ] || [ "$found" = 2 ] || complain "killed at $name $when: $found"
        ! ls -d run/*damaged* run/.saving-* run/.removing-* 2>/dev/null ||
            complain "killed at $name $when"
        "$writer" save run 4 4 && [ "$(newest)" = 4 ] ||
            complain "killed at $name $when, then saved"
        tried=$((tried + 1))
        [ "$found" != 2 ] || kept=$((kept + 1))
    done <points
    echo "# killed at $tried points: $kept times step 2 was the newest, $((tried - kept)) times step 3" >&3
    # Both outcomes were seen, and the commit lies between them.
    [ "$tried" -gt 60 ]
    [ "$kept" -gt 30 ]
    [ "$kept" -lt "$tried" ]
}

# How a full disk, a quota, and file servers that are gone are told of, and the words for it.
errors=(EIO ENOSPC EDQUOT EROFS ESTALE ESHUTDOWN EREMOTEIO ENOTCONN)
spoken="\(Input/output error\|No space left\|Disk quota\|Read-only\|Stale\|Cannot send after\|Remote I/O\|Transport endpoint\)"

# calls [=ERROR] COMMAND…: how many calls kill_at counts in it.
calls() {
    local count
    count=$("$kill_at" "0${1-}" "${@:2}" 2>&1 >/dev/null) && echo "${count% calls}"
}

# save_failing WHERE COMMAND…: a save of step 3 on top of `run` with a fault at WHERE says so or
# succeeds, and training goes on from step 3 or step 2. `outcome` is "failed" or "went on". With
# `lasting` the fault keeps the save from cleaning up.
save_failing() {
    local where=$1 status=0 found next said
    shift
    # By way of a pipe: what is printed to a file would count.
    said=$("$@" 2>&1) || status=$?
    printf '%s\n' "$said" >out
    [ $status -eq 0 ] || [ $status -eq 69 ] || {
        cat out; complain "$where: status $status"; return
    }
    [ -n "${lasting-}" ] || ! compgen -G 'run/.saving-*' || {
        complain "$where: left behind"; return
    }
    [ $status -eq 0 ] || grep -q "couldn't .*: $spoken" out || {
        complain "$where: $(<out)"; return
    }
    "$writer" resume run >resumed 2>said || { complain "$where: can't go on"; return; }
    { read -r found && read -r next && read -r next && read -r next; } <resumed
    [ "$found" = 3 ] || { [ "$found" = 2 ] && [ $status -ne 0 ]; } || {
        complain "$where: status $status, found $found"; return
    }
    [ "$next" = "step $((found + 1))" ] || { complain "$where: $next is the next one"; return; }
    ! compgen -G 'run/*damaged*' && ! compgen -G 'run/.[sr]*ing-*' || { complain "$where"; return; }
    [ $status -eq 0 ] && outcome="went on" || outcome=failed
}

# bats test_tags=long
@test "with any call failing, a save says so or succeeds, and leaves step 3 or step 2" {
    local tried=0 failed=0 name when error n outcome
    for error in EIO ENOSPC EDQUOT; do
        for ((n = 1; ; n++)); do
            fresh
            save_failing "call $n, $error" "$kill_at" "$n=$error" "$writer" save run 3 3
            grep -q '^call .* fails' out || break
            tried=$((tried + 1))
            [ "$outcome" != failed ] || failed=$((failed + 1))
        done
    done
    # And those that only look.
    fresh
    strace -o trace "$writer" save run 3 3
    points trace openat getdents64 read newfstatat >points
    while read -r name when; do
        fresh
        save_failing "$name $when" strace -o /dev/null -e trace="$name" \
            -e inject="$name:error=EIO:when=$when" \
            "$writer" save run 3 3
        tried=$((tried + 1))
        [ "$outcome" != failed ] || failed=$((failed + 1))
    done <points
    echo "# made $tried calls fail: $failed saves were given up, $((tried - failed)) went on" >&3
    [ "$tried" -gt 250 ]
    [ "$failed" -gt 120 ]
}

# PARTS THREADS WAY of ckpt_writer in which the calls come in another order each time.
ways=("1 4 direct" "1 4 buffered" "4 1 direct" "4 3 direct")

# kill_at kills all threads and processes of a save at once.
# bats test_tags=long
@test "killed at 1,000 random moments, saves by threads, with O_DIRECT and by four writers leave step 3 or step 2" {
    local way n calls found tried=0 new=0
    RANDOM=4711
    for way in "${ways[@]}"; do
        fresh
        # shellcheck disable=SC2086
        calls=$(calls "" "$writer" save run 3 3 $way)
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
    [ $tried -eq 1000 ]
    [ $new -gt 100 ]
    [ $new -lt 900 ]
}

@test "with a random call failing, saves by threads, with O_DIRECT and by four writers say so or succeed" {
    local moments=${MUSTER_TEST_MOMENTS-240} error way n calls tried=0 failed=0 outcome
    RANDOM=4712
    for way in "${ways[@]}"; do
        fresh
        # shellcheck disable=SC2086
        calls=$(calls "=EIO" "$writer" save run 3 3 $way)
        for ((n = 0; n < moments / 4; n++)); do
            fresh
            error=${errors[n % ${#errors[@]}]}
            # shellcheck disable=SC2086
            save_failing "$way: $n, $error" "$kill_at" $((RANDOM % calls + 1))=$error "$writer" \
                save run 3 3 $way
            grep -q '^call .* fails' out || continue
            tried=$((tried + 1))
            [ "$outcome" != failed ] || failed=$((failed + 1))
        done
    done
    echo "# made $tried random calls fail: $failed saves were given up, $((tried - failed)) went on" >&3
    [ $tried -gt $((moments * 3 / 4)) ] # threads make some calls less, now and then
    [ $failed -gt $((moments / 3)) ]
}

@test "with all calls failing from some moment on, every way to save says so, and the next attempt goes on" {
    local moments=${MUSTER_TEST_MOMENTS-120} error way n calls tried=0 failed=0 outcome lasting=1
    RANDOM=4713
    for way in "" "${ways[@]}"; do
        fresh
        # shellcheck disable=SC2086
        calls=$(calls "=EIO" "$writer" save run 3 3 $way)
        for ((n = 0; n < moments / 5; n++)); do
            fresh
            error=${errors[n % ${#errors[@]}]}
            # shellcheck disable=SC2086
            save_failing "$way: from $n, $error" "$kill_at" $((RANDOM % calls + 1))-=$error \
                "$writer" save run 3 3 $way
            grep -q '^call .* fails' out || continue
            tried=$((tried + 1))
            [ "$outcome" != failed ] || failed=$((failed + 1))
        done
    done
    echo "# made all calls fail from $tried moments on: $failed saves were given up, $((tried - failed)) were durable" >&3
    [ $tried -gt $((moments * 3 / 4)) ] # threads make some calls less, now and then
    [ $failed -gt $((moments / 2)) ]
}

# A call that only looks, of whichever thread.
@test "with a random look failing, saves by threads, with O_DIRECT and by four writers say so or succeed" {
    local moments=${MUSTER_TEST_MOMENTS-120} error way n looks look tried=0 failed=0 outcome
    RANDOM=4714
    for way in "${ways[@]}"; do
        fresh
        # shellcheck disable=SC2086
        strace -f -o trace "$writer" save run 3 3 $way
        sed 's/^[0-9]* *//' trace >plain
        mapfile -t looks < <(points plain openat getdents64 read newfstatat)
        # Few looks of a sample matter to a save: at least until one did.
        for ((n = 0; n < moments / 8 || (failed == 0 && n < 60); n++)); do
            fresh
            read -r look n_th <<<"${looks[RANDOM % ${#looks[@]}]}"
            error=${errors[n % ${#errors[@]}]}
            # shellcheck disable=SC2086
            save_failing "$way: $look $n_th, $error" strace -f -o /dev/null -e trace="$look" \
                -e inject="$look:error=$error:when=$n_th" "$writer" save run 3 3 $way
            tried=$((tried + 1))
            [ "$outcome" != failed ] || failed=$((failed + 1))
        done
    done
    echo "# made $tried looks fail: $failed saves were given up, $((tried - failed)) went on" >&3
    [ $failed -gt 0 ]
}

# written PARTS THREADS WAY: `before` becomes a directory in which the save of step 3 is complete,
# but not committed: killed just before the rename, or where there are several parts before there is
# a manifest.
written() {
    local n
    fresh
    for ((n = $(calls "" "$writer" save run 3 3 "$@"); n > 0; n--)); do
        fresh
        "$kill_at" "$n" "$writer" save run 3 3 "$@" >/dev/null 2>&1 || :
        [ ! -e run/step-00000003 ] || continue
        [ "$1" -eq 1 ] || ! compgen -G 'run/.saving-*/manifest.json' >/dev/null || continue
        rm -rf before && cp -a run before
        return
    done
    complain "never written"
}

# bats test_tags=long
@test "killed at any system call, the attempt that finishes a save leaves it to the next one" {
    local way name when tried=0
    cp -a before once
    for way in "4 1 direct" "1 1 direct"; do
        rm -rf before && cp -a once before
        # shellcheck disable=SC2086
        written $way
        fresh
        strace -o trace "$writer" newest run
        points trace >points
        while read -r name when; do
            fresh
            strace -o /dev/null -e trace="$name" -e inject="$name:signal=KILL:when=$when" \
                "$writer" newest run >/dev/null 2>&1 &&
                complain "$way: not killed at $name $when"
            "$writer" resume run >resumed 2>said || complain "$way: killed at $name $when"
            [ "$(head -n 1 resumed) $(tail -n 1 resumed)" = "3 step 4" ] ||
                complain "$way: killed at $name $when: $(<resumed)"
            ! compgen -G 'run/*damaged*' && ! compgen -G 'run/.[sr]*ing-*' ||
                complain "$way: killed at $name $when"
            tried=$((tried + 1))
        done <points
    done
    echo "# killed the attempt that finishes a save at $tried points" >&3
    [ $tried -gt 200 ]
}

# bats test_tags=long
@test "with any call failing, the attempt that finishes a save does so, or says that it can't and leaves it to the next" {
    local way error n status out tried=0 failed=0
    local errors=(EIO EDQUOT ESHUTDOWN)
    cp -a before once
    for way in "4 1 direct" "1 1 direct"; do
        rm -rf before && cp -a once before
        # shellcheck disable=SC2086
        written $way
        for error in "${errors[@]}"; do
            for ((n = 1; ; n++)); do
                fresh
                status=0
                # By way of a pipe: what is printed to a file would count.
                out=$("$kill_at" "$n=$error" "$writer" newest run 2>&1) || status=$?
                grep -q '^call .* fails' <<<"$out" || break
                [ $status -eq 0 ] || {
                    [ $status -eq 69 ] && grep -q "couldn't .*: $spoken" <<<"$out"
                } ||
                    complain "$way: call $n, $error: status $status: $out"
                [ $status -ne 0 ] || grep -qx 3 <<<"$out" || complain "$way: call $n, $error: $out"
                "$writer" resume run >resumed 2>said || complain "$way: call $n, $error"
                [ "$(head -n 1 resumed) $(tail -n 1 resumed)" = "3 step 4" ] ||
                    complain "$way: call $n, $error: $(<resumed)"
                ! compgen -G 'run/*damaged*' && ! compgen -G 'run/.[sr]*ing-*' ||
                    complain "$way: call $n, $error"
                tried=$((tried + 1))
                [ $status -eq 0 ] || failed=$((failed + 1))
            done
        done
        errors=(EIO) # the same calls follow, without the parts
    done
    echo "# made $tried calls fail while a save was finished: $failed attempts ended by it" >&3
    [ $tried -gt 200 ]
    [ $failed -gt 50 ]
}

@test "all is on the disk before the rename that commits, and the rename before the next step" {
    fresh
    strace -o trace "$writer" save run 3 3
    # Every file written is synced after its last write and closed before the first rename of step
    # 3; so is its folder; the directory is synced before anything follows.
    awk '
        function fd_of(line) {
            match(line, /\([0-9]+/); return substr(line, RSTART + 1, RLENGTH - 1) }
        /^close\(1000000\)/ { inside = 1 }
        !inside || committed { if (committed && !after) { after = $0 }; next }
        /^mkdirat\(.*\.saving-/ { made = 1 }
        /^openat\(.*\.saving-.*= [0-9]+$/ && made { folder = $NF }
        /^openat\(.*O_CREAT.*= [0-9]+$/ {
            state[$NF] = "open"; state[fd_of($0)] = "changed"; files++ }
        /^renameat\(.*"manifest.json"/ { state[fd_of($0)] = "changed" }
        /^(write|pwrite64)\(/ { state[fd_of($0)] = "written" }
        /^fsync\(/ { state[fd_of($0)] = "synced" }
        /^close\(/ { fd = fd_of($0); if (fd in state && state[fd] != "synced") bad = $0 }
        /^renameat\(.*\.saving-.*"step-/ { committed = 1; dir = fd_of($0) }
        END {
            for (fd in state) if (state[fd] != "synced") bad = fd
            exit !(committed && files == 7 && state[folder] == "synced" && !bad &&
                after ~ "^fsync[(]" dir "[)]")
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
        found=$(strace -o /dev/null -e trace="$name" -e inject="$name:error=EIO:when=$when" \
            "$writer" newest run 2>said) ||
            { grep -q "Input/output error" said && found=3; } || complain "$name $when"
        [ "$found" = 3 ] && ! ls -d run/*damaged* 2>/dev/null || complain "$name $when: $found"
        tried=$((tried + 1))
    done < <(points trace openat read pread64 newfstatat)
    echo "# failed $tried calls of a load" >&3
    [ "$tried" -gt 10 ]
    # For good: every read from the first one after the mark, of small files and of chunks.
    for name in read pread64; do
        when=$(points trace $name | head -n 1)
        fresh
        status=0
        strace -o /dev/null -e trace=$name -e inject="$name:error=EIO:when=${when#* }+" "$writer" \
            newest run >out 2>&1 ||
            status=$?
        cat out
        [ $status -eq 69 ]
        [ -d run/step-00000003 ]
        ! ls -d run/*damaged* 2>/dev/null || false
    done
}

@test "a full disk and a read-only one are told of and cost nothing" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null ||
        skip "needs root to mount a small file system"
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
