# SPDX-License-Identifier: Apache-2.0
# What every part of the cluster script uses: its paths, messages, deadlines and checks.
# shellcheck shell=bash

TOP=${CLUSTER_HOME%/*/*}
# One folder a checkout, so that two checkouts can each have a cluster at the same time.
STATE=${MUSTER_CLUSTER_DIR:-/var/tmp/muster-cluster-$(cksum <<<"$TOP" | cut -d' ' -f1)}
# The files of `status`, by its keys.
# shellcheck disable=SC2034 # the other files here read it
declare -A PATHS=([dir]=$STATE [jobs]=$STATE/jobs [conf]=$STATE/etc/slurm.conf [log]=$STATE/log)
# shellcheck disable=SC2034
{ read -r ID <"$STATE/.muster-cluster"; } 2>/dev/null || ID=$(cksum <<<"$STATE" | cut -d' ' -f1)

# Prints one line that says who speaks.
say() { printf 'cluster: %s\n' "$1"; }

# die MESSAGE [LOG…]: ends with the message and the last lines of the logs that tell more.
die() {
    local log
    say "$1" >&2
    for log in "${@:2}"; do
        [ -s "$log" ] || continue
        printf -- '--- the end of %s:\n' "$log" >&2
        tail -n 15 "$log" >&2
    done
    exit 1
}

# Ends with the message and the status of a command used in a wrong way.
usage_error() {
    say "$1 (cluster --help)" >&2
    exit 2
}

need_root() { [ $EUID = 0 ] || die "couldn't make namespaces: needs root"; }
need_up() {
    space_alive ctl || die "couldn't find a cluster: none is up (tests/cluster/cluster up)"
}
need_node() {
    [[ " $(nodes) " = *" ${1:-none} "* ]] || usage_error "no node '${1-}' (there are: $(nodes))"
}

# Names what is missing before anything is made.
need_programs() {
    local program
    for program in slurmctld slurmd sinfo srun munged ip tc nsenter unshare setpriv flock useradd
    do
        command -v "$program" >/dev/null ||
            die "couldn't find $program: install slurmctld, slurmd, slurm-client, \
munge, iproute2, util-linux and passwd"
    done
}

# The folder must be one that all users and all nodes can reach, and either ours already or new.
check_state_dir() {
    local folder=$STATE
    [[ $STATE =~ ^/[A-Za-z0-9._/-]+$ && ${#STATE} -le 70 ]] ||
        die "couldn't use $STATE: MUSTER_CLUSTER_DIR must be a plain absolute path of at most 70 characters"
    case $STATE/ in /tmp/* | /run/* | /var/run/* | /dev/*)
        die "couldn't use $STATE: each node has a /tmp, /run and /dev/shm of its own; take a folder elsewhere" ;;
    esac
    [ ! -e "$STATE" ] || [ -e "$STATE/.muster-cluster" ] || [ -z "$(ls -A "$STATE")" ] ||
        die "couldn't use $STATE: it holds something else"
    while folder=$(dirname "$folder") && [ "$folder" != / ]; do
        [ ! -d "$folder" ] || others_may_enter "$folder" ||
            die "couldn't use $STATE: other users may not enter $folder; take a folder elsewhere (MUSTER_CLUSTER_DIR)"
    done
}

# Whether a user who is neither the owner nor of the group can go through a folder.
others_may_enter() { (( 0$(stat -c %a "$1") & 1 )); }

# One `up` or `down` at a time. The lock is on the script itself: nothing to remove later.
lock_cluster() {
    exec {lock}<"$CLUSTER_HOME/cluster"
    flock -w 60 "$lock" || die \
        "couldn't take the lock: another up or down of this checkout has run for 60 s"
}

# wait_until SECONDS COMMAND…: tries the command until it succeeds; fails once the time is over.
wait_until() {
    local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
    shift
    until "$@"; do
        [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# Seconds, with one digit, since a value of EPOCHREALTIME.
seconds_since() {
    local tenths=$(((${EPOCHREALTIME/./} - ${1/./}) / 100000))
    printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# spawn LOG COMMAND…: starts a process that outlives this script and holds none of its descriptors,
# since a test runner waits for each process that still holds its own.
spawn() {
    local log=$1
    shift
    (
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            [ "$fd" -le 2 ] || [ "$fd" = 255 ] || eval "exec $fd>&-"
        done
        exec setsid "$@" </dev/null >>"$log" 2>&1
    ) &
    disown
}
