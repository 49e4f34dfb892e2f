# SPDX-License-Identifier: Apache-2.0
"""Which rank reads which sample when: a function of the seed and the step alone, so that a run
resumes at the next sample, in the middle of an epoch, on any number of ranks and workers."""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _lib, process, workers
from .errors import Usage
from .phases import Phases
from .tree import slots_of

if TYPE_CHECKING:
    from .run import Run


def derived_seed(*parts: int) -> int:
    """64 bits that depend on all of the parts."""
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def seed_generators(seed: int, cuda: bool = False) -> None:
    """The default generators of Python, and of NumPy and PyTorch where the program uses them."""
    random.seed(seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)  # more bits would take seven times as long
    if torch is not None:
        torch.default_generator.manual_seed(seed & (2**63 - 1))
        if cuda and torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed & (2**63 - 1))


class Order:
    """The order of samples (muster_order_steps and muster_order_samples of libmuster)."""

    def __init__(self, samples: int, global_batch: int, seed: int, shuffle: bool, drop_last: bool):
        self._order = _lib.Order(
            ctypes.sizeof(_lib.Order), seed, samples, global_batch, int(shuffle), int(not drop_last)
        )
        steps = ctypes.c_uint64()
        _lib.check(_lib.library.muster_order_steps(ctypes.byref(self._order), ctypes.byref(steps)))
        self.epoch_steps: int = steps.value
        self._samples, self._global_batch = samples, global_batch

    def batch_size(self, step: int) -> int:
        """The samples of all ranks in a step: fewer in an epoch's last one, without drop_last."""
        left = self._samples - step % self.epoch_steps * self._global_batch
        return min(self._global_batch, left)

    def samples(self, step: int, first: int, end: int) -> list[int]:
        """Those at the places [first, end) of the batch."""
        found = (ctypes.c_uint64 * (end - first))()
        _lib.check(
            _lib.library.muster_order_samples(
                ctypes.byref(self._order), step, first, end - first, found
            )
        )
        return list(found)


class Sampler:
    """For a DataLoader of one's own: as its batch_sampler it yields this rank's samples for one
    step after the other, from `step` on, for `epochs` epochs or up to `steps` steps in all."""

    def __init__(
        self,
        samples: int,
        global_batch: int,
        *,
        step: int = 0,
        epochs: int | None = 1,
        steps: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        slots: int | None = None,
    ):
        if rank is None or world_size is None:
            here = process.world()
            rank, world_size = here.rank, here.world_size
        if samples < 1 or global_batch < 1:
            raise Usage(f"{samples} samples in batches of {global_batch}: both are 1 or more")
        if global_batch > samples and drop_last:
            raise Usage(
                f"global_batch={global_batch} is more than the {samples} samples: make it "
                "smaller, or give drop_last=False"
            )
        self.order = Order(samples, global_batch, seed, shuffle, drop_last)
        self.rank, self.world_size, self.step = rank, world_size, step
        self._slots = slots
        if slots is not None:
            self._check_slots(slots, global_batch, drop_last)
        fewest = min(self.order.batch_size(0), self.order.batch_size(self.order.epoch_steps - 1))
        if fewest < world_size:
            raise Usage(
                f"a batch has {fewest} samples for {world_size} ranks: each needs one; make "
                "global_batch larger, or give drop_last=True"
            )
        if steps is None and epochs is not None:
            steps = epochs * self.order.epoch_steps
        self.steps = steps

    def __len__(self) -> int:
        """The steps that are left."""
        if self.steps is None:
            raise TypeError("muster: this sampler has no end")
        return max(0, self.steps - self.step)

    def _check_slots(self, slots: int, global_batch: int, drop_last: bool) -> None:
        if slots < self.world_size or global_batch % slots != 0 or not drop_last:
            raise Usage(
                f"global_batch={global_batch} in {slots} slots on {self.world_size} ranks: give a "
                "batch that the slots divide, as many slots as ranks or more, and drop_last=True"
            )

    def bounds(self, step: int) -> tuple[int, int]:
        """The places in the batch that are this rank's: [first, end)."""
        size, rank, ranks = self.order.batch_size(step), self.rank, self.world_size
        if self._slots is None:
            return rank * size // ranks, (rank + 1) * size // ranks
        own, of_slot = slots_of(self._slots, ranks, rank), size // self._slots
        return own.start * of_slot, own.stop * of_slot

    def share(self, step: int) -> tuple[int, list[int]]:
        """The place of this rank's first sample in the batch, and its samples."""
        first, end = self.bounds(step)
        return first, self.order.samples(step, first, end)

    def __iter__(self) -> Iterator[list[int]]:
        step = self.step
        while self.steps is None or step < self.steps:
            yield self.share(step)[1]
            step += 1


class _Microbatches:
    """The batch_sampler of run.loader: each step's share in parts of at most `size`. A key of a
    sample is (step, place in the global batch, sample)."""

    def __init__(self, sampler: Sampler, size: int | None):
        self._sampler, self._size = sampler, size

    def parts(self, step: int) -> int:
        """How many of them this rank has in a step."""
        first, end = self._sampler.bounds(step)
        return 1 if self._size is None else -((first - end) // self._size)

    def __iter__(self) -> Iterator[list[tuple[int, int, int]]]:
        step = self._sampler.step
        while self._sampler.steps is None or step < self._sampler.steps:
            first, samples = self._sampler.share(step)
            keys = [(step, first + i, sample) for i, sample in enumerate(samples)]
            size = self._size or len(keys)
            for at in range(0, len(keys), size):
                yield keys[at : at + size]
            step += 1


class _Keyed:
    """The dataset as the workers see it: what is random in a sample depends on where the sample
    stands in the run, and on no worker."""

    def __init__(self, dataset: Any, seed: int):
        self._dataset, self._seed = dataset, seed

    def __getitem__(self, key: tuple[int, int, int]) -> Any:
        step, place, sample = key
        seed_generators(derived_seed(self._seed, step, place))
        return self._dataset[sample]


class _Plain:
    """The same, for a dataset in which nothing is random; batches come at once where it can do
    so."""

    def __init__(self, dataset: Any):
        self._dataset = dataset

    def __getitems__(self, keys: list[tuple[int, int, int]]) -> Any:
        samples = [sample for _, _, sample in keys]
        if hasattr(self._dataset, "__getitems__"):
            return self._dataset.__getitems__(samples)
        return [self._dataset[sample] for sample in samples]

    def __getitem__(self, key: tuple[int, int, int]) -> Any:
        return self._dataset[key[2]]


class _Parts(list[Any]):
    """The microbatches of a step: with each comes another forward pass."""

    def __init__(self, parts: list[Any], phases: Phases):
        super().__init__(parts)
        self._phases = phases

    def __iter__(self) -> Iterator[Any]:
        for part in super().__iter__():
            self._phases.begin("forward")
            yield part


_OURS = ("batch_size", "sampler", "batch_sampler", "drop_last", "shuffle")


def refuse_options(options: dict[str, Any]) -> None:
    for name in _OURS:
        if name in options:
            raise Usage(f"run.loader() decides {name}: give global_batch and microbatch")


class Loader:
    """What run.loader returns: one item a step, the batch of this rank, or with `microbatch` the
    list of its microbatches."""

    def __init__(
        self,
        run: Run,
        dataset: Any,
        sampler: Sampler,
        microbatch: int | None,
        seed_samples: bool,
        options: dict[str, Any],
    ):
        refuse_options(options)
        self._run, self._sampler, self._microbatch = run, sampler, microbatch
        self._keys = _Microbatches(sampler, microbatch)
        self._dataset = _Keyed(dataset, run.seed) if seed_samples else _Plain(dataset)
        self._options = options
        self._batches: Iterator[Any] | None = None

    def __len__(self) -> int:
        return len(self._sampler)

    @property
    def epoch(self) -> int:
        """The epoch of the next step, from 0."""
        return self._run.step // self._sampler.order.epoch_steps

    def _data_loader(self) -> Any:
        from torch.utils.data import DataLoader

        self._sampler.step = self._run.step
        options = workers.protected(self._options)
        return DataLoader(self._dataset, batch_sampler=self._keys, **options)

    def __iter__(self) -> Iterator[Any]:
        """All steps that are left."""
        yield from self._until(self._end_step())
        self._end()

    def epochs(self) -> Iterator[tuple[int, Iterator[Any]]]:
        """The number of each epoch that is left, and an iterator of its steps that are left."""
        steps = self._sampler.steps
        while steps is None or self._run.step < steps:
            end = (self.epoch + 1) * self._sampler.order.epoch_steps
            yield self.epoch, self._until(end if steps is None else min(end, steps))
            if self._run.step < end and self._run.step != steps:
                raise Usage("read each epoch of loader.epochs() to its end")
        self._end()

    def _end_step(self) -> int | None:
        return self._sampler.steps

    def _parts(self, step: int) -> int:
        return self._keys.parts(step)

    def _next(self) -> Any:
        assert self._batches is not None
        return next(self._batches)

    def _until(self, end: int | None) -> Iterator[Any]:
        run = self._run
        while end is None or run.step < end:
            step = run.step
            run.phases.begin("data", step + 1)
            if self._batches is None:
                self._batches = iter(self._data_loader())
                process.mask_notices()
            parts = [self._next() for _ in range(self._parts(step))]
            run.begin_step(in_loader=True)
            yield parts[0] if self._microbatch is None else _Parts(parts, run.phases)
            if run.step == step:
                raise Usage("call run.end_step() once for each batch of run.loader()")

    def _end(self) -> None:
        """Lets the workers go; the run may be over."""
        if self._batches is None:
            self._run.world.say(f"the run is finished: it has done its {self._run.step} steps")
        self._batches = None
        self._run.drain()


def is_stream(dataset: Any) -> bool:
    """Whether it can be read in its own order only; refuses one that could not be resumed."""
    import torch.utils.data

    iterable = isinstance(dataset, torch.utils.data.IterableDataset)
    if not iterable and hasattr(dataset, "__len__"):
        return False
    methods = ("__iter__", "state_dict", "load_state_dict")
    if not all(callable(getattr(dataset, method, None)) for method in methods):
        raise Usage(
            f"a {type(dataset).__name__} can't be read at any place, so a run could not "
            "resume in it: give a dataset with __getitem__ and __len__, or an iterable one with "
            "state_dict() and load_state_dict()"
        )
    return True
