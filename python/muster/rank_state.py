# SPDX-License-Identifier: Apache-2.0
"""What each rank has of its own: where its reading of iterable datasets stands, and the generators
of random numbers that the program attaches. Rank 0 gathers it for every save."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import generators
from .process import World

if TYPE_CHECKING:
    from .streams import StreamLoader


class RankState:
    def __init__(self, world: World, own_generators: dict[str, Any]):
        self._world, self._generators = world, own_generators
        self._streams: dict[str, StreamLoader] = {}
        self._resumed: dict[str, list[str | None]] = {}  # of this rank's streams, by worker

    @property
    def is_needed(self) -> bool:
        """Whether there is any: then all ranks take part in a save."""
        return bool(self._streams or self._generators)

    def check(self) -> None:
        """Refuses what can't be saved."""
        generators.encode(self._generators)

    def add_stream(self, loader: StreamLoader) -> None:
        if loader.name in self._resumed:
            loader.states = list(self._resumed[loader.name])
        self._streams[loader.name] = loader

    def gather(self, timeout: float) -> list[Any]:
        """Collective where it is needed: rank 0 gets what each rank has, the others nothing."""
        if not self.is_needed:
            return []
        streams = {name: loader.states for name, loader in self._streams.items()}
        own = {"streams": streams, "generators": generators.encode(self._generators)}
        return [json.loads(text) for text in self._world.gather(json.dumps(own).encode(), timeout)]

    def restore(self, ranks: list[Any]) -> None:
        """`ranks`: what gather() has returned when the checkpoint was saved. How many ranks read a
        stream is for the loader to compare."""
        rank, count = self._world.rank, self._world.world_size
        states = [saved["generators"] for saved in ranks]
        generators.restore(self._generators, states, rank, count)
        if rank < len(ranks):
            self._resumed = ranks[rank]["streams"]
