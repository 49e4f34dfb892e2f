# SPDX-License-Identifier: Apache-2.0
# Spaces: the namespaces of the controller ("ctl") and of each node. Every process inside one sees a
# small tmpfs whose source is named after the cluster and the space; that mark is how they are found
# again, also when all else is lost.
# shellcheck shell=bash

# The pid of the process that holds a space open.
space_pid() {
    local pid
    { read -r pid <"$STATE/pid/$1"; } 2>/dev/null && echo "$pid"
}

# Whether the space is held open, and by us: a pid alone may long be someone else's.
space_alive() {
    local pid mounts=
    # Without another program: every command in the cluster asks.
    { read -r pid <"$STATE/pid/$1" && read -rd '' mounts <"/proc/$pid/mountinfo"; } 2>/dev/null
    [[ $mounts = *"muster-cluster:$ID:$1 "* ]]
}

# The pids of all processes in a space; without a name, of all spaces of this cluster.
space_processes() {
    grep -ls "muster-cluster:$ID:${1:+$1 }" /proc/[0-9]*/mountinfo | cut -d/ -f3
}

# Starts spaces and waits until each is ready. A node begins as a copy of the controller's mounts,
# so that file systems mounted there below jobs/ are one and the same on all nodes.
space_start_all() {
    local name
    for name; do
        local -a enter=() unshare=(unshare --net --uts --mount)
        if [ "$name" != ctl ]; then
            enter=(nsenter "--mount=/proc/$(space_pid ctl)/ns/mnt")
            unshare+=(--propagation unchanged)
        fi
        rm -f "$STATE/pid/$name"
        groups_make "$name"
        spawn "$STATE/log/space-$name.log" "${enter[@]}" "${unshare[@]}" \
            bash "$CLUSTER_HOME/lib/space-init.sh" "$STATE" "$ID" "$name" "$TOP" \
            "$(groups_folder "$name")"
    done
    for name; do
        wait_until 10 space_alive "$name" ||
            die "couldn't make the namespaces of $name within 10 s" "$STATE/log/space-$name.log"
    done
}

# space_run NAME COMMAND…: runs a command as root inside a space.
space_run() {
    local pid
    pid=$(space_pid "$1") || die "couldn't enter $1: it is not up"
    shift
    nsenter --target "$pid" --net --uts --mount -- "$@"
}

# Kills every process of a space (of all, without a name), again until none is left: new ones may
# just be forked.
space_kill() {
    local left
    wait_until 10 space_kill_round "${1-}" || {
        left=$(space_processes "${1-}" | tr '\n' ' ')
        die "couldn't kill these processes of ${1:-the cluster} within 10 s: $left"
    }
    if [ -n "${1-}" ]; then rm -f "$STATE/pid/$1"; else rm -f "$STATE"/pid/*; fi
    groups_remove "${1-}"
}

space_kill_all() { space_kill ""; }

# Kills what is there now; succeeds when nothing was.
space_kill_round() {
    local -a pids
    mapfile -t pids < <(space_processes "$1")
    [ ${#pids[@]} -gt 0 ] || return 0
    kill -KILL "${pids[@]}" 2>/dev/null
    return 1
}

# ---- control groups: a subtree of the freezer's (version 1) for each node, where Slurm tracks
# steps with them ----

FREEZER=/sys/fs/cgroup/freezer

# Ends `up` where they can't be had.
need_groups() {
    [ "$(proctrack)" = cgroup ] || return 0
    [ -e "$FREEZER/cgroup.procs" ] && mkdir "$FREEZER/muster-try-$$" 2>/dev/null &&
        rmdir "$FREEZER/muster-try-$$" ||
        die "couldn't use proctrack/cgroup: there is no freezer of cgroup version 1 at $FREEZER that may be changed"
}

# The folder of a node's groups; nothing for the controller, or where steps are tracked without.
groups_folder() {
    [ "$(proctrack)" != cgroup ] || [ "$1" = ctl ] || printf '%s' "$FREEZER/muster-cluster-$ID-$1"
}

groups_make() {
    local folder
    folder=$(groups_folder "$1")
    [ -z "$folder" ] || mkdir -p "$folder" || die "couldn't make $folder"
}

# Removes the groups of a node (of all, without a name), from the innermost out. Their processes
# have ended, but may not have left them yet.
groups_remove() {
    wait_until 5 groups_removed "${1:-*}" || say "couldn't remove the groups below $FREEZER" >&2
}

groups_removed() {
    local folder left=
    for folder in "$FREEZER/muster-cluster-$ID-"$1; do
        [ -d "$folder" ] || continue
        find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || left=yes
    done
    [ -z "$left" ]
}
