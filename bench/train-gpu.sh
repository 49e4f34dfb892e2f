#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/train-gpu.sh [--only MODEL[,MODEL]] [--seconds N] [--rounds N] [--warm-up N]
#     [--limit SECONDS] [--out DIR] [--data TOKENS] [--text FILES] [--microbatch N]
#     [--torch MICROBATCH,MODE,ATTENTION] [--torch-python PYTHON] [--no-torch] [--floor FILE.json]
#     [--build DIR] [--curve STEPS [--batch SAMPLES]] [--device cpu [--precision fp32]]
#     [-- OPTION OF muster-train…]
# Training steps of GPT-2 (124M, 350M, 774M, 1558M; all by default) on one GPU: the floor of a step
# on this card, where a step's time goes, and ours against PyTorch's, the best of its batch sizes,
# modes and attentions: runs of --seconds (30) in turns, --rounds (3) of them, after a warm-up of
# --warm-up (20) seconds. --limit ends it in time and leaves out what no time is left for, so
#     bench/train-gpu.sh --only 124M --limit 520 --rounds 2 --microbatch 64 \
#         --torch 32,max-autotune,flash
# fits into nine minutes; --floor takes the floors that an earlier run wrote down. --data is a token
# file, such as muster-tokens makes; else tokens are made of --text, or of the text of Python's own
# library. --curve trains STEPS steps from the same weights with both, of --batch samples each, and
# compares the losses only: status 1 where they differ by more than 1 %, 77 where there is no
# PyTorch. With --device cpu it does so without a GPU, for the model 'tiny' too. Works in a build
# folder's source tree and beside the bin/ of tests/gpu.sh's tarball. Figures go to
# train-gpu-DATE.txt and .json in --out (default: bench/results, or the current folder beside a
# bin/). Without a GPU: one line, and no figures.
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) top=$(cd "$here/.." && pwd)
# shellcheck source=bench/setup.bash
. "$here/setup.bash"
build=$top/build out='' device=cuda
if [ -d "$top/bin" ]; then packed=1; else packed=; fi
passed="device only seconds rounds warm-up limit data text microbatch torch torch-python floor"
bench_options "build out device" "$passed curve batch precision" "no-torch --" "$@"

machine="$(nproc) CPUs"
if [ "$device" != cpu ]; then
    PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
    if ! card=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total \
        --format=csv,noheader 2>&1) ||
            [ -z "$card" ]; then
        echo "train-gpu: no GPU, nothing was measured: ${card:-the driver has no nvidia-smi here}"
        exit 0
    fi
    machine="${card//$'\n'/; }, $machine"
fi
if [ -n "$packed" ]; then
    programs=$top/bin
    machine+="; $(grep -s -m 1 '^packed' "$top/packed" || echo 'packed: unknown')"
else
    targets=(bench/initial_weights)
    [ "$device" = cpu ] || targets+=(bench/step_floor)
    bench_build "$build" "${targets[@]}"
    programs=$build
    machine+="; commit $(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo unknown)"
fi
[ -n "$out" ] || { [ -n "$packed" ] && out=$PWD || out=$here/results; }
exec python3 "$here/train_gpu.py" --programs "$programs" --machine "$machine" --out "$out" \
    ${pass[@]+"${pass[@]}"} -- ${rest[@]+"${rest[@]}"}
