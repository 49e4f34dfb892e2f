# SPDX-License-Identifier: Apache-2.0
"""Ends an attempt in which a step hangs, and shows where."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from . import errors

if TYPE_CHECKING:
    from .run import Run

_FROM_STEP = 3  # of the attempt: the first ones compile, connect and read anew
_LATER = 1.1  # the line about ranks whose word is missing names them, and comes first
_NEVER = 1e8


class Watch:
    def __init__(self, run: Run, seconds: float):
        self._run, self._seconds = run, seconds
        self._last = time.monotonic()
        self._over = threading.Event()
        if seconds > 0:
            threading.Thread(target=self._look, name="muster-watch", daemon=True).start()

    def beat(self) -> None:
        self._last = time.monotonic()

    def end(self) -> None:
        self._over.set()

    def word_timeout(self) -> float:
        looks = self._seconds > 0 and self._run.own_steps >= _FROM_STEP
        return self._seconds if looks else _NEVER

    def _look(self) -> None:
        limit = self._seconds * _LATER + 2
        while not self._over.wait(min(1.0, self._seconds / 4)):
            late = time.monotonic() - self._last
            if self._run.own_steps >= _FROM_STEP and late > limit and not self._over.is_set():
                self._give_up(late)

    def _give_up(self, seconds: float) -> None:
        run = self._run
        print(
            f"muster: {run.world!r} has been in step {run.step + 1} for {seconds:.0f} s (in: "
            f"{run.phases.name}): the attempt ends; all threads of this rank:",
            file=sys.stderr,
            flush=True,
        )
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        sys.stdout.flush()
        os._exit(errors.LOST)
