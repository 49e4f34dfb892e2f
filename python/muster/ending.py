# SPDX-License-Identifier: Apache-2.0
"""How a program ends: its last save is durable, the end is on record, and its exit status says
whether the job comes back."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from . import _lib, errors, process, workers

if TYPE_CHECKING:
    from typing import Protocol

    class Owner(Protocol):
        """What owns a checkpoint directory: a run."""

        world: process.World
        directory: str
        timeout: float
        ckpt: Any
        ended: bool

        def finish(self) -> None: ...

        def give_up(self) -> bool: ...


_run: Owner | None = None
_hooked = False
_status: int | None = None  # of the process, once it has failed

# How PyTorch, Gloo and NCCL say that another rank is gone.
_LOST_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError")
_LOST_TEXTS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "socket timeout",
    "connectfullmesh failed",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "watchdog caught collective operation timeout",
)


_AGREE_SECONDS = 3.0  # for the others to come and hear why this rank ends


def is_lost_peer(error: BaseException) -> bool:
    """Whether an error is not this rank's, but says that another rank is gone."""
    if type(error).__name__ in _LOST_TYPES:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _LOST_TEXTS)


def _root(error: BaseException) -> BaseException:
    """PyTorch's DCP wraps the errors of all ranks in one of its own."""
    failures = getattr(error, "failures", None)
    for failure in failures.values() if isinstance(failures, dict) else ():
        if isinstance(failure, tuple) and isinstance(failure[0], errors.Error):
            return failure[0]
    return error


def status_of(error: BaseException) -> int:
    """The exit status for an exception that nobody has caught."""
    if isinstance(error, errors.Error):
        return error.status
    if isinstance(error, KeyboardInterrupt):
        return 130
    return errors.LOST if is_lost_peer(error) else errors.FAULT


def _hook() -> None:
    """From now on an exception that nobody catches ends the program with its status, and a program
    that comes to its end ends its run."""
    global _hooked
    if not _hooked:
        _hooked = True
        before = sys.excepthook
        sys.excepthook = lambda kind, value, trace: _uncaught(before, kind, value, trace)
        atexit.register(_at_exit)


def check_alone() -> None:
    """A process has one run at a time."""
    if _run is not None and not _run.ended:
        raise errors.Usage(
            f"this program has a run already, in {_run.directory}: finish() it first"
        )


def current() -> Owner | None:
    """The run of this process."""
    return _run


def register(run: Owner) -> None:
    global _run
    _run = run


def _say(text: str) -> None:
    print(f"muster: {text}", file=sys.stderr, flush=True)


def _uncaught(before: Any, kind: Any, value: BaseException, trace: Any) -> None:
    root = _root(value)
    if isinstance(root, errors.Error):
        _say(str(root))
    else:
        before(kind, value, trace)
    if not _is_interactive():
        _fail(root)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _fail(error: BaseException) -> None:
    """This rank ends for an exception that nobody has caught, and the others hear of it."""
    global _status
    if _status is not None:
        return
    _status = status_of(error)
    if not isinstance(error, errors.Error) and _status == errors.LOST:
        _say("another rank is gone: this one ends with 69, and the job comes back")
    why = " ".join(f"{type(error).__name__}: {error}".split()).encode("utf-8", "replace")[:400]
    world = process.opened()
    if _run is not None and not _run.ended:
        close(_run, _status, why)
    elif world is not None:
        # The others may wait for this rank in a call of libmuster's: all get its line there.
        _lib.library.muster_agree(world.handle, _status, why, _AGREE_SECONDS)
        _lib.library.muster_close(world.handle, 0)
        process.forget()


def _at_exit() -> None:
    global _status
    error = getattr(sys, "last_value", None)
    if error is not None and not _is_interactive():
        _fail(_root(error))  # if another hook has taken the place of ours
    if _status is None:
        _status = _finish()
    if _status != errors.OK:
        # Without the destructors of process groups, which hang where a peer is gone. Not before
        # now: the hook of newer releases of PyTorch prints what ours has said when that is over.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status)
    workers.end_deaf()


def _finish() -> int:
    """The natural end of the program."""
    world = process.opened()
    try:
        if _run is not None:
            _run.finish()
        elif world is not None:
            _part(world, None, errors.OK, 0)
    except errors.Error as error:
        _say(str(error))
        return error.status
    return errors.OK


def _part(world: Any, ckpt: Any, status: int, timeout: float) -> int:
    ended: int = _lib.library.muster_end(world.handle, ckpt, None, status, timeout)
    process.forget()
    return ended


def end(run: Owner, status: int) -> None:
    """Collective: all ranks end with this status, once the last save is durable."""
    ended = _part(run.world, run.ckpt, status, run.timeout)
    run.ckpt = None
    if ended != status:
        raise errors.Error(ended, _lib.error_text())


def close(run: Owner, status: int, why: bytes) -> None:
    """This rank ends alone. What was handed over is still written."""
    if run.give_up():
        if run.world.rank == 0 and run.ckpt:
            _lib.library.muster_ckpt_close(run.ckpt, status, why)
        _lib.library.muster_close(run.world.handle, 0)
    run.ckpt = None
    process.forget()


def init(timeout: float = 60.0) -> process.World:
    """Collective: takes Slurm's signals, finds out which rank this process is, and meets the
    others. Call it first in the program, before init_process_group(), which then needs no arguments
    but the backend. Further calls return the same world."""
    _hook()
    return process.opened() or process.open_world(timeout)
