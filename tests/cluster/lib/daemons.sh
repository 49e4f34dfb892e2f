# SPDX-License-Identifier: Apache-2.0
# The daemons of the cluster: a munged in each space, slurmctld beside the controller, a slurmd on
# each node.
# shellcheck shell=bash

# daemon_start LOG SPACE COMMAND…: its log says how it ended, if that was not in order.
daemon_start() {
    local log=$STATE/log/$1 pid
    pid=$(space_pid "$2") || die "couldn't start ${1%.log}: $2 is not up"
    shift 2
    spawn "$log" env "SLURM_CONF=$STATE/etc/slurm.conf" bash -c \
        '"$@" || printf "%(%FT%T)T ended with status %d\n" -1 $?' daemon \
        nsenter --target "$pid" --net --uts --mount -- "$@"
}

# daemon_stop NAME SPACE [SIGNAL]: ends a daemon by its pid, in order, so that it saves its state,
# if it is not killed.
daemon_stop() {
    local pid
    # No pipe: it would fail, as if the daemon were not there, when any process of the machine ends
    # in mid-search.
    pid=$(cat "$STATE/pid/$1" 2>/dev/null) && grep -qx "$pid" < <(space_processes "$2") || return 0
    kill "-${3-TERM}" "$pid" 2>/dev/null
    wait_until 30 process_gone "$pid" ||
        die "couldn't stop $1 (pid $pid) within 30 s" "$STATE/log/$1.log"
}

process_gone() { ! kill -0 "$1" 2>/dev/null; }

# A munged in one space: nodes of their own need one each, or a credential that a second node
# decodes is a replay.
munged_start() {
    local become=()
    id -u munge >/dev/null 2>&1 && become=(setpriv --reuid=munge --regid=munge --clear-groups --)
    daemon_start "munged-$1.log" "$1" "${become[@]}" munged \
        --foreground "--socket=$STATE/own/munge.socket" \
        "--key-file=$STATE/etc/munge.key" "--pid-file=$STATE/own/munged.pid" \
        "--seed-file=$STATE/own/munged.seed"
}

# Waits for the socket of a space's munged.
munged_wait() {
    wait_until 10 space_run "$1" test -S "$STATE/own/munge.socket" ||
        die "couldn't start munged in $1: no socket after 10 s" "$STATE/log/munged-$1.log"
}

slurmd_start() { daemon_start "slurmd-$1.out" "$1" slurmd -D -N "$1" -f "$STATE/etc/slurm.conf"; }

# Starts everything and waits until all nodes are idle.
daemons_start() {
    local name
    for name in ctl $(nodes); do munged_start "$name"; done
    for name in ctl $(nodes); do munged_wait "$name"; done
    daemon_start slurmctld.out ctl slurmctld -D -c -f "$STATE/etc/slurm.conf"
    for name in $(nodes); do slurmd_start "$name"; done
    # shellcheck disable=SC2046
    wait_until 40 nodes_idle $(nodes) || die_of_nodes
}

# Starts the daemons of one node.
daemons_start_node() {
    munged_start "$1"
    munged_wait "$1"
    slurmd_start "$1"
}

# Starts slurmctld again, with the state it had.
daemons_start_controller() {
    daemon_stop slurmctld ctl
    daemon_start slurmctld.out ctl slurmctld -D -f "$STATE/etc/slurm.conf"
    wait_until 30 node_states >/dev/null || die "couldn't start slurmctld: no answer after 30 s" \
        "$STATE/log/slurmctld.out" "$STATE/log/slurmctld.log"
}

# A second slurmctld, on that node, with files of its own; it takes over when the first one is away.
daemons_start_backup() {
    local conf=$STATE/etc/slurm.conf
    sed "s|^SlurmctldPidFile=.*|&-$1|; s|^SlurmctldLogFile=.*|&-$1|" "$conf" >"$conf-$1"
    daemon_start "slurmctld-$1.out" "$1" slurmctld -D -f "$conf-$1"
}

# Asks slurmctld, in its own space.
ask_controller() {
    local pid
    pid=$(space_pid ctl) &&
        SLURM_CONF=$STATE/etc/slurm.conf timeout 5 nsenter --target "$pid" --net --uts --mount -- \
        "$@" 2>/dev/null
}

# A line "node state" for each node.
node_states() { ask_controller sinfo -h -p spot -N -o '%N %T'; }

# When the slurmd of a node began that slurmctld knows, to the second.
slurmd_began() {
    ask_controller scontrol show node "$1" | sed -n 's/.*SlurmdStartTime=\([^ ]*\).*/\1/p'
}

# Whether a node is up, idle or with a job again, with another slurmd than that which began then.
# One that is back before slurmctld has missed it counts as idle all the time, and a job that starts
# before the new slurmd listens goes without its prolog there.
node_is_back() {
    local began
    began=$(slurmd_began "$1")
    [ -n "$began" ] && [ "$began" != "$2" ] &&
        grep -qE "^$1 (idle|allocated|mixed|completing)\$" <<<"$(node_states)"
}

# Whether the nodes given are all idle.
nodes_idle() {
    local states name
    states=$(node_states) || return 1
    for name; do [[ $'\n'$states$'\n' = *$'\n'"$name idle"$'\n'* ]] || return 1; done
}

# Ends `up`, naming the nodes that did not come and what they or the controller said last.
die_of_nodes() {
    local states late first
    states=$(node_states) || die "couldn't start slurmctld: no answer after 40 s" \
        "$STATE/log/slurmctld.out" "$STATE/log/slurmctld.log"
    late=$(grep -v ' idle$' <<<"$states" | tr '\n' ';')
    first=${late%% *}
    die "couldn't start all nodes: after 40 s these are not idle: $late" \
        "$STATE/log/slurmd-$first.out" "$STATE/log/slurmd-$first.log" "$STATE/log/slurmctld.log"
}
