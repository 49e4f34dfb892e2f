# SPDX-License-Identifier: Apache-2.0
# For the scripts in this folder: the build that they measure, and PyTorch beside it.
# shellcheck shell=bash

# bench_usage SCRIPT: the end of a script whose options can't be used; the usage is at
# its head.
bench_usage() {
    sed -n 's/^# \(bench.*\)/usage: \1/p; s/^#     \[/       [/p' "$1" >&2
    exit 2
}

# bench_build DIR TARGET…: everything and these programs, in DIR, which is configured if it is not
# yet.
bench_build() {
    local build=$1 top
    shift
    top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    if [ ! -e "$build/Makefile" ]; then
        [ -x "$top/configure" ] || (cd "$top" && ./autogen.sh)
        mkdir -p "$build" && (cd "$build" && "$top/configure" --enable-silent-rules)
    fi >&2
    make -C "$build" -s all "$@" >&2
}

# bench_torch DIR: prints the Python of the virtual environment in DIR, which is made, with PyTorch
# (6 GB), if it is not there.
bench_torch() {
    local python=$1/venv/bin/python
    if [ ! -x "$python" ] || ! "$python" -c 'import torch, numpy' 2>/dev/null; then
        echo "bench: installing PyTorch into $1/venv" >&2
        python3 -m venv "$1/venv" >&2 && "$1/venv/bin/pip" install -q --upgrade torch numpy >&2 ||
            return
    fi
    printf '%s\n' "$python"
}
