# SPDX-License-Identifier: Apache-2.0
# For the bats files: waiting for an event. Its limits are for hangs only, and are as many times longer as this machine is slower
# than two quiet cores (tests/run.sh measures it).
# shellcheck shell=bash

# Seconds within which a command of a few seconds ends: for timeout.
export HANG=$((20 * ${MUSTER_PATIENCE:-3}))

# wait_for SECONDS COMMAND…: until the command succeeds. Fails after three times as many seconds, or more on a slow machine, and
# says for what it waited. It looks every LOOK_EVERY milliseconds, and the less often the longer it has waited: what is looked at
# has to share the machine with those who look.
wait_for() {
    local seconds=$(($1 * ${MUSTER_PATIENCE:-3})) began=${EPOCHREALTIME/./} waited=0 pause
    shift
    until "$@"; do
        waited=$((${EPOCHREALTIME/./} - began))
        [ $waited -lt ${seconds}000000 ] || { echo "waited $seconds s in vain: $*"; return 1; }
        pause=$((1000 * ${LOOK_EVERY:-200}))
        [ $((waited / 20)) -lt $pause ] || pause=$((waited / 20))
        printf -v pause %07d $pause
        sleep "${pause:0:-6}.${pause: -6}"
    done
}

# traced PID: whether strace has all threads of the process.
traced() { ! grep -q '^TracerPid:[[:space:]]*0$' "/proc/$1"/task/*/status; }
