# SPDX-License-Identifier: Apache-2.0
"""This process as one rank: who it is, where the others are, and the notices it gets."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import socket
import sys
import threading
from typing import Any

from . import _lib
from .errors import Usage

NOTICES = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
TRAINER = "MUSTER_TRAINER"  # the pid of the rank, for its loader workers
_PLACE_SIZE = 512  # of the broadcast line with rank 0's address


class World:
    """The ranks of this job step, and which of them this process is."""

    def __init__(self, handle: Any):
        self.handle: Any = handle
        library = _lib.library
        self.rank: int = library.muster_rank(handle)
        self.world_size: int = library.muster_world_size(handle)
        self.local_rank: int = library.muster_local_rank(handle)
        self.local_world_size: int = library.muster_local_world_size(handle)
        self.node_rank: int = library.muster_node_rank(handle)
        self.node_count: int = library.muster_node_count(handle)
        self.attempt: int = library.muster_attempt(handle)

    def node(self, rank: int | None = None) -> str:
        name = _lib.library.muster_node(self.handle, self.rank if rank is None else rank)
        return name.decode() if name else "?"

    # ---- the word after each step ----

    def begin_word(self, timeout: float) -> None:
        """Collective: connects the ranks for it."""
        _lib.check(_lib.library.muster_word_begin(self.handle, timeout))

    def say(self, text: str) -> None:
        """A line of the job's, on rank 0."""
        if self.rank == 0:
            print(f"muster: {text}", file=sys.stderr, flush=True)

    def say_stop(self, step: int, who: int) -> None:
        """Why all ranks stop after that step: the notice that rank `who` has got."""
        why = notice() or "a notice"
        self.say(f"stops after step {step}: {why} on rank {who} ({self.node(who)})")

    def word(self, flags: int, timeout: float) -> tuple[int, int]:
        """The flags of all ranks after the step before, and the lowest rank that had set any."""
        heard, rank = ctypes.c_uint64(), ctypes.c_int()
        _lib.check(
            _lib.library.muster_word(
                self.handle, flags, ctypes.byref(heard), ctypes.byref(rank), timeout
            )
        )
        return heard.value, rank.value

    def end_word(self, timeout: float) -> None:
        heard, rank = ctypes.c_uint64(), ctypes.c_int()
        _lib.check(
            _lib.library.muster_word_end(
                self.handle, ctypes.byref(heard), ctypes.byref(rank), timeout
            )
        )

    def gather(self, data: bytes, timeout: float) -> list[bytes]:
        """Collective, between two words: rank 0 gets what each rank has, the others nothing."""
        memory, sizes = ctypes.c_void_p(), (ctypes.c_size_t * self.world_size)()
        _lib.check(
            _lib.library.muster_word_gather(
                self.handle, data, len(data), ctypes.byref(memory), sizes, timeout
            )
        )
        if not memory:
            return []
        whole, ends = ctypes.string_at(memory, sum(sizes)), list(itertools.accumulate(sizes))
        _lib.library.muster_free(memory)
        return [whole[end - size : end] for size, end in zip(sizes, ends)]

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.world_size} on {self.node()}"


_world: World | None = None


def world() -> World:
    """The world that init() has opened."""
    if _world is None:
        raise Usage("call muster.init() first, at the beginning of the program")
    return _world


def opened() -> World | None:
    """The world, if there is one."""
    return _world


def forget() -> None:
    """The ranks have parted: the handle is gone."""
    global _world
    _world = None


def _record(number: int, frame: Any) -> None:
    _lib.library.muster_notice_record(number)


def take_notices(instead: bool = False) -> None:
    """Takes Slurm's signals. A thread of libmuster's gets them; the mask that makes this so may
    have been lifted, since Python's multiprocessing unblocks SIGTERM. Then the handler comes, which
    other packages find and chain. `instead`: in the place of another one, which would stop one rank
    alone."""
    _lib.check(_lib.library.muster_notice_begin_beside())
    if threading.current_thread() is threading.main_thread():
        for number in NOTICES:
            if instead or signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN, None):
                signal.signal(number, _record)


def mask_notices() -> None:
    _lib.library.muster_notice_begin_beside()


def notice() -> str | None:
    """The name of the first signal that came."""
    number = _lib.library.muster_notice()
    return _lib.library.muster_notice_name(number).decode() if number else None


def _free_place(one_node: bool) -> dict[str, str]:
    """Where rank 0's store can listen."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1" if one_node else socket.gethostname(),
        "MASTER_PORT": str(port),
    }


def _set_environment(world: World) -> None:
    """What init_process_group() reads. The plugin sets it; another launcher may not have."""
    place = {}
    if world.rank == 0:
        place = {k: os.environ[k] for k in ("MASTER_ADDR", "MASTER_PORT") if k in os.environ}
        if len(place) < 2:
            place = _free_place(world.node_count == 1)
    if world.world_size > 1:
        line = ctypes.create_string_buffer(json.dumps(place).encode(), _PLACE_SIZE)
        _lib.check(_lib.library.muster_broadcast(world.handle, 0, line, _PLACE_SIZE, 0))
        place = json.loads(line.value)
    given = {
        "RANK": world.rank,
        "WORLD_SIZE": world.world_size,
        "LOCAL_RANK": world.local_rank,
        "LOCAL_WORLD_SIZE": world.local_world_size,
        **place,
    }
    for name, value in given.items():
        os.environ.setdefault(name, str(value))


def open_world(timeout: float) -> World:
    """Collective: takes the notices and meets the other ranks."""
    global _world
    take_notices()
    handle = _lib.Handle()
    _lib.check(_lib.library.muster_open(ctypes.byref(handle), timeout))
    _world = World(handle)
    os.environ[TRAINER] = str(os.getpid())
    _set_environment(_world)
    return _world
