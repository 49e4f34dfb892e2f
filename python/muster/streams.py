# SPDX-License-Identifier: Apache-2.0
"""Data that can be read in its own order only. Each rank, and each of its workers, resumes where
its own reading stood, so their numbers must stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from . import workers
from .data import Loader, derived_seed, refuse_options, seed_generators
from .errors import Usage
from .inline import decode, encode

if TYPE_CHECKING:
    from .run import Run


class Stream(IterableDataset):  # type: ignore[misc]
    """The dataset as a worker reads it: batches, each with the worker's number and its state after
    it. Batch n of a rank, from 0, comes from worker n % workers."""

    def __init__(self, loader: StreamLoader, dataset: Any, collate: Any):
        self._name, self._dataset, self._collate = loader.name, dataset, collate
        self._sizes, self._seed = loader.sizes, loader.seed
        self._first, self._states = loader.first, list(loader.states)

    def _samples(self) -> Iterator[Any]:
        """At its end the dataset begins again. One that resumes at its end has nothing left."""
        empty = 0
        while empty < 2:
            empty += 1
            for sample in self._dataset:
                empty = 0
                yield sample
        raise Usage(f"the dataset of the loader '{self._name}' is empty")

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, count = (info.id, info.num_workers) if info else (0, 1)
        state = self._states[worker]
        if state is not None:
            self._dataset.load_state_dict(decode(state))
        if worker < self._first % count:
            yield None  # its turn comes after that of the workers behind it
        number = self._first + (worker - self._first) % count
        samples = self._samples()
        while True:
            seed_generators(derived_seed(self._seed, number))
            size = self._sizes[number % len(self._sizes)]
            batch = self._collate([next(samples) for _ in range(size)])
            yield worker, batch, encode(self._dataset.state_dict(), self._name)
            number += count


def _as_it_is(item: Any) -> Any:
    return item


class StreamLoader(Loader):
    """run.loader for an iterable dataset: its state of each rank goes into every save."""

    def __init__(
        self,
        run: Run,
        name: str,
        dataset: Any,
        global_batch: int,
        steps: int | None,
        microbatch: int | None,
        options: dict[str, Any],
    ):
        refuse_options(options)
        if steps is None:
            raise Usage(
                "run.loader() needs steps= for an iterable dataset, which begins again at its end"
            )
        rank, ranks = run.world.rank, run.world.world_size
        share = (rank + 1) * global_batch // ranks - rank * global_batch // ranks
        if share < 1:
            raise Usage(f"global_batch={global_batch} for {ranks} ranks: each needs a sample")
        size = microbatch or share
        self.name, self.seed = name, derived_seed(run.seed, rank)
        self.sizes = [min(size, share - at) for at in range(0, share, size)]
        self._run, self._steps, self._microbatch = run, steps, microbatch
        self._stream, self._options = dataset, dict(options)
        self._batches = None
        self.first = run.step * len(self.sizes)
        self.states: list[str | None] = [None] * max(1, self._options.get("num_workers", 0))

    def __len__(self) -> int:
        return max(0, self._steps - self._run.step)

    @property
    def epoch(self) -> int:
        raise Usage("an iterable dataset has no epochs that all ranks share")

    def epochs(self) -> Iterator[tuple[int, Iterator[Any]]]:
        raise Usage("an iterable dataset has no epochs that all ranks share")

    def _end_step(self) -> int:
        return self._steps

    def _parts(self, step: int) -> int:
        return len(self.sizes)

    def _data_loader(self) -> Any:
        self.first = self._run.step * len(self.sizes)
        options = workers.protected(self._options)
        stream = Stream(self, self._stream, options.pop("collate_fn", None) or default_collate)
        return DataLoader(stream, batch_size=None, collate_fn=_as_it_is, **options)

    def _next(self) -> Any:
        item = None
        while item is None:
            item = super()._next()
        worker, batch, self.states[worker] = item
        return batch
