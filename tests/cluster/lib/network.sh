# SPDX-License-Identifier: Apache-2.0
# What the network does to packets on their way: latency, loss and reordering of everything that a
# space receives, Slurm's and PMIx's traffic too, by a program for each space (latency.c). ARP is as
# fast as ever.
# shellcheck shell=bash

# network_option NAME VALUE: one of up's, into network_latency (microseconds), network_loss and
# network_reorder (of a million).
network_option() {
    case $1 in
    --latency)
        [[ $2 =~ ^([0-9]+)(\.([0-9]{1,3}))?(ms|us)$ ]] ||
            usage_error "up: --latency wants a time such as 2ms or 200us, not '$2'"
        network_latency=$((10#${BASH_REMATCH[1]}))
        [ "${BASH_REMATCH[4]}" = us ] || network_latency=$((network_latency * 1000 +
            $(network_thousandths "${BASH_REMATCH[3]}")))
        ;;
    *)
        [[ $2 =~ ^([0-9]{1,2})(\.([0-9]{1,3}))?%$ ]] ||
            usage_error "up: $1 wants a share of packets such as 0.1%, not '$2'"
        printf -v "network_${1#--}" %d \
            $((10#${BASH_REMATCH[1]} * 10000 + $(network_thousandths "${BASH_REMATCH[3]}") * 10))
        ;;
    esac
}

# The digits after a point as a number of thousandths.
network_thousandths() { local digits=${1}000 && printf %d $((10#${digits:0:3})); }

# Notes what the network of this cluster is like, and makes the program; without an option it is as
# fast as it can be.
network_make() {
    [ -n "${network_latency-}${network_loss-}${network_reorder-}" ] || return 0
    network_program
    printf '%d %d %d\n' "${network_latency:-0}" "${network_loss:-0}" "${network_reorder:-0}" \
        >"$STATE/etc/network"
}

network_program() {
    command -v iptables >/dev/null || die "couldn't make a network with latency: install iptables"
    cc -O2 -o "$STATE/own-latency" "$CLUSTER_HOME/latency.c" -lnetfilter_queue \
        >"$STATE/log/network.log" 2>&1 ||
        die "couldn't build latency.c: install gcc and libnetfilter-queue-dev" \
        "$STATE/log/network.log"
}

# One line for people.
network_say() {
    local latency loss reorder
    read -r latency loss reorder 2>/dev/null <"$STATE/etc/network" || {
        echo "veth links of this kernel" && return
    }
    printf '%d.%03d ms from space to space, loss %d.%03d %%, reordered %d.%03d %%\n' \
        $((latency / 1000)) $((latency % 1000)) \
        $((loss / 10000)) $((loss % 10000 / 10)) $((reorder / 10000)) $((reorder % 10000 / 10))
}

# network_begin SPACE…: from now on it hears the others through such a network.
network_begin() {
    local name
    [ -e "$STATE/etc/network" ] || return 0
    # shellcheck disable=SC2046
    for name; do network_start "$name" $(cat "$STATE/etc/network"); done
}

# network_start SPACE LATENCY LOSS REORDER
network_start() {
    local name=$1
    : >"$STATE/log/latency-$name.log"
    daemon_start "latency-$name.log" "$name" "$STATE/own-latency" "${@:2}"
    wait_until 10 grep -q ready "$STATE/log/latency-$name.log" && network_rule "$name" -A ||
        die "couldn't give $name a network with latency" "$STATE/log/latency-$name.log" \
        "$STATE/log/network.log"
}

# network_rule SPACE -A|-D: what the bridge passes on between nodes does not come in there.
network_rule() {
    local table
    for table in iptables ip6tables; do
        space_run "$1" "$table" -w -t mangle "$2" INPUT ! -i lo -j NFQUEUE --queue-num 0 \
            >>"$STATE/log/network.log" 2>&1 || return
    done
}

network_end() {
    local pid
    network_rule "$1" -D
    for pid in $(space_processes "$1"); do
        [ ! "/proc/$pid/exe" -ef "$STATE/own-latency" ] || kill "$pid"
    done
}
