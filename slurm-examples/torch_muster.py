#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training of torch_ddp.py with Muster's package: saving, resuming, stopping and the order of
samples are Muster's, and every one of those lines is gone.

    srun --muster --nodes=4 --ntasks-per-node=2 python3 torch_muster.py --directory /shared/run1
"""
import argparse

import muster
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_ddp import make_dataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, help="the checkpoint directory")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128, help="samples of all ranks a step")
    parser.add_argument("--workers", type=int, default=2, help="processes a rank that load samples")
    args = parser.parse_args()

    world = muster.init()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", world.local_rank)
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    run = muster.attach(args.directory, model=model, optimizer=optimizer, every="10m",
                        config={"batch": args.batch}, seed=2)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)

    loader = run.loader(make_dataset(), global_batch=args.batch, epochs=args.epochs,
                        num_workers=args.workers)
    for epoch, batches in loader.epochs():
        losses = []
        for x, y in batches:
            loss = torch.nn.functional.mse_loss(ddp(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            run.log({"loss": loss})
            run.end_step(loss)
        if world.rank == 0:
            print(f"epoch {epoch + 1} of {args.epochs}, {world.world_size} ranks, loss "
                  f"{sum(losses) / len(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
