# SPDX-License-Identifier: Apache-2.0
"""What the bits of a step depend on beside the program: the same on all ranks, and in all attempts
of a run."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

import torch

from . import _lib, process
from .errors import Usage
from .run import Run

_SIZE = 4096  # of the broadcast text


def found(slots: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "torch": str(torch.__version__),
        "slots": slots,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cpu": getattr(torch.backends.cpu, "get_cpu_capability", lambda: "?")(),
    }
    if torch.cuda.is_available():
        values["gpu"] = torch.cuda.get_device_name()
    for name in ("MKL_CBWR", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"):
        values[name] = os.environ.get(name, "")
    return values


def check_ranks(numerics: dict[str, Any]) -> None:
    """Those of all ranks are the same."""
    world = process.world()
    text = json.dumps(numerics)
    line = ctypes.create_string_buffer(text.encode(), _SIZE)
    _lib.check(_lib.library.muster_broadcast(world.handle, 0, line, _SIZE, 0))
    first = json.loads(line.value)
    why = [f"{key} is {first[key]} on rank 0" for key in first if first[key] != numerics.get(key)]
    error = Usage(f"canonical(): {why[0]}, and another one here: set the same") if why else None
    status = error.status if error else 0
    reason = str(error).encode() if error else None
    _lib.check(_lib.library.muster_agree(world.handle, status, reason, 0))


def compare(run: Run, numerics: dict[str, Any], require_identical: bool) -> None:
    """With those of the attempts before."""
    saved = run.numerics
    for key in numerics:
        if saved and saved.get(key) != numerics[key]:
            text = f"resume: {key} was {saved.get(key)}, and is {numerics[key]} now"
            if require_identical:
                raise Usage(f"{text}: give the same, or leave require_identical out")
            run.world.say(f"{text}: from here on the bits of the run may be others")
    run.numerics = numerics
