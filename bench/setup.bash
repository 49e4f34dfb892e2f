# SPDX-License-Identifier: Apache-2.0
# For the scripts in this folder: the build that they measure, and PyTorch beside it.
# shellcheck shell=bash

# bench_usage: the end of a script whose options can't be used; the usage is at its head.
bench_usage() {
    sed -n 's/^# \(bench.*\)/usage: \1/p; s/^#     \[/       [/p' "$0" >&2
    exit 2
}

# bench_options SET PASSED FLAGS ARGUMENT…: reads a script's arguments. Of the options with a value,
# those in SET set the variable of that name, and those in PASSED go to the array `pass`. Those in
# FLAGS, which have no value, go there, too. Where FLAGS has WORD, `words` gets what is no option;
# where it has --, `rest` gets what follows that.
bench_options() {
    local set=" $1 " passed=" $2 " flags=" $3 " name
    shift 3
    pass=() words=() rest=()
    while [ $# -gt 0 ]; do
        name=${1#--}
        if [ "$1" = -- ] && [[ $flags = *" -- "* ]]; then
            rest=("${@:2}") && return
        elif [[ $1 != -* && $flags = *" WORD "* ]]; then
            words+=("$1") && shift
        elif [[ $1 = --* && $flags = *" $name "* ]]; then
            pass+=("$1") && shift
        elif [[ $1 = --* && $# -gt 1 && $set$passed = *" $name "* ]]; then
            [[ $set != *" $name "* ]] || printf -v "$name" %s "$2"
            [[ $passed != *" $name "* ]] || pass+=("$1" "$2")
            shift 2
        else
            bench_usage
        fi
    done
}

# bench_wants PART…: whether the options leave the measurement of one of these parts: no --only, or
# an --only for it.
bench_wants() {
    local part
    [[ " ${pass[*]-} " = *" --only "* ]] || return 0
    for part; do [[ " ${pass[*]} " != *" --only $part "* ]] || return 0; done
    return 1
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
