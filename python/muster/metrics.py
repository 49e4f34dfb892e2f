# SPDX-License-Identifier: Apache-2.0
"""metrics-ATTEMPT.jsonl (doc/metrics-format.md)."""

from __future__ import annotations

import datetime
import json
import math
import os
import struct
import sys
from collections.abc import Mapping
from typing import Any

from .errors import Usage

_BITS = ("loss", "norm", "validation_loss")  # also given as the bits of a single


def _number(name: str, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise Usage(f"run.log(): {name} is a {type(value).__name__}, not a number or text")


def _single_bits(value: Any) -> str:
    try:
        return struct.pack(">f", value).hex()
    except OverflowError:
        return struct.pack(">f", math.copysign(math.inf, value)).hex()


class Metrics:
    """Lines go to the file as they come; a full disk only delays them. attempt -1: on other ranks
    than 0, which write none."""

    def __init__(self, directory: str, attempt: int):
        self._path = os.path.join(directory, f"metrics-{attempt}.jsonl")
        self._waiting: list[bytes] = []
        self._fd = -1
        self._told = False

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        line: dict[str, Any] = {"step": step}
        for name, given in values.items():
            value = given.item() if hasattr(given, "item") else given
            line[name] = _number(name, value)
            if name in _BITS and isinstance(value, (int, float)):
                line[name + "_bits"] = _single_bits(value)
        now = datetime.datetime.now(datetime.timezone.utc)
        line["time"] = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._waiting.append((json.dumps(line) + "\n").encode())
        self._write_waiting()

    def _write_waiting(self) -> None:
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o644)
            while self._waiting:
                left = self._waiting[0][os.write(self._fd, self._waiting[0]) :]
                self._waiting[:1] = [left] if left else []
        except OSError as error:
            if not self._told:
                print(f"muster: couldn't write {self._path}: {error}", file=sys.stderr, flush=True)
            self._told = True

    def flush(self) -> None:
        """Before a save: every step before a checkpoint has its line."""
        if self._waiting:
            self._write_waiting()
        if self._fd >= 0:
            try:
                os.fsync(self._fd)
            except OSError as error:
                print(f"muster: couldn't sync {self._path}: {error}", file=sys.stderr, flush=True)
