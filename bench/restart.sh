#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/restart.sh [--work DIR] [--cache DIR] [--rounds N] [--requeues N] [--nodes N]
#     [--torch-rounds N] [--layers N] [--width N] [--only PART]…
# How long a training stands still when a rank is killed: from the kill to the beginning of the next
# step, with 8 ranks on the 4 nodes of a test cluster and a GPT-2 of 124M parameters. PART is
# restart (muster-run begins the step again within the allocation), requeue (the job goes back into
# Slurm's queue), node (the power of a node fails, and a spare takes its place) or torch (torchrun's
# elastic restart, with DDP and DCP); all of them by default. Needs root (the test cluster), Slurm
# with PMIx, 20 GB of memory and 10 GB in --work (default: /var/tmp/muster-bench-restart), where
# Muster is built and installed. PyTorch goes into a virtual environment in --cache (default:
# build-bench in the source tree; 6 GB), once; the nodes see no python3 that lies in root's home.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
# shellcheck source=tests/lib/bar.sh
. "$top/tests/lib/bar.sh"
work=/var/tmp/muster-bench-restart cache=$top/build-bench
bench_options "work cache" "only rounds requeues nodes torch-rounds layers width" "" "$@"

[ "$(id -u)" = 0 ] || { echo "restart: the test cluster needs root" >&2; exit 1; }
mkdir -p "$work" && chmod 755 "$work"
trap stop_build EXIT
build_muster "$top" "$work" || { echo "restart: the build failed" >&2; exit 1; }

python=python3
! bench_wants torch || python=$(bench_torch "$cache")
exec "$python" "$top/bench/restart.py" --work "$work" ${pass[@]+"${pass[@]}"}
