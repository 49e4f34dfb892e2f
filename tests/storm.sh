#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/storm.sh N SEED [PROGRAM]: builds and installs as tests/run.sh does, and disturbs a training
# on a Slurm of four nodes N times, at moments and in ways that SEED draws (tests/cluster/storm.bash
# has them). PROGRAM is train (the default; muster-train), zero (with --zero 1), writers (one on
# each node), elastic (another number of ranks in each attempt), python (PyTorch with the package
# muster) or ring (slurm-examples/ring.c). Prints a table and a verdict; the status is 0 if it is
# clean.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

[[ ${1-} =~ ^[1-9][0-9]{0,3}$ && ${2-} =~ ^[0-9]{1,5}$ ]] &&
    [[ " train zero writers elastic python ring " = *" ${3-train} "* ]] || {
    sed -n 's/^# \(tests\/storm.sh [^:]*\):.*/usage: \1/p' "$0" >&2
    exit 2
}
table=build-tests/log/storm-${3-train}-$2.txt
rm -f "$table"
MUSTER_STORM="$1 $2 ${3-train}" tests/run.sh cluster/storm 'drawn once'
status=$?
[ ! -e "$table" ] || cat "$table"
exit $status
