# SPDX-License-Identifier: Apache-2.0
"""The fixed tree over which slots are added, whatever ranks have them (muster_tree_rank and
muster_tree_join of libmuster)."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _lib


def _numbers(count: int) -> Any:
    return (ctypes.c_int * count)()


def _rank(slots: int, world_size: int, rank: int) -> tuple[int, list[int]]:
    """A rank's first slot, and for each of its slots the additions that follow on it."""
    first, count, own = ctypes.c_int(), ctypes.c_int(), _numbers(slots)
    _lib.check(
        _lib.library.muster_tree_rank(
            slots, world_size, rank, ctypes.byref(first), ctypes.byref(count), own
        )
    )
    return first.value, list(own)[: count.value]


def slots_of(slots: int, world_size: int, rank: int) -> range:
    """Those of a rank."""
    first, own = _rank(slots, world_size, rank)
    return range(first, first + len(own))


class Tree:
    """The order of additions, for this rank's slots and for the pieces of all ranks."""

    def __init__(self, slots: int, world_size: int, rank: int):
        pieces, joins = _numbers(world_size), _numbers(slots)
        _lib.check(_lib.library.muster_tree_join(slots, world_size, pieces, joins))
        alone, every = _numbers(slots), _numbers(slots)
        _lib.check(_lib.library.muster_tree_join(slots, slots, alone, every))
        self.slots = slots
        self.first, self.own = _rank(slots, world_size, rank)
        self.count = len(self.own)
        self.pieces = list(pieces)
        self.joins, self.every = list(joins)[: sum(pieces)], list(every)
        # How often the gradients are in memory at the most.
        self.copies, before = 1, 0
        for additions in self.own:
            self.copies = max(self.copies, before + (additions == 0))
            before += 1 - additions


def add(left: Any, right: Any) -> Any:
    """In place. What is absent is +0, so that the sign of a zero depends on no rank."""
    if left is None:
        return None if right is None else right.add_(0.0)
    return left.add_(0.0 if right is None else right)


def add_topmost(stack: list[list[Any]], additions: int) -> None:
    """Entries are lists of tensors."""
    for _ in range(additions):
        right = stack.pop()
        left = stack[-1]
        for i, part in enumerate(right):
            left[i] = add(left[i], part)


def push(stack: list[list[Any]], value: list[Any], additions: int) -> None:
    stack.append(value)
    add_topmost(stack, additions)
