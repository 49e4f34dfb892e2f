#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/train-cpu.sh [--build DIR] [--cache DIR] [--threads N] [--rounds N] [--steps N] [CASE…]
# Training steps a second of muster and of the newest PyTorch that pip offers (the better of eager and torch.compile), on
# this machine's CPU: same model, batch and threads, pinned, in turns. CASE is 14m or 124m; both by default.
# PyTorch goes into a virtual environment in DIR (default: build-bench in the source tree; 6 GB), once.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build cache=$top/build-bench threads=2
pass=()
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --cache) cache=$2; shift 2 ;;
    --threads) threads=$2; shift 2 ;;
    --rounds | --steps) pass+=("$1" "$2"); shift 2 ;;
    -*) sed -n 's/^# \(bench.*\)/usage: \1/p' "$0" >&2; exit 2 ;;
    *) pass+=("$1"); shift ;;
    esac
done

if [ ! -e "$build/Makefile" ]; then
    [ -x "$top/configure" ] || (cd "$top" && ./autogen.sh)
    mkdir -p "$build" && (cd "$build" && "$top/configure" --enable-silent-rules)
fi
make -C "$build" -s all bench/train_step >&2

if [ ! -x "$cache/venv/bin/python" ] || ! "$cache/venv/bin/python" -c 'import torch, numpy' 2>/dev/null; then
    echo "train-cpu: installing PyTorch into $cache/venv" >&2
    python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install -q --upgrade torch numpy >&2
fi

# The first CPUs that this process may use, one a thread.
cpus=$(python3 -c 'import os, sys; print(*sorted(os.sched_getaffinity(0))[:int(sys.argv[1])], sep=",")' "$threads")
exec taskset -c "$cpus" "$cache/venv/bin/python" "$top/bench/train_cpu.py" --train-step "$build/bench/train_step" \
    --threads "$threads" ${pass[@]+"${pass[@]}"}
