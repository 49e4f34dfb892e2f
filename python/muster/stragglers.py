# SPDX-License-Identifier: Apache-2.0
"""Names ranks that stay slower than the others. What a rank does before its backward pass, in which
ranks wait for each other, is its own: its data and its forward pass."""

from __future__ import annotations

import statistics
import struct
import sys
import time
from typing import Any

from .process import World

EVERY = 32  # steps between two comparisons
_RATIO, _SECONDS = 1.5, 0.005  # above the median of all ranks, both, to be slow
_TIMES = 2  # in a row


class _Clock:
    """Measures from one moment to another of the step: on the GPU, if the program uses one, whose
    work the host has only queued."""

    def __init__(self) -> None:
        self._cuda = getattr(sys.modules.get("torch"), "cuda", None)
        self._began: Any = None
        self._pair: Any = None

    def _mark(self) -> Any:
        if self._cuda is None or not self._cuda.is_initialized():
            return time.monotonic()
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        self._pair = None
        self._began = self._mark()

    def end(self) -> None:
        if self._began is not None and self._pair is None:
            self._pair = self._began, self._mark()

    def seconds(self) -> float | None:
        """None: not measured, or still queued."""
        if self._pair is None:
            return None
        first, last = self._pair
        if isinstance(first, float) or isinstance(last, float):
            both = isinstance(first, float) and isinstance(last, float)
            return last - first if both else None
        return float(first.elapsed_time(last)) / 1e3 if last.query() else None


class Stragglers:
    def __init__(self, world: World):
        self._world = world
        self._clock = _Clock()
        self._times: list[float] = []
        self._slow: dict[int, int] = {}  # on rank 0: how often in a row each rank was slow
        self.steps = 0

    def begin_step(self) -> None:
        self._clock.begin()

    def begin_backward(self) -> None:
        self._clock.end()

    def end_step(self, step: int, timeout: float) -> list[str]:
        """After the word of all ranks, on all of them. What rank 0 has to say."""
        if self._world.world_size == 1:
            return []
        seconds = self._clock.seconds()
        if seconds is not None:
            self._times.append(seconds)
        self.steps += 1
        if self.steps % EVERY != 0:
            return []
        own = statistics.median(self._times) if self._times else 0.0
        self._times = []
        every = self._world.gather(struct.pack("<d", own), timeout)
        return self._compare(step, [struct.unpack("<d", one)[0] for one in every])

    def _compare(self, step: int, times: list[float]) -> list[str]:
        middle = statistics.median_low(times) if times else 0.0
        lines = []
        for rank, seconds in enumerate(times):
            is_slow = middle > 0 and seconds > max(_RATIO * middle, middle + _SECONDS)
            self._slow[rank] = self._slow.get(rank, 0) + 1 if is_slow else 0
            if self._slow[rank] == _TIMES:
                lines.append(
                    f"rank {rank} on {self._world.node(rank)} is slow: its data and forward pass "
                    f"take {seconds * 1e3:.0f} ms, {seconds / middle:.1f} times the median of all "
                    f"ranks, since step {step - _TIMES * EVERY + 1}: see what else runs on the "
                    "node, or leave it out by --exclude"
                )
        return lines
