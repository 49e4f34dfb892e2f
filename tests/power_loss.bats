#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The power goes while steps are saved: before each system call that changes something.
# tests/tools/power_loss.c knows what was synced by then, and power_cut makes what may be found:
# only that, or all names but not all bytes, or a mixture. Whatever is found, no step that was told
# to be durable is lost, nothing is torn, and training goes on.

load lib/places

setup() {
    tools=$MUSTER_BUILD/tests/tools
    writer=$tools/ckpt_writer
    # In memory where possible: the disk itself has no part in this.
    place=$(mktemp -d -p "$MUSTER_TEST_MEMORY" muster-power.XXXXXX)
    cd "$place" || return
    mkdir empty
    local status=0
    "$tools/power_cut" none empty || status=$?
    [ $status -ne 77 ] || skip "this file system has no file handles"
    "$tools/kill_at" 1 true || status=$?
    [ $status -ne 77 ] || skip "processes can't be traced here"
    points=0 cuts=0 stride=1
}

teardown() { rm -rf --one-file-system "$place"; }

# watch UNDER COMMAND…: with the layer over UNDER.
watch() { POWER_LOSS_UNDER=$place/$1 LD_PRELOAD=$tools/.libs/power_loss.so "${@:2}"; }

complain() {
    echo "$*"
    cat said told 2>/dev/null
    ls -laR under found 2>/dev/null
    return 1
}

# found_is FOLDER LEAST MOST ATTEMPTS: the folder has a newest step in [LEAST, MOST], where 0 is
# none, and at least that many attempts on record; nothing in it is damaged; it goes on with the
# next step; and when the power goes then, that step is there.
found_is() {
    local folder=$1 least=$2 most=$3 attempts=$4 latest=step-00000000 step records next
    [ ! -e "$folder/a/run/latest" ] || read -r latest <"$folder/a/run/latest" || :
    [[ $latest =~ ^step-[0-9]{8}$ ]] || { complain "latest is torn"; return; }
    watch "$folder" "$writer" resume "$folder/a/run" >said 2>complaints ||
        { complain "can't go on: $(<complaints)"; return; }
    { read -r step && read -r records && read -r next && read -r next; } <said
    [ ! -s complaints ] || { complain "said: $(<complaints)"; return; }
    [ "$step" != none ] || step=0
    [ "$step" -ge "$least" ] && [ "$step" -le "$most" ] || {
        complain "found $step, not $least to $most"; return
    }
    [ "$records" -ge "$attempts" ] || {
        complain "$records attempts on record, not $attempts"; return
    }
    ! compgen -G "$folder/a/run/*damaged*" >/dev/null &&
        ! compgen -G "$folder/a/run/.[sr]*ing-*" >/dev/null ||
        { complain "left behind"; return; }
    "$tools/power_cut" strict "$folder" again || return
    watch again "$writer" newest again/a/run >said 2>&1 && read -r step <said &&
        [ "step $step" = "$next" ] ||
        complain "lost the next step"
}

# What the killed writer told: `durable` is the last step and `attempts` the number of attempts
# begun.
read_told() {
    local line
    durable=0 attempts=0
    while read -r line; do
        case $line in
        attempt) attempts=1 ;;
        step*) durable=${line#step } ;;
        esac
    done <told
}

# cut_everywhere BASE FIRST LAST [HOW…]: saves the steps FIRST to LAST on top of the folder BASE,
# once for each call (or each $stride-th) that changes something, with the power cut before it, in
# each of the ways HOW: power_cut's (`seed` is one that no other call has), or, as the last one,
# `killed`: the power stays, and goes only after the next step. SWALLOW is what the layer forgets,
# SAVE the program that saves in place of ckpt_writer, PARTS its number of writers, or what else it
# takes.
cut_everywhere() {
    local base=$1 first=$2 last=$3 n how folder status durable attempts
    shift 3
    [ $# -gt 0 ] || set -- strict ahead seed killed
    for ((n = 1; ; n += stride)); do
        rm -rf under && cp -r "$base" under && "$tools/power_cut" none under || return
        status=0
        # shellcheck disable=SC2086
        POWER_LOSS_SWALLOW=${SWALLOW-} watch under "$tools/kill_at" "$n" ${SAVE-$writer save} \
            under/a/run "$first" "$last" \
            ${PARTS-} >told 2>&1 || status=$?
        [ $status -eq 137 ] || break
        read_told
        [ "$durable" -gt 0 ] || durable=$((first - 1))
        [ "$first" -eq 1 ] || attempts=$((attempts + 1))
        for how; do
            folder=found
            if [ "$how" = killed ]; then
                folder=under
            else
                "$tools/power_cut" "${how/seed/$((first * 1000 + n))}" under found || return
            fi
            found_is $folder "$durable" "$last" "$attempts" || { echo "call $n, $how"; return 1; }
            cuts=$((cuts + 1))
        done
        points=$((points + 1))
    done
    [ $status -eq 0 ] || complain "the save itself failed: $status"
}

@test "whenever the power goes, what was durable is found, whole" {
    [ "${MUSTER_TEST_SHARE:-0}" = 0 ] || stride=$MUSTER_TEST_SHARE
    cut_everywhere empty 1 4
    cp -r under before
    cut_everywhere before 5 5
    echo "# cut the power at $points points, in $cuts ways" >&3
    [ $((points * stride)) -gt 150 ]
}

# bats test_tags=long
@test "the same with the service as the writer, and with four of them" {
    local SAVE=$tools/ckptd_writer PARTS=
    unset MUSTER_CKPTD
    export MUSTER_CKPTD_PROGRAM=$MUSTER_BUILD/muster-ckptd
    "$writer" save before/a/run 1 2
    cut_everywhere before 3 3
    PARTS=4
    cut_everywhere before 3 3 strict seed
    echo "# cut the power of services at $points points, in $cuts ways" >&3
    [ "$points" -gt 100 ]
}

# PARTS is ckpt_writer's "PARTS THREADS WAY" here, and one tensor is large enough for threads and
# O_DIRECT.
# bats test_tags=long
@test "the same with writing by threads, with O_DIRECT, through the page cache, and by four writers with threads" {
    local PARTS
    "$writer" save before/a/run 1 2
    PARTS="1 4 direct"
    cut_everywhere before 3 3
    PARTS="1 4 buffered"
    cut_everywhere before 3 3 strict
    PARTS="4 3 direct"
    cut_everywhere before 3 3 seed
    echo "# cut the power of threads at $points points, in $cuts ways" >&3
    [ "$points" -gt 150 ]
    PARTS="1 4 direct"
    SWALLOW='*/model-00004-*'
    ! cut_everywhere before 3 3 strict >out 2>&1 || {
        echo "without the fsync of an O_DIRECT file nothing was found"; return 1
    }
    grep -q DAMAGED out
}

# bats test_tags=long
@test "the power goes while an attempt finishes what one before has written: the step is there" {
    local SAVE=./finish n=200
    "$writer" save before/a/run 1 2
    # All four parts of step 3, and neither manifest nor commit.
    parts_alone() {
        [ "$(compgen -G 'under/a/run/.saving-*/part-*' | wc -l)" -eq 4 ] &&
            ! compgen -G 'under/a/run/.saving-*/manifest.json'
    }
    until parts_alone; do
        n=$((n - 1))
        [ $n -gt 0 ]
        rm -rf under && cp -r before under
        "$tools/kill_at" $n "$writer" save under/a/run 3 3 4 1 direct >/dev/null 2>&1 || :
    done
    cp -r under written
    printf '#!/bin/sh\nexec %q newest "$1"\n' "$writer" >finish
    chmod +x finish
    cut_everywhere written 4 4 strict seed
    echo "# cut the power at $points points of finishing a save, in $cuts ways" >&3
    [ "$points" -ge 15 ]
}

@test "each fsync that is left out is found" {
    local pattern SWALLOW
    "$writer" save before/a/run 1 2
    for pattern in a/ a/run/ 'a/run/.saving-*/' '*/.manifest.json.*' '*/model-*' \
        '*/model.safetensors.index.json' \
        '*/config.json' '*/optimizer-*' '*/attempts.jsonl' '*/.owner.json.*' '*/.latest.*'; do
        SWALLOW=$pattern
        if [ "$pattern" = a/ ]; then set -- empty 1 1; else set -- before 3 3; fi
        ! cut_everywhere "$@" strict >out 2>&1 || {
            echo "without the fsync of $pattern nothing was found"; return 1
        }
        echo "# without the fsync of $pattern: $(tail -n 1 out): $(head -n 1 out)" | cut -c -150 >&3
    done
}
