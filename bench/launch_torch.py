# SPDX-License-Identifier: Apache-2.0
"""One worker of torchrun for launch.py: init_process_group, and one all-reduce that proves it.

Prints "rank SIZE NAME=SECONDS..." on CLOCK_MONOTONIC: the execs of torchrun and of this worker
(from launch_start), this file's first line, PyTorch's import, and the group's use."""
import os
import time

main = time.monotonic()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

imported = time.monotonic()
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
usable = time.monotonic()
size = dist.get_world_size()
assert total.item() == size * (size + 1) / 2
print(f"rank {size} exec={float(os.environ['BENCH_EXEC']) / 1e9:.6f} "
      f"worker={float(os.environ['BENCH_WORKER']) / 1e9:.6f} "
      f"main={main:.6f} imported={imported:.6f} usable={usable:.6f} version={torch.__version__}\n",
      end="", flush=True)
dist.destroy_process_group()
