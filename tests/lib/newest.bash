# SPDX-License-Identifier: Apache-2.0
# For the bats files that need packages in their newest version, from PyPI. They are kept in the
# build folder.
# shellcheck shell=bash

# newest NAME PACKAGE…: makes a virtual environment with them, or prints why not.
newest() {
    local venv=$MUSTER_BUILD/venv-$1 lock
    shift
    exec {lock}>"$venv.lock" && flock $lock # another file may be making it
    [ -e "$venv/complete" ] || make_venv "$venv" "$@"
    local status=$?
    exec {lock}>&-
    return $status
}

make_venv() {
    local venv=$1
    shift
    rm -rf "$venv"
    # Debian's Python: another one may lie where the users of the cluster tests can not reach it.
    /usr/bin/python3 -m venv "$venv" >"$venv.log" 2>&1 ||
        { echo "no virtual environment: apt-get install python3-venv" && return 1; }
    timeout $((40 * HANG)) "$venv/bin/pip" install -q --retries 1 "$@" >"$venv.log" 2>&1 ||
        { echo "couldn't get $* from PyPI: $(tail -n 1 "$venv.log")" && return 1; }
    touch "$venv/complete"
}

newest_torch() {
    newest torch torch numpy safetensors accelerate jax lightning torchtitan transformers \
        tensorboard setuptools
}

# Where the Python of it is, if it was made.
newest_python() {
    [ -e "$MUSTER_BUILD/venv-torch/complete" ] || return 1
    echo "$MUSTER_BUILD/venv-torch/bin/python"
}
