#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The manual pages as a terminal of 80 columns shows them, and what they say of the plugin's own look before a step.

: "${MUSTER_TOP:=$(cd "$BATS_TEST_DIRNAME/.." && pwd)}"

setup() { command -v man >/dev/null && command -v groff >/dev/null || skip "no man and groff here"; }

# shown PAGE: as plain text; what groff warns of goes to standard error.
shown() { LC_ALL=C.UTF-8 MANWIDTH=80 MAN_KEEP_FORMATTING= man -l --warnings=all "$1"; }

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
        grep -qi "^\.TH ${name^^} $section " "$page" || { echo "$page: no .TH of its own" && return 1; }
        grep -A1 '^\.SH NAME' "$page" | tail -n 1 | grep -q "$name\b.* \\\\- "
        for other in $(grep -ohE '\b(muster|spank_muster)[a-z-]* \([1-9]\)' "$page" | tr -d ' ()' | sort -u); do
            echo "$page: $other"
            [ -e "$MUSTER_TOP/doc/${other%?}.${other: -1}" ]
        done
    done
}

@test "spank_muster(8) names the checks that the plugin makes, and no other" {
    made=$(sed -n 's/^\t{ "\([a-z-]*\)", .*PREFLIGHT_S\(AY\|TOP\),.*/\1/p' "$MUSTER_TOP/doctor/check.c" | sort)
    told=$(sed -n '/^\.SH PREFLIGHT/,/^\.SH/p' "$MUSTER_TOP/doc/spank_muster.8" | grep -A1 '^\.TP' | grep '^\.BR\? [a-z]' |
        sed 's/^\.BR\? //; s/", "//g' | tr -s ' ' '\n' | sort)
    diff <(echo "$made") <(echo "$told")
    [ "$(wc -l <<<"$made")" -ge 9 ]
}
