# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of PyTorch (torch.distributed.checkpoint, DCP) in a checkpoint directory:
each rank hands its shards to the checkpoint service of its node, and all of them become one
checkpoint. A later run reads it on any number of ranks, in any sharding.

    writer = muster.dcp.Writer("/shared/run1")
    if writer.step >= 0:
        dcp.load(state, storage_reader=muster.dcp.Reader(writer))
    for step in range(writer.step + 1, 1000):
        ...
        if step % 100 == 0:
            dcp.save(state, checkpoint_id=step, storage_writer=writer)

doc/pytorch-dcp.md has it step by step."""

from __future__ import annotations

import ctypes
import io
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from . import _lib, ending, errors, inline, process
from .directory import identity_text, open_directory, values_of
from .errors import Usage
from .run import Stop
from .tensors import Entry, HostTensor, name_of_type, read_box, state_of, type_of_name
from .tensors import Reader as Tensors
from .values import dumps

_KEY = "dcp"  # in values.json
_STOP = 1  # flag of the word after each step
_GLANCE = 1e-9  # seconds: libmuster takes 0 for the timeout of the plan


def _done(value: Any) -> Any:
    future: Any = Future()
    future.set_result(value)
    return future


def _step_of(checkpoint_id: Any) -> int:
    """The step in the name of a checkpoint: 100, or "run1/step-100"."""
    match = re.fullmatch(r"(?:.*\D)?(\d{1,18})", str(checkpoint_id), re.S)
    if match is None:
        raise Usage(f"dcp: checkpoint_id={checkpoint_id!r}: give the step that is done, as 100")
    return int(match[1])


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether it is the folder of one, as /shared/run1/step-00000100."""
    return os.path.isfile(os.path.join(path, "manifest.json"))


class _Attempt:
    """The directory while this attempt owns it, for what ends the program."""

    def __init__(self, directory: str, identity: str, keep: tuple[int, int, int], timeout: float):
        ending.check_alone()
        self.world = process.world()
        self.directory, self.timeout, self.ended = directory, timeout, False
        self.ckpt, self.saved = open_directory(
            self.world, directory, identity=identity, keep=keep, timeout=timeout, writers="all"
        )
        self.step: int = _lib.library.muster_saved_step(self.saved)
        self._word, self._noticed = False, 0
        ending.register(self)

    def hear(self, flags: int) -> int:
        """The flags of all ranks after the step before."""
        if not self._word:
            self.world.begin_word(self.timeout)
            self._word = True
        heard, self._noticed = self.world.word(flags, self.timeout)
        return heard

    def resumed(self) -> None:
        self.world.say(f"resumed at step {self.step} of {self.directory}")

    def stop(self, step: int) -> None:
        self.world.say_stop(step, self._noticed)
        self.end(errors.REQUEUE)
        raise Stop(errors.REQUEUE)

    def end(self, status: int) -> None:
        if self._word:
            self.world.end_word(self.timeout)
        self.close_saved()
        self.ended = True
        ending.end(self, status)

    def finish(self) -> None:
        if not self.ended:
            self.end(errors.OK)

    def give_up(self) -> bool:
        self.close_saved()
        self.ended = True
        return True

    def close_saved(self) -> None:
        _lib.library.muster_saved_close(self.saved)
        self.saved = None


def _entry(rank: int, item: Any) -> Entry:
    """What a rank is to save, in the plan of DCP."""
    given, name = item.tensor_data, item.index.fqn
    return Entry(
        name,
        name_of_type(name, given.properties.dtype),
        tuple(given.chunk.sizes),
        rank,
        tuple(given.chunk.offsets),
        tuple(given.size),
    )


class Writer(StorageWriter):  # type: ignore[misc]
    """Collective: owns the checkpoint directory, and hands over what dcp.save() and
    dcp.async_save() save there. `step` is that of the newest intact checkpoint, or -1: read it with
    a Reader before the first save.

    config: what the results depend on; a resume with another one is refused.
    keep_last, keep_every: checkpoints that stay: the newest, and the multiples of a step. 0 for
        keep_last: all.
    wait: whether dcp.save() returns only when the checkpoint is durable. False: it returns when all
        ranks have handed over what they have, which then survives their end.
    timeout: seconds to wait for other ranks, for I/O errors to pass, and for a save."""

    # Of all ranks, on rank 0. DCP's planners keep theirs in the class, too.
    _plans: ClassVar[list[Any]] = []

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        config: Mapping[str, Any] | None = None,
        keep_last: int = 2,
        keep_every: int = 0,
        wait: bool = True,
        timeout: float = 600.0,
    ):
        self.attempt = _Attempt(
            os.fspath(directory), identity_text(config, 0), (keep_last, keep_every, 0), timeout
        )
        self.step = self.attempt.step
        self._rank = self.attempt.world.rank
        self.waits, self._next = wait, -1
        self._entries: list[Entry] = []
        self._held: dict[Any, HostTensor] = {}  # the memory of this rank's shards

    # ---- what the program calls ----

    def should_stop(self) -> bool:
        """Call it once after each step, on all ranks: whether any of them had got a notice by the
        step before. Then save, and call stop()."""
        process.mask_notices()
        return bool(self.attempt.hear(_STOP if process.notice() else 0) & _STOP)

    def stop(self) -> None:
        """Collective: ends the program, once the last save is durable, with the status that brings
        the job back."""
        self.attempt.stop(self._next)

    def close(self) -> None:
        """Collective: waits for the last save, and gives the directory back. At the program's
        natural end it comes by itself."""
        self.attempt.finish()

    # ---- what DCP calls, in this order ----

    def reset(self, checkpoint_id: Any = None) -> None:
        self._next = _step_of(checkpoint_id)
        self.attempt.close_saved()

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:
        if is_coordinator and self._rank != 0:
            raise Usage("dcp.save(): rank 0 coordinates: leave coordinator_rank out")

    def prepare_local_plan(self, plan: Any) -> Any:
        return replace(plan, storage_data=self._rank)

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """All ranks get to know which of them has what. A planner that keeps its plans gives empty
        ones where a rank's is that of the save before."""
        changed = [getattr(plan, "usable", True) for plan in plans]
        if not any(changed):
            return plans
        kept = Writer._plans
        if not all(changed) and len(kept) != len(plans):
            raise Usage("dcp.save(): the planner has plans of another writer: give it a new key")
        plans = [plan if new else kept[i] for i, (plan, new) in enumerate(zip(plans, changed))]
        Writer._plans = plans
        ranks, world = [plan.storage_data for plan in plans], self.attempt.world
        if sorted(ranks) != list(range(world.world_size)):
            raise Usage(
                f"dcp.save(): {len(ranks)} of {world.world_size} ranks save, and all have to: "
                "leave out process_group and no_dist"
            )
        entries = [
            _entry(rank, item)
            for rank, plan in zip(ranks, plans)
            for item in plan.items
            if item.type != WriteItemType.BYTE_IO
        ]
        return [replace(plan, storage_data=entries) for plan in plans]

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Hands over this rank's shards. finish() does so on rank 0, which also hands over what is
        no tensor, of all ranks."""
        if not hasattr(planner, "lookup_object"):
            raise Usage(
                f"dcp.save(): a {type(planner).__name__} gives no values: give a DefaultSavePlanner"
            )
        self._entries, self._held, results = plan.storage_data, {}, []
        for item in plan.items:
            name = item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                text = inline.encode(planner.lookup_object(item.index), name)
                results.append(WriteResult(item.index, len(text), text))
            else:
                tensor = HostTensor(name, planner.resolve_data(item))
                self._held[name, tuple(item.tensor_data.chunk.offsets)] = tensor
                results.append(WriteResult(item.index, math.prod(tensor.shape), None))
        if self._rank != 0:
            self._hand_over({})
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        values = {
            result.index.fqn: result.storage_data
            for of_rank in results
            for result in of_rank
            if result.storage_data is not None
        }
        paths = {name: list(path) for name, path in (metadata.planner_data or {}).items()}
        self._hand_over({_KEY: {"values": values, "paths": paths}})
        if self.waits:
            attempt = self.attempt
            _lib.check(_lib.library.muster_ckpt_wait(attempt.ckpt, self._next, attempt.timeout))

    def _hand_over(self, values: dict[str, Any]) -> None:
        for entry in self._entries:
            if entry.rank == self._rank:
                entry.data = self._held[entry.name, entry.offset].data
        state = state_of([], self._entries, values=dumps(values).encode(), cursor=self._next)
        ckpt = self.attempt.ckpt
        _lib.check(_lib.library.muster_ckpt_save_state(ckpt, self._next, ctypes.byref(state)))
        self._held, self._entries = {}, []

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return re.search(r"\d$", str(checkpoint_id)) is not None


class Save:
    """What async_save() returns; used by the thread that saves."""

    def __init__(self, writer: Writer, step: int):
        self._writer, self.step = writer, step

    def done(self) -> bool:
        """Whether it is durable: the checkpoint on rank 0, and on others what they have in it."""
        try:
            self.result(_GLANCE)
        except errors.Error as error:
            return error.status != errors.LOST
        return True

    def result(self, timeout: float | None = None) -> None:
        """Waits until done() is true; raises muster.Error if it failed or still runs then. None:
        the timeout of the Writer."""
        attempt = self._writer.attempt
        if not attempt.ended:
            seconds = attempt.timeout if timeout is None else max(timeout, _GLANCE)
            _lib.check(_lib.library.muster_ckpt_wait(attempt.ckpt, self.step, seconds))


def async_save(
    state_dict: dict[str, Any], *, checkpoint_id: Any, storage_writer: Writer, planner: Any = None
) -> Save:
    """Collective: dcp.save() that returns as soon as all ranks have handed over what they have,
    which then survives their end. It is copied once, into the memory of the checkpoint service,
    where dcp.async_save() copies it for its thread first."""
    storage_writer.waits, waits = False, storage_writer.waits
    try:
        save(
            state_dict, checkpoint_id=checkpoint_id, storage_writer=storage_writer, planner=planner
        )
    finally:
        storage_writer.waits = waits
    return Save(storage_writer, _step_of(checkpoint_id))


class Reader(StorageReader):  # type: ignore[misc]
    """What dcp.load() reads from: the checkpoint that a Writer has found, if its `step` says so, or
    one of a directory, which may belong to a job that runs. `step` -1: the newest intact one."""

    def __init__(
        self, source: Writer | str | os.PathLike[str], step: int = -1, timeout: float = 60.0
    ):
        self._writer = source if isinstance(source, Writer) else None
        self._own: Any = None
        if self._writer is None:
            self._path, self._timeout = os.fsencode(os.fspath(source)), timeout
            self._open(step)
        self._content()  # DCP would wrap what is wrong with it

    def _open(self, step: int) -> None:
        self.close()
        saved = _lib.Handle()
        _lib.check(
            _lib.library.muster_saved_open(self._path, step, self._timeout, ctypes.byref(saved))
        )
        self._own = saved

    def close(self) -> None:
        """Lets go of the checkpoint, which no process removes until then."""
        _lib.library.muster_saved_close(self._own)
        self._own = None

    def __del__(self) -> None:
        self.close()

    @property
    def _saved(self) -> Any:
        saved = self._writer.attempt.saved if self._writer else self._own
        if not saved:
            raise Usage(
                "dcp.load(): there is no checkpoint to read: look at the writer's step, and read "
                "before the first save"
            )
        return saved

    def _content(self) -> dict[str, Any]:
        """What DCP has saved beside tensors."""
        values = values_of(self._saved).get(_KEY)
        if not isinstance(values, dict):
            raise Usage(
                "dcp.load(): the checkpoint was not saved by dcp.save(): give the directory of one "
                "that was"
            )
        return values

    # ---- what DCP calls, in this order ----

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None and self._writer is None:
            self._open(_step_of(checkpoint_id))
            self._content()

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        values = self._content()
        self._values = values["values"]
        found: dict[str, Any] = {name: BytesStorageMetadata() for name in self._values}
        for name, (dtype, shape) in Tensors(self._saved).shapes.items():
            size, none = torch.Size(shape), torch.Size([0] * len(shape))
            properties = TensorProperties(dtype=type_of_name(name, dtype))
            found[name] = TensorStorageMetadata(
                properties, size, [ChunkStorageMetadata(none, size)]
            )
        paths = {name: tuple(path) for name, path in values["paths"].items()}
        if self._writer is not None:
            self._writer.attempt.resumed()
        return Metadata(state_dict_metadata=found, planner_data=paths)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any
    ) -> None:
        self._metadata = metadata.state_dict_metadata

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        return plans

    def read_data(self, plan: Any, planner: Any) -> Any:
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                pickled = io.BytesIO()  # what planners take; it never leaves this process
                torch.save(inline.decode(self._values[name]), pickled)
                pickled.seek(0)
                planner.load_bytes(item, pickled)
            else:
                target = planner.resolve_tensor(item).detach()
                self._read(name, item, target)
                planner.commit_tensor(item, target)
        return _done(None)

    def _read(self, name: str, item: Any, target: Any) -> None:
        dtype = self._metadata[name].properties.dtype
        direct = target.device.type == "cpu" and target.dtype == dtype and target.is_contiguous()
        host = target if direct else torch.empty(tuple(item.lengths), dtype=dtype)
        read_box(self._saved, name, item.storage_offsets, item.lengths, host)
        if not direct:
            target.copy_(host)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True
