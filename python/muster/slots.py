# SPDX-License-Identifier: Apache-2.0
"""Data parallelism whose gradients have the same bits on any number of ranks.

A step has `slots` equal parts. Each is one forward and one backward pass, whichever rank makes it.
The gradients of all slots are added in fp32 over one fixed tree (muster_tree_rank and
muster_tree_join of libmuster): a rank adds what it has of the tree, sends each other rank its
segment of that, adds the segment of its own, and gathers the segments of all."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from . import _lib, data, ending, process
from .errors import Usage
from .run import Run

_NUMERICS_SIZE = 4096  # of the broadcast text
_RUNNING = "running_mean"  # a buffer of layers that collect statistics of batches
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


def _numbers(count: int) -> Any:
    return (ctypes.c_int * count)()


class _Tree:
    """The order of additions, for this rank's slots and for the pieces of all ranks."""

    def __init__(self, slots: int, world_size: int, rank: int):
        first, count, own = ctypes.c_int(), ctypes.c_int(), _numbers(slots)
        library = _lib.library
        _lib.check(
            library.muster_tree_rank(
                slots, world_size, rank, ctypes.byref(first), ctypes.byref(count), own
            )
        )
        pieces, joins = _numbers(world_size), _numbers(slots)
        _lib.check(library.muster_tree_join(slots, world_size, pieces, joins))
        alone, every = _numbers(slots), _numbers(slots)
        _lib.check(library.muster_tree_join(slots, slots, alone, every))
        self.first, self.count = first.value, count.value
        self.own, self.pieces = list(own)[: count.value], list(pieces)
        self.joins, self.every = list(joins)[: sum(pieces)], list(every)
        # How often the gradients are in memory at the most.
        self.copies, before = 1, 0
        for additions in self.own:
            self.copies = max(self.copies, before + (additions == 0))
            before += 1 - additions


def _add(left: Any, right: Any) -> Any:
    """In place. What is absent is +0, so that the sign of a zero depends on no rank."""
    if left is None:
        return None if right is None else right.add_(0.0)
    return left.add_(0.0 if right is None else right)


def _add_topmost(stack: list[list[Any]], additions: int) -> None:
    """Entries are lists of tensors."""
    for _ in range(additions):
        right = stack.pop()
        left = stack[-1]
        for i, part in enumerate(right):
            left[i] = _add(left[i], part)


def _push(stack: list[list[Any]], value: list[Any], additions: int) -> None:
    stack.append(value)
    _add_topmost(stack, additions)


class _Bucket:
    """Gradients that travel together."""

    def __init__(self, parameters: Sequence[Any], world_size: int):
        self.parameters = parameters
        self._offsets = [0]
        for parameter in parameters:
            self._offsets.append(self._offsets[-1] + parameter.numel())
        self._segment = -(-self._offsets[-1] // world_size)
        self._world_size, self._device = world_size, parameters[0].device
        self.stack: list[list[Any]] = []
        self._slot: list[Any] = []  # the gradients of the slot that is under way
        self._missing = 0  # how many have not come
        self._added: set[int] = set()  # those that autograd has added to the stack's topmost entry
        self._flat: Any = None
        self._received: Any = None
        self._sent: Any = None
        self.work: Any = None
        self.used: set[int] = set()  # parameters with a gradient in any of this rank's slots
        self.is_closed = False

    def begin(self) -> None:
        self.stack, self.used = [], set()

    def begin_slot(self, additions: int) -> None:
        """A slot that is added to the sum before it is so by autograd itself, where it can."""
        self._slot, self._added = [None] * len(self.parameters), set()
        self._missing, self.is_closed = len(self.parameters), False
        for i, parameter in enumerate(self.parameters):
            left = self.stack[-1][i] if additions else None
            parameter.grad = left if parameter.dtype == torch.float32 else None

    def take(self, i: int, gradient: Any) -> bool:
        """One parameter's gradient of a slot; whether all are here."""
        if self.stack and gradient is self.stack[-1][i]:
            self._added.add(i)
        else:
            self._slot[i] = gradient.float()
        self.used.add(i)
        self._missing -= 1
        return self._missing == 0

    def close(self, additions: int) -> None:
        """The slot is over."""
        self.is_closed = True
        for parameter in self.parameters:
            parameter.grad = None
        if additions == 0:
            self.stack.append(self._slot)
            return
        left = self.stack[-1]
        for i, part in enumerate(self._slot):
            if i not in self._added:
                left[i] = _add(left[i], part)
        _add_topmost(self.stack, additions - 1)

    def _memory(self, rows: int) -> Any:
        return torch.zeros(rows, self._segment, dtype=torch.float32, device=self._device)

    def _part(self, i: int) -> Any:
        flat = self._flat.view(-1)
        return flat[self._offsets[i] : self._offsets[i + 1]].view_as(self.parameters[i])

    def _rows(self) -> Any:
        """This rank's pieces: for each rank its segment of all of them."""
        rows = []
        for piece in self.stack:
            for i, part in enumerate(piece):
                if part is None:
                    self._part(i).zero_()
                else:
                    self._part(i).copy_(part)
            rows.append(self._flat if len(self.stack) == 1 else self._flat.clone())
        self.stack = []
        return rows[0] if len(rows) == 1 else torch.stack(rows, 1).view(-1, self._segment)

    def send(self, pieces: list[int], group: Any) -> None:
        """Each rank gets its segment of all pieces."""
        count = len(self.stack)
        if self._flat is None:
            self._flat, self._received = self._memory(self._world_size), self._memory(sum(pieces))
        self._sent = self._rows()  # until it has gone
        self.work = dist.all_to_all_single(
            self._received,
            self._sent,
            pieces,
            [count] * self._world_size,
            group=group,
            async_op=True,
        )

    def gather(self, joins: list[int], group: Any) -> None:
        """Adds this rank's segments, and gathers the sums of all ranks."""
        stack: list[list[Any]] = []
        self.work.wait()
        for piece, additions in zip(self._received, joins):
            _push(stack, [piece], additions)
        self._sent = None
        self.work = dist.all_gather_into_tensor(
            self._flat.view(-1), stack[0][0], group=group, async_op=True
        )

    def finish(self, count: float, used: Iterable[bool]) -> None:
        """Every parameter gets its gradient; None where no rank had one."""
        if self.work is not None:
            self.work.wait()
            self.work = None
            parts = [self._part(i) for i in range(len(self.parameters))]
        else:
            parts = self.stack.pop()
        for parameter, part, has in zip(self.parameters, parts, used):
            parameter.grad = part.div_(count).to(parameter.dtype) if has else None


class Canonical:
    """Made by canonical(). `loss` is the mean over the step's samples, the same on all ranks."""

    def __init__(self, module: Any, slots: int, bucket_mb: float, run: Run | None):
        _refuse(module)
        world = process.world()
        self.slots_count, self._run, self._world = slots, run, world
        self._tree = _Tree(slots, world.world_size, world.rank)
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
        self._slot = self._sent = self._gathered = 0
        self._sums: list[tuple[Any, float]] = []
        self.loss: Any = None
        self._tell_memory()

    def _make_buckets(self, megabytes: float) -> list[_Bucket]:
        """In the order in which the backward pass most often comes to them."""
        buckets: list[_Bucket] = []
        some: list[Any] = []
        size = 0
        for parameter in reversed(self._parameters):
            if some and (size > megabytes * 1e6 or parameter.device != some[0].device):
                buckets.append(_Bucket(some, self._world.world_size))
                some, size = [], 0
            some.append(parameter)
            size += 4 * parameter.numel()
        return [*buckets, _Bucket(some, self._world.world_size)]

    def _tell_memory(self) -> None:
        size = 4 * sum(parameter.numel() for parameter in self._parameters) / 1e6
        world_size, tree = self._world.world_size, self._tree
        moved = 0.0  # what is sent and received
        if world_size > 1:
            own = tree.pieces[0]
            moved = sum(tree.pieces) / world_size + (1 if own == 1 else 1 + 2 * own)
        if self._world.rank == 0:
            text = (
                f"canonical: {self.slots_count} slots on {world_size} ranks; gradients have "
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
                f"what run.loader(slots={self.slots_count}) yields"
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

    def _close(self, bucket: _Bucket) -> None:
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

    def _has_come(self, bucket: _Bucket) -> bool:
        return bool(bucket.work.is_completed())

    def _gather(self, wanted: Callable[[_Bucket], bool]) -> None:
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
            _push(stack, [value], additions)
        count = sum(counts)
        self.loss = (stack[0][0] / count).float()
        at = 0
        for bucket in self._buckets:
            bucket.finish(count, used[at : at + len(bucket.parameters)])
            at += len(bucket.parameters)

    def _exchange(self, used: list[bool]) -> tuple[list[Any], list[float], list[bool]]:
        """The sum and the count of each slot, and which parameters have a gradient on any rank."""
        device = self._parameters[0].device
        sums = torch.stack([value.to(device, torch.float64).reshape(()) for value, _ in self._sums])
        rest = torch.tensor(
            [count for _, count in self._sums] + [float(has) for has in used], dtype=torch.float64
        )
        world_size, most = self._world.world_size, -(-self.slots_count // self._world.world_size)
        if world_size == 1:
            return list(sums.clone()), rest[: len(sums)].tolist(), used
        own = torch.zeros(2 * most + len(used), dtype=torch.float64, device=device)
        own[: len(sums)] = sums
        own[most : most + len(sums)] = rest[: len(sums)].to(device)
        own[2 * most :] = rest[len(sums) :].to(device)
        every = torch.empty(world_size * len(own), dtype=torch.float64, device=device)
        dist.all_gather_into_tensor(every, own, group=self._group)
        table = every.view(world_size, -1).cpu()
        found: list[Any] = []
        counts: list[float] = []
        for rank in range(world_size):
            slots = self.slots_count // world_size + (rank < self.slots_count % world_size)
            found += list(table[rank, :slots].clone())
            counts += table[rank, most : most + slots].tolist()
        return found, counts, (table[:, 2 * most :].sum(0) > 0).tolist()


def _numerics(slots: int) -> dict[str, Any]:
    """What the bits of a step depend on, beside the program."""
    found: dict[str, Any] = {
        "torch": str(torch.__version__),
        "slots": slots,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cpu": getattr(torch.backends.cpu, "get_cpu_capability", lambda: "?")(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    for name in ("MKL_CBWR", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"):
        found[name] = os.environ.get(name, "")
    return found


def _check_ranks(numerics: dict[str, Any]) -> None:
    """Those of all ranks are the same."""
    world = process.world()
    text = json.dumps(numerics)
    line = ctypes.create_string_buffer(text.encode(), _NUMERICS_SIZE)
    _lib.check(_lib.library.muster_broadcast(world.handle, 0, line, _NUMERICS_SIZE, 0))
    first = json.loads(line.value)
    why = [f"{key} is {first[key]} on rank 0" for key in first if first[key] != numerics.get(key)]
    error = Usage(f"canonical(): {why[0]}, and another one here: set the same") if why else None
    status = error.status if error else 0
    reason = str(error).encode() if error else None
    _lib.check(_lib.library.muster_agree(world.handle, status, reason, 0))


def _compare(run: Run, numerics: dict[str, Any], require_identical: bool) -> None:
    """With those of the attempts before."""
    saved = run.numerics
    for key in numerics:
        if saved and saved.get(key) != numerics[key]:
            text = f"resume: {key} was {saved.get(key)}, and is {numerics[key]} now"
            if require_identical:
                raise Usage(f"{text}: give the same, or leave require_identical out")
            run.say(f"{text}: from here on the bits of the run may be others")
    run.numerics = numerics


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
    found = _numerics(slots)
    _check_ranks(found)
    if isinstance(run, Run):
        _compare(run, found, require_identical)
    return Canonical(module, slots, bucket_mb, run if isinstance(run, Run) else None)
