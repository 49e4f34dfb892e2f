# SPDX-License-Identifier: Apache-2.0
# What a cluster adds to the machine itself: the unprivileged users that jobs run as, and an
# /etc/hosts, which the spaces cover with theirs. Each is made only where missing, and removed with
# the machine's last cluster.
# shellcheck shell=bash

USERS=(muster-test1 muster-test2)
USERS_COMMENT="Muster test cluster"
HOSTS_MARK="# Made by a Muster test cluster"

# All clusters of the machine share the users: one at a time looks and changes. The lock is on a
# folder that exists.
users_locked() {
    local fd status
    exec {fd}</var/tmp
    flock -w 30 "$fd" || die "couldn't lock /var/tmp within 30 s"
    "$@"
    status=$?
    exec {fd}<&-
    return $status
}

users_add() {
    users_locked users_add_missing ||
        die "couldn't add the users ${USERS[*]}" "$STATE/log/users.log"
}
users_remove() { users_locked users_remove_ours; }

hosts_add() { users_locked hosts_add_missing || die "couldn't make /etc/hosts: see above"; }

# A bare Debian (debootstrap) has no /etc/hosts.
hosts_add_missing() {
    [ -e /etc/hosts ] || printf '%s\n127.0.0.1 localhost\n' "$HOSTS_MARK" >/etc/hosts
}

hosts_remove_ours() {
    ! grep -qsxF "$HOSTS_MARK" /etc/hosts || rm -f /etc/hosts
}

# Adds the users that are missing.
users_add_missing() {
    local user
    for user in "${USERS[@]}"; do
        id "$user" >/dev/null 2>&1 ||
            useradd --system --user-group --no-create-home --home-dir /nonexistent \
            --shell /bin/bash --comment "$USERS_COMMENT" "$user" >>"$STATE/log/users.log" 2>&1 ||
            return 1
    done
}

# Removes the users that bear our comment, and our /etc/hosts, unless another cluster still runs.
users_remove_ours() {
    local user
    ! grep -qs ' muster-cluster:' /proc/[0-9]*/mountinfo || return 0
    hosts_remove_ours
    for user in "${USERS[@]}"; do
        [ "$(getent passwd "$user" | cut -d: -f5)" != "$USERS_COMMENT" ] ||
            userdel "$user" 2>/dev/null ||
            say "couldn't remove the user $user" >&2
    done
}

# The name of user 1 or 2, or root.
user_name() {
    case $1 in
    1 | 2) printf '%s' "${USERS[$1 - 1]}" ;;
    root) printf root ;;
    *) usage_error "run: no user '$1' (1, 2 or root)" ;;
    esac
}

# user_enter USER SPACE COMMAND…: becomes the command, as that user, in that space, in a folder that
# all nodes have.
user_enter() {
    local name pid folder=$STATE/jobs become=()
    name=$(user_name "$1") || exit 2
    read -r pid <"$STATE/pid/$2" || exit 1
    shift 2
    case $PWD/ in "$STATE"/jobs/*) folder=$PWD ;; esac
    [ "$name" = root ] || become=(setpriv "--reuid=$name" "--regid=$name" --init-groups --)
    export SLURM_CONF=$STATE/etc/slurm.conf HOME=$STATE/jobs USER=$name LOGNAME=$name \
        SHELL=/bin/bash
    [ ! -e "$STATE/preload.so" ] || export LD_PRELOAD=$STATE/preload.so
    exec nsenter --target "$pid" --net --uts --mount "--wdns=$folder" -- "${become[@]}" "$@"
}
