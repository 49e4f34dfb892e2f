# SPDX-License-Identifier: Apache-2.0
# For the bats files: waiting for an event. Its limits are for hangs only, and are as many times
# longer as this machine is slower than two quiet cores (tests/run.sh measures it).
# shellcheck shell=bash

# Seconds within which a command of a few seconds ends: for timeout.
export HANG=$((20 * ${MUSTER_PATIENCE:-3}))

# held_up: waits for whatever kept the event from coming in time that is not of the test's making;
# fails where nothing did. The cluster's files have another.
held_up() { false; }

# wait_for SECONDS COMMAND…: until the command succeeds. Fails after three times as many seconds, or
# more on a slow machine, and says for what it waited. The limit begins anew, once, after held_up.
wait_for() {
    local seconds=$(($1 * ${MUSTER_PATIENCE:-3})) end=$((SECONDS + $1 * ${MUSTER_PATIENCE:-3}))
    local again=''
    shift
    until "$@"; do
        if [ $SECONDS -ge $end ]; then
            [ -z "$again" ] && held_up || { echo "waited $seconds s in vain: $*"; return 1; }
            again=yes end=$((SECONDS + seconds))
        fi
        sleep "${LOOK_EVERY:-0.2}"
    done
}

# in_time SECONDS BEGAN: no more than that has passed since $SECONDS was BEGAN, or as many times
# more as this machine is slower.
in_time() {
    local took=$((SECONDS - $2)) most=$(($1 * ${MUSTER_PATIENCE:-3} / 3))
    [ $took -le $most ] || { echo "it took $took s, more than $most"; return 1; }
}

# traced PID: whether strace has all threads of the process.
traced() { ! grep -q '^TracerPid:[[:space:]]*0$' "/proc/$1"/task/*/status; }

# A pid alone may long be another process's, of whomever.
# note_pid PID: prints a line for the process, for noted; running PID…: those of these children of
# the shell that still run.
note_pid() {
    local stat
    read -ra stat <"/proc/$1/stat" && echo "$1 ${stat[21]}" # when it began
}
running() {
    local pid
    for pid in $(jobs -rp); do [[ " $* " != *" $pid "* ]] || echo "$pid"; done
}

# noted FILE…: the pids of those of the processes in these files that still run.
noted() {
    local pid began stat
    cat "$@" 2>/dev/null | while read -r pid began; do
        { read -ra stat <"/proc/$pid/stat"; } 2>/dev/null && [ "${stat[21]}" = "$began" ] &&
            echo "$pid"
    done || :
}
