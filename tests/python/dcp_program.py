# SPDX-License-Identifier: Apache-2.0
"""A small training with sharded state for the tests, which DCP saves and reads: a transformer under
FSDP2, or tensors that a mesh of two dimensions cuts up. Tells the hash of all state that it has
read and saved."""

import argparse
import hashlib
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import muster
import muster.dcp
import stand


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True)
    parser.add_argument("--mesh", default="", help="rows x columns; none: FSDP2")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--hand-over", action="store_true", help="do not wait until it is durable")
    parser.add_argument("--asynchronous", choices=("torch", "muster"))
    parser.add_argument("--cached", action="store_true", help="DCP plans the first save only")
    parser.add_argument("--die-after", type=int, default=0, help="the step of a save")
    parser.add_argument("--spoil", default="", help="what is wrong with the state or the call")
    parser.add_argument("--attach", action="store_true", help="a run of muster.attach, without DCP")
    parser.add_argument("--writers", default=None)
    parser.add_argument("--compare", action="store_true", help="what PyTorch's own reader reads")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds, after each step")
    parser.add_argument("--notice-at", type=int, default=0, help="a step, on the last rank")
    return parser.parse_args()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(33, 16)  # no number of ranks divides its rows
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            for _ in range(2)
        )
        self.head = torch.nn.Linear(16, 33, bias=False)
        self.head.weight = self.embedding.weight  # tied
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        self.seen += 1
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Sharded:
    """The transformer. Its state dictionary's names do not depend on the number of ranks."""

    def __init__(self, world):
        mesh = init_device_mesh("cpu", (world.world_size,))
        self.model = Model()
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def step(self, step, rank):
        torch.manual_seed(1000 * step + rank)
        tokens = torch.randint(33, (4, 8))
        logits = self.model(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


class Tensors:
    """Tensors cut in rows, in columns, in both and not at all, of several types. Their values after
    a step are the same however they are cut."""

    PLACEMENTS = (
        (Shard(0), Shard(1)),
        (Shard(1), Shard(0)),
        (Replicate(), Shard(1)),
        (Shard(0), Replicate()),
        (Shard(0), Shard(0)),
        (Replicate(), Replicate()),
    )

    def __init__(self, shape):
        mesh = init_device_mesh("cpu", shape)
        types = (torch.float32, torch.bfloat16, torch.float64)
        self.tensors = {}
        for i, placements in enumerate(self.PLACEMENTS):
            whole = torch.arange(7 * 10 * 3).reshape(7, 10, 3).to(types[i % 3]) + i
            self.tensors[f"t{i}"] = distribute_tensor(whole, mesh, placements)

    def step(self, step, rank):
        for tensor in self.tensors.values():
            tensor.to_local().mul_(0.75).add_(step)

    def state(self):
        return {"tensors": dict(self.tensors)}

    def load(self, state):
        for name, tensor in state["tensors"].items():
            self.tensors[name].to_local().copy_(tensor.to_local())


def hash_of(state):
    """Of all tensors, whole, and all other values."""
    found = hashlib.sha256()

    def add(value, path):
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                add(value[key], f"{path}/{key}")
            return
        if isinstance(value, DTensor):
            value = value.full_tensor()
        if isinstance(value, torch.Tensor):
            value = value.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        found.update(f"{path} {value!r}\n".encode())

    add(state, "")
    return found.hexdigest()


def compare(run):
    """The tensors that PyTorch reads from the newest checkpoint's files without Muster."""
    step = max(pathlib.Path(run).glob("step-*"))
    own, foreign = (Tensors((1, dist.get_world_size())) for _ in range(2))
    dcp.load(own.state(), storage_reader=muster.dcp.Reader(run))
    foreign.step(100, 0)
    dcp.load(foreign.state(), storage_reader=dcp.HuggingFaceStorageReader(str(step)))
    assert hash_of(own.state()) == hash_of(foreign.state())
    print("both have read the same", flush=True)


def attached(world):
    """The state of attach() is sharded."""
    training = Sharded(world)
    run = muster.attach(
        args.run, model=training.model, optimizer=training.optimizer, every=args.every,
        writers=args.writers, config={"width": 16},
    )  # fmt: skip
    if run.resumed:
        print(f"rank {world.rank} read step {run.step}: {hash_of(training.state())}", flush=True)
    while run.step < args.steps:
        step = run.step + 1
        training.step(step, world.rank)
        if step == args.notice_at and world.rank == world.world_size - 1:
            stand.take_notice()
        print(f"rank {world.rank} saves step {step}: {hash_of(training.state())}", flush=True)
        run.end_step()
        if step == args.die_after:
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    world = muster.init()
    dist.init_process_group("gloo")
    if args.compare:
        compare(args.run)
        return
    if args.attach:
        attached(world)
        return
    writer = muster.dcp.Writer(args.run, wait=not args.hand_over, config={"width": 16})
    if args.spoil == "nothing":
        muster.dcp.Reader(writer)
    torch.manual_seed(1)
    shape = tuple(map(int, args.mesh.split("x"))) if args.mesh else None
    training = Tensors(shape) if shape else Sharded(world)
    extra = {"a": (1, b"x", [2.5]), "scale": float("inf"), "b": {"name": "ü"}}
    begin = 0
    if writer.step >= 0:
        state = {**training.state(), "extra": {**extra, "a": 0, "scale": 0, "b": {"name": ""}}}
        state["step"] = 0
        dcp.load(state, storage_reader=muster.dcp.Reader(writer))
        training.load(state)
        begin = state["step"]
        assert begin == writer.step and state["extra"] == extra, state["extra"]
        print(f"rank {world.rank} read step {begin}: {hash_of(state)}", flush=True)
    for step in range(begin + 1, args.steps + 1):
        training.step(step, world.rank)
        if step == args.notice_at and world.rank == world.world_size - 1:
            stand.take_notice()
        stand.pause(args.pause)
        stops = writer.should_stop()
        if step % args.every == 0 or stops:
            state = {**training.state(), "extra": dict(extra), "step": step}
            print(f"rank {world.rank} saves step {step}: {hash_of(state)}", flush=True)
            save(state, step, writer)
        if step == args.die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if stops:
            writer.stop()


class Valueless(dcp.DefaultSavePlanner):
    @property
    def lookup_object(self):
        raise AttributeError("lookup_object")


def save(state, step, writer):
    options = {"checkpoint_id": step, "storage_writer": writer}
    if args.cached:
        options["planner"] = dcp.DefaultSavePlanner(enable_plan_caching=True)
        if dist.get_rank() == 1:  # whose plan changes with every other save
            state["own"] = torch.ones(step // 4)
    if args.spoil == "lambda":
        state["extra"]["function"] = lambda: 0
    elif args.spoil == "type":
        state["sparse"] = torch.eye(3).to_sparse()
    elif args.spoil == "planner":
        options["planner"] = Valueless()
    elif args.spoil == "no step":
        options["checkpoint_id"] = "newest"
    elif args.spoil == "some ranks":
        groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        options["process_group"] = groups[dist.get_rank()]
    if args.asynchronous:
        module = dcp if args.asynchronous == "torch" else muster.dcp
        saving = module.async_save(state, **options)
        saving.result()
        assert saving.done()
    else:
        dcp.save(state, **options)


if __name__ == "__main__":
    args = parse()
    main()
    sys.exit(0)
