#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/torch-canonical.sh [--build DIR] [--cache DIR] [--rounds N] [--steps N]
# What equal bits on any number of ranks cost a PyTorch training: a step of muster.canonical beside
# one of DistributedDataParallel over Gloo with the same microbatches, on four nodes (network
# namespaces) that send 1 Gbit/s, and beside the plain loop on one rank; and the memory beside what
# it says at its start. Each takes turns with its peer in the same processes. PyTorch goes into a
# virtual environment in --cache (default: build-bench in the source tree; 6 GB), once. Needs root,
# or user namespaces.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench
bench_options "build cache" "rounds steps" "" "$@"

bench_build "$build"
python=$(bench_torch "$cache")

# Everything that is made lives in namespaces of its own and ends with them, however this ends.
unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_@}" "${!OMP_@}" "${!MKL_@}"
# shellcheck disable=SC2046
exec unshare --mount --net --pid --fork --kill-child \
    --mount-proc $([ "$(id -u)" = 0 ] || echo --map-root-user) \
    "$python" "$top/bench/torch_canonical.py" --build "$build" ${pass[@]+"${pass[@]}"}
