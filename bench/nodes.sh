#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/nodes.sh [--build DIR] [--megabytes N] [--nodes N] [--ranks N] [--slots N] [--rounds N]
#     [--rate GBIT]
# What it gains to add gradients on each node before they leave it (trainer/ddp/ddp_nodes.h): a step
# in which nothing is computed, by default 300 MB on 4 nodes with 2 ranks each. The nodes are
# network namespaces that send 1 Gbit/s to each other; within one, data goes by its loopback. Held
# against the same reduction without nodes, against the ring of --reduction native, and against the
# least that the bytes of a ring of nodes take on that link. Needs root, or user namespaces.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build
bench_options build "megabytes nodes ranks slots rounds rate" "" "$@"

bench_build "$build" bench/reduce_step
unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_@}" "${!OMP_@}"
# shellcheck disable=SC2046
exec unshare --mount --net --pid --fork --kill-child \
    --mount-proc $([ "$(id -u)" = 0 ] || echo --map-root-user) \
    python3 "$top/bench/nodes.py" --build "$build" ${pass[@]+"${pass[@]}"}
