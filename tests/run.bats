#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# How tests/run.sh counts: nothing that failed, crashed or fell silent may pass.

load lib/wait_for

# count STATUS TAP: the counts for a program that printed TAP and ended with STATUS.
count() { printf '%b' "$2" | awk -v status="$1" -f "$BATS_TEST_DIRNAME/lib/tap.awk" | head -n 1; }

@test "passes, failures and skips are told apart, in the words of bats and of cmocka" {
    [ "$(count 1 '1..4\nok 1 a\nnot ok 2 b\n# why\nok 3 c # skip no root\nok 4 d\n')" = "2 1 1" ]
    [ "$(count 0 '1..2\nok 1 - a\nnot ok 2 # SKIP b\n# ok - group\n1..1\nok 1 - c\n')" = "2 0 1" ]
    [ "$(count 0 '1..0 # SKIP no GPU\n')" = "0 0 1" ]
}

@test "a short plan, no plan, a crash and a time limit are failures" {
    [ "$(count 0 '1..3\nok 1 a\n')" = "1 2 0" ]
    [ "$(count 0 '')" = "0 1 0" ]
    [ "$(count 139 '1..1\nok 1 a\n')" = "1 1 0" ]
    [ "$(count 124 '1..1\nok 1 a\n')" = "1 1 0" ]
    [ "$(count 1 'not ok 1 setup_file failed\n')" != "0 0 0" ]
}

@test "a group's teardown that fails is a failure though cmocka ends with 0, also in make check" {
    tap='1..1\nok 1 - a\nnot ok 0 - tests [  FAILED  ] GROUP TEARDOWN\n# ok - tests\n'
    [ "$(count 0 "$tap")" = "1 1 0" ]
    for driver in "$MUSTER_TOP" "$MUSTER_BUILD/source"; do
        driver+=/build-aux/tap-driver.sh
        [ ! -e "$driver" ] || break
    done
    cd "$BATS_TEST_TMPDIR"
    sh "$driver" --test-name name --log-file log --trs-file trs -- \
        bash "$BATS_TEST_DIRNAME/lib/tap-skip.sh" printf "$tap"
    grep -qx ':global-test-result: ERROR' trs
}

@test "a failure is shown with its comments, a pass is not" {
    run awk -v status=1 -f "$BATS_TEST_DIRNAME/lib/tap.awk" \
        <<<$'1..2\nok 1 a\n# of a\nnot ok 2 b\n# why'
    [ "$output" = $'1 1 0\n    not ok 2 b\n    # why' ]
    run awk -v status=1 -f "$BATS_TEST_DIRNAME/lib/tap.awk" \
        <<<$'ERROR: the reason\n1..2\nok 1 - a\nnot ok 2 - b\n# b.c:7: error: Failure!'
    [ "$output" = \
        $'1 1 0\n    not ok 2 - b\n    # b.c:7: error: Failure!\n    # ERROR: the reason' ]
    awk -v file=b.c -f "$BATS_TEST_DIRNAME/lib/failures.awk" <<<"${output#*$'\n'}" |
        grep -qx '    # ERROR: the reason'
}

# ---- a run of its own, over a tree whose build is nothing ----

# file NAME TEST…: a file of bats. (bats takes for a test of this one what begins a line as one
# does.)
file() { printf '@test "%s\n' "${@:2}" >"$1"; }

# tree: makes one in the test's folder, with two files that pass, one of them the cluster's, and
# goes there.
tree() {
    mkdir -p "$BATS_TEST_TMPDIR/tree/tests/cluster" && cd "$BATS_TEST_TMPDIR/tree"
    cp -r "$BATS_TEST_DIRNAME"/{run.sh,lib,packages.txt} tests
    touch -d yesterday configure.ac
    printf '#!/bin/sh\nprintf "all check install:\\n\\t@true\\n" >Makefile\n' >configure
    printf '#!/bin/sh\nexit 0\n' >tests/cluster/cluster
    chmod +x configure tests/cluster/cluster
    file tests/one.bats 'first" { true; }' 'second (of two)" { [ "$MUSTER_PATIENCE" -ge 3 ]; }' \
        'searched" { [ -z "${MUSTER_TEST_MOMENTS-}" ]; }'
    sed -i '3i # bats test_tags=long' tests/one.bats
    file tests/cluster/two.bats 'cluster" { [ -n "$MUSTER_CLUSTER_DIR" ]; }'
    unset MUSTER_TESTS_RUN MUSTER_TEST_MOMENTS MUSTER_KEEP CI
    export TMPDIR=$BATS_TEST_TMPDIR/tmp
    mkdir -p "$TMPDIR"
}

# Without bats' descriptor, for whose end it waits: the watchdog of a test may hold it long after
# the test.
own_run() { tests/run.sh "$@" 3>&-; }

@test "what is checked runs, what is searched does with --long, and a file or one test by name" {
    tree
    run own_run --no-install
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "3 passed, 0 failed, 0 skipped" ]
    grep -qE '^[0-9.]+ [0-9.]+ tests/one.bats$' build-tests/log/cpu
    run own_run --no-install --repeat 2 one 'second \(of'
    echo "$output"
    [ "${lines[-1]}" = "2 passed, 0 failed, 0 skipped" ]
    # Two lanes take a file of the cluster's at once: each has its output.
    run own_run --no-install --repeat 2 two
    echo "$output"
    [ "${lines[-1]}" = "2 passed, 0 failed, 0 skipped" ]
    [ "$(grep -l '^ok 1 cluster' build-tests/log/tests-cluster-two.bats-*.tap | wc -l)" -eq 2 ]
    run own_run --no-install --long one
    echo "$output"
    [ "${lines[-1]}" = "3 passed, 0 failed, 0 skipped" ]
    # The cluster's files three times: as they are, over a network, and with partial calls.
    run own_run --no-install --long two
    echo "$output"
    [ "${lines[-1]}" = "3 passed, 0 failed, 0 skipped" ]
    run own_run --list one
    [ "$output" = $'tests/one.bats\n    first\n    second (of two)' ]
    [ "$(own_run --list --shard 1/2; own_run --list --shard 2/2)" = "$(own_run --list)" ]
    run own_run --no-install --shard 2/2
    echo "$output"
    [ "${lines[-1]}" = "1 passed, 0 failed, 0 skipped" ]
    run own_run --no-install --under-load one
    echo "$output"
    [ "${lines[-1]}" = "2 passed, 0 failed, 0 skipped" ]
    run own_run --no-install none-of-these
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "0 passed, 0 failed, 0 skipped" ]
    for wrong in --such "--repeat 0" "--shard 3/2" "--slurm /nowhere" "a b c"; do
        # shellcheck disable=SC2086
        run own_run $wrong
        [ "$status" -eq 2 ]
    done
}

@test "on a terminal a bar shows how far the build is, also one that is partly made; elsewhere none" {
    command -v script >/dev/null || skip "no script(1): apt-get install bsdutils"
    tree
    file tests/cluster/cluster.bats 'alone" { true; }' 'left out" { skip "no card"; }'
    # The bar is drawn at any time, so that a line of results that is not wiped first follows it.
    sed -i 's/sleep 0.3/sleep 0.001/' tests/lib/bar.sh
    # A build goes on once the terminal, where there is one, has shown how far it is.
    cat >shown <<'END'
#!/bin/bash
. ../tests/lib/wait_for.bash
[ ! -e ../typescript ] || wait_for 20 grep -q "$1" ../typescript
END
    cat >configure <<'END'
#!/bin/sh
printf %s "checking all... " && ../shown 'configuring \[##*\] 1 of 1' && echo yes &&
    cp ../rules Makefile
END
    # Three are to be made, or the two that were left.
    cat >rules <<'END'
all: 1.o 2.o
check: 3.o
install:
stamp:
	touch -d '1 second ago' config.h; touch $@
config.h: stamp
	@test -f $@
1.o: config.h
2.o: 1.o
3.o: 2.o
1.o 2.o 3.o: %.o:
	@echo "  CC      " $@; ../shown 'building \[#.*\] '$$(($* - 3 + LEFT))" of $$LEFT" && touch $@
END
    chmod +x shown
    run own_run --no-install one
    echo "$output"
    [ "${lines[-1]}" = "2 passed, 0 failed, 0 skipped" ]
    [[ $output != *"ing ["* ]]
    rm -r build-tests
    for LEFT in 3 2; do
        export LEFT
        # A plain sh passes none of bats' functions on.
        SHELL=/bin/bash script -qefc "tests/run.sh --no-install" typescript >out 3>&- ||
            { tr '\r' '\n' <out | uniq && return 1; }
        grep -q $'\r\033\\[Ktests/cluster/cluster.bats  *1 ok' out
        grep -q $'\r\033\\[K    .*no card' out
        grep -q $'\r\033\\[Kbuilt after' out
        run grep $'[0-9]\033\\[K[^\r]' out
        [ "$status" -eq 1 ]
        rm build-tests/[23].o
    done
}

@test "a watchdog that outlives its test does not keep bats waiting" {
    tree
    # As bats 1.8 leaves one behind: with its descriptors, and no parent.
    file tests/one.bats \
        'short" { ( (sleep "$BATS_TEST_TIMEOUT" & touch lost; wait) & ); while [ ! -e lost ]; do sleep 0.1; done; }' \
        'next" { true; }'
    run own_run --no-install one
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "2 passed, 0 failed, 0 skipped" ]
}

@test "faults of Slurm's are counted, failures keep their output" {
    tree
    file tests/one.bats 'met" { echo hung >>"$MUSTER_SLURM_FAULTS"; }' 'bad" { echo why; false; }'
    run own_run --no-install one
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output = *"# why"*"slurm faults met: 1"*"1 hung"*"failed: tests/one.bats: not ok 2 bad"* ]]
    [ "${lines[-1]}" = "1 passed, 1 failed, 0 skipped" ]
    ls build-tests/log/*.failed-*
}

@test "a test whose job lost its script to slurmd is run again, once for each such job" {
    cd "$BATS_TEST_TMPDIR" && mkdir logs jobs
    # met JOB: what slurmd logs then.
    cat >again.bats <<END
load "$MUSTER_TOP/tests/cluster/helpers"
cluster() { [ "\$*" != "status log" ] || echo "$PWD/logs"; }
met() {
    echo "[2026-11-30T02:18:06.134] _handle_stray_script: Purging vestigial job script" \\
        "/spool/n1/job000\$1/slurm_script"
    echo "[2026-11-30T02:18:06.228] [\$1.batch] error: execve():" \\
        "/spool/n1/job000\$1/slurm_script: No such file or directory"
} >>logs/slurmd-n1.log
setup() { :; }
teardown() { JOBS=$PWD/jobs cluster_explain; }
teardown_file() { :; }
END
    file tests 'meets it once" { [ $BATS_TEST_TRY_NUMBER = 2 ] || ! met 10; }' \
        'meets it each time" { met 1$BATS_TEST_TRY_NUMBER; false; }' 'fails otherwise" { false; }'
    cat tests >>again.bats
    MUSTER_BUILD=$PWD MUSTER_SLURM_FAULTS=$PWD/faults run bats again.bats
    echo "$output"
    [[ $output = *"ok 1 meets it once"*"not ok 2 meets it each time"*"not ok 3 fails otherwise"* ]]
    [ "$(grep -c '^not ok' <<<"$output")" -eq 2 ]
    [ "$(wc -l <faults)" -eq 3 ]
}

@test "a run that is ended while it builds ends at once, and leaves nothing written by halves" {
    tree
    local mark=3$RANDOM status=0
    printf '#!/bin/sh\nprintf "all: half\\nhalf:\\n\\techo some >half; sleep %s\\n" >Makefile\n' \
        $mark >configure
    tests/run.sh --no-install >out 2>&1 3>&- &
    local run=$!
    wait_for 60 test -s build-tests/half || { cat out && return 1; }
    kill -TERM $run
    wait $run || status=$?
    cat out
    [ $status -eq 130 ]
    ! pgrep -f "^sleep $mark" || return 1
    [ ! -e build-tests/half ]
    [ -z "$(ls -A "$TMPDIR")" ]
}

@test "a run that is ended leaves no process of any lane, no file and no mount" {
    tree
    local mark=3$RANDOM mounts=''
    if [ "$(id -u)" = 0 ]; then
        mounts='for at in "a b" "a b/c"; do mkdir "$at"; mount -t tmpfs none "$at"; done'
    fi
    for name in one cluster/two; do
        file tests/$name.bats "waits\" { cd \"\$BATS_TEST_TMPDIR\"; $mounts
            [ $name != one ] || mktemp -d
            touch \"\$MUSTER_TEST_MEMORY/$mark-${name#*/}\" \\
                \"\$XDG_RUNTIME_DIR/$mark-record-${name#*/}\"
            setsid sleep $mark & touch '$PWD/waits-${name#*/}'; sleep $mark; }"
    done
    tests/run.sh --no-install >out 2>&1 3>&- &
    local run=$!
    both_wait() { [ -e waits-one ] && [ -e waits-two ]; }
    wait_for 60 both_wait || { cat out && return 1; }
    kill -TERM $run
    local status=0
    wait $run || status=$?
    cat out
    [ $status -eq 130 ]
    ! pgrep -f "^sleep $mark" || return 1
    ! grep Killed out || return 1
    ! grep "$TMPDIR" /proc/mounts || return 1
    ! compgen -G "/dev/shm/*/$mark-*" || return 1
    [ -z "$(ls -A "$TMPDIR")" ]
}
