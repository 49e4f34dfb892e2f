#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A machine that lacks something for a moment: one call of a program for memory, for a file, a
# descriptor, a connection, a thread or a process fails. The program does without it and comes to
# the same, or says in a line what it lacked and ends with 1 or 69; it takes nothing for damaged,
# and loses nothing that was there. And sockets whose calls do as little at once as they may.
# shellcheck disable=SC2317 # each_lack calls the functions of the tests

load small_run

WORDS="memory|couldn't|could not|known to be|can't be known|Input/output error|Too many open"
# What a machine says of its own speed.
SPEED='^speed |^muster-generate: .* tokens a second'

setup_file() {
    small_run_prepare
    unset MUSTER_CKPTD
    export MUSTER_CKPTD_PROGRAM=$MUSTER_BUILD/muster-ckptd
    cd "$BATS_FILE_TMPDIR" || return
    tiny whole 6 >whole.out 2>&1
    cp -a whole half && rm -r half/step-00000006 && echo step-00000005 >half/latest
    muster-ckpt export whole exported
    muster-ckpt import exported imported
    head -c 4000 "$MUSTER_TOP/README.md" >text
    jq -Rc '{text: .}' text >lines
    ! command -v muster-generate >/dev/null || {
        muster-tokens -q -o text.bin text
        muster-tokens -q --field text -o lines.bin lines
    }
}

setup() {
    cd "$BATS_FILE_TMPDIR" || return
    moments=$((${MUSTER_TEST_MOMENTS-120} / 2)) # of each kind: thirty commands try as many
    library=$MUSTER_BUILD/tests/tools/.libs/fail_call.so
}

# tiny DIR STEPS: training of a few thousand weights, each step saved.
tiny() {
    muster-train --data tokens.u16 --ckpt-dir "$1" --layers 1 --width 16 --heads 1 --context 16 \
        --vocabulary 64 --global-batch 4 --microbatch 1 --learning-rate 0.01 --warmup-steps 3 \
        --threads 1 --steps "$2" --ckpt-every 1 --keep-last 2 "${@:3}"
}

# lack KIND N COMMAND…: its N-th call of that kind fails; `called` has the name of that call, or
# nothing where there were fewer; with 0 none fails, and it has how many there were.
lack() {
    : >called
    FAIL_KIND=$1 FAIL_CALL=$2 FAIL_LOG=$PWD/called LD_PRELOAD=$library \
        "${@:3}" >out 2>errors </dev/null
}

# Whether the program, of $status, did without what it lacked, or said what it was.
bears() {
    case $status in
    0) [ -n "$made" ] || diff <(grep -Ev "$SPEED" expected) <(grep -Ev "$SPEED" out) ;;
    1 | 69) grep -qE "$WORDS" out errors ;;
    *) false ;;
    esac
}

# each_lack COMMAND…: with each of its calls failing in turn, or as many of them as are wanted. With
# $made, a function that tells whether the result in the folder or file `made` is right: without it
# the result is what the command prints. $begin comes before each try; where a try has failed, the
# command is given again, and $again before that.
each_lack() {
    local kind n total all=0 status
    for kind in memory system; do
        $begin
        lack $kind 0 "$@"
        cp out expected
        read -r total _ <called || total=0
        all=$((all + total))
        for n in $([ "$total" -eq 0 ] || shuf -i "1-$total" -n "$moments"); do
            $begin
            status=0
            lack $kind "$n" "$@" || status=$?
            [ -s called ] || continue # fewer than before: threads differ
            bears || lacked "$@"
            [ -n "$made" ] || continue
            # It may have been complete before.
            [ $status -eq 0 ] || { $again && "$@" >out 2>errors; } || :
            $made || lacked "$*, given again"
        done
    done
    echo "# $* makes $all such calls" >&3
    [ $all -gt 0 ]
}

lacked() {
    echo "$*: call $n for $kind, $(<called), failed; status $status"
    tail -n 5 out errors
    return 1
}

@test "what only reads prints the same, or says what it lacked" {
    local begin=: again=: made='' before
    before=$(find whole exported -type f -exec sha256sum {} + | sort)
    for command in ls show "verify --deep" history; do
        # shellcheck disable=SC2086
        each_lack muster-ckpt $command whole
    done
    each_lack muster-ckpt show --json whole
    each_lack muster-ckpt diff whole/step-00000006 whole/step-00000006
    each_lack muster-curve whole
    each_lack muster-where whole
    each_lack muster-eval --threads 1 whole tokens.u16
    ! command -v muster-generate >/dev/null ||
        each_lack muster-generate --threads 1 --ids -p 1,2,3 -n 5 whole
    [ "$(find whole exported -type f -exec sha256sum {} + | sort)" = "$before" ]
}

@test "what writes has written all, or does so when it is asked again" {
    local begin again=: made
    fresh() { rm -rf made; }
    begin=fresh
    made_export() { diff -r exported made; }
    made=made_export each_lack muster-ckpt export whole made
    made_import() { diff <(hashes imported/step-00000000) <(hashes made/step-00000000); }
    again=fresh made=made_import each_lack muster-ckpt import exported made
    made_report() { tail -n 1 made | grep -q '</html>$'; }
    made=made_report each_lack muster-report whole -o made
    ! command -v muster-generate >/dev/null || {
        made_tokens() { cmp made text.bin; }
        made=made_tokens each_lack muster-tokens -q -o made text
        made_lines() { cmp made lines.bin; }
        made=made_lines each_lack muster-tokens -q --field text -o made lines
    }
    copy() { rm -rf made && cp -a whole made; }
    begin=copy
    # Its owner may not have come to say that it has ended.
    quiet() { touch -d '2 minutes ago' made/owner.json; }
    made_pruned() { [ "$(saved_steps made)" = 6 ] && muster-ckpt verify --deep made >out; }
    again=quiet made=made_pruned each_lack muster-ckpt prune made --keep-last 1
    made_pinned() { muster-ckpt ls made | grep -q '^ *5 .* yes  *yes$'; }
    made=made_pinned each_lack muster-ckpt pin made 5
}

# The final state and the loss curve of a training that was given again, and its newest checkpoint.
made_training() {
    diff <(hashes whole/step-00000006) <(hashes made/step-00000006) &&
        diff <(muster-curve whole) <(muster-curve made) &&
        ! compgen -G 'made/*damaged*'
}

@test "a training comes to the same bits, in this attempt or the next" {
    local begin again=: made=made_training
    fresh() { rm -rf made; }
    begin=fresh each_lack tiny made 6
}

@test "a training that resumes does so from what was saved, in this attempt or the next" {
    local begin again=: made=made_training
    resumed() { rm -rf made && cp -a half made; }
    begin=resumed each_lack tiny made 6
}

@test "its checkpoint service lacks something: the training comes to the same bits, now or later" {
    local begin again made=made_training preload=$library
    cat >service <<END
#!/bin/bash
exec {serving}>"$PWD/serving"
flock -s \$serving
LD_PRELOAD=$library exec "$MUSTER_BUILD/muster-ckptd" "\$@"
END
    chmod +x service
    export MUSTER_CKPTD_PROGRAM=$PWD/service
    library=
    # It may write yet when its trainer has ended.
    served() { "$@" && status=0 || status=$?; flock serving true; return $status; }
    fresh() { rm -rf made; }
    begin=fresh again=: each_lack served tiny made 6
}

@test "one of two ranks lacks something: both end, and come to the same bits, now or later" {
    local begin again=: made=made_training meeting=0
    [ "$moments" -le 100 ] || moments=100
    # The second rank is the one. Where it ends before they have connected, the first waits in
    # vain.
    pair() {
        local status=0 waits=$HANG limits
        [ "${FAIL_CALL:-0}" = 0 ] || waits=5
        limits=("--rdzv-timeout=$waits" "--collective-timeout=$waits")
        meeting=$((meeting + 1))
        export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 \
            MUSTER_RDZV_DIR=$PWD/meet MUSTER_RDZV_ID=$$-$meeting
        LD_PRELOAD='' RANK=0 LOCAL_RANK=0 tiny "$@" "${limits[@]}" >rank0.out 2>&1 3>&- &
        RANK=1 LOCAL_RANK=1 tiny "$@" "${limits[@]}" || status=$?
        wait $! || [ $status -ne 0 ] || status=$?
        cat rank0.out
        return $status
    }
    fresh() { rm -rf made meet && mkdir meet; }
    begin=fresh each_lack pair made 6
}

@test "sockets whose calls do as little at once as they may: the same bits" {
    local partial=$MUSTER_BUILD/tests/tools/.libs/partial_io.so
    train whole2 >whole2.out 2>&1
    strace -o probe true 2>/dev/null || skip "strace can't trace here"
    strace -f -qq -e trace=sendmsg,recvmsg,recvfrom -o calls env LD_PRELOAD="$partial" \
        bash -c "$(declare -f train start_world end_world train_world)
            train_world 2 parts --ckpt-writers all" >parts.out || { cat parts.out; return 1; }
    diff <(muster-curve whole2) <(muster-curve parts)
    muster-ckpt diff whole2/step-00000100 parts/step-00000100
    # They did so: a message begins byte by byte.
    [ "$(grep -c ' = 1$' calls)" -gt 200 ]
    [ "$(grep -c ' EAGAIN ' calls)" -gt 200 ]
}
