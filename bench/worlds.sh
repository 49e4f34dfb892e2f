#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/worlds.sh [--build DIR] [--ranks N] [--most N] [--rate GBIT] [--inside GBIT]
#     [--latency MICROSECONDS] [--svg FILE]
#     [--check [--megabytes N]]
# What a step of GPT-2 124M sends on 1 node to so many that there are 4,096 ranks (--most), with
# eight ranks each (--ranks): of each world two nodes of ranks run without a network, and what they
# would send is counted. tests/unit/trainer/ddp/test_ddp_nodes.c holds such counts against those of
# worlds of up to 64 ranks, where they are equal to the byte. The time is a model's: each message
# costs a latency, and bytes take what a node sends to others (--rate) and a rank within its node
# (--inside). Beside a ring of all ranks, a hierarchical all-reduce and the same tree without nodes.
# --check: worlds of 2 to 64 ranks reduce 32 MB (--megabytes) over slow links between network
# namespaces, and their times are held against the model's. Needs root, or user namespaces.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build
bench_options build "ranks most rate inside latency svg megabytes" check "$@"

bench_build "$build" bench/worlds bench/reduce_step
if [[ " ${pass[*]-} " = *" --check "* ]]; then
    unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_@}" "${!OMP_@}"
    # shellcheck disable=SC2046
    exec unshare --mount --net --pid --fork --kill-child \
        --mount-proc $([ "$(id -u)" = 0 ] || echo --map-root-user) \
        python3 "$top/bench/worlds_check.py" --build "$build" "${pass[@]}"
fi
exec python3 "$top/bench/worlds.py" --build "$build" ${pass[@]+"${pass[@]}"}
