# SPDX-License-Identifier: Apache-2.0
"""Data parallelism whose gradients have the same bits on any number of ranks.

A step has `slots` equal parts. Each is one forward and one backward pass, whichever rank makes it.
The gradients of all slots are added in fp32 over one fixed tree (muster_tree_rank and
muster_tree_join of libmuster): a rank adds what it has of the tree, sends each other rank its
segment of that, adds the segment of its own, and gathers the segments of all."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from . import data, ending, numerics, process
from .buckets import Bucket
from .errors import Usage
from .run import Run
from .tree import Tree, push

_RUNNING = "running_mean"  # a buffer of layers that collect statistics of batches
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_OF_SLOTS = -2  # beside the ranks, whose generators are seeded before each step


def _refuse(module: Any) -> None:
    name = type(module).__name__
    if name in ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"):
        raise Usage(f"canonical(): give the bare module, which {name} wraps")
    for path, part in module.named_modules():
        where = f"canonical(): {path or 'the module'} is a {type(part).__name__}"
        if getattr(part, _RUNNING, None) is not None or "SyncBatchNorm" in type(part).__name__:
            raise Usage(f"{where}, which collects statistics of batches: use a norm that does not")
    for path, parameter in module.named_parameters():
        if hasattr(parameter, "full_tensor"):
            raise Usage(f"canonical(): {path} is sharded: give a module of which each rank has all")


def _keep_freed_memory() -> None:
    """glibc gives the memory of a large tensor back when it is freed, and the kernel would zero it
    again for the gradients of each slot."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        if mallopt(_M_MMAP_THRESHOLD, 2**30) == 0:
            mallopt(_M_MMAP_THRESHOLD, 2**25)  # all that glibc before 2.35 takes


class Canonical:
    """Made by canonical(). `loss` is the mean over the step's samples, the same on all ranks."""

    def __init__(self, module: Any, slots: int, bucket_mb: float, run: Run | None):
        _refuse(module)
        world = process.world()
        self._run, self._world = run, world
        self._tree = Tree(slots, world.world_size, world.rank)
        self._group = dist.group.WORLD if world.world_size > 1 else None
        if self._group is not None and dist.get_rank() != world.rank:
            raise Usage("canonical(): PyTorch and Muster number the ranks differently")
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        if not self._parameters:
            raise Usage("canonical(): the module has no parameter that is trained")
        if not hasattr(self._parameters[0], "register_post_accumulate_grad_hook"):
            raise Usage(f"canonical() needs PyTorch 2.1, and this is {torch.__version__}")
        # On CPUs the sums of a bucket come back while others are on their way there. All ranks use
        # each group in the same order, but not both.
        self._on_cpus = self._parameters[0].device.type == "cpu"
        if self._on_cpus:
            _keep_freed_memory()
        self._back = dist.new_group() if self._group is not None and self._on_cpus else self._group
        if self._group is not None:
            for tensor in [*module.parameters(), *module.buffers()]:
                dist.broadcast(tensor.data, 0)
        self._buckets = self._make_buckets(bucket_mb)
        self._place = {
            parameter: (bucket, i)
            for bucket in self._buckets
            for i, parameter in enumerate(bucket.parameters)
        }
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._take)
        self._steps = 0  # without a run
        self._slot = self._tree.count  # backward() comes after slots()
        self._sent = self._gathered = 0
        self._sums: list[tuple[Any, float]] = []
        self.loss: Any = None
        self._tell_memory()

    def _make_buckets(self, megabytes: float) -> list[Bucket]:
        """In the order in which the backward pass most often comes to them."""
        buckets: list[Bucket] = []
        some: list[Any] = []
        size = 0
        for parameter in reversed(self._parameters):
            if some and (size > megabytes * 1e6 or parameter.device != some[0].device):
                buckets.append(Bucket(some, self._world.world_size))
                some, size = [], 0
            some.append(parameter)
            size += 4 * parameter.numel()
        return [*buckets, Bucket(some, self._world.world_size)]

    def _tell_memory(self) -> None:
        size = 4 * sum(parameter.numel() for parameter in self._parameters) / 1e6
        world_size, tree = self._world.world_size, self._tree
        moved = 0.0  # what is sent and received
        if world_size > 1:
            own = tree.pieces[0]
            moved = sum(tree.pieces) / world_size + (1 if own == 1 else 1 + 2 * own)
        if self._world.rank == 0:
            text = (
                f"canonical: {self._tree.slots} slots on {world_size} ranks; gradients have "
                f"{size:.1f} MB, and take {(tree.copies + moved) * size:.1f} MB on rank 0"
            )
            print(f"muster: {text}", file=sys.stderr, flush=True)

    # ---- a step ----

    def slots(self, batches: Sequence[Any]) -> Iterator[Any]:
        """The batches of this rank's slots, which run.loader(slots=) yields for each step. Call
        backward() once for each of them."""
        if len(batches) != self._tree.count:
            raise Usage(
                f"canonical: {len(batches)} batches for this rank's {self._tree.count} slots: give "
                f"what run.loader(slots={self._tree.slots}) yields"
            )
        seed, step = (self._run.seed, self._run.step) if self._run else (0, self._steps)
        self._steps += 1
        self._slot = self._sent = self._gathered = 0
        self._sums = []
        for bucket in self._buckets:
            bucket.begin()
        for i, batch in enumerate(batches):
            data.seed_generators(
                data.derived_seed(seed, step, self._tree.first + i, _OF_SLOTS), cuda=True
            )
            for bucket in self._buckets:
                bucket.begin_slot(self._tree.own[i])
            yield batch
            if self._slot != i + 1:
                raise Usage("canonical: call backward() once for each batch of slots()")

    def backward(self, loss: Any, count: float = 1, scaler: Any = None) -> None:
        """The backward pass of a slot. `loss` is a sum over `count` samples, whose mean over the
        step is what the gradients are of. After the last slot they are in the parameters' grad, as
        after a backward pass over the whole batch. `scaler` is a GradScaler, whose step() and
        update() are the program's."""
        if self._slot >= self._tree.count:
            raise Usage("canonical: call backward() once for each batch of slots()")
        self._sums.append((loss.detach(), float(count)))
        (scaler.scale(loss) if scaler else loss).backward()
        for bucket in self._buckets:
            if not bucket.is_closed:
                self._close(bucket)
        self._slot += 1
        if self._slot == self._tree.count:
            self._finish()

    @property
    def _is_last(self) -> bool:
        return self._slot + 1 == self._tree.count

    def _take(self, parameter: Any) -> None:
        bucket, i = self._place[parameter]
        gradient, parameter.grad = parameter.grad, None
        if gradient.is_sparse:
            raise Usage("canonical: a sparse gradient can't be added: give Embedding sparse=False")
        if bucket.is_closed:
            raise Usage(
                "canonical: a gradient came twice in one backward pass: checkpoint activations "
                "with use_reentrant=False"
            )
        if bucket.take(i, gradient) and self._is_last:
            self._close(bucket)
        if self._on_cpus:
            self._gather(self._has_come)

    def _close(self, bucket: Bucket) -> None:
        """All ranks send the buckets in the same order, beside the rest of the backward pass."""
        bucket.close(self._tree.own[self._slot])
        while (
            self._is_last
            and self._world.world_size > 1
            and self._sent < len(self._buckets)
            and self._buckets[self._sent].is_closed
        ):
            self._buckets[self._sent].send(self._tree.pieces, self._group)
            self._sent += 1

    def _has_come(self, bucket: Bucket) -> bool:
        return bool(bucket.work.is_completed())

    def _gather(self, wanted: Callable[[Bucket], bool]) -> None:
        """In the buckets' order, up to one that is not wanted."""
        while self._gathered < self._sent and wanted(self._buckets[self._gathered]):
            self._buckets[self._gathered].gather(self._tree.joins, self._back)
            self._gathered += 1

    def _finish(self) -> None:
        used = [i in bucket.used for bucket in self._buckets for i in range(len(bucket.parameters))]
        self._gather(lambda _: True)
        sums, counts, used = self._exchange(used)
        stack: list[list[Any]] = []
        for value, additions in zip(sums, self._tree.every):
            push(stack, [value], additions)
        count = sum(counts)
        self.loss = (stack[0][0] / count).float()
        at = 0
        for bucket in self._buckets:
            bucket.finish(count, used[at : at + len(bucket.parameters)])
            at += len(bucket.parameters)

    def _exchange(self, used: list[bool]) -> tuple[list[Any], list[float], list[bool]]:
        """The sum and the count of each slot, and which parameters have a gradient on any rank.
        Each rank fills in its own slots of a table of zeros, so that a sum has the values as they
        are."""
        slots, first, end = self._tree.slots, self._tree.first, self._tree.first + self._tree.count
        device = self._parameters[0].device
        table = torch.zeros(2 * slots + len(used), dtype=torch.float64, device=device)
        sums = torch.stack([value.to(table).reshape(()) for value, _ in self._sums])
        table[first:end] = sums + 0.0  # no -0, which would become +0 on several ranks
        table[slots + first : slots + end] = torch.tensor([count for _, count in self._sums])
        table[2 * slots :] = torch.tensor(used)
        if self._group is not None:
            dist.all_reduce(table, group=self._group)
        sums, counts, users = table.cpu().split([slots, slots, len(used)])
        return list(sums), counts.tolist(), (users > 0).tolist()


def canonical(
    module: Any,
    slots: int = 16,
    *,
    bucket_mb: float = 25.0,
    deterministic: bool = True,
    require_identical: bool = False,
) -> Canonical:
    """Collective, after attach(): trains `module` on all ranks, to the same bits on any number of
    them up to `slots`. Give the bare module; that of rank 0 becomes that of all.

        equal = muster.canonical(model, slots=16)
        for batches in run.loader(dataset, global_batch=512, slots=16):
            for inputs, targets in equal.slots(batches):
                loss = cross_entropy(model(inputs), targets, reduction="sum")
                equal.backward(loss, count=len(targets))
            optimizer.step()
            run.end_step(equal.loss)

    bucket_mb: gradients that travel together.
    deterministic: torch.use_deterministic_algorithms(True).
    require_identical: a resume with other libraries, threads or processors is refused; otherwise it
        is told."""
    for name, value in (("MKL_DYNAMIC", "FALSE"), ("OMP_DYNAMIC", "FALSE"), ("MKL_CBWR", "AUTO")):
        os.environ.setdefault(name, value)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    run = ending.current()
    found = numerics.found(slots)
    numerics.check_ranks(found)
    if isinstance(run, Run):
        numerics.compare(run, found, require_identical)
    return Canonical(module, slots, bucket_mb, run if isinstance(run, Run) else None)
