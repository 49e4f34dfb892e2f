# SPDX-License-Identifier: Apache-2.0
# The network: a bridge in the controller's space, and for each node a veth pair from there to its
# eth0. The addresses 10.77.0.x, or fd77::x, exist in these namespaces only, so that they may be
# taken outside.
# shellcheck shell=bash

NETWORK=10.77.0. LENGTH=24 FLAGS=()
# Nobody else can have one, so that it need not be asked for first.
[ "${MUSTER_CLUSTER_IP:-4}" = 4 ] || { NETWORK=fd77:: LENGTH=64 FLAGS=(nodad); }
CONTROLLER_ADDRESS=${NETWORK}1

# The address of node nX.
node_address() { printf '%s%d' "$NETWORK" $((10 + ${1#n})); }

# links_hardware_address NUMBER. As of a card, it stays when a node comes back or goes, and with the
# bridge's (the least of its links' by default) too: what the others have in their ARP caches leads
# there for up to a minute.
links_hardware_address() { printf '02:4d:55:53:00:%02x' "$1"; }

# Makes the bridge.
links_bridge() {
    links_ip ctl link add bridge0 address "$(links_hardware_address 1)" type bridge &&
        links_ip ctl address add "$CONTROLLER_ADDRESS/$LENGTH" dev bridge0 "${FLAGS[@]}" &&
        links_ip ctl link set bridge0 up || die "couldn't make the bridge" "$STATE/log/links.log"
}

# Connects the nodes given, or all, to the bridge.
links_attach_all() {
    local name
    # shellcheck disable=SC2046
    [ $# -gt 0 ] || set -- $(nodes)
    for name; do
        links_attach "$name" || die "couldn't connect $name to the bridge" "$STATE/log/links.log"
    done
}

# Connects one node. On the bridge's side its link has the node's name.
links_attach() {
    links_ip ctl link add "$1" type veth peer name eth0 \
        address "$(links_hardware_address $((10 + ${1#n})))" netns "$(space_pid "$1")" &&
        links_ip ctl link set "$1" master bridge0 up &&
        links_ip "$1" address add "$(node_address "$1")/$LENGTH" dev eth0 "${FLAGS[@]}" &&
        links_ip "$1" link set eth0 up
}

# Takes a killed node's link away; the kernel does so too, but some time later.
links_detach() { space_run ctl ip link delete dev "$1" >/dev/null 2>&1; }

# links_set NODE up|down: the bridge's side of the link.
links_set() {
    links_ip ctl link set "$1" "$2" || die "couldn't set the link of $1 $2" "$STATE/log/links.log"
}

# links_reset NODE NODE: the kernel of the first ends them. Without CONFIG_INET_DIAG_DESTROY ss says
# nothing, and ends none.
links_reset() {
    local ended
    ended=$(space_run "$1" ss -HKt state established dst "[$(node_address "$2")]" \
        2>>"$STATE/log/links.log") && [ -n "$ended" ] ||
        die "couldn't reset a connection from $1 to $2: there is none, or this kernel can't"
}

# links_shape NODE RATE DELAY, or NODE off: both directions alike.
links_shape() {
    local name=$1 rate=$2 delay=${3-}
    links_tc ctl qdisc delete dev "$name" root 2>/dev/null
    links_tc "$name" qdisc delete dev eth0 root 2>/dev/null
    [ "$rate" != off ] || return 0
    links_limit ctl "$name" "$rate" "$delay" && links_limit "$name" eth0 "$rate" "$delay"
}

# Limits what leaves through one device. A delay takes netem, which small kernels do not have.
links_limit() {
    local -a discipline=(tbf rate "$3" burst 128k latency 400ms)
    [[ $4 =~ ^0[a-z]*$ ]] || discipline=(netem rate "$3" delay "$4" limit 100000)
    links_tc "$1" qdisc add dev "$2" root "${discipline[@]}" && return
    [ "${discipline[0]}" = tbf ] ||
        say "this kernel may have no netem; a delay of 0 does without" >&2
    die "couldn't shape $2 of $1 to $3, delay $4" "$STATE/log/links.log"
}

links_ip() { space_run "$1" ip "${@:2}" >>"$STATE/log/links.log" 2>&1; }
links_tc() { space_run "$1" tc "${@:2}" >>"$STATE/log/links.log" 2>&1; }
