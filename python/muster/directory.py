# SPDX-License-Identifier: Apache-2.0
"""A checkpoint directory that this attempt owns."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from typing import Any

from . import _lib
from .errors import Usage
from .process import World
from .values import Json

WRITERS = ("rank0", "node", "all")  # enum muster_writers


def identity_text(config: Mapping[str, Any] | None, seed: int) -> str:
    whole = {"config": dict(config or {}), "seed": seed}
    try:
        return json.dumps(whole, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Usage(f"config can't be compared between attempts: {error}") from None


def open_directory(
    world: World,
    directory: str,
    *,
    identity: str,
    keep: tuple[int, int, int],
    timeout: float,
    writers: str,
) -> tuple[Any, Any]:
    """Collective: the directory, as the ranks that save have it, and its newest intact checkpoint,
    which is open on all ranks. Both may be none. `keep` is keep_last, keep_every and keep_best."""
    plan = _lib.Plan(
        size=ctypes.sizeof(_lib.Plan),
        dir=os.fsencode(directory),
        keep_last=keep[0],
        keep_every=keep[1],
        keep_best=keep[2],
        timeout=timeout,
        identity=identity.encode(),
        writers=WRITERS.index(writers),
    )
    ckpt, saved = _lib.Handle(), _lib.Handle()
    _lib.check(
        _lib.library.muster_ckpt_resume_state(
            world.handle, ctypes.byref(plan), timeout, ctypes.byref(ckpt), ctypes.byref(saved)
        )
    )
    return ckpt, saved


def values_of(saved: Any) -> dict[str, Json]:
    """What an open checkpoint has in values.json."""
    text = ctypes.c_char_p()
    _lib.check(_lib.library.muster_saved_values(saved, ctypes.byref(text)))
    values = json.loads(text.value) if text.value else {}
    return values if isinstance(values, dict) else {}
