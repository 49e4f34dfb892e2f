#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The checkpoint service is killed before each of its calls that change something, together with its
# client and alone, and each of these calls is made to fail: no step that was handed over is lost
# while one of them lives, what is found is whole, and what fails is told of.

load lib/places

setup() {
    tools=$MUSTER_BUILD/tests/tools
    place=$(mktemp -d -p "$MUSTER_TEST_MEMORY" muster-ckptd.XXXXXX)
    cd "$place" || return
    local status=0
    "$tools/kill_at" 1 true || status=$?
    [ $status -ne 77 ] || skip "processes can't be traced here"
    unset MUSTER_CKPTD
    export MUSTER_CKPTD_PROGRAM=$place/service
    # The first service that is started is run by kill_at, with what the file `when` says.
    cat >service <<END
#!/bin/bash
if [ -e "$place/when" ]; then
    read -r when <"$place/when"
    rm "$place/when"
    exec 9>"$place/lock"
    flock 9
    exec "$tools/kill_at" "\$when" "$MUSTER_BUILD/muster-ckptd" "\$@" 2>>"$place/kill_at.log"
fi
exec "$MUSTER_BUILD/muster-ckptd" "\$@"
END
    chmod +x service
    "$tools/ckptd_writer" before 1 2 >/dev/null
}

teardown() { rm -rf --one-file-system "$place"; }

complain() {
    echo "$*"
    cat told complaints 2>/dev/null
    ls -laR run
    return 1
}

# Until the first service, and who traces it, have ended: what they do last, their client does not
# wait for.
wait_traced() { flock -w 20 lock true || complain "the service never ended"; }

# newest_is LEAST MOST: found by the next attempt, which leaves nothing unfinished behind and sees
# no damage.
newest_is() {
    local step
    "$tools/ckpt_writer" newest run >newest 2>&1 && read -r step <newest || {
        complain "no newest: $(<newest)"; return
    }
    [ "$step" -ge "$1" ] && [ "$step" -le "$2" ] || {
        complain "found $step, not $1 to $2"; return
    }
    ! compgen -G 'run/*damaged*' >/dev/null && ! compgen -G 'run/.[sr]*ing-*' >/dev/null ||
        complain "left behind"
}

# What the writer told: `durable` is the last step that was.
read_told() {
    local line
    durable=2
    while read -r line; do
        [[ $line != step* ]] || durable=${line#step }
    done <told
}

# bats test_tags=long
@test "a service that is killed at any of its calls is followed by another, and no step is lost" {
    local n
    for ((n = 1; ; n++)); do
        rm -rf run && cp -r before run && echo "$n" >when
        # Before it has taken its client on, the client is told so and can't begin.
        "$tools/ckptd_writer" run 3 4 >told 2>complaints ||
            { grep -q "the one that was started ended" complaints && ! grep -q "step" told &&
            continue; } ||
            { complain "call $n: a save failed"; return 1; }
        grep -qx "step 3" told && grep -qx "step 4" told || { complain "call $n"; return 1; }
        newest_is 4 4 || { echo "call $n"; return 1; }
        grep -q '^service: ' told || break
    done
    echo "# killed the service at $((n - 1)) calls" >&3
    [ "$n" -gt 80 ]
}

# bats test_tags=long
@test "a call of the service that fails costs one save at most, which is told of" {
    local n error failures=0 tried=0 status durable
    for error in EIO ENOSPC EDQUOT; do
        for ((n = 1; ; n++)); do
            rm -rf run && cp -r before run && echo "$n=$error" >when
            : >kill_at.log
            status=0
            "$tools/ckptd_writer" run 3 4 >told 2>complaints || status=$?
            wait_traced || return
            [ -s kill_at.log ] || break
            read_told
            if grep -q '^failed 3: .*\(Input/output error\|No space left\|quota exceeded\)' told
            then
                [ $status -eq 69 ] && ! grep -qx "step 3" told || {
                    complain "call $n, $error: status $status"; return 1
                }
                failures=$((failures + 1))
            elif grep -q '^failed 4: ' told; then
                [ $status -eq 69 ] && [ "$durable" -eq 3 ] || {
                    complain "call $n, $error: status $status"; return 1
                }
                failures=$((failures + 1))
            else
                [ $status -eq 0 ] && [ "$durable" -eq 4 ] || {
                    complain "call $n, $error: status $status"; return 1
                }
            fi
            newest_is "$durable" 4 || { echo "call $n, $error"; return 1; }
            tried=$((tried + 1))
        done
    done
    echo "# made $tried calls of the service fail: $failures saves were given up and told of" >&3
    [ "$tried" -gt 300 ]
    [ "$failures" -gt 100 ]
}

# Behind a good save nothing is left of failed ones and of removals that failed, without waiting for
# the next attempt.
# bats test_tags=long
@test "a disk that is read-only for a while, from any call of the service on: nothing is left of what failed then" {
    local n calls failures=0 status
    # From any call of two saves on; the disk is good again in the fifth at the latest.
    rm -rf run && cp -r before run && echo 0=EROFS >when
    "$tools/ckptd_writer" run 3 4 >told
    wait_traced
    calls=$(sed -n 's/ calls$//p' kill_at.log)
    for ((n = 1; n <= calls; n++)); do
        rm -rf run && cp -r before run && echo "$n-$((n + 3))=EROFS" >when
        status=0
        "$tools/ckptd_writer" run 3 7 >told 2>complaints || status=$?
        grep -qx "step 7" told || { complain "call $n"; return 1; }
        [ $status -eq 0 ] || grep -q '^failed [3456]: .*Read-only file system' told ||
            { complain "call $n: status $status"; return 1; }
        [ $status -eq 0 ] || failures=$((failures + 1))
        wait_traced || return
        ! compgen -G 'run/.[sr]*ing-*' || { complain "call $n: left behind"; return 1; }
        newest_is 7 7 || { echo "call $n"; return 1; }
    done
    echo "# made the disk read-only at $calls calls: $failures times saves were given up, and nothing was left of them" >&3
    [ "$calls" -gt 100 ]
    [ "$failures" -gt 50 ]
}

@test "four writers that are all killed at any moment leave a whole step" {
    local moments=${MUSTER_TEST_MOMENTS-100} total n i kept=0 status durable
    # How many calls there are, from a first run.
    rm -rf run && cp -r before run
    total=0
    for ((n = 4096; n > 0; n /= 2)); do
        rm -rf run && cp -r before run
        status=0
        "$tools/kill_at" $((total + n)) "$tools/ckptd_writer" run 3 4 4 >told 2>&1 || status=$?
        [ $status -ne 137 ] || total=$((total + n))
    done
    for ((i = 0; i < moments; i++)); do
        rm -rf run && cp -r before run
        n=$((total * i / moments + RANDOM % (total / moments + 1) + 1))
        "$tools/kill_at" $n "$tools/ckptd_writer" run 3 4 4 >told 2>complaints || :
        read_told
        newest_is "$durable" 4 || { echo "call $n"; return 1; }
        [ "$durable" -eq 4 ] || kept=$((kept + 1))
    done
    echo "# killed four writers and their services at $moments moments among $total calls, $kept before the last step" >&3
    [ $kept -gt $((moments / 2)) ]
}
