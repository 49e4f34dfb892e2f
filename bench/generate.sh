#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/generate.sh [--build DIR] [--cache DIR] [--threads N] [--rounds N] [--tokens N]
# Tokens a second of muster-generate with GPT-2 124M: beside what the memory's read rate allows, and
# beside the generate() of the newest transformers, at equal dtype and threads, in turns. PyTorch
# and transformers go into a virtual environment in DIR (default: build-bench in the source tree; 6
# GB), once.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench threads=2
bench_options "build cache threads" "rounds tokens" "" "$@"

bench_build "$build" bench/read_rate
python=$(bench_torch "$cache")
"$python" -c 'import transformers' 2>/dev/null ||
    "$cache/venv/bin/pip" install -q --upgrade transformers safetensors >&2
# The first CPUs that this process may use, one a thread.
cpus=$(python3 -c 'import os, sys; print(*sorted(os.sched_getaffinity(0))[:int(sys.argv[1])], sep=",")' "$threads")
exec taskset -c "$cpus" "$python" "$top/bench/generate.py" --build "$build" --cache "$cache" \
    --threads "$threads" ${pass[@]+"${pass[@]}"}
