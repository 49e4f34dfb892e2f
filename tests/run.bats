#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# How tests/run.sh counts: nothing that failed, crashed or fell silent may pass.

# count STATUS TAP: the counts for a program that printed TAP and ended with STATUS.
count() { printf '%b' "$2" | awk -v status="$1" -f "$BATS_TEST_DIRNAME/lib/tap.awk" | head -n 1; }

@test "passes, failures and skips are told apart, in the words of bats and of cmocka" {
    [ "$(count 1 '1..4\nok 1 a\nnot ok 2 b\n# why\nok 3 c # skip no root\nok 4 d\n')" = "2 1 1" ]
    [ "$(count 0 '1..2\nok 1 - a\nnot ok 2 # SKIP b\n# ok - group\n1..1\nok 1 - c\n')" = "2 0 1" ]
    [ "$(count 0 '1..0 # SKIP no GPU\n')" = "0 0 1" ]
}

@test "a short plan, no plan, a crash and a time limit are failures" {
    [ "$(count 0 '1..3\nok 1 a\n')" = "1 2 0" ]
    [ "$(count 0 '')" = "0 1 0" ]
    [ "$(count 139 '1..1\nok 1 a\n')" = "1 1 0" ]
    [ "$(count 124 '1..1\nok 1 a\n')" = "1 1 0" ]
    [ "$(count 1 'not ok 1 setup_file failed\n')" != "0 0 0" ]
}

@test "a failure is shown with its comments, a pass is not" {
    run awk -v status=1 -f "$BATS_TEST_DIRNAME/lib/tap.awk" <<<$'1..2\nok 1 a\n# of a\nnot ok 2 b\n# why'
    [ "$output" = $'1 1 0\n    not ok 2 b\n    # why' ]
}
