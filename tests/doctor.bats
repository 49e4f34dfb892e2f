#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-doctor by itself, where there is no Slurm; and its manual.

load lib/places

setup() { export SLURM_CONF=$BATS_TEST_TMPDIR/none; }

@test "the manual lists every check with its severity, fault and remedy" {
    manual=$(sed 's/\\-/-/g; s/^\.BR //; s/"//g' "$MUSTER_TOP/doc/muster-doctor.1" |
        tr -s '\n ' ' ')
    count=0
    while read -r name && read -r severity && read -r what && read -r remedy; do
        read -r _ || :
        count=$((count + 1))
        echo "$name ($severity) $what .br Remedy: ${remedy//\{\}/N}"
        [[ $manual = *" $name ($severity) $what .br Remedy: ${remedy//\{\}/N} "* ]]
    done < <(muster-doctor --list)
    [ "$count" -ge 30 ]
    [ "$(grep -c '^\.BR .* "(error)"$\|^\.BR .* " (\(error\|warning\|note\))"$' \
        "$MUSTER_TOP/doc/muster-doctor.1")" -eq "$count" ]
}

@test "every option is in the manual" {
    for option in $(muster-doctor --help | grep -o -- '--[a-z-]*' |
        grep -v -- '--help\|--usage\|--version\|--muster\|--ntasks' |
        sort -u); do
        echo "$option"
        grep -qF -- "${option//-/\\-}" "$MUSTER_TOP/doc/muster-doctor.1"
    done
}

@test "without a Slurm it says so, and looks at the rest" {
    run muster-doctor --slurm-timeout 1 --dir "$BATS_TEST_TMPDIR"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = "note: slurm-silent: "* ]]
    [ "$(ls -A "$BATS_TEST_TMPDIR" | grep -c muster-doctor)" -eq 0 ]
    run muster-doctor --slurm-timeout 1 --dir /proc/none
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output = "error: dir-unusable: "*"couldn't write in /proc: "* ]]
}

@test "--json is one line that says the same" {
    run muster-doctor --slurm-timeout 1 --json --dir /proc/none
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output = '{"ranks":1,"nodes":1,"worst":"error","findings":['* ]]
    [[ $output = *'[{"check":"dir-unusable","severity":"error","ranks":[0],"nodes":["'* ]]
}

@test "wrong usage is one line and status 2" {
    for words in "--timeout 0" "--nonsense" "words"; do
        # shellcheck disable=SC2086
        run muster-doctor $words
        echo "$output"
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
    done
}
