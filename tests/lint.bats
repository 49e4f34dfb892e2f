#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# tests/lint.sh finds no fault in the sources.
# bats file_tags=ci

load lib/places

setup() {
    [ "$(git -C "$MUSTER_TOP" rev-parse --show-toplevel 2>/dev/null)" -ef "$MUSTER_TOP" ] ||
        skip "this is no git checkout"
    unset CMOCKA_MESSAGE_OUTPUT MAKEFLAGS
}

@test "format, scripts, manual pages, Python and the length of lines" {
    "$MUSTER_TOP/tests/lint.sh" --quick
}

@test "clang-tidy's checks for bugs" {
    command -v clang-tidy >/dev/null || skip "no clang-tidy here: apt-get install clang-tidy"
    : "${MUSTER_BUILD:?the build folder}"
    # The analyzer looks at what is new; in --long at all.
    [ -n "${MUSTER_LONG-}" ] ||
        MUSTER_LINT_SINCE=$(git -C "$MUSTER_TOP" rev-list -n 1 --skip=30 HEAD)
    export MUSTER_LINT_SINCE
    "$MUSTER_TOP/tests/lint.sh" --tidy
}
