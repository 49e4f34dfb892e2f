#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# slurm-examples/first-minute.sh, with a short training.

load lib/places
load lib/wait_for
bats_require_minimum_version 1.5.0

setup() {
    [ -n "${MUSTER_PREFIX-}" ] || skip "needs the folder that Muster is installed in"
    PATH=$MUSTER_PREFIX/bin:$PATH
    command -v muster-train || skip "this build has no trainer"
    export MUSTER_FIRST_MINUTE_STEPS=200 MUSTER_FIRST_MINUTE_DIR=$BATS_TEST_TMPDIR/minute
    export OMP_WAIT_POLICY=passive
    # So that the middle of a training does not pass by between two looks.
    mkdir "$BATS_TEST_TMPDIR/slow"
    cat >"$BATS_TEST_TMPDIR/slow/muster-train" <<END
#!/bin/sh
STEP_MILLISECONDS=20 LD_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/slow_steps.so \
    exec "$MUSTER_PREFIX/bin/muster-train" "\$@"
END
    chmod +x "$BATS_TEST_TMPDIR/slow/muster-train"
    PATH=$BATS_TEST_TMPDIR/slow:$PATH
}

@test "the first minute: killed, equal, and the model writes; twice in one folder" {
    for _ in 1 2; do
        run timeout $((5 * HANG)) "$MUSTER_TOP/slurm-examples/first-minute.sh"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output = *"the first loss is there: "[0-9]* ]]
        [[ $output = *"killed by SIGKILL after step "*" of 200"* ]]
        [[ $output = *"all 200 losses and the final weights are equal, bit for bit; loss "* ]]
        [[ $output =~ "the model writes:"$'\n'"    Muster " ]]
        [[ ${lines[-1]} = *"PASS; next: "* ]]
        ! command -v muster-report ||
            grep -q 'Muster.s first minute' "$MUSTER_FIRST_MINUTE_DIR/report.html"
    done
    [ "$(muster-ckpt history --json "$MUSTER_FIRST_MINUTE_DIR/run/killed" |
        grep -c '"end": "killed"')" -eq 1 ]
}

@test "the first minute says why it can't go on" {
    touch "$BATS_TEST_TMPDIR/file"
    MUSTER_FIRST_MINUTE_DIR=$BATS_TEST_TMPDIR/file/minute \
        run ! "$MUSTER_TOP/slurm-examples/first-minute.sh"
    [[ $output = *"Not a directory"* ]]
    # A training that does not begin.
    cd "$BATS_TEST_TMPDIR"
    mkdir bin
    printf '#!/bin/sh\necho "no luck" >&2\nexit 1\n' >bin/muster-train
    chmod +x bin/muster-train
    PATH=$PWD/bin:$PATH run -1 timeout $((5 * HANG)) "$MUSTER_TOP/slurm-examples/first-minute.sh"
    echo "$output"
    [[ $output = *"no luck"* && ${lines[-1]} = *"FAIL: the training ended too early" ]]
}
