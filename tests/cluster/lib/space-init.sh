# SPDX-License-Identifier: Apache-2.0
# The first program of a space (see space.sh): gives it a name, a loopback and its own mounts, then
# only holds it open. Arguments: the cluster's folder and id, the name of the space, the source
# tree, and the folder of its control groups or nothing.
# shellcheck shell=bash
set -eu

state=$1 id=$2 name=$3 top=$4 groups=${5-}
own=$state/own

# A tmpfs of the space's own at $own: the mark by which its processes are found, and the place of
# its munge socket.
mount_mark() {
    local owner
    owner=$(id -u munge 2>/dev/null || echo 0)
    [ "$name" = ctl ] || umount "$own"
    mount -t tmpfs -o "mode=755,size=1m,uid=$owner" "muster-cluster:$id:$name" "$own"
}

# Names of all nodes, and a name server that refuses at once: one that cannot be reached blocks
# slurmd for 20 s a reply.
bind_names() {
    local resolv
    mount --bind "$state/etc/hosts" /etc/hosts
    resolv=$(readlink -m /etc/resolv.conf)
    case $resolv in
    /run/*) mkdir -p "${resolv%/*}" && : >"$resolv" ;;
    esac
    [ ! -e "$resolv" ] || mount --bind "$state/etc/resolv.conf" "$resolv"
}

# Has every program of this space load the cluster's preload.so.
preload() {
    mkdir -p "$own/etc/new" "$own/etc/work"
    printf '%s\n' "$state/preload.so" >"$own/etc/new/ld.so.preload"
    mount -t overlay -o "lowerdir=/etc,upperdir=$own/etc/new,workdir=$own/etc/work" overlay /etc
}

# cover FOLDER: puts an empty tmpfs over a folder, with the source tree at its old place when it
# lies below.
cover() {
    local below=
    case $top/ in "$1"/*) below=yes ;; esac
    [ -z "$below" ] || { mkdir -p "$own/top" && mount --bind "$top" "$own/top"; }
    mount -t tmpfs -o "mode=$2" tmpfs "$1"
    [ -z "$below" ] || { mkdir -p "$top" && mount --move "$own/top" "$top"; }
}

# Lets the test users reach a source tree that lies in a closed folder, such as root's home.
open_way_to_source() {
    local folder=$top closed=
    while folder=${folder%/*} && [ -n "$folder" ]; do
        (( 0$(stat -c %a "$folder") & 1 )) || closed=$folder
    done
    [ -z "$closed" ] || cover "$closed" 755
}

hostname "$name"
ip link set lo up
mount_mark
if [ "$name" = ctl ]; then
    open_way_to_source
    # What root mounts below jobs/ beside the controller appears on all nodes.
    mount --bind "$state/jobs" "$state/jobs"
    mount --make-shared "$state/jobs"
else
    cover /tmp 1777
    cover /run 755
    cover /dev/shm 1777
    [ ! -e "$state/preload.so" ] || preload
    # Each node has groups of its own where Slurm looks for them.
    [ -z "$groups" ] || mount --bind "$groups" "${groups%/*}"
fi
bind_names
cd /
echo $$ >"$state/pid/$name.new"
mv "$state/pid/$name.new" "$state/pid/$name"
exec -a "muster-cluster-$name" sleep infinity
