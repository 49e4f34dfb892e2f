#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The Python package with the newest PyTorch of PyPI, and its types and style by the newest mypy and
# ruff. All three are kept in the build folder.
# bats file_tags=long

load lib/places
load lib/wait_for

# venv NAME PACKAGE…: a virtual environment with them. Says why not in `why`.
venv() {
    local venv=$MUSTER_BUILD/venv-$1
    shift
    [ ! -e "$venv/complete" ] || return 0
    rm -rf "$venv"
    python3 -m venv "$venv" >"$venv.log" 2>&1 ||
        { why="no virtual environment: apt-get install python3-venv" && return 1; }
    timeout $((40 * HANG)) "$venv/bin/pip" install -q --retries 1 "$@" >"$venv.log" 2>&1 ||
        { why="couldn't get $* from PyPI: $(tail -n 1 "$venv.log")" && return 1; }
    touch "$venv/complete"
}

# In a test of its own, since it takes minutes.
@test "PyTorch, mypy and ruff from PyPI" {
    venv lint mypy ruff || skip "$why"
    venv torch torch numpy || skip "$why"
}

@test "types by mypy --strict, and style by ruff" {
    [ -e "$MUSTER_BUILD/venv-lint/complete" ] || skip "no mypy and ruff"
    cd "$MUSTER_TOP"
    "$MUSTER_BUILD/venv-lint/bin/mypy" --strict --cache-dir "$BATS_TEST_TMPDIR/mypy"
    "$MUSTER_BUILD/venv-lint/bin/ruff" check --no-cache setup.py python tests/python
    "$MUSTER_BUILD/venv-lint/bin/ruff" format --no-cache --check setup.py python tests/python
}

@test "all that Debian's PyTorch does, and killed ten times" {
    [ -e "$MUSTER_BUILD/venv-torch/complete" ] || skip "no PyTorch"
    export MUSTER_LIBRARY=$MUSTER_PREFIX/lib/libmuster.so.0 PYTHONDONTWRITEBYTECODE=1
    export PYTHONPATH=$MUSTER_PREFIX/share/muster/python:$MUSTER_TOP/tests/python
    export MUSTER_PYTHON_LONG=1 MUSTER_PATIENCE=$((2 * ${MUSTER_PATIENCE:-3}))
    cd "$MUSTER_TOP/tests/python"
    run "$MUSTER_BUILD/venv-torch/bin/python" -m unittest -v
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"Ran "* && $output != *skipped* ]]
}
