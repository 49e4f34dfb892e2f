# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of overlap.sh: train_torch.py's GPT-2 in DistributedDataParallel over Gloo, one
rank.

    overlap_torch.py MASTER RANK RANKS LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH

Answers "ddp N", "bf16 N" (with bf16_compress_hook: gradients travel in bf16), both with PyTorch's
default buckets, "ddp-small N" and "bf16-small N" (with smaller ones), and "alone N" (with no_sync:
nothing is exchanged) with the seconds from the beginning of each of N steps to that of the next,
and "version". Each kind has a replica of its own."""
import contextlib
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from train_torch import Run

SMALL_MB = 2  # muster-train's --bucket-mb=auto for the bench's model


class Peer(Run):
    def __init__(self, *shape, hook=None, **buckets):
        super().__init__("eager", *shape)
        self.ddp = DistributedDataParallel(self.model, broadcast_buffers=False, **buckets)
        if hook:
            self.ddp.register_comm_hook(None, hook)

    def train(self, exchanges):
        with contextlib.nullcontext() if exchanges else self.ddp.no_sync():
            loss = self.ddp(self.tokens, self.targets)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()

    def steps(self, count, exchanges):
        times = [time.perf_counter()]
        for _ in range(count):
            self.train(exchanges)
            times.append(time.perf_counter())
        return " ".join(f"{b - a:.6f}" for a, b in zip(times, times[1:]))


def main():
    master, rank, ranks, *shape = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=master, rank=int(rank), world_size=int(ranks))
    shape = [int(word) for word in shape]
    small = {"bucket_cap_mb": SMALL_MB}
    peers = {"ddp": Peer(*shape), "ddp-small": Peer(*shape, **small),
             "bf16": Peer(*shape, hook=bf16_compress_hook),
             "bf16-small": Peer(*shape, hook=bf16_compress_hook, **small)}
    for line in sys.stdin:
        word, *count = line.split()
        answer = torch.__version__ if word == "version" else peers.get(word, peers["ddp"]).steps(
            int(count[0]), word != "alone")
        print(answer, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
