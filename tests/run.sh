#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/run.sh [OPTION…] [FILE [TEST]]: installs what is missing, builds, and runs the tests of
# every file whose path contains FILE (a shell pattern), or those of them whose name matches TEST
# (an expression for bats' tests, a pattern with * for cmocka's). The last line is "N passed, N
# failed, N skipped"; the status is 0 only when some passed and none failed. Tests that need a Slurm
# run as root, and are skipped otherwise.
#   --long        also what searches rather than checks: sanitizers, fuzzing, every kill point,
#                 every call that may fail; the packages; and the cluster's files once more over a
#                 network with latency, and with calls on sockets that do little at once
#   --ci          of these the sanitizers, and the fuzz targets with their seeds; and trainings on a
#                 GPU that is the host, other configurations, and make distcheck
#   --list        which files and tests would run
#   --shard K/N   each N-th file, from the K-th on: N such runs are a whole one
#   --repeat N    each file N times
#   --under-load  with programs beside that use every CPU twice
#   --keep        leave the installed build, a cluster that is up, and all logs
#   --no-install  ask apt for nothing
#   --slurm DIR   the Slurm that is installed in DIR (its --prefix) in place of Debian's, and the
#                 tests that start one
set -u -o pipefail
shopt -s globstar
# By this the processes of a run are found, whatever their parent is.
[[ ${MUSTER_TESTS_RUN-} = $$.* ]] ||
    MUSTER_TESTS_RUN=$$.$RANDOM exec "$BASH" "${BASH_SOURCE[0]}" "$@"

usage() {
    sed -n 's/^# \(tests\/run.sh [^:]*\):.*/usage: \1/p; s/^#   /  /p' "${BASH_SOURCE[0]}" >&2
    exit 2
}
long='' ci='' list='' shard=1/1 repeat=1 under_load='' keep='' no_install='' slurm=''
while [[ ${1-} = -* ]]; do
    case $1 in
    --long | --ci | --list | --under-load | --keep | --no-install)
        name=${1#--} && printf -v "${name//-/_}" yes
        ;;
    --shard)
        [[ ${2-} =~ ^([1-9][0-9]?)/([1-9][0-9]?)$ ]] &&
            [ "${BASH_REMATCH[1]}" -le "${BASH_REMATCH[2]}" ] && shard=$2 && shift || usage
        ;;
    --repeat) [[ ${2-} =~ ^[1-9][0-9]*$ ]] && repeat=$2 && shift || usage ;;
    --slurm)
        slurm=$(readlink -f "${2-}/.") && [ -x "$slurm/sbin/slurmd" ] &&
            [ -x "$slurm/bin/srun" ] || {
            echo "run.sh: couldn't use the Slurm in '${2-}': no sbin/slurmd and bin/srun there" \
                >&2 && exit 2
        }
        shift
        ;;
    *) usage ;;
    esac
    shift
done
[ $# -le 2 ] || usage
[ $# -gt 0 ] || [ -z "$slurm" ] || set -- tests/cluster/
pattern=${1-} only=${2-}

MUSTER_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tests/lib/plain_path.sh
. "$MUSTER_TOP/tests/lib/plain_path.sh"
checkout=$MUSTER_TOP
MUSTER_TOP=$(plain_path "$checkout") || exit 1
MUSTER_BUILD=$MUSTER_TOP/build-tests
if [ -n "$slurm" ]; then
    MUSTER_BUILD=$MUSTER_BUILD-$(basename "$slurm")
    PATH=$slurm/bin:$slurm/sbin:$PATH
    export CPATH=$slurm/include # for what the tests compile themselves
fi
# Installed where jobs of an unprivileged user on a node with its own /tmp find it, wherever this
# checkout lies.
MUSTER_PREFIX=/var/tmp/muster-tests-$(id -u)-$(cksum <<<"$MUSTER_BUILD" | cut -d' ' -f1)
export MUSTER_TOP MUSTER_BUILD MUSTER_PREFIX MUSTER_KEEP=$keep MUSTER_LONG=$long
export PATH=$MUSTER_PREFIX/bin:$PATH:/usr/sbin:/sbin CMOCKA_MESSAGE_OUTPUT=TAP
# Threads that spin at barriers take the cores from the ranks and daemons of the tests.
export OMP_WAIT_POLICY=passive
# Whoever lends this machine has no say in its tests but the notice's own.
export MUSTER_NOTICE=off
# Tests compare messages and count characters.
export LC_ALL=C.UTF-8
unset LANGUAGE "${!SLURM_@}" "${!PMIX_@}"
# A sample of what --long tries everywhere.
[ -n "$long" ] || export MUSTER_TEST_MOMENTS=${MUSTER_TEST_MOMENTS-20} \
    MUSTER_TEST_SHARE=${MUSTER_TEST_SHARE-4}
LOG=$MUSTER_BUILD/log
export MUSTER_SLURM_FAULTS=$LOG/slurm-faults # a line for each fault of Slurm's own that a test met

passed=0 failed=0 skipped=0
# shellcheck source=tests/lib/packages.sh
. "$MUSTER_TOP/tests/lib/packages.sh"
# shellcheck source=tests/lib/bar.sh
. "$MUSTER_TOP/tests/lib/bar.sh"

# ---- the end ----

# Takes the clusters down, prints the counts as the last line of the run, and ends.
finish() {
    take_down || failed=$((failed + 1))
    if [ -s "$MUSTER_SLURM_FAULTS" ]; then
        echo "slurm faults met: $(wc -l <"$MUSTER_SLURM_FAULTS")"
        sort "$MUSTER_SLURM_FAULTS" | uniq -c
    fi
    [ ! -s "$FAILED" ] || cat "$FAILED"
    printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
}

# The lanes, by the numbers of their clusters. Those of the cluster's files wait for Slurm's timers
# most of their time. Each helps the others once it has nothing left of its own.
CLUSTERS="1 2 3 4 5 6" UNITS=7 COMMANDS="8 9 10"

# Where the files of each lane's cluster are.
lane_folder() {
    printf '/var/tmp/muster-tests-cluster-%s-%d' "$(cksum <<<"$MUSTER_BUILD" | cut -d' ' -f1)" "$1"
}

take_down() {
    local number folder status=0
    [ "$(id -u)" = 0 ] && [ -z "$keep" ] || return 0
    for number in $CLUSTERS $UNITS $COMMANDS; do
        folder=$(lane_folder "$number")
        MUSTER_CLUSTER_DIR=$folder "$MUSTER_TOP/tests/cluster/cluster" down || status=1
    done
    return $status
}

# Every process of this run but this one.
# shellcheck disable=SC2317 # called by a trap, as are those of the next directives
run_processes() {
    grep -lzs "^MUSTER_TESTS_RUN=$MUSTER_TESTS_RUN\$" /proc/[0-9]*/environ | cut -d/ -f3 |
        grep -vx -e $$ -e "$BASHPID"
}

# What tests make lies below these two, on disk and in memory, and goes with them: also the flight
# recorder of a rank that a test kills, which stays in memory for its user. Sockets need short
# paths.
make_scratch() {
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/muster-XXXXXX") && chmod 1777 "$SCRATCH" || exit 1
    export MUSTER_TEST_MEMORY=/dev/shm/${SCRATCH##*/}
    mkdir "$MUSTER_TEST_MEMORY" 2>/dev/null || MUSTER_TEST_MEMORY=$SCRATCH
    export XDG_RUNTIME_DIR=$MUSTER_TEST_MEMORY
}

# shellcheck disable=SC2317
remove_scratch() {
    local mounted
    # In /proc/mounts an inner one follows its outer one, which goes last.
    cut -d' ' -f2 /proc/mounts | tac | while read -r mounted; do
        printf -v mounted %b "$mounted"
        [[ $mounted != "$SCRATCH"/* ]] || umount -l "$mounted" || fusermount3 -uz "$mounted"
    done 2>/dev/null
    rm -rf --one-file-system "$SCRATCH" "$MUSTER_TEST_MEMORY"
}

# Where the run ends before the build does: make deletes what it has written by halves.
# shellcheck disable=SC2317
end_build() {
    bar
    # shellcheck disable=SC2046
    kill -TERM $(run_processes) 2>/dev/null
    for _ in {1..50}; do
        [ -n "$(run_processes)" ] || break
        sleep 0.1
    done
}

# Leaves neither a test nor a cluster behind, nor what they have made, however the run ends.
# shellcheck disable=SC2317
clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    [ -z "$building" ] || end_build
    disown -a # or the shell would say of each lane that it was killed
    for _ in {1..50}; do
        # shellcheck disable=SC2046
        kill -KILL $(run_processes) 2>/dev/null || break
        sleep 0.1
    done
    take_down >/dev/null 2>&1
    remove_scratch
    [ -n "$keep" ] || rm -rf --one-file-system "$MUSTER_PREFIX"
    # the link of plain_path, which the next run makes again
    [ -n "$keep" ] || [ "$MUSTER_TOP" = "$checkout" ] || rm -f "$MUSTER_TOP"
    exit "$status"
}

# One failure of what comes before the tests: its last lines, and the end.
fail_early() {
    tail -n 25 "$2"
    echo "run.sh: couldn't $1: the lines above are the end of ${2/#$MUSTER_TOP/$checkout}"
    failed=1
    finish
}

# ---- the build ----

# The folder to build from. A source tree with a configured build in it cannot be built from
# elsewhere: copy its sources.
source_folder() {
    [ -e "$MUSTER_TOP/config.status" ] || { printf '%s' "$MUSTER_TOP" && return; }
    local copy=$MUSTER_BUILD/source
    mkdir -p "$copy"
    (cd "$MUSTER_TOP" && git ls-files -z --cached --others --exclude-standard) |
        tar -C "$MUSTER_TOP" --null -T - --ignore-failed-read -cf - 2>/dev/null |
        tar -C "$copy" -xf - || return 1
    printf '%s' "$copy"
}

# Builds and installs into the staging prefix. All users must be able to read it: jobs run as one of
# them.
build() {
    local source
    umask 022
    source=$(source_folder) || {
        echo "couldn't copy the sources; run make distclean first" && return 1
    }
    [ -x "$source/configure" ] && [ "$source/configure" -nt "$source/configure.ac" ] ||
        "$source/autogen.sh" || return 1
    cd "$MUSTER_BUILD" || return 1
    to_check "$source/configure"
    # libtool is a long script, which runs for each program: dash reads it faster. One target for
    # nvcc: no test here runs its code, and build.bats compiles for the others.
    [ -e Makefile ] || CONFIG_SHELL=/bin/sh /bin/sh "$source/configure" \
        --prefix="$MUSTER_PREFIX" --with-cuda-arch=80 ${slurm:+"--with-slurm=$slurm"} || return 1
    [ -z "$terminal" ] || { make -s Makefile && to_make all check TESTS=; } || return 1
    # What only tests run is not worth the time of -O2.
    make -s -j"$(nproc)" && make -s -j"$(nproc)" check TESTS= CFLAGS='-g -O1' && make -s install
}

# ---- what runs ----

# The test files, one a line: unit tests by their source, so that one that was not built is missed.
test_files() {
    local file
    cd "$MUSTER_TOP" || return
    for file in tests/unit/**/test_*.c tests/*.bats tests/cluster/*.bats; do
        # shellcheck disable=SC2053
        [ ! -e "$file" ] || [[ $file != *$pattern* ]] || printf '%s\n' "$file"
    done | awk -v shard="${shard%/*}" -v shards="${shard#*/}" 'NR % shards == shard % shards'
}

# What this run leaves out of the files of bats: tests after a line "# bats test_tags=TAG", or of a
# file with file_tags.
leave_out='long|ci'
[ -z "$ci" ] || leave_out=long
[ -z "$long" ] || leave_out=none

# bats_tests FILE: the names of those that run.
bats_tests() {
    awk -v out="=($leave_out)\$" -v only="${only:-.}" '
        /^# bats file_tags=/ { none = $0 ~ out }
        /^# bats test_tags=/ { left = $0 ~ out; next }
        /^@test "/ {
            name = substr($0, 8, index($0, "\" {") - 8)
            if (!none && !left && name ~ only) print name
            left = 0
        }' "$MUSTER_TOP/$1"
}

# A pattern that exactly these names match.
bats_filter() {
    bats_tests "$1" | sed 's/[][\\.*^$()+?{}|]/\\&/g' | paste -sd '|' | sed 's/.*/^(&)$/'
}

list_tests() {
    local file
    test_files | while read -r file; do
        echo "$file"
        case $file in
        *.bats) bats_tests "$file" ;;
        *)
            sed -n 's/.*\(cmocka_unit_test[a-z_]*\|TEST\)(\([a-z0-9_]*\)[),].*/\2/p' \
                "$MUSTER_TOP/$file"
            ;;
        esac | sed 's/^/    /'
    done
}

# Seconds of waiting are for hangs only. How much longer this machine may take than two quiet cores,
# in thirds of their time, measured once: by as many processes as it has CPUs, but at least two,
# since the lanes that share one CPU are as many as those that share two.
measure_patience() {
    [ -z "${MUSTER_PATIENCE-}" ] || return 0 # by the run that this one is a test of
    local began=${EPOCHREALTIME/./} cpu milliseconds pids=
    for ((cpu = $(nproc) > 1 ? $(nproc) : 2; cpu > 0; cpu--)); do
        (for ((i = 0; i < 300000; i++)); do :; done) & pids+=" $!"
    done
    # shellcheck disable=SC2086
    wait $pids
    milliseconds=$(((${EPOCHREALTIME/./} - began) / 1000))
    export MUSTER_PATIENCE=$((milliseconds < 400 ? 3 : 1 + milliseconds * 3 / 400))
    ((MUSTER_PATIENCE *= ${under_load:+2} + 1))
}

load_all_cpus() {
    local cpu
    for ((cpu = 2 * $(nproc); cpu > 0; cpu--)); do (while :; do :; done) {lock}<&- & disown; done
}

# A test's watchdog sleeps for the time that the test may take, and bats 1.8 ends it with the test.
# One that is told to end before it has begun to listen stays, with bats' pipe in its hands, and
# bats waits for it. No bats is its parent's parent any more.
end_lost_watchdogs() {
    local sleeper watchdog
    while sleep 5; do
        for sleeper in $(pgrep -fx "sleep $BATS_TEST_TIMEOUT"); do
            watchdog=$(ps -o ppid= "$sleeper" | tr -d " ") && [ -n "$watchdog" ] || continue
            grep -qs "bats-exec-" "/proc/$(ps -o ppid= "$watchdog" | tr -d ' ')/cmdline" ||
                ! grep -qzxs "MUSTER_TESTS_RUN=$MUSTER_TESTS_RUN" "/proc/$sleeper/environ" ||
                kill -KILL "$watchdog" "$sleeper"
        done
    done 2>/dev/null
}

# Where the lines of files without a failure wait in CI, which may keep only the first lines of a
# run: those are of failures.
GREEN=$LOG/green
# The failures of the run, each with the few lines that tell most: CI may keep only the last lines.
FAILED=$LOG/failed

# run_file FILE: one test file; its TAP goes to standard output. The sanitizers' builds share the
# machine with all other lanes.
run_file() {
    local name=${1##*/}
    local program=$MUSTER_BUILD/tests/unit/${name%.c} limit=$((900 * MUSTER_PATIENCE))
    [[ $1 != tests/sanitize* ]] || limit=$((2 * limit))
    [ -z "$long" ] || limit=$((4 * limit))
    # A job that a test submits has none of its own, as a user's.
    [[ $1 = tests/cluster/* ]] || export TMPDIR=$SCRATCH
    case $1 in
    *.bats)
        [ -n "$(bats_tests "$1")" ] || { echo 1..0 && exit; }
        exec timeout -k 10 "$limit" bats --tap --tempdir "$(mktemp -u "$SCRATCH/XXXXXX")" \
            --filter "$(bats_filter "$1")" "$MUSTER_TOP/$1"
        ;;
    esac
    [ -z "$only" ] || export CMOCKA_TEST_FILTER=$only \
        LD_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/test_filter.so
    [ -x "$program" ] && cd "$MUSTER_BUILD" && exec timeout -k 10 "$limit" "$program"
    if grep -qrw "tests/unit/${name%.c}" --include='*.mk' "$MUSTER_TOP/tests"; then
        echo "1..0 # SKIP not part of this build's configuration"
    else
        echo "not ok 1 no .mk of tests/unit names it"
    fi
}

# What the cluster of a file is like, beyond what it asks for: "plain", or the kinds of --long.
set_kind() {
    unset MUSTER_CLUSTER_NETWORK MUSTER_CLUSTER_PRELOAD
    case $1 in
    network) export MUSTER_CLUSTER_NETWORK="--latency 2ms --loss 0.1% --reorder 1%" ;;
    parts) export MUSTER_CLUSTER_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/partial_io.so ;;
    esac
}

# On a terminal: how much is left, at the pace so far.
left() {
    local all files minutes
    [ -n "$terminal" ] && { read -r all <"$LOG/total"; } 2>/dev/null || return 0
    files=$((all - $(wc -l <"$LOG/done")))
    minutes=$(((SECONDS - built) * files / (all - files) / 60 + 1))
    [ $files -le 0 ] || echo "  $files files left, about $minutes min"
}

# test_file KIND FILE [NUMBER]: runs it, prints its line, its skips and its failures, and adds up.
test_file() {
    local kind=$1 name=$2 log began=${EPOCHREALTIME/./} status counts tenths wipe=''
    [ "$kind" = plain ] || name+=" ($kind)"
    name+=${3:+" ($3)"}
    log=$LOG/${name//[\/ ()]/-}.tap
    set_kind "$kind"
    TIMEFORMAT="%U %S $name"
    { time { (run_file "$2") </dev/null >"$log" 2>&1 {lock}<&-; }; } 2>>"$LOG/cpu"
    status=$?
    tenths=$(((${EPOCHREALTIME/./} - began) / 100000))
    mapfile -t counts < <(awk -v status=$status -f "$MUSTER_TOP/tests/lib/tap.awk" "$log")
    # shellcheck disable=SC2086
    set -- "$name" ${counts[0]}
    echo >>"$LOG/done"
    # Each line by itself: the build draws its bar at any time.
    [ -z "$terminal" ] || wipe=$'\r\033[K'
    [ "$((passed + $2 + $3 + $4))" = "$passed" ] || {
        printf '%-52s %3d ok %3d not ok %3d skip %4d.%d s%s\n' "$@" $((tenths / 10)) \
            $((tenths % 10)) "$(left)"
        [ ${#counts[@]} -lt 2 ] || printf '%s\n' "${counts[@]:1}"
    } | sed "s/^/$wipe/" | if [ "$3" = 0 ] && [ -n "${CI-}" ]; then cat >>"$GREEN"; else cat; fi
    [ "$3" = 0 ] || {
        printf '%s\n' "${counts[@]:1}" |
            awk -v file="$1" -f "$MUSTER_TOP/tests/lib/failures.awk" >>"$FAILED"
        cp "$log" "$log.failed-$(date +%H%M%S)"
    }
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
}

# ---- lanes ----

# What computes, what builds and what waits for Slurm run beside each other: the unit tests, the
# tests of commands, and some lanes with a cluster each. A lane takes the next of its queue, so that
# one that is slow has fewer.

# queue NAME: what comes in, "KIND FILE" a line, --repeat times, then with a number each. Lanes see
# it once it is whole.
queue() {
    local number lines
    lines=$(cat)
    for ((number = 1; number <= repeat; number++)); do
        [ -z "$lines" ] || if [ "$repeat" = 1 ]; then
            echo "$lines"
        else
            echo "${lines//$'\n'/ $number$'\n'} $number"
        fi
    done >"$LOG/new-queue" && mv "$LOG/new-queue" "$LOG/queue-$1"
}

# next_of QUEUE…: the next line of the first that has one; fails when nothing is left.
next_of() {
    local file
    for file in "${@/#/$LOG/queue-}"; do
        (flock 9 && [ -s "$file" ] && head -n 1 "$file" && sed -i 1d "$file") 9<"$LOG" && return
    done
}

# lane NAME CLUSTER QUEUE…: runs what it takes until nothing is left, and leaves its counts.
lane() {
    local next
    trap - EXIT
    MUSTER_CLUSTER_DIR=$(lane_folder "$2")
    export MUSTER_CLUSTER_DIR
    while next=$(next_of "${@:3}"); do
        # shellcheck disable=SC2086
        test_file $next
    done
    echo "$passed $failed $skipped" >"$LOG/counts-$1"
}

# add_lane NAME: a lane that left no counts has failed.
add_lane() {
    local counts
    read -ra counts <"$LOG/counts-$1" || counts=(0 1 0)
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
}

# This one compares the machine before and after a cluster, so no other cluster may come or go
# beside it.
ALONE=tests/cluster/cluster.bats

# first FILE…: what comes in, those files before all others, so that none that takes long is left
# for the end.
first() { awk -v first="$*" 'BEGIN { n = split(first, order, " ") }
    { given[NR] = $0; there[$0] = 1 }
    END {
        for (i = 1; i <= n; i++) if (order[i] in there) { print order[i]; delete there[order[i]] }
        for (i = 1; i <= NR; i++) if (given[i] in there) print given[i]
    }'; }

cluster_queue() {
    local kind kinds=plain
    # These bring their own trouble on the network.
    local own='/\(network\|storm\).bats$'
    [ -z "$long" ] || kinds="plain network parts"
    for kind in $kinds; do
        test_files | grep ^tests/cluster/ | grep -vx $ALONE |
            first ${long:+tests/cluster/storm.bats} \
                tests/cluster/{requeue,requeue_later,pytorch,frameworks}.bats \
                tests/cluster/{faults,plugin,preemption}.bats \
                tests/cluster/{containers,examples,network,ckptd,without_plugin,failure}.bats \
                tests/cluster/{rendezvous,environment,doctor,prologs,guards,safety,gpu}.bats |
            { [ "$kind" = plain ] && cat || grep -v "$own"; } | sed "s/^/$kind /"
    done
}

# Beside the build: it needs nothing of ours, and waits for Slurm most of the time.
begin_alone() {
    rm -f "$LOG"/counts-* "$LOG"/queue-*
    test_files | grep -x $ALONE | sed 's/^/plain /' | queue alone
    lane alone "${CLUSTERS%% *}" alone {lock}<&- &
    alone=$!
}

run_lanes() {
    local name pids watch help=
    echo $((repeat * $({ test_files | grep -v ^tests/cluster/; cluster_queue; } | wc -l))) \
        >"$LOG/total"
    test_files | grep ^tests/unit/ | sed 's/^/plain /' | queue units
    test_files | grep '^tests/[^/]*$' |
        first tests/{sanitize,python_newest,sanitize_device,sanitize_threads}.bats \
            tests/{gpu_train,fuzz,lint}.bats \
            tests/{gpt2_torch,python,nfs,elastic,saving,train,gpu,zero,ckpt_hf}.bats \
            tests/{power_loss,train_kill,lacking}.bats |
        sed 's/^/plain /' | queue commands
    end_lost_watchdogs {lock}<&- &
    watch=$!
    # One file of the commands' may not run beside itself.
    if [ "$repeat" = 1 ]; then help="commands units"; else COMMANDS=${COMMANDS%% *}; fi
    # shellcheck disable=SC2086
    lane units $UNITS units cluster $help &
    pids=$!
    # shellcheck disable=SC2086
    for name in $COMMANDS; do
        lane "commands-$name" "$name" commands cluster $help &
        pids+=" $!"
    done
    wait $alone
    cluster_queue | queue cluster # for each lane that has nothing left from now on
    # shellcheck disable=SC2086
    for name in $CLUSTERS; do
        lane "cluster-$name" "$name" cluster $help &
        pids+=" $!"
    done
    # shellcheck disable=SC2086
    wait $pids
    kill $watch
    # shellcheck disable=SC2046,SC2086
    for name in units alone $(printf 'commands-%s ' $COMMANDS) $(printf 'cluster-%s ' $CLUSTERS); do
        add_lane "$name"
    done
}

# ---- a run; in braces, so that bash has read all of it before somebody edits it ----

{
[ -z "$list" ] || { list_tests; exit; }
exec {lock}<"${BASH_SOURCE[0]}"
flock -n "$lock" || { echo "run.sh: another run of this checkout is under way" >&2; exit 1; }
make_scratch
building='' built=0 terminal=''
[ ! -t 1 ] || terminal=yes
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

mkdir -p "$LOG" && rm -f "$LOG"/{total,cpu} && : >"$LOG/done" &&
    : >"$GREEN" && : >"$FAILED" && : >"$MUSTER_SLURM_FAULTS" &&
    chmod 666 "$MUSTER_SLURM_FAULTS" || exit 1
[ -n "$no_install" ] || packages_install build cluster tests ${ci:+lint} ${long:+lint packages} \
    >"$LOG/packages" 2>&1 {lock}<&- ||
    fail_early "install packages" "$LOG/packages"
measure_patience
export BATS_TEST_TIMEOUT=$((330 * MUSTER_PATIENCE * (${long:+3} + 1)))
[ -n "$pattern$only$long$ci" ] || echo "this takes 12 to 30 minutes on two quiet cores"
echo "limits are $((MUSTER_PATIENCE * 100 / 3)) % of those of a quiet machine"
begin_alone
echo "building in $MUSTER_BUILD"
(build) >"$LOG/build" 2>&1 </dev/null &
building=$!
watch_build $building "$LOG/build"
wait $building || fail_early build "$LOG/build"
building=
built=$SECONDS
echo "built after $built s"
[ -z "$under_load" ] || load_all_cpus
run_lanes
cat "$GREEN"
echo "all took $SECONDS s; each file's output is in ${LOG/#$MUSTER_TOP/$checkout}"
finish
}
