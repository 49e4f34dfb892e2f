#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/run.sh [--slurm DIR] [PATTERN]: installs what is missing, builds, and runs every test, or those files whose path
# contains PATTERN (a shell pattern). The last line is "N passed, N failed, N skipped"; the status is 0 only when some
# passed and none failed. Tests that need a Slurm run as root, and are skipped otherwise. --slurm takes the Slurm that is
# installed in DIR (its --prefix) in place of Debian's, and runs the tests that start one.
set -u -o pipefail

MUSTER_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MUSTER_BUILD=$MUSTER_TOP/build-tests
slurm=
if [ "${1-}" = --slurm ]; then
    slurm=$(readlink -f "${2-}/.") && [ -x "$slurm/sbin/slurmd" ] && [ -x "$slurm/bin/srun" ] || {
        echo "run.sh: couldn't use the Slurm in '${2-}': no sbin/slurmd and bin/srun there" >&2 && exit 2
    }
    shift 2
    [ $# -gt 0 ] || set -- tests/cluster/
    MUSTER_BUILD=$MUSTER_BUILD-$(basename "$slurm")
    PATH=$slurm/bin:$slurm/sbin:$PATH
    export CPATH=$slurm/include # for what the tests compile themselves
fi
# Installed where jobs of an unprivileged user on a node with its own /tmp find it, wherever this checkout lies.
MUSTER_PREFIX=/var/tmp/muster-tests-$(id -u)-$(cksum <<<"$MUSTER_BUILD" | cut -d' ' -f1)
export MUSTER_TOP MUSTER_BUILD MUSTER_PREFIX
export PATH=$MUSTER_PREFIX/bin:$PATH:/usr/sbin:/sbin CMOCKA_MESSAGE_OUTPUT=TAP
# Threads that spin at barriers take the cores from the ranks and daemons of the tests.
export OMP_WAIT_POLICY=passive
unset "${!SLURM_@}" "${!PMIX_@}"

pattern=${1-}
limit=${MUSTER_TESTS_LIMIT:-2400} # seconds for all of it
file_limit=900                   # seconds for one file
export BATS_TEST_TIMEOUT=330     # for one test of bats: its file still says what it found
passed=0 failed=0 skipped=0 child= lane=
# shellcheck source=tests/lib/packages.sh
. "$MUSTER_TOP/tests/lib/packages.sh"

# Takes the cluster down, prints the counts as the last line of the run, and ends.
finish() {
    take_down || failed=$((failed + 1))
    printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
}

# Where the files of each lane's cluster are.
lane_folder() { printf '/var/tmp/muster-tests-cluster-%s-%d' "$(cksum <<<"$MUSTER_BUILD" | cut -d' ' -f1)" "$1"; }

take_down() {
    local lane status=0
    [ "$(id -u)" = 0 ] || return 0
    for lane in 1 2; do MUSTER_CLUSTER_DIR=$(lane_folder $lane) "$MUSTER_TOP/tests/cluster/cluster" down || status=1; done
    return $status
}

# Leaves neither a test nor a cluster behind, however the run ends.
clean_up() {
    local status=$?
    trap - EXIT
    [ -z "$child$lane" ] || kill -TERM $child $lane 2>/dev/null
    take_down >/dev/null 2>&1
    rm -rf --one-file-system "$MUSTER_PREFIX"
    exit $status
}

# One failure of what comes before the tests: its last lines, and the end.
fail_early() {
    tail -n 25 "$2"
    echo "run.sh: couldn't $1: the lines above are the end of $2"
    failed=1
    finish
}

# The folder to build from. A source tree with a configured build in it cannot be built from elsewhere: copy its sources.
source_folder() {
    [ -e "$MUSTER_TOP/config.status" ] || { printf '%s' "$MUSTER_TOP" && return; }
    local copy=$MUSTER_BUILD/source
    mkdir -p "$copy"
    (cd "$MUSTER_TOP" && git ls-files -z --cached --others --exclude-standard) |
        tar -C "$MUSTER_TOP" --null -T - --ignore-failed-read -cf - 2>/dev/null | tar -C "$copy" -xf - || return 1
    printf '%s' "$copy"
}

# Builds and installs into the staging prefix. All users must be able to read it: jobs run as one of them.
build() {
    local source
    umask 022
    source=$(source_folder) || { echo "couldn't copy the sources; run make distclean first" && return 1; }
    [ -x "$source/configure" ] && [ "$source/configure" -nt "$source/configure.ac" ] || "$source/autogen.sh" || return 1
    cd "$MUSTER_BUILD" || return 1
    [ -e Makefile ] || "$source/configure" --prefix="$MUSTER_PREFIX" ${slurm:+"--with-slurm=$slurm"} || return 1
    make -s -j"$(nproc)" && make -s -j"$(nproc)" check TESTS= && make -s install
}

# The test files, one a line: unit tests by their source, so that one that was not built is missed.
test_files() {
    local file
    cd "$MUSTER_TOP" || return
    for file in tests/unit/test_*.c tests/*.bats tests/cluster/*.bats; do
        # shellcheck disable=SC2053
        [ ! -e "$file" ] || [[ $file != *$pattern* ]] || printf '%s\n' "$file"
    done
}

# Where the lines of files without a failure wait in CI, which may keep only the first lines of a run: those are of failures.
GREEN=$MUSTER_BUILD/log/green

# Runs one test file; its TAP goes to standard output.
run_file() {
    local program=$MUSTER_BUILD/${1%.c}
    case $1 in
    *.bats) exec timeout -k 10 "$2" bats --tap "$MUSTER_TOP/$1" ;;
    esac
    [ -x "$program" ] && cd "$MUSTER_BUILD" && exec timeout -k 10 "$2" "$program"
    if grep -q "${1%.c}\b" "$MUSTER_TOP/tests/tests.mk"; then
        echo "1..0 # SKIP not part of this build's configuration"
    else
        echo "not ok 1 tests/tests.mk does not name it"
    fi
}

# Runs one file under its time limit, prints its line, its skips and its failures, and adds up.
test_file() {
    local log=$MUSTER_BUILD/log/${1//\//-}.tap left=$((limit - SECONDS)) began=${EPOCHREALTIME/./} status counts tenths
    run_file "$1" $((left < 1 ? 1 : left < file_limit ? left : file_limit)) </dev/null >"$log" 2>&1 {lock}<&- &
    child=$!
    wait $child
    status=$? child=
    tenths=$(((${EPOCHREALTIME/./} - began) / 100000))
    mapfile -t counts < <(awk -v status=$status -f "$MUSTER_TOP/tests/lib/tap.awk" "$log")
    # shellcheck disable=SC2086
    set -- "$1" ${counts[0]}
    {
        printf '%-44s %3d ok %3d not ok %3d skip %4d.%d s\n' "$@" $((tenths / 10)) $((tenths % 10))
        [ ${#counts[@]} -lt 2 ] || printf '%s\n' "${counts[@]:1}"
    } | if [ "$3" = 0 ] && [ -n "${CI-}" ]; then cat >>"$GREEN"; else cat; fi
    add_up "${@:2}"
}

add_up() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

# The cluster's tests mostly wait for Slurm's timers: two lanes, each with a cluster of its own, run them beside the others.
# ALONE compares the machine before and after a cluster, so it comes before the second lane begins.
ALONE=tests/cluster/cluster.bats

# The next of the lanes' files; fails when none is left.
next_file() {
    local queue=$MUSTER_BUILD/log/cluster-queue
    (flock 9 && [ -s "$queue" ] && head -n 1 "$queue" && sed -i 1d "$queue") 9<"$MUSTER_BUILD/log"
}

# run_queue LANE: runs files until none is left, and leaves the counts.
run_queue() {
    local file
    MUSTER_CLUSTER_DIR=$(lane_folder "$1")
    export MUSTER_CLUSTER_DIR
    while file=$(next_file); do test_file "$file"; done
    echo "$passed $failed $skipped" >"$MUSTER_BUILD/log/cluster-counts-$1"
}

# add_lane LANE: waits for its process, and adds its counts. One that left none has failed.
add_lane() {
    local counts
    wait "$lane"
    lane=
    read -ra counts <"$MUSTER_BUILD/log/cluster-counts-$1" || counts=(0 1 0)
    add_up "${counts[@]}"
}

# What a lane does when it is told to end.
end_lane() {
    [ -z "$child$lane" ] || kill -TERM $child $lane
    exit 130
}

second_lane() {
    trap end_lane INT TERM HUP
    passed=0 failed=0 skipped=0 lane=
    run_queue 2
}

# first_lane FILE…
first_lane() {
    trap end_lane INT TERM HUP
    trap - EXIT
    rm -f "$MUSTER_BUILD"/log/cluster-counts-?
    printf '%s\n' "$@" | grep -x $ALONE >"$MUSTER_BUILD/log/cluster-queue" && run_queue 1
    printf '%s\n' "$@" | grep -vx -e $ALONE -e '' >"$MUSTER_BUILD/log/cluster-queue"
    second_lane &
    lane=$!
    run_queue 1
    add_lane 2
    echo "$passed $failed $skipped" >"$MUSTER_BUILD/log/cluster-counts-1"
}

[ $# -le 1 ] && [[ $pattern != -* ]] || { echo "usage: tests/run.sh [--slurm DIR] [PATTERN]" >&2; exit 2; }
exec {lock}<"${BASH_SOURCE[0]}"
flock -n "$lock" || { echo "run.sh: another run of this checkout is under way" >&2; exit 1; }
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

mkdir -p "$MUSTER_BUILD/log" && : >"$GREEN" || exit 1
packages_install build cluster tests >"$MUSTER_BUILD/log/packages" 2>&1 {lock}<&- ||
    fail_early "install packages" "$MUSTER_BUILD/log/packages"
echo "building in $MUSTER_BUILD"
(build) >"$MUSTER_BUILD/log/build" 2>&1 </dev/null || fail_early build "$MUSTER_BUILD/log/build"
echo "built after $SECONDS s"
mapfile -t files < <(test_files | grep -v ^tests/cluster/)
mapfile -t cluster_files < <(test_files | grep ^tests/cluster/)
first_lane "${cluster_files[@]}" {lock}<&- &
lane=$!
for file in "${files[@]}"; do test_file "$file"; done
add_lane 1
cat "$GREEN"
echo "all took $SECONDS s; each file's output is in $MUSTER_BUILD/log"
finish
