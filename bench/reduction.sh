#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/reduction.sh [--build DIR] [--megabytes N] [--slots N] [--rounds N] [--steps N]
#     [--rate RATE] [RANKS…]
# What the canonical reduction costs against native, and native in bf16: seconds (of the fastest
# round and of the middle one) and bytes of a step in which nothing is computed, 2, 3, 4 and 8 ranks
# of this machine over loopback, in turns. --rate (2gbit; as root) gives the loopback that rate, all
# ranks together, so that bytes count as they do between nodes. With computation it costs less: all
# but a rank's last piece travel while later slots are computed.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build megabytes=52 slots=8 rounds=15 steps=2 rate=''
bench_options "build megabytes slots rounds steps rate" "" WORD "$@"

bench_build "$build" bench/reduce_step
meeting=$(mktemp -d)
trap 'rm -rf "$meeting"' EXIT
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 MUSTER_RDZV_DIR=$meeting
unset "${!SLURM_@}" "${!PMIX_@}"

# measure N: the ranks of a world; rank 0's lines.
measure() {
    local n=$1 rank pids=()
    export MUSTER_RDZV_ID=$$-$n WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n GROUP_RANK=0 GROUP_WORLD_SIZE=1
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank LOCAL_RANK=$rank "$build/bench/reduce_step" "$megabytes" "$slots" "$rounds" \
            "$steps" lo canonical native native-bf16 &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank"; done
}
export -f measure
export build megabytes slots rounds steps

echo "gradients of $megabytes MB in $slots slots, over ${rate:-unlimited} loopback;" \
    "load $(cut -d' ' -f1 /proc/loadavg)"
[ ${#words[@]} -gt 0 ] || words=(2 3 4 8)
for n in "${words[@]}"; do
    # A namespace of its own, so that nobody else's bytes are counted.
    # shellcheck disable=SC2046
    unshare --net $([ "$(id -u)" = 0 ] || echo --map-root-user) bash -c "ip link set lo up
        ${rate:+tc qdisc add dev lo root tbf rate $rate burst 256k latency 200ms}
        measure $n" | awk -v n="$n" '
        { fastest[$1] = $2; median[$1] = $3; cpu[$1] = $4; bytes[$1] = $5
          printf "  %d ranks, %-11s fastest %7.1f, median %7.1f ms a step, %6.1f ms of CPU, " \
              "%6.1f MB on the wire; a rank sends up to %.1f MB\n",
              n, $1, $2 * 1e3, $3 * 1e3, $4 * 1e3, $5 / 1e6, $6 / 1e6 }
        END { if (NR != 3) exit 1
              wire = bytes["canonical"] / bytes["native"]
              aim = 1.1 * (wire > 1 ? wire : 1)
              time = fastest["canonical"] / fastest["native"]
              middle = median["canonical"] / median["native"]
              printf "bench: reduction-%d-bytes %.2f x native\n", n, wire
              printf "bench: reduction-%d-cpu %.2f x native, all ranks\n", n,
                  cpu["canonical"] / cpu["native"]
              printf "bench: reduction-%d-time %.2f x native, aim <= %.2f: %s\n", n,
                  time, aim, time <= aim ? "met" : "missed"
              printf "bench: reduction-%d-median %.2f x native, aim <= %.2f: %s\n", n, middle, aim,
                  middle <= aim ? "met" : "missed" }'
done
