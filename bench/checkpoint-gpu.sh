#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/checkpoint-gpu.sh [--only MODEL]… [--saves N] [--every SECONDS] [--microbatch N] [--dir DIR]
#     [--torch-python PYTHON]
#     [--no-torch] [--build DIR] [-- OPTION OF muster-train…]
# What a checkpoint costs a training of GPT-2 on one GPU (124M and 1558M; both by default): the
# stall of a save against a step, the rate at which the state comes out of the GPU against the rate
# of a pinned copy on this card, and both against torch.save of the same state. Of --saves (5) the
# first is not counted. The checkpoints go into a new folder in --dir (default: the current one),
# which takes twice 16 bytes a parameter and what torch.save writes; the disk has to write one
# within --every (8 seconds for 124M, 45 for 1558M). Works in a build folder's source tree and
# beside the bin/ of tests/gpu.sh's tarball. Without a GPU: one line, and no figures.
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) top=$(cd "$here/.." && pwd)
# shellcheck source=bench/setup.bash
. "$here/setup.bash"
build=$top/build dir=$PWD
bench_options "build dir" "only saves every microbatch torch-python" "no-torch --" "$@"

PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
if ! card=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total \
    --format=csv,noheader 2>&1) || [ -z "$card" ]; then
    echo "checkpoint-gpu: no GPU, nothing was measured: ${card:-the driver has no nvidia-smi here}"
    exit 0
fi
if [ -d "$top/bin" ]; then
    programs=$top/bin
else
    bench_build "$build"
    programs=$build
fi
mkdir -p "$dir"
folder=$(mktemp -d "$dir/checkpoint-gpu.XXXXXX")
trap 'rm -rf "$folder"' EXIT
echo "checkpoint-gpu: $(date -u +%FT%TZ), ${card//$'\n'/; }, $(nproc) CPUs," \
    "$(grep -s -m 1 '^packed' "$top/packed" ||
    echo "commit $(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo unknown)")"
python3 "$here/checkpoint_gpu.py" --programs "$programs" --folder "$folder" \
    ${pass[@]+"${pass[@]}"} -- ${rest[@]+"${rest[@]}"}
