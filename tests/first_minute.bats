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
        [[ ${lines[-1]} =~ 'PASS; next: README.md, "'([^\"]*) ]]
        grep -qx "## ${BASH_REMATCH[1]}" "$MUSTER_TOP/README.md"
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

# stopped PID: whether that process is gone.
stopped() { ! kill -0 "$1" 2>/dev/null; }

@test "the first minute builds what is not installed, says why it can't, and stops its build" {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p tree/tests/lib tree/slurm-examples tree/doc
    cp "$MUSTER_TOP"/slurm-examples/first-minute.sh tree/slurm-examples
    cp "$MUSTER_TOP"/tests/lib/bar.sh tree/tests/lib
    cp "$MUSTER_TOP"/{README,HACKING}.md tree
    cp "$MUSTER_TOP"/doc/glossary.md tree/doc
    touch tree/configure.ac
    printf '#!/bin/sh\necho "checking all... yes"; cp "%s/rules" Makefile\n' "$PWD" >tree/configure
    chmod +x tree/configure
    # shellcheck disable=SC2016
    printf 'all:\ninstall:\n\t@eval "$$INSTALL"\n' >rules
    export PATH=/usr/bin:/bin

    INSTALL='echo no luck; exit 1' run -1 tree/slurm-examples/first-minute.sh
    echo "$output"
    [[ $output = *"no luck"* && ${lines[-1]} = *"FAIL: the build failed; README.md names the"* ]]

    # shellcheck disable=SC2016
    INSTALL='echo $$ >"$MUSTER_FIRST_MINUTE_DIR/installs"; sleep 1000' \
        tree/slurm-examples/first-minute.sh >stopped.log 3>&- &
    local script=$!
    wait_for "$HANG" test -s minute/installs
    kill "$script"
    wait_for "$HANG" stopped "$(cat minute/installs)"
    wait "$script" || [ $? -eq 1 ]

    INSTALL="mkdir -p ../prefix/bin && ln -s $MUSTER_PREFIX/bin/* ../prefix/bin &&
        ln -sf $PWD/slow/muster-train ../prefix/bin" \
        run -0 timeout $((5 * HANG)) tree/slurm-examples/first-minute.sh
    [[ $output = *"muster-train is not installed: building it"*"PASS; next: "* ]]
}
