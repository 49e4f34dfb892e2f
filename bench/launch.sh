#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/launch.sh [--build DIR] [--cache DIR] [--rounds N] [--torch-rounds N] [--sizes RANKS,…] [--nodes N] [--draw FILE.svg]
#     [--only PART]…
# From the exec of a step's tasks to a communicator that all of them can use, 8 ranks on the 4 nodes of a test cluster: ours, a
# bare PMIx fence, and torchrun's c10d rendezvous with init_process_group, in turns; then our rendezvous and the bare fence with
# more and more ranks of an idle program on --nodes nodes. PART is small, torch or scale; all by default. Needs root (the test
# cluster), Slurm with PMIx, and gnuplot for --draw. PyTorch goes into a virtual environment in --cache (default: build-bench in
# the source tree; 6 GB), once.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build cache=$top/build-bench
pass=() only=
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --cache) cache=$2; shift 2 ;;
    --only) only+=" $2"; pass+=("$1" "$2"); shift 2 ;;
    --rounds | --torch-rounds | --sizes | --nodes | --draw) pass+=("$1" "$2"); shift 2 ;;
    *) sed -n 's/^# \(bench.*\)/usage: \1/p' "$0" >&2; exit 2 ;;
    esac
done

[ "$(id -u)" = 0 ] || { echo "launch: the test cluster needs root" >&2; exit 1; }
if [ ! -e "$build/Makefile" ]; then
    [ -x "$top/configure" ] || (cd "$top" && ./autogen.sh)
    mkdir -p "$build" && (cd "$build" && "$top/configure" --enable-silent-rules)
fi
make -C "$build" -s all bench/launch_start bench/launch_ours bench/launch_fence >&2

python=python3
if [[ -z $only || $only == *torch* ]]; then
    python=$cache/venv/bin/python
    if [ ! -x "$python" ] || ! "$python" -c 'import torch, numpy' 2>/dev/null; then
        echo "launch: installing PyTorch into $cache/venv" >&2
        python3 -m venv "$cache/venv"
        "$cache/venv/bin/pip" install -q --upgrade torch numpy >&2
    fi
fi
exec "$python" "$top/bench/launch.py" --build "$build" ${pass[@]+"${pass[@]}"}
