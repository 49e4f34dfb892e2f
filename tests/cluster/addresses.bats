#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Networks that are set up otherwise than most: no IPv4 between the nodes, sockets that hear IPv6
# alone unless told otherwise, and nodes whose names nobody knows but Slurm.

load helpers
STEPS=30
load training

setup_file() {
    export MUSTER_CLUSTER_KILLWAIT=2 MUSTER_CLUSTER_GRACE=3
    plugin_locate || :
}

teardown() {
    cluster_explain
    resume_drained
    cluster_end
}

# begin: a cluster of this test's own, and what its ranks run.
begin() {
    cluster_begin 4 --plugin "$PLUGIN"
    training_begin
    # Of the ranks of other nodes PMIx does not say whether they have come to a fence: only their
    # own ways are left.
    cc -shared -fPIC -o "$JOBS/silent.so" -x c - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

int PMIx_Get_nb(const void *rank, const char *key, const void *info,
	size_t count, void *answer, void *arg)
{
	static int (*real)(const void *, const char *, const void *, size_t, void *, void *);
	if (!real)
		real = dlsym(RTLD_NEXT, "PMIx_Get_nb");
	return strncmp(key, "muster-", 7) == 0 ? 0 : real(rank, key, info, count, answer, arg);
}
END
}

# All that goes from node to node: fences, a training whose parts are saved by all nodes, and the
# word of the first failure.
all_goes_well() {
    cluster run srun --muster -N4 --ntasks-per-node=2 env LD_PRELOAD="$JOBS/silent.so" muster-rdzv \
        -t 60
    job=$(train_submit run -- --ckpt-writers node --ckpt-every 10)
    job_wait "$job" 120 COMPLETED
    diff <(muster-curve "$JOBS/run") <(muster-curve "$JOBS/reference")
    cluster run muster-ckpt verify --deep run
    run cluster run timeout -k 10 "$HANG" srun --muster -N4 -n4 \
        bash -c '[ $RANK = 3 ] && exit 1; exec sleep 1000'
    echo "$output"
    grep -q '^muster: rank 3 on n4 exited with status 1, the first of 4 ranks to fail' <<<"$output"
}

# everywhere COMMAND: as root, beside the controller and on all nodes.
everywhere() {
    cluster run --user root sh -c "$1"
    for node in 1 2 3 4; do cluster run --user root --node n$node sh -c "$1"; done
}

@test "between nodes that have no IPv4 address" {
    export MUSTER_CLUSTER_IP=6
    begin
    all_goes_well
}

@test "where net.ipv6.bindv6only is 1" {
    begin
    everywhere 'echo 1 >/proc/sys/net/ipv6/bindv6only'
    all_goes_well
}

@test "between nodes whose names only Slurm knows" {
    # It would tell them to a libnss_slurm too, which the nodes do not have.
    export MUSTER_CLUSTER_CONF=LaunchParameters=enable_nss_slurm
    begin
    echo 127.0.0.1 localhost >"$(cluster status dir)/etc/hosts"
    run cluster run --node n1 getent hosts n2
    [ "$status" -ne 0 ]
    all_goes_well
}
