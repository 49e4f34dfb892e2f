#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/checkpoint.sh [--build DIR] [--cache DIR] [--dir DIR] [--threads N] [--saves N]
#     [--every STEPS] [--rounds N] [--only PART]…
# What saving 2 GiB of training state costs, and how fast it is written and read: muster-train with
# its service, torch.save and PyTorch's asynchronous DCP, beside one memcpy of the state and fio on
# the same disk. PART is ours, torch, dcp or fio, which are the default, package (PyTorch with the
# package muster) or clients (other packages that save PyTorch's state). --dir is where the
# checkpoints go (default: a folder in the cache): the disk that is measured. PyTorch goes into a
# virtual environment in --cache (default: build-bench in the source tree; 6 GB), once. As root, all
# of the page cache is dropped before each read, else the files read.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/setup.bash
. "$top/bench/setup.bash"
build=$top/build cache=$top/build-bench dir='' threads=$(nproc)
bench_options "build cache dir threads" "only saves every rounds" "" "$@"

if bench_wants fio && ! command -v fio >/dev/null; then
    echo "checkpoint: fio is missing: apt-get install fio, or leave it out with --only ours --only torch --only dcp" >&2
    exit 1
fi
bench_build "$build" bench/copy_state

python=python3
! bench_wants package torch dcp clients || python=$(bench_torch "$cache")
if [[ " ${pass[*]-} " = *" --only clients "* ]]; then
    # Those that install; dlrover does not name all that it imports.
    for names in torchsnapshot "dlrover grpcio protobuf psutil ray"; do
        # shellcheck disable=SC2086
        "$python" -m pip install -q $names >/dev/null 2>&1 ||
            echo "bench: couldn't install $names" >&2
    done
fi

mkdir -p "${dir:=$cache}"
folder=$(mktemp -d "$dir/checkpoint.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"$python" "$top/bench/checkpoint.py" --build "$build" --folder "$folder" --threads "$threads" \
    ${pass[@]+"${pass[@]}"}
