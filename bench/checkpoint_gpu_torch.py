# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of checkpoint-gpu.sh: torch.save of a training's state on the GPU, and the rate of
a pinned copy out of it.

    checkpoint_gpu_torch.py FILE LAYERS WIDTH HEADS CONTEXT VOCABULARY

Prints one line of JSON: the median seconds of a save (without fsync; the first is not counted),
bytes a second of a copy of 1 GiB, and PyTorch's version."""
import json
import os
import statistics
import sys
import time

import torch

SAVES, COPIES, COPY_BYTES = 3, 10, 1 << 30


def shapes(layers, width, _, context, vocabulary):
    block = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,),
             (width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (context, width), *block * layers, (width,), (width,)]


def save_seconds(path, shape):
    """Weights and two moments in fp32, as AdamW has them."""
    state = {name: [torch.randn(one, device="cuda") for one in shapes(*shape)]
             for name in ("weights", "m", "v")}
    seconds = []
    for _ in range(SAVES + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        torch.save(state, path)
        seconds.append(time.perf_counter() - begin)
        os.remove(path)
    return statistics.median(seconds[1:])


def pinned_rate():
    device = torch.randint(0, 255, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    host = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    rates = []
    for _ in range(COPIES + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        host.copy_(device, non_blocking=True)
        end.record()
        end.synchronize()
        rates.append(COPY_BYTES / (begin.elapsed_time(end) * 1e-3))
    return statistics.median(rates[1:])


def main():
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} sees no GPU")
    pinned = pinned_rate()
    save = save_seconds(sys.argv[1], list(map(int, sys.argv[2:])))
    print(json.dumps({"save": save, "pinned": pinned, "version": torch.__version__}))


if __name__ == "__main__":
    main()
