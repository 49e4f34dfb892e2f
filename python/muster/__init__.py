# SPDX-License-Identifier: Apache-2.0
"""Muster for PyTorch: a training that resumes, saves and stops as its Slurm job needs it.

    import muster
    muster.init()
    run = muster.attach("/shared/run1", model=model, optimizer=optimizer, every="10m")
    for batch in run.loader(dataset, global_batch=512, num_workers=4):
        run.end_step(train(batch))

doc/pytorch.md has it step by step."""

from __future__ import annotations

from ._lib import version
from .beginning import attach, load
from .data import Loader, Sampler
from .ending import init
from .errors import Error, Refused, Usage
from .process import World
from .run import Run, Save, Stop
from .workers import worker_init


def __getattr__(name: str) -> object:
    """What imports PyTorch only where it is used."""
    if name == "canonical":
        from .slots import canonical

        return canonical
    raise AttributeError(f"module 'muster' has no attribute '{name}'")


__version__ = version()
__all__ = [
    "Error",
    "Loader",
    "Refused",
    "Run",
    "Sampler",
    "Save",
    "Stop",
    "Usage",
    "World",
    "attach",
    "canonical",
    "init",
    "load",
    "worker_init",
]
