#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What listens and connects, on networks that are set up otherwise than most: each in a namespace of
# its own.

load lib/places

PROGRAMS="test_acceptor test_rank_links test_end_channel test_bootstrap test_presence"

setup() { [ "$(id -u)" = 0 ] || skip "a network of its own needs root"; }

# within SETTING PROGRAM: the unit tests, where that file below /proc/sys/net/ipv6 says 1.
within() {
    unshare --net sh -c 'ip link set lo up && echo 1 >"/proc/sys/net/ipv6/$0" && exec "$1"' "$1" \
        "$MUSTER_BUILD/tests/unit/$2"
}

# all_within SETTING
all_within() {
    local program
    for program in $PROGRAMS; do
        [ -x "$MUSTER_BUILD/tests/unit/$program" ] || continue
        run within "$1" "$program"
        [ "$status" -eq 0 ] || { echo "$program: $output" && return 1; }
    done
}

@test "a socket for all addresses has those of IPv4 too where net.ipv6.bindv6only is 1" {
    all_within bindv6only
}

@test "nothing needs IPv6" { all_within conf/all/disable_ipv6; }
