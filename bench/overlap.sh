#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/overlap.sh [--build DIR] [--cache DIR] [--ratios R,…] [--rounds N] [--steps N]
#     [--bucket-mb N|auto] [--no-torch] [--quick]
# How much of the communication of a step is hidden: one rank on each of two nodes (network
# namespaces with one link between them), each pinned to a CPU, while communication takes R times as
# long as computing (0.5, 1 and 3). The step is held against the shortest that its parts allow,
# measured apart (--comm none and replay), and against PyTorch's DistributedDataParallel over Gloo,
# in turns. What is exposed is judged for the default, --zero 1 and gradients in bf16 against
# PyTorch's gradients in fp32, and in bf16 for both, beside the least that any schedule of the same
# bytes exposes. Then four nodes, and what --trace costs. About 9 minutes on a quiet machine of two
# cores; needs root, or user namespaces. PyTorch goes into a virtual environment in --cache
# (default: build-bench in the source tree; 6 GB), once. --quick: a communication of 1 time only,
# one round, no four nodes.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench
bench_options "build cache" "ratios rounds steps bucket-mb" "no-torch quick" "$@"

bench_build "$build"
python=python3
[[ " ${pass[*]-} " = *" --no-torch "* ]] || python=$(bench_torch "$cache")

# Everything that is made lives in namespaces of its own and ends with them, however this ends.
unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_@}" "${!OMP_@}" "${!MKL_@}"
# shellcheck disable=SC2046
exec unshare --mount --net --pid --fork --kill-child \
    --mount-proc $([ "$(id -u)" = 0 ] || echo --map-root-user) \
    "$python" "$top/bench/overlap.py" --muster-train "$build/muster-train" ${pass[@]+"${pass[@]}"}
