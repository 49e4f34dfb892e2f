#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/torch-step.sh [--build DIR] [--cache DIR] [--ranks N] [--step MS] [--blocks N]
# What the package muster adds to each step of a PyTorch training between two saves: the same step
# of 50 ms on 8 ranks of this machine, with PyTorch's DataLoader and DistributedSampler, and with
# attach, run.loader and end_step, in turn. Wall-clock time, and CPU time of a rank. PyTorch goes
# into a virtual environment in --cache (default: build-bench in the source tree; 6 GB), once.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench
bench_options "build cache" "ranks step blocks" "" "$@"
bench_build "$build"
"$(bench_torch "$cache")" "$top/bench/torch_step.py" --build "$build" ${pass[@]+"${pass[@]}"}
