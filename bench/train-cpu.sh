#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/train-cpu.sh [--build DIR] [--cache DIR] [--threads N] [--rounds N] [--steps N] [CASE…]
# Training steps a second of muster and of the newest PyTorch that pip offers (the better of eager
# and torch.compile), on this machine's CPU: same model, batch and threads, pinned, in turns. CASE
# is 14m or 124m; both by default. PyTorch goes into a virtual environment in DIR (default:
# build-bench in the source tree; 6 GB), once.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench threads=2
bench_options "build cache threads" "rounds steps" WORD "$@"

bench_build "$build" bench/train_step

python=$(bench_torch "$cache")
# The first CPUs that this process may use, one a thread.
cpus=$(python3 -c 'import os, sys; print(*sorted(os.sched_getaffinity(0))[:int(sys.argv[1])], sep=",")' "$threads")
exec taskset -c "$cpus" "$python" "$top/bench/train_cpu.py" --train-step "$build/bench/train_step" \
    --threads "$threads" ${pass[@]+"${pass[@]}"} ${words[@]+"${words[@]}"}
