#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The models of the protocols (models/*.pml, doc/models.md): Spin looks at every order of events,
# and finds what is wrong in each model's broken variant.
# bats file_tags=long

load lib/places

setup() {
    command -v spin >/dev/null || skip "no spin: apt-get install spin"
    cd "$BATS_TEST_TMPDIR"
}

# search MODEL OPTION…: "errors: N", after all orders or at the first error.
search() {
    spin "${@:2}" -a "$MUSTER_TOP/tests/models/$1.pml"
    cc -O2 -DSAFETY -DCOLLAPSE -w -o pan pan.c
    ./pan -m200000 | tee pan.out | grep -o 'errors: [0-9]*'
}

# holds MODEL: in all orders of events, and none is cut off; but not where something is broken.
holds() {
    [ "$(search "$1")" = "errors: 0" ]
    [ "$(grep -c 'max search depth too small' pan.out)" -eq 0 ]
    grep 'states, stored' pan.out
    [ "$(search "$1" -DBROKEN)" = "errors: 1" ]
}

@test "the word after every step: all ranks stop after the same step, whichever two die" { holds stop; }

@test "a save by several writers and the attempt after it: what has the name of a step is whole" {
    holds commit
}

@test "three attempts claim a directory: it never goes back to an earlier one" { holds owner; }

@test "a restart in the allocation: nothing that a service held is lost; the job goes on, or back" {
    holds restart
}
