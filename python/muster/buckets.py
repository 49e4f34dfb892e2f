# SPDX-License-Identifier: Apache-2.0
"""Gradients that travel together: added over the tree, and summed with those of other ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .tree import add, add_topmost, push


class _All:
    """Several transfers as one."""

    def __init__(self, works: Sequence[Any]):
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def _gather(rows: Any, own: Any, group: Any) -> _All:
    """Row by row what each rank has. Gloo's all_gather copies all of it once more."""
    rank = dist.get_rank()
    rows[rank].copy_(own)
    others = [(rank + k) % len(rows) for k in range(1, len(rows))]
    received = [dist.irecv(rows[other], other, group=group) for other in reversed(others)]
    return _All([*received, *(dist.isend(own, other, group=group) for other in others)])


class Bucket:
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
                left[i] = add(left[i], part)
        add_topmost(self.stack, additions - 1)

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
            push(stack, [piece], additions)
        self._sent = None
        if self._device.type == "cpu":
            self.work = _gather(self._flat, stack[0][0], group)
        else:
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
