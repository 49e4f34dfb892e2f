# SPDX-License-Identifier: Apache-2.0
# The cluster's folder and all configuration files in it.
# shellcheck shell=bash

# The names of all nodes, in one line. They are listed in a file, so that every later command knows
# them.
nodes() { cat "$STATE/etc/nodes" 2>/dev/null; }

# Makes the folder and every file for a cluster of COUNT nodes.
config_make() {
    local names
    names=$(seq -f 'n%g' -s ' ' "$1")
    mkdir -p "$STATE" || die "couldn't make $STATE"
    chmod 755 "$STATE"
    echo "$ID" >"$STATE/.muster-cluster"
    mkdir -p "$STATE"/{etc,log,pid,own,jobs,dev,controller,spool}
    # shellcheck disable=SC2086
    (cd "$STATE/spool" && mkdir -p $names)
    chmod 1777 "$STATE/jobs"
    printf '%s\n' "$names" >"$STATE/etc/nodes"
    config_names
    config_munge_key
    config_gpus
    config_slurm >"$STATE/etc/slurm.conf"
    config_cgroup >"$STATE/etc/cgroup.conf"
    # For JobContainerType=job_container/tmpfs: each node has a /run of its own.
    printf 'AutoBasePath=true\nBasePath=/run/containers\n' >"$STATE/etc/job_container.conf"
    : >"$STATE/etc/plugstack.conf"
}

# The names that the spaces know, and a name server that refuses at once.
config_names() {
    local name
    {
        printf '127.0.0.1 localhost\n%s ctl\n' "$CONTROLLER_ADDRESS"
        for name in $(nodes); do printf '%s %s\n' "$(node_address "$name")" "$name"; done
    } >"$STATE/etc/hosts"
    printf 'nameserver 127.0.0.1\n' >"$STATE/etc/resolv.conf"
}

# A munge key of this cluster's own.
config_munge_key() {
    (umask 077 && head -c 128 /dev/urandom >"$STATE/etc/munge.key")
    id -u munge >/dev/null 2>&1 && chown munge: "$STATE/etc/munge.key"
}

# Two devices a node that Slurm hands out as GPUs 0 and 1. Nobody opens them; where no device may be
# made (in some containers), the terminals serve.
config_gpus() {
    local files="$STATE/dev/gpu[0-1]"
    mknod "$STATE/dev/gpu0" c 1 3 2>/dev/null && mknod "$STATE/dev/gpu1" c 1 3 2>/dev/null ||
        files="/dev/tty[0-1]"
    printf 'Name=gpu File=%s\n' "$files" >"$STATE/etc/gres.conf"
}

# How Slurm tracks the processes of a step.
proctrack() { printf '%s' "${MUSTER_CLUSTER_PROCTRACK:-linuxproc}"; }

# No cgroups unless asked for: slurmd must start in containers too, with either version of them or
# none.
config_cgroup() {
    local version
    version=$(slurmd -V | sed 's/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1\2/')
    if [ "$version" -ge 2311 ] && [ "$(proctrack)" != cgroup ]; then
        printf 'CgroupPlugin=disabled\n'
    else
        printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n'
    fi
}

# slurm.conf. Short intervals everywhere: a test waits for the scheduler, not the other way round.
# cred_expire is how long a requeued job waits before it may start again (120 s by default, 5 at the
# least). But a launch that takes longer fails, and so does a message that takes longer than
# MessageTimeout: a slow machine has more of each (run.sh measures how slow it is). KillWait stays:
# saves that take longer than that are what some tests are about. A step's daemon that couldn't tell
# the controller of its end tries again after 60 s, by which time Slurm would take it for unkillable
# and drain the node.
config_slurm() {
    local name cpus=${MUSTER_CLUSTER_NODES_CPUS:-4} slow=${MUSTER_PATIENCE:-3}
    [ -z "${network_latency-}" ] || slow=$((slow + 3))
    cat <<END
ClusterName=muster-$ID
SlurmctldHost=ctl($CONTROLLER_ADDRESS)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$STATE/own/munge.socket,cred_expire=${MUSTER_CLUSTER_CRED_EXPIRE:-$((5 * slow / 3))}
StateSaveLocation=$STATE/controller
SlurmdSpoolDir=$STATE/spool/%n
SlurmctldPidFile=$STATE/pid/slurmctld
SlurmdPidFile=$STATE/pid/slurmd-%n
SlurmctldLogFile=$STATE/log/slurmctld.log
SlurmdLogFile=$STATE/log/slurmd-%n.log
PlugStackConfig=$STATE/etc/plugstack.conf
MailProg=/bin/true
JobCompType=jobcomp/filetxt
JobCompLoc=$STATE/log/jobs-ended
MinJobAge=7200
MpiDefault=none
ProctrackType=proctrack/$(proctrack)
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=$((${MUSTER_CLUSTER_DOWN_AFTER:-6} * slow / 3))
MessageTimeout=$((5 * slow / 3))
BatchStartTimeout=$((10 * slow / 3))
KillWait=${MUSTER_CLUSTER_KILLWAIT:-5}
UnkillableStepTimeout=$((60 * slow))
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,requeue_delay=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
END
    [ "${MUSTER_CLUSTER_IP:-4}" = 4 ] || echo CommunicationParameters=EnableIPv6,DisableIPv4
    for name in $(nodes); do
        printf 'NodeName=%s NodeHostname=%s NodeAddr=%s ' \
            "$name" "$name" "$(node_address "$name")"
        echo "CPUs=$cpus RealMemory=16000 Gres=gpu:2 State=UNKNOWN"
    done
    cat <<END
PartitionName=spot Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE \
GraceTime=${MUSTER_CLUSTER_GRACE:-15}
PartitionName=ondemand Nodes=ALL PriorityTier=10 PreemptMode=OFF
${MUSTER_CLUSTER_CONF-}
END
}

# config_plugin "FILE [ARG…]": the plugin that Slurm loads, or none.
config_plugin() {
    local file=${1%% *} line=
    if [ -n "$1" ]; then
        [ -f "$file" ] || die "couldn't load the plugin $file: no such file"
        line="optional $(readlink -f "$file")${1#"$file"}"
    fi
    printf '%s\n' "$line" >"$STATE/etc/plugstack.conf.new"
    mv "$STATE/etc/plugstack.conf.new" "$STATE/etc/plugstack.conf" ||
        die "couldn't write $STATE/etc/plugstack.conf"
}

# What every program of the nodes loads first: a copy, where all users can read it.
config_preload() {
    [ -n "${MUSTER_CLUSTER_PRELOAD-}" ] || return 0
    install -m 755 "$MUSTER_CLUSTER_PRELOAD" "$STATE/preload.so" ||
        die "couldn't preload $MUSTER_CLUSTER_PRELOAD"
}

# An optional plugin that cannot be read is passed over in silence, and srun reads it as the user:
# so look now.
check_plugin() {
    local file where
    file=$(sed -n 's/^optional \([^ ]*\).*/\1/p' "$STATE/etc/plugstack.conf")
    [ -n "$file" ] || return 0
    for where in ctl "$(nodes | cut -d' ' -f1)"; do
        space_run "$where" setpriv "--reuid=${USERS[0]}" "--regid=${USERS[0]}" --init-groups test \
            -r "$file" ||
            die "couldn't read the plugin $file as ${USERS[0]} in $where: give all users the right to read it, outside /tmp"
    done
}
