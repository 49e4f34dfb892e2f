#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/tokenize.sh [--build DIR] [--cache DIR] [--threads N] [--rounds N] [--megabytes N]
# Megabytes of text a second that muster-tokens turns into BPE tokens, beside the newest tokenizers
# and tiktoken on as many threads, with the same vocabulary and the same tokens, in turns. They go
# into a virtual environment in DIR (default: build-bench in the source tree), once.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench threads=2
bench_options "build cache threads" "rounds megabytes" "" "$@"

bench_build "$build"
python=$cache/venv-tokenizers/bin/python
if [ ! -x "$python" ] || ! "$python" -c 'import tokenizers, tiktoken' 2>/dev/null; then
    python3 -m venv "$cache/venv-tokenizers" >&2
    "$cache/venv-tokenizers/bin/pip" install -q --upgrade tokenizers tiktoken numpy >&2
fi
# The first CPUs that this process may use, one a thread.
cpus=$(python3 -c 'import os, sys; print(*sorted(os.sched_getaffinity(0))[:int(sys.argv[1])], sep=",")' "$threads")
exec taskset -c "$cpus" env OMP_NUM_THREADS="$threads" RAYON_NUM_THREADS="$threads" \
    TOKENIZERS_PARALLELISM=true "$python" "$top/bench/tokenize_text.py" --build "$build" \
    --threads "$threads" ${pass[@]+"${pass[@]}"}
