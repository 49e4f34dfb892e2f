#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/start.sh [--work DIR] [--sizes RANKS,…] [--nodes N] [--svg FILE]
# What a world costs as it grows: trainings of a tiny model with 16 to 1,024 ranks (--sizes) on the
# 16 nodes (--nodes) of a test cluster. For each: the start, a step, the save of it by a writer on
# each node (up to 64 ranks by all of them), the end of all ranks after one is killed, the start
# from the checkpoint, and the memory of a rank. All ranks share the machine's CPUs: its seconds
# divided by their number n are what a rank takes, and that may grow as n log n at most. Needs root
# (the test cluster), Slurm with PMIx, 20 GB of memory, and gnuplot for --svg. Muster is built and
# installed in --work (default: /var/tmp/muster-bench-start).
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
# shellcheck source=tests/lib/bar.sh
. "$top/tests/lib/bar.sh"
work=/var/tmp/muster-bench-start
bench_options work "sizes nodes svg" "" "$@"

[ "$(id -u)" = 0 ] || { echo "start: the test cluster needs root" >&2; exit 1; }
mkdir -p "$work" && chmod 755 "$work"
trap stop_build EXIT
build_muster "$top" "$work" || { echo "start: the build failed" >&2; exit 1; }
make -C "$work/build" -s tests/tools/slow_steps.la >&2
exec python3 "$top/bench/start.py" --work "$work" ${pass[@]+"${pass[@]}"}
