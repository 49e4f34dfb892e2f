#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/hiding.sh [--build DIR] [--ranks N] [--slots N] [--rate RATE] [--layers N] [--width N]
#     [--context N] [--vocabulary N]
#     [--rounds N]
# What early pieces and --split-embedding hide: how long a step of a small GPT-2 waits for
# communication with each and without, in turns. The ranks of this machine share a loopback of that
# rate, each has one thread and a core of its own. Early pieces: a number of slots of which a rank
# has several pieces. Embedding: one slot a rank.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build ranks=2 slots=6 rate=4gbit layers=4 width=256 context=128 vocabulary=16384 \
    rounds=25
bench_options "build ranks slots rate layers width context vocabulary rounds" "" "" "$@"

bench_build "$build" bench/hide_step
meeting=$(mktemp -d)
trap 'rm -rf "$meeting"' EXIT
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 MUSTER_RDZV_DIR=$meeting
export MUSTER_RDZV_ID=$$ WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks GROUP_RANK=0 GROUP_WORLD_SIZE=1
unset "${!SLURM_@}" "${!PMIX_@}"

# All ranks; rank 0's lines.
measure() {
    local rank pids=()
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank LOCAL_RANK=$rank taskset -c $((rank % $(nproc))) \
            "$build/bench/hide_step" "$slots" "$layers" "$width" "$context" "$vocabulary" \
            "$rounds" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank"; done
}
export -f measure
export build ranks slots layers width context vocabulary rounds

echo "$ranks ranks, $layers layers of $width, $vocabulary words, one sample of $context a slot, over $rate loopback;" \
    "load $(cut -d' ' -f1 /proc/loadavg)"
# shellcheck disable=SC2046
unshare --net $([ "$(id -u)" = 0 ] || echo --map-root-user) bash -c "ip link set lo up
    tc qdisc add dev lo root tbf rate $rate burst 256k latency 200ms
    measure" | awk '
    { exposed[$1] = $4; seconds[$1] = $3
      printf "  %-15s %2d slots: median %7.1f ms a step, of these %6.1f ms waiting; a rank sends up to %.1f MB\n",
          $1, $2, $3 * 1e3, $4 * 1e3, $5 / 1e6 }
    function line(name, with, without) {
        printf "bench: hiding-%s-exposed %.2f x without, aim <= 1.00: %s\n", name,
            exposed[with] / exposed[without],
            exposed[with] <= exposed[without] ? "met" : "missed"
        printf "bench: hiding-%s-step %.2f x without\n", name, seconds[with] / seconds[without]
    }
    END { if (NR != 4) exit 1
          line("early-pieces", "early-pieces", "late-pieces")
          line("split-embedding", "split-embedding", "one-embedding") }'
