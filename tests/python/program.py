# SPDX-License-Identifier: Apache-2.0
"""A small training for the tests, of one rank or of many: a transformer with dropout, AdamW, a
scheduler and an average of its weights. Every sample that a rank trains on goes to SEEN/RANK."""

import argparse
import io
import math
import multiprocessing
import os
import random
import signal
import sys
import time

import numpy as np
import torch
import torch.distributed as dist

import muster
import muster.process

PATIENCE = int(os.environ.get("MUSTER_PATIENCE", "3"))


class Tokens(torch.utils.data.Dataset):
    """Short sequences, with a random token in each: a sample depends on its place in the run."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        tokens = (torch.arange(9) * (i % 7 + 1) + i) % 32
        tokens[int(torch.randint(9, ()))] = int(torch.randint(32, ()))
        return i, tokens


class Stream(torch.utils.data.IterableDataset):
    """The same, read in order only: each worker of each rank has its own part of them, and random
    numbers of its own."""

    def __init__(self, count, rank, ranks):
        self.tokens, self.rank, self.ranks, self.at = Tokens(count), rank, ranks, 0
        self.noise = torch.Generator().manual_seed(rank).get_state()

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        workers = info.num_workers if info else 1
        parts, part = self.ranks * workers, self.rank * workers + (info.id if info else 0)
        generator = torch.Generator()
        while self.at * parts + part < self.tokens.count:
            i, tokens = self.tokens[self.at * parts + part]
            self.at += 1
            generator.set_state(self.noise)
            tokens[int(torch.randint(9, (), generator=generator))] = i % 32
            self.noise = generator.get_state()
            yield i, tokens
        self.at = 0

    def state_dict(self):
        return {"at": self.at, "noise": self.noise}

    def load_state_dict(self, state):
        self.at, self.noise = state["at"], state["noise"]


class Transformer(torch.nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 16)
        self.layers = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True), 1
        )
        self.head = torch.nn.Linear(16, 32, bias=False)
        self.head.weight = self.embedding.weight  # tied
        self.register_buffer("mask", torch.triu(torch.full((8, 8), float("-inf")), 1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        self.seen += 1
        x = self.layers(self.embedding(tokens[:, :-1]), mask=self.mask)
        return torch.nn.functional.cross_entropy(
            self.head(x).flatten(0, 1), tokens[:, 1:].flatten()
        )


def parse():
    parser = argparse.ArgumentParser()
    # torchrun would take --run for an option of its own.
    parser.add_argument("--run", "--directory", required=True)
    parser.add_argument("--seen", help="folder for what each rank has read")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--stream", action="store_true", help="an iterable dataset")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start-method", default=None, help="of workers; $FORK_BY replaces fork")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--every", default="5")
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument(
        "--sum", action="store_true", help="add gradients in rank order, without DDP"
    )
    parser.add_argument("--pause", type=float, default=0.0, help="seconds a step")
    parser.add_argument("--linger", type=int, default=sys.maxsize,
                        help="the step after which each takes half a second more")  # fmt: skip
    parser.add_argument("--stop-at", type=int, default=0)
    parser.add_argument("--die-after", type=int, default=0,
                        help="steps, after which rank 0 saves and kills all ranks")  # fmt: skip
    parser.add_argument("--hang-at", type=int, default=0)
    parser.add_argument("--hang-timeout", type=float, default=0.0)
    parser.add_argument("--slow", type=int, default=-1, help="the forward pass of this rank")
    parser.add_argument("--fails", type=int, default=-1, help="this rank raises before attach")
    parser.add_argument("--hook", choices=["buffers", "replaces"],
                        help="an excepthook that other packages install later")  # fmt: skip
    parser.add_argument("--late", type=float, default=0.0,
                        help="the state is on a GPU: seconds that a copy takes")  # fmt: skip
    parser.add_argument("--begin", default=None)
    parser.add_argument("--writers", default="rank0")
    parser.add_argument("--noise", action="store_true",
                        help="gradients of each rank have noise of its own generators")  # fmt: skip
    parser.add_argument("--foreign", choices=["bare", "with", "kept"],
                        help="a DataLoader of its own, bare or with worker_init")  # fmt: skip
    parser.add_argument("--state", default="", help="python for one more value of the state")
    return parser.parse_args()


class Extra:
    def __init__(self, text):
        self.value = eval(text)

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def add_gradients(model, ranks):
    """All gradients in one exchange, added in the order of the ranks."""
    gradients = [parameter.grad for parameter in model.parameters()]
    mine = torch.cat([gradient.flatten() for gradient in gradients])
    parts = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(parts, mine)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    pieces = (total / ranks).split([gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces):
        gradient.copy_(piece.view_as(gradient))


def add_noise(model, first, second, third):
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=first)
        parameter.grad.mul_(1 + 1e-3 * second.random()).add_(noise, alpha=1e-3 * third.random())


def kill_all(run, world):
    """Right after the save is handed over. Ranks of one node know each other's pids."""
    if world.rank == 0:
        run.save()
        time.sleep(random.SystemRandom().choice([0, 0, 0.001, 0.01, 0.1]))
        for rank in range(world.world_size - 1, -1, -1):
            with open(f"{args.run}.pid-{rank}") as file:
                os.kill(int(file.read()), signal.SIGKILL)
    time.sleep(1000)


def install_hook():
    """As PyTorch does since 2.2, which prints what the hook before it says in the end; or one that
    forgets the hook before it."""
    before = sys.excepthook

    def buffers(kind, value, trace):
        stderr, sys.stderr = sys.stderr, io.StringIO()
        try:
            before(kind, value, trace)
        finally:
            said, sys.stderr = sys.stderr.getvalue(), stderr
        sys.stderr.write(said)

    sys.excepthook = buffers if args.hook == "buffers" else sys.__excepthook__


def note(rank, step, samples):
    if args.seen:
        with open(os.path.join(args.seen, str(rank)), "a") as file:
            file.write(f"{step} {' '.join(map(str, samples.tolist()))}\n")


def pace():
    """How many seconds a step takes at least, and after which step none ends, if there is one:
    --pause, and what $STEPS_PACE has, a file with "MILLISECONDS LAST"."""
    try:
        with open(os.environ["STEPS_PACE"]) as file:
            milliseconds, *last = map(int, file.read().split())
    except (KeyError, FileNotFoundError):
        return args.pause, math.inf
    return max(args.pause, milliseconds / 1000), last[0] if last else math.inf


def main():
    # By its name the test finds a semaphore that is left where all who knew of it were killed.
    semaphores = os.environ.get("SEMAPHORES")
    if semaphores:
        multiprocessing.current_process()._config["semprefix"] = f"/{semaphores}"
    world = muster.init()
    if world.world_size > 1:
        dist.init_process_group("gloo")
    if args.hook:
        install_hook()
    if world.rank == args.fails:
        raise KeyError("no such column")
    torch.manual_seed(1)
    model = Transformer(args.dropout)
    AdamW = torch.optim.AdamW
    if args.late:
        import late_gpu

        AdamW = late_gpu.AdamW
    optimizer = AdamW(model.parameters(), lr=args.learning_rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 100))
    average = torch.optim.swa_utils.AveragedModel(model)
    extra = {"extra": Extra(args.state)} if args.state else {}
    if args.noise:
        rank = world.rank
        extra["noise"] = [torch.Generator(), np.random.default_rng(rank), random.Random(rank)]
        extra["noise"][0].manual_seed(rank)
    run = muster.attach(
        args.run, model=model, optimizer=optimizer, scheduler=scheduler, average=average,
        every=args.every, config={"batch": args.batch, "learning_rate": args.learning_rate}, seed=4,
        timeout=20 * PATIENCE, hang_timeout=args.hang_timeout, begin=args.begin,
        writers=args.writers, **extra,
    )  # fmt: skip
    if args.late:
        run._handover.copier = late_gpu.Copier(args.late)
    under_way = 0
    ddp = model
    if world.world_size > 1 and not args.sum:
        ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    method = args.start_method
    if method in (None, "fork"):
        method = os.environ.get("FORK_BY", method)
    options = {"multiprocessing_context": method} if args.workers else {}
    data = Tokens(args.samples)
    if args.foreign:
        loader = torch.utils.data.DataLoader(
            data, batch_sampler=muster.Sampler(args.samples, args.batch, step=run.step),
            worker_init_fn=muster.worker_init if args.foreign == "with" else None,
            num_workers=args.workers, persistent_workers=args.foreign == "kept", **options,
        )  # fmt: skip
        if args.foreign == "kept":
            sys.kept = iter(loader)  # until the program's end, with its workers
    elif args.stream:
        data = Stream(args.samples, world.rank, world.world_size)
        loader = run.loader(
            data, args.batch, steps=args.epochs * args.samples // args.batch,
            num_workers=args.workers, **options,
        )  # fmt: skip
    else:
        loader = run.loader(
            data, args.batch, epochs=args.epochs, num_workers=args.workers, **options
        )
    if args.die_after:
        with open(f"{args.run}.pid-{world.rank}", "w") as file:
            file.write(str(os.getpid()))
        dist.barrier()
    begun = run.step
    print(f"rank {world.rank} begins after step {run.step}", flush=True)
    for samples, tokens in loader:
        note(world.rank, run.step, samples)
        if run.step + 1 == args.hang_at and world.rank == 1:
            time.sleep(1000)
        began = time.perf_counter()
        loss = ddp(tokens)
        if world.rank == args.slow:
            time.sleep(max(0.02, 3 * (time.perf_counter() - began)))
        optimizer.zero_grad()
        loss.backward()
        if args.noise:
            add_noise(model, *extra["noise"])
        if args.sum and world.world_size > 1:
            add_gradients(model, world.world_size)
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)
        run.log({"loss": loss, "samples": len(samples)})
        time.sleep(pace()[0] + 0.5 * (run.step >= args.linger))
        while run.step >= pace()[1] and not muster.process.notice():
            time.sleep(0.05)
        if run.step + 1 == args.stop_at:
            run.stop()
        run.end_step(loss)
        under_way += not run._handover.is_over()
        if args.die_after and run.step == begun + args.die_after:
            kill_all(run, world)
    print(f"rank {world.rank} is done after step {run.step}", flush=True)
    if args.late:
        print(f"{under_way} saves were under way", flush=True)


if __name__ == "__main__":
    args = parse()
    main()
