#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The manual pages as a terminal of 80 columns shows them, and what they say of the plugin's own
# look before a step.

load lib/places

setup() {
    command -v man >/dev/null && command -v groff >/dev/null || skip "no man and groff here"
}

# shown PAGE: as plain text; what groff warns of goes to standard error.
shown() { LC_ALL=C.UTF-8 MANWIDTH=80 MAN_KEEP_FORMATTING='' man -l --warnings=w "$1"; }

@test "each page fits into 80 columns, and groff warns of nothing" {
    for page in "$MUSTER_TOP"/doc/*.[1-9]; do
        shown "$page" >"$BATS_TEST_TMPDIR/text" 2>"$BATS_TEST_TMPDIR/warnings"
        grep -q '^NAME$' "$BATS_TEST_TMPDIR/text"
        wide=$(grep -nE '^.{81}' "$BATS_TEST_TMPDIR/text") || :
        echo "${page##*/}: $wide $(<"$BATS_TEST_TMPDIR/warnings")"
        [ -z "$wide$(<"$BATS_TEST_TMPDIR/warnings")" ]
    done
}

@test "every page is found by its name, and those it refers to are there" {
    for page in "$MUSTER_TOP"/doc/*.[1-9]; do
        name=${page##*/} section=${page##*.}
        name=${name%.*}
        echo "$page"
        grep -qi "^\.TH ${name^^} $section " "$page" || {
            echo "$page: no .TH of its own" && return 1
        }
        grep -A1 '^\.SH NAME' "$page" | tail -n 1 | grep -q "$name\b.* \\\\- "
        for other in $(grep -ohE '\b(muster|spank_muster)[a-z-]* \([1-9]\)' "$page" | tr -d ' ()' |
            sort -u); do
            echo "$page: $other"
            [ -e "$MUSTER_TOP/doc/${other%?}.${other: -1}" ]
        done
    done
}

@test "spank_muster(8) names the checks that the plugin makes, and no other" {
    made=$(sed -n 's/^\t{ "\([a-z-]*\)", .*PREFLIGHT_S\(AY\|TOP\),.*/\1/p' \
        "$MUSTER_TOP/checks/check.c" | sort)
    told=$(sed -n '/^\.SH PREFLIGHT/,/^\.SH/p' "$MUSTER_TOP/doc/spank_muster.8" | grep -A1 '^\.TP' |
        grep '^\.BR\? [a-z]' |
        sed 's/^\.BR\? //; s/", "//g' | tr -s ' ' '\n' | sort)
    # One is looked for at the end of the script.
    diff <(printf '%s\n' "$made" srun-missing | sort) <(echo "$told")
    [ "$(wc -l <<<"$made")" -ge 9 ]
}

# faults FILE COLUMN TESTS LAST: the rows of a table of faults, numbers from 1 to LAST with the text
# of a column, in $rows, and where they are provoked, as the head of TESTS says, in $places:
# numbers, files, and names of tests, which there are.
faults() {
    rows=$(sed -n 's/^| \([0-9]*\) | /\1 | /p' "$MUSTER_TOP/doc/$1" |
        awk -F ' [|] ' -v at="$2" '{ sub(/ [|]$/, ""); print $1, $at }')
    places=$(sed -n 's/^# *\([0-9][0-9]*\)  \([a-z_]*\.bats\): /\1 \2 /p' \
        "$MUSTER_TOP/tests/cluster/$3")
    [ "$(cut -d' ' -f1 <<<"$rows")" = "$(seq "$4")" ]
    [ "$(cut -d' ' -f1 <<<"$places" | sort -nu)" = "$(seq "$4")" ]
    while read -r number file name; do
        echo "$number: $file: $name"
        grep -qF "@test \"$name\"" "$MUSTER_TOP/tests/cluster/$file" || return 1
    done <<<"$places"
}

@test "each of the faults of doc/training-faults.md has its line and its test" {
    faults training-faults.md 4 guards.bats 8
    while read -r number text; do
        files=$(sed -n "s/^$number \([^ ]*\) .*/\1/p" <<<"$places" | sort -u)
        # Words in backquotes that are no option are in a test of that row.
        while read -r words; do
            echo "$number: $words"
            # shellcheck disable=SC2086
            (cd "$MUSTER_TOP/tests/cluster" && cat $files) | grep -qF -- "$words"
        done < <(grep -oE '`[^`-][^`]*`' <<<"$text" | tr -d '`')
        [[ $text = *'`'* ]]
    done <<<"$rows"
}

@test "each of the ten faults of doc/launch-faults.md has its line and its test" {
    faults launch-faults.md 4 pains.bats 10
    # A word in backquotes that looks like a check is one, and a test of that row provokes it.
    known=$(sed -n 's/^\t{ "\([a-z-]*\)", CHECK_.*/\1/p' "$MUSTER_TOP/checks/check.c")
    while read -r number text; do
        for word in $(grep -oE '`[a-z]+(-[a-z]+)+`' <<<"$text" | tr -d '`' |
            grep -vx allow-task-sharing); do
            echo "$number: $word"
            grep -qx -- "$word" <<<"$known"
            files=$(sed -n "s/^$number \([^ ]*\) .*/\1/p" <<<"$places" | sort -u)
            # shellcheck disable=SC2086
            (cd "$MUSTER_TOP/tests/cluster" && cat $files) | grep -qF -- "$word"
        done
    done <<<"$rows"
}

@test "every option of a program stands in its manual" {
    local checked=0 help PATH=$PATH:${MUSTER_PREFIX-}/libexec
    for page in "$MUSTER_TOP"/doc/*.[18]; do
        program=${page##*/} && program=${program%.*}
        command -v "$program" >/dev/null || continue
        help=$("$program" --help 2>&1) || :
        # Those of muster have manuals of their own.
        [[ $program = muster || $help != *" COMMAND "* ]] ||
            for command in $(sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' <<<"$help"); do
            help+=$("$program" "$command" --help 2>&1) || :
        done
        for option in $(grep -oE '(^| )--[a-z][a-z0-9-]+' <<<"$help" | tr -d ' ' | sort -u |
            grep -vxE -- '--(help|usage|version)'); do
            echo "$program $option"
            sed 's/\\-/-/g' "$page" | grep -qE -- "$option\b"
            checked=$((checked + 1))
        done
    done
    [ $checked -ge 80 ] || { echo "only $checked" && return 1; }
}

@test "every variable of ours that the programs and the plugin read or set stands in a manual" {
    names=$(cd "$MUSTER_TOP" && grep -rhoE '"MUSTER_[A-Z_]+[="]' --include=*.[ch] --include=*.cc \
        common launch doctor plugin checkpoint lib trainer | grep -oE '[A-Z_]+' | sort -u)
    [ "$(wc -l <<<"$names")" -ge 10 ]
    for name in $names; do
        echo "$name"
        grep -qw -- "$name" "$MUSTER_TOP"/doc/*.[1-9]
    done
}

# constant NAME FILE: what a line "#define NAME VALUE" says, as people write it.
constant() {
    sed ':more; /\\$/ { N; s/\\\n//; b more }' "$MUSTER_TOP/$2" |
        sed -n "s/^#define $1[ \t]*\"\{0,1\}\([0-9.]*\).*/\1/p" | sed 's/\.0$//' | grep .
}

# words FILE: a document in one line, without what only groff reads.
words() {
    sed 's/^\.[A-Z]\{1,2\} *//; s/\\f.//g; s/\\-/-/g; s/ *$//' "$MUSTER_TOP/doc/$1" | tr '\n' ' ' |
        tr -s ' '
}

@test "times, ports and counts of the plugin's and the checkpoints' documents are those of the code" {
    local three=([3]=Three)
    says() { [[ $(words "$1") = *"$2"* ]] || { echo "$1 does not say: $2" && return 1; }; }
    local helper vain crash
    helper=$(constant HELPER_SECONDS plugin/spank_requeue.c)
    says spank_muster.8 "for $helper seconds at most, if the controller answers"
    says spank_muster.8 \
        "as the job's user, for $(constant TELL_SECONDS plugin/spank_end.c) seconds at most"
    says first-failure.md "gives up after $(constant TELL_SECONDS plugin/spank_end.c) s"
    says spank_muster.8 "half of them, and $(constant SPARE_PORTS plugin/end_channel.c), are free"
    says first-failure.md \
        "not half of them, and $(constant SPARE_PORTS plugin/end_channel.c), stay free"
    vain=$(constant REQUEUE_VAIN_MOST slurm/requeue.h)
    says spank_muster.8 "${three[vain]} attempts in a row that fail by themselves"
    says exit-status.md "${three[vain]} attempts of a job in a row"
    crash=$(constant ATTEMPTS_CRASH_LOOP checkpoint/directory/attempts.h)
    says exit-status.md "${three[crash]} attempts of a training in a row"
    says checkpoint-format.md \
        "more than $(constant OWNER_HEARTBEAT checkpoint/directory/owner.h) s away from now"
    says checkpoint-format.md \
        "and is seen to stand still for $(constant OWNER_WATCH checkpoint/directory/owner.h) s"
}
