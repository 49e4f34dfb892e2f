# SPDX-License-Identifier: Apache-2.0
"""How a run begins, and how a checkpoint is read without one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

from . import _lib, generators, objects
from .directory import values_of
from .errors import Usage
from .pytree import State
from .run import Run
from .tensors import Reader
from .values import Decoder


def attach(
    directory: str | os.PathLike[str],
    *,
    model: Any = None,
    state: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    every: int | str | None = "10m",
    config: Mapping[str, Any] | None = None,
    begin: str | os.PathLike[str] | None = None,
    writers: str | None = None,
    seed: int = 0,
    seed_generators: bool = True,
    keep_last: int = 2,
    keep_every: int = 0,
    keep_best: int = 0,
    timeout: float = 600.0,
    hang_timeout: float = 0.0,
    **objects_: Any,
) -> Run:
    """Collective: opens the checkpoint directory and resumes from its newest intact checkpoint, if
    there is one.

    model, optimizer, scheduler, scaler: each one object, a list or a mapping; any other object with
        state_dict() and load_state_dict() comes by a name of its own. So does a generator of random
        numbers of PyTorch, NumPy or random, of which each rank has its own.
    state: a tree of arrays of JAX or NumPy and of plain values: mappings, lists, tuples and what
        else JAX knows as a pytree. run.state is the tree, resumed; set it before end_step().
    every: steps between saves, or a time on rank 0's clock, such as "10m"; None: only run.save(), a
        notice and the end save.
    config: what the results depend on; a resume with another one is refused.
    begin: a .pt or .safetensors file with the weights that a new run begins with.
    writers: which ranks save: "rank0", "node" (also the first rank of each node) or "all". They
        share out the parameters and the optimizers' states, which are equal on all ranks under
        DistributedDataParallel; all else is rank 0's. Of sharded state each rank saves its own, and
        the default is "all".
    seed: of the order of samples and of all default generators, which are seeded before each step
        from it, the step and the rank (unless seed_generators is False): so a resume goes on with
        the same numbers.
    keep_last, keep_every, keep_best: checkpoints that stay: the newest, the multiples of a step,
        those with the lowest run.validation_loss. 0 for keep_last: all.
    timeout: seconds to wait for other ranks, for I/O errors to pass, and for the last save.
    hang_timeout: seconds after which a step that does not end, from the third on, ends the attempt
        with the stacks of all threads; 0: never."""
    models = objects.named("model", model)
    others: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for kind, given in (("optimizer", optimizer), ("scheduler", scheduler), ("scaler", scaler)):
        others.update(objects.named(kind, given))
    for name, given in objects_.items():
        for key, value in objects.named(name, given).items():
            (own if generators.is_generator(value) else others)[key] = value
    if state is not None:
        others["state"] = State(state)
    if not models and not others:
        raise Usage("attach(): give what is to be saved: model=, state= or an object")
    for name, value in [*models.items(), *others.items()]:
        objects.check(name, value)
    if begin is not None and len(models) != 1:
        raise Usage("begin= is for one model")
    return Run(
        os.fspath(directory),
        models,
        others,
        own,
        every=every,
        config=config,
        seed=seed,
        seed_generators=seed_generators,
        keep=(keep_last, keep_every, keep_best),
        timeout=timeout,
        hang_timeout=hang_timeout,
        begin=None if begin is None else os.fspath(begin),
        writers=writers,
    )


def load(
    directory: str | os.PathLike[str], step: int = -1, timeout: float = 60.0
) -> dict[str, Any]:
    """Reads a checkpoint without a run: "step", and the state of each object under its name. `step`
    -1: the newest intact one. The directory may belong to a job that runs."""
    saved = _lib.Handle()
    path = os.fsencode(os.fspath(directory))
    _lib.check(_lib.library.muster_saved_open(path, step, timeout, ctypes.byref(saved)))
    try:
        values = values_of(saved)
        values.pop("run", None)
        reader = Reader(saved)
        decoder = Decoder(reader.tensor, reader.array)
        found = {name: decoder.decode(value) for name, value in values.items()}
        return {"step": _lib.library.muster_saved_step(saved), **found}
    finally:
        _lib.library.muster_saved_close(saved)
