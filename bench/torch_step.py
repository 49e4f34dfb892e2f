# SPDX-License-Identifier: Apache-2.0
"""The work of torch-step.sh: one process a rank, and rank 0 tells the figures."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import figure

BLOCK = 20          # steps of one kind in a row
EACH = 8            # samples of a rank's step
AIM = 1.0           # percent of a step


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--step", type=float, default=50.0, help="milliseconds")
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--run", default=None)
    return parser.parse_args()


def start(options):
    """All ranks; fails if one does."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--run", os.path.join(folder, "run")],
                env=dict(os.environ, OMP_NUM_THREADS="1", RANK=str(rank), LOCAL_RANK=str(rank),
                         WORLD_SIZE=str(options.ranks), LOCAL_WORLD_SIZE=str(options.ranks),
                         MUSTER_RDZV_DIR=folder, MUSTER_RDZV_ID="bench",
                         PYTHONPATH=os.path.join(top, "python"),
                         MUSTER_LIBRARY=os.path.join(options.build, ".libs", "libmuster.so.0"),
                         MUSTER_CKPTD_PROGRAM=os.path.join(options.build, "muster-ckptd")))
            for rank in range(options.ranks)]
        statuses = [rank.wait() for rank in ranks]
    if any(statuses):
        sys.exit(f"torch_step: the ranks ended with {statuses}")


def forever(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(options):
    import muster
    import torch
    import torch.distributed as dist

    world = muster.init()
    dist.init_process_group("gloo")
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(100_000, 64))
    run = muster.attach(options.run, model=model, optimizer=optimizer, every="9h",
                        config={"batch": EACH})
    plain = forever(torch.utils.data.DataLoader(
        data, EACH, drop_last=True,
        sampler=torch.utils.data.distributed.DistributedSampler(data)))
    ours = iter(run.loader(data, EACH * world.world_size, epochs=None,
                           steps=(options.blocks + 1) * BLOCK))

    def step(batch):
        """As long on every rank; the ranks meet, as they do to add gradients."""
        optimizer.zero_grad()
        model(batch[0]).sum().backward()
        time.sleep(options.step / 1e3)
        dist.all_reduce(model.weight.grad)
        optimizer.step()

    def block(batches, end_step):
        dist.barrier()
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(BLOCK):
            step(next(batches))
            end_step()
        return ((time.perf_counter() - began) / BLOCK * 1e3,
                (time.process_time() - cpu) / BLOCK * 1e3)

    times = []
    for number in range(options.blocks + 1):
        both = [block(plain, lambda: None), block(ours, run.end_step)]
        if number > 0:      # the first warms up
            times.append(both)
    everyone = [None] * world.world_size
    dist.all_gather_object(everyone, times)
    if world.rank == 0:
        report(everyone, options)


def report(everyone, options):
    print(f"{options.ranks} ranks, {os.cpu_count()} CPUs, {options.blocks} x {BLOCK} steps of each "
          f"kind; load {os.getloadavg()[0]:.1f}")
    for which, what in enumerate(("time", "cpu")):
        plain, ours, more = (
            [statistics.mean(value(times[block]) for times in everyone)
             for block in range(options.blocks)]
            for value in (lambda both: both[0][which], lambda both: both[1][which],
                          lambda both: both[1][which] - both[0][which]))
        middle = statistics.median(more)
        low, *_, high = statistics.quantiles(more, n=4)
        percent = middle / options.step * 100
        print(f"  {what} of a step: PyTorch alone {statistics.median(plain):.3f} ms, with muster "
              f"{statistics.median(ours):.3f} ms: {middle:+.3f} ms (quartiles {low:+.3f} to "
              f"{high:+.3f})")
        figure.tell(f"torch-step-{what}", percent, f"% of a step of {options.step:g} ms",
                    at_most=AIM)


if __name__ == "__main__":
    given = parse()
    train(given) if given.run else start(given)
