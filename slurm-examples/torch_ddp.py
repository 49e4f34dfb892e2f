#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with plain PyTorch: no launcher, and nothing from Muster but the variables
that init_process_group() reads anyway. When the nodes are taken away (SIGTERM), it saves and ends
with 75, which puts the job back in the queue. When it starts, it resumes from its checkpoint.

    srun --muster --nodes=4 --ntasks-per-node=2 python3 torch_ddp.py --checkpoint /shared/ddp.pt
"""
import argparse
import itertools
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

REQUEUE_ME = 75  # EX_TEMPFAIL
stop_asked = False


def ask_to_stop(*_):
    global stop_asked
    stop_asked = True


def outlive_the_notice(_):
    """Runs in a loader's worker. Slurm sends SIGTERM to every process of the step, and a rank that
    loses a worker can't save. So a worker ends only when its own rank tells it to."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR2))

    def wait_for_parent():
        while signal.sigwaitinfo((signal.SIGTERM,)).si_pid != os.getppid():
            pass
        os._exit(0)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def make_dataset(samples=4096, features=32):
    """Returns random points and the output of a fixed network for them, with a little noise."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(samples, features, generator=random)
    hidden = torch.tanh(x @ torch.randn(features, 16, generator=random) / features**0.5)
    y = hidden @ torch.randn(16, 1, generator=random) / 4
    return TensorDataset(x, y + 0.05 * torch.randn(samples, 1, generator=random))


def any_rank(flag, device):
    """Returns whether the flag is set on any rank: all must leave after the same step."""
    flags = torch.tensor([float(flag)], device=device)
    dist.all_reduce(flags)
    return flags.item() > 0


def save(path, model, optimizer, epoch, step):
    """One rank writes the checkpoint, whole or not at all. All ranks wait until it is there."""
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                 "epoch": epoch, "step": step}
        with open(path + ".new", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
    dist.barrier()


def train(args, device):
    """Returns the exit status."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first_epoch, first_step = 0, 0
    if os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch, first_step = state["epoch"], state["step"]
        if dist.get_rank() == 0:
            print(f"resumed at epoch {first_epoch}, step {first_step}", flush=True)
    model = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)

    dataset = make_dataset()
    sampler = DistributedSampler(dataset, seed=2)
    loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler, num_workers=args.workers,
                        persistent_workers=args.workers > 0, worker_init_fn=outlive_the_notice)
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        losses = []
        for step, (x, y) in itertools.islice(enumerate(loader), first_step, None):
            loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if any_rank(stop_asked, device):
                save(args.checkpoint, model, optimizer, epoch, step + 1)
                return REQUEUE_ME
        first_step = 0
        save(args.checkpoint, model, optimizer, epoch + 1, 0)
        if dist.get_rank() == 0:
            mean = sum(losses) / max(1, len(losses))
            print(f"epoch {epoch + 1} of {args.epochs}, {dist.get_world_size()} ranks, loss "
                  f"{mean:.4f}", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True, help="a file that every node sees")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="samples a rank and step")
    parser.add_argument("--workers", type=int, default=2, help="processes a rank that load samples")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, ask_to_stop)

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    status = train(args, device)
    # Only after the model is gone: otherwise PyTorch 1.13 may wait for Gloo's threads forever.
    dist.destroy_process_group()
    sys.exit(status)


if __name__ == "__main__":
    main()
