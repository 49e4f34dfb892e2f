# SPDX-License-Identifier: Apache-2.0
"""Processes that load data for a rank. Slurm sends its signals to every process of the step, and
the rank needs its workers until it has stopped: a worker ends only when its own rank says so."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from typing import Any

from . import _lib, process
from .errors import Usage


def worker_init(_worker: int = 0) -> None:
    """The worker_init_fn of a DataLoader that is not run.loader's."""
    trainer = os.environ.get(process.TRAINER)
    if trainer is None:
        raise Usage("worker_init: call muster.init() before the loader makes its workers")
    _lib.check(_lib.library.muster_worker_begin(int(trainer)))


class WorkerInit:
    """worker_init, then the program's own worker_init_fn. Can be pickled, as spawn needs."""

    def __init__(self, then: Any):
        self._then = then

    def __call__(self, worker: int) -> None:
        worker_init(worker)
        if self._then is not None:
            self._then(worker)


def start_helpers(context: Any) -> None:
    """Starts multiprocessing's own processes while the notices are blocked, as they stay in those
    and in the workers that the fork server forks. The resource tracker's start unblocks SIGTERM
    here."""
    method = context.get_start_method() if hasattr(context, "get_start_method") else context
    method = method or multiprocessing.get_start_method()
    if method == "fork":
        process.mask_notices()
        return
    from multiprocessing import forkserver, resource_tracker

    process.mask_notices()
    resource_tracker.ensure_running()
    process.mask_notices()
    if method == "forkserver":
        forkserver.ensure_running()


def protected(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a DataLoader, with workers that outlive Slurm's signals; its helpers are
    started."""
    options = dict(options)
    if options.get("num_workers", 0) > 0:
        start_helpers(options.get("multiprocessing_context"))
        options["worker_init_fn"] = WorkerInit(options.get("worker_init_fn"))
    return options


def _signal_sets(pid: int) -> dict[str, int]:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file if line.startswith("Sig"))
    return {name: int(fields[name], 16) for name in ("SigBlk", "SigIgn")}


def end_deaf() -> None:
    """At the program's end multiprocessing ends its daemons by SIGTERM and waits for them. One that
    was forked while the notices were blocked, and has not called worker_init, never hears of it."""
    for child in multiprocessing.active_children():
        try:
            is_deaf = _signal_sets(child.pid or 0)["SigBlk"] & _bit(signal.SIGTERM)
        except (OSError, KeyError, ValueError):
            continue
        if child.daemon and is_deaf:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch's takes it for a failure
            child.kill()


def _bit(number: int) -> int:
    return 1 << (number - 1)


def warn_of_unprotected() -> list[int]:
    """Says which children of multiprocessing would die of Slurm's SIGTERM; returns their pids."""
    found = []
    for child in multiprocessing.active_children():
        try:
            sets = _signal_sets(child.pid or 0)
        except (OSError, KeyError, ValueError):
            continue
        would_die = not sets["SigBlk"] & _bit(signal.SIGTERM)
        if would_die and not sets["SigIgn"] & _bit(signal.SIGUSR1):
            found.append(child.pid or 0)
            print(
                f"muster: {child.name} (process {child.pid}) would die of Slurm's SIGTERM, and "
                "this rank could not save: its DataLoader needs worker_init_fn=muster.worker_init",
                file=sys.stderr,
                flush=True,
            )
    return found
