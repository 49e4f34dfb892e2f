#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The Python package over the installed libmuster, with Debian's PyTorch: its values, its order of
# samples, and runs of one rank and of several that are killed and told to stop.

load lib/places
load lib/wait_for
load lib/has_torch
load lib/python_package

setup() {
    : "${MUSTER_PREFIX:?the folder that Muster is installed in}"
    has_torch || skip "no PyTorch: apt-get install python3-torch"
    python_package
    PYTHONPATH+=:$MUSTER_TOP/tests/python
    cd "$MUSTER_TOP/tests/python"
}

# unittests NAME…: modules, classes or functions of tests/python. Each tells how many it has run.
unittests() {
    run /usr/bin/python3 -m unittest -v "$@"
    # First, since of a long report only the beginning is shown.
    grep -E '^(FAIL|ERROR): ' <<<"$output" || :
    echo "$output"
    [ "$status" -eq 0 ]
    ran=$(sed -n 's/^Ran \([0-9]*\) tests\{0,1\} in .*/\1/p' <<<"$output")
    [ "$ran" -gt 0 ]
    [[ $output != *skipped* ]]
}

@test "values come back as they were, and what has no place is refused by its key" {
    unittests test_values test_objects test_phases test_streams test_handover test_pytree.Trees
}

@test "a program without PyTorch: stopped and killed, the same bits" {
    unittests test_pytree.Programs.test_numpy test_pytree.Programs.test_nothing_to_save_is_one_line
}

@test "every sample once an epoch, the same on any number of ranks" { unittests test_order; }

@test "one rank: killed, stopped, finished, and what can't be" { unittests test_run.One; }

@test "several ranks: notices, workers, lost and hanging ranks" { unittests test_run.Several; }

@test "the checkpoint and the curve of a Python program are those of others" {
    unittests test_run.Files
}

# bats test_tags=long
@test "killed ten times, and with workers of every start method" {
    export MUSTER_PYTHON_LONG=1
    unittests test_run.Several \
        test_run.One.test_killed_again_and_again_it_comes_to_the_same_bits
}

# Debian's torchrun does not run with its Python. The runs of several ranks above have its
# variables, and a folder to meet in.
@test "with torchrun's variables, and nothing that says how the ranks meet: one line" {
    run env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 timeout "$HANG" \
        /usr/bin/python3 program.py --run "$BATS_TEST_TMPDIR/run"
    echo "$output"
    [ "$status" -eq 2 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output = "muster: rendezvous: "*"set MUSTER_RDZV_DIR to a folder that all nodes share"* ]]
}

@test "python3 -m muster tells what it found" {
    run /usr/bin/python3 -m muster
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"libmuster: "*"$MUSTER_LIBRARY"* ]]
    [[ $output = *"PyTorch: "*1.* ]]
    # Where the machine has a libmuster, too.
    MUSTER_LIBRARY=/nowhere/libmuster.so.0 run /usr/bin/python3 -c '
import ctypes
def missing(name): raise OSError(name)
ctypes.CDLL = missing
import muster'
    [ "$status" -eq 1 ]
    [[ ${lines[-1]} = *"couldn't load libmuster: install Muster, or set MUSTER_LIBRARY"* ]]
}

@test "a full disk: training goes on, the last save is one line and 69, and then it resumes" {
    [ "$(id -u)" = 0 ] || skip "only root mounts a small disk"
    cd "$BATS_TEST_TMPDIR" && mkdir full && mount -t tmpfs -o size=200k none full
    run timeout "$HANG" /usr/bin/python3 "$MUSTER_TOP/tests/python/program.py" --run full/run
    echo "$output"
    [ "$status" -eq 69 ]
    [[ $output = *"couldn't save step 15: "*"No space left on device"* ]]
    [[ $output = *"rank 0 is done after step 32"* ]]
    [[ ${lines[-1]} = "muster: checkpoint: couldn't "*": No space left on device" ]]
    mount -o remount,size=2m full
    run timeout "$HANG" /usr/bin/python3 "$MUSTER_TOP/tests/python/program.py" --run full/run
    umount full
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"rank 0 begins after step 10"* ]]
    [[ $output = *"rank 0 is done after step 32"* ]]
}

@test "every program in doc/pytorch.md runs" {
    run /usr/bin/python3 "$MUSTER_TOP/tests/lib/doc_programs.py" "$MUSTER_TOP/doc/pytorch.md" \
        "$BATS_TEST_TMPDIR"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"--- block 8"* && $output != *Traceback* ]]
}
