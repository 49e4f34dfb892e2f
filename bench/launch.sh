#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/launch.sh [--build DIR] [--cache DIR] [--rounds N] [--torch-rounds N] [--sizes RANKS,…]
#     [--nodes N] [--draw FILE.svg]
#     [--starts N] [--only PART]…
# From the exec of a step's tasks to a communicator that all of them can use, 8 ranks on the 4 nodes
# of a test cluster: ours, a bare PMIx fence, and torchrun's c10d rendezvous with
# init_process_group, in turns; then our rendezvous and the bare fence with more and more ranks of
# an idle program on --nodes nodes. PART is small, torch or scale, all three by default; latency:
# the first over networks with 0, 0.2 and 2 ms from node to node, in round trips; or starts:
# --starts (1000) starts of 8 ranks with late handshakes beside as many without, and a fifth of that
# over a network with 2 ms, loss and reordering; or calls: a value from each rank to each, thousands
# of times, beside bare PMIx fences. Needs root (the test cluster), Slurm with PMIx, and
# gnuplot for --draw. PyTorch goes into a virtual environment in --cache (default: build-bench in
# the source tree; 6 GB), once.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench
bench_options "build cache" "only rounds torch-rounds starts sizes nodes draw" "" "$@"

[ "$(id -u)" = 0 ] || { echo "launch: the test cluster needs root" >&2; exit 1; }
bench_build "$build" bench/launch_start bench/launch_ours bench/launch_fence \
    tests/tools/partial_io.la

python=python3
! bench_wants torch || python=$(bench_torch "$cache")
exec "$python" "$top/bench/launch.py" --build "$build" ${pass[@]+"${pass[@]}"}
