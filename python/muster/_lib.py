# SPDX-License-Identifier: Apache-2.0
"""libmuster by ctypes: its structs, its functions, and its errors as exceptions (muster(3))."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any

from .errors import OK, Error

NO_SAMPLE = 2**64 - 1
DIMS = 8
SONAME = "libmuster.so.0"


class Tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("dims", c_int),
        ("shape", c_int64 * DIMS),
        ("data", c_void_p),
    ]


class Plan(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("dir", c_char_p),
        ("tensors", POINTER(Tensor)),
        ("tensor_count", c_size_t),
        ("keep_last", c_size_t),
        ("keep_every", c_int64),
        ("timeout", c_double),
        ("keep_best", c_size_t),
        ("identity", c_char_p),
        ("writers", c_int),
    ]


ALL_RANKS = -1


class Placement(Structure):
    _fields_ = [
        ("rank", c_int),
        ("is_box", c_int),
        ("shape", c_int64 * DIMS),
        ("offset", c_int64 * DIMS),
    ]


class State(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("model", POINTER(Tensor)),
        ("model_count", c_size_t),
        ("state", POINTER(Tensor)),
        ("state_count", c_size_t),
        ("config", c_char_p),
        ("values", c_char_p),
        ("cursor", c_uint64),
        ("loss", c_double),
        ("validation_loss", c_double),
        ("model_placements", POINTER(Placement)),
        ("state_placements", POINTER(Placement)),
    ]


class Order(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("seed", c_uint64),
        ("count", c_uint64),
        ("batch", c_uint64),
        ("shuffle", c_int),
        ("complete", c_int),
    ]


class _Opaque(Structure):
    pass


Handle = POINTER(_Opaque)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "muster_error": (c_char_p, []),
    "muster_version": (c_char_p, []),
    "muster_open": (c_int, [POINTER(Handle), c_double]),
    "muster_close": (None, [Handle, c_int]),
    "muster_rank": (c_int, [Handle]),
    "muster_world_size": (c_int, [Handle]),
    "muster_local_rank": (c_int, [Handle]),
    "muster_local_world_size": (c_int, [Handle]),
    "muster_node_rank": (c_int, [Handle]),
    "muster_node_count": (c_int, [Handle]),
    "muster_attempt": (c_int, [Handle]),
    "muster_node": (c_char_p, [Handle, c_int]),
    "muster_fence": (c_int, [Handle, c_double]),
    "muster_agree": (c_int, [Handle, c_int, c_char_p, c_double]),
    "muster_broadcast": (c_int, [Handle, c_int, c_void_p, c_size_t, c_double]),
    "muster_allgather": (c_int, [Handle, c_void_p, c_void_p, c_size_t, c_double]),
    "muster_abort": (None, [Handle, c_int, c_char_p]),
    "muster_notice_begin_beside": (c_int, []),
    "muster_notice_record": (None, [c_int]),
    "muster_worker_begin": (c_int, [c_int64]),
    "muster_notice": (c_int, []),
    "muster_notice_fd": (c_int, []),
    "muster_notice_name": (c_char_p, [c_int]),
    "muster_progress": (None, []),
    "muster_phase": (None, [Handle, c_int, c_int64]),
    "muster_word_begin": (c_int, [Handle, c_double]),
    "muster_word": (c_int, [Handle, c_uint64, POINTER(c_uint64), POINTER(c_int), c_double]),
    "muster_word_end": (c_int, [Handle, POINTER(c_uint64), POINTER(c_int), c_double]),
    "muster_word_gather": (
        c_int,
        [Handle, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t), c_double],
    ),
    "muster_free": (None, [c_void_p]),
    "muster_order_steps": (c_int, [POINTER(Order), POINTER(c_uint64)]),
    "muster_order_samples": (
        c_int,
        [POINTER(Order), c_uint64, c_uint64, c_size_t, POINTER(c_uint64)],
    ),
    "muster_tree_rank": (
        c_int,
        [c_int, c_int, c_int, POINTER(c_int), POINTER(c_int), POINTER(c_int)],
    ),
    "muster_tree_join": (c_int, [c_int, c_int, POINTER(c_int), POINTER(c_int)]),
    "muster_ckpt_resume_state": (
        c_int,
        [Handle, POINTER(Plan), c_double, POINTER(Handle), POINTER(Handle)],
    ),
    "muster_ckpt_save_state": (c_int, [Handle, c_int64, POINTER(State)]),
    "muster_ckpt_own": (c_int, [Handle, POINTER(State), c_char_p]),
    "muster_memory": (c_size_t, []),
    "muster_ckpt_wait": (c_int, [Handle, c_int64, c_double]),
    "muster_ckpt_attempt": (c_int, [Handle]),
    "muster_ckpt_close": (c_int, [Handle, c_int, c_char_p]),
    "muster_saved_open": (c_int, [c_char_p, c_int64, c_double, POINTER(Handle)]),
    "muster_saved_step": (c_int64, [Handle]),
    "muster_saved_manifest": (c_char_p, [Handle]),
    "muster_saved_values": (c_int, [Handle, POINTER(c_char_p)]),
    "muster_saved_count": (c_size_t, [Handle, c_int]),
    "muster_saved_tensor": (c_int, [Handle, c_int, c_size_t, POINTER(Tensor)]),
    "muster_saved_read": (c_int, [Handle, c_char_p, c_uint64, c_uint64, c_void_p]),
    "muster_saved_read_box": (
        c_int,
        [Handle, c_char_p, POINTER(c_int64), POINTER(c_int64), c_void_p],
    ),
    "muster_saved_close": (None, [Handle]),
    "muster_end": (c_int, [Handle, Handle, c_void_p, c_int, c_double]),
}


def _candidates() -> list[str]:
    """Where libmuster may be; the first that is there counts. What is installed on the machine goes
    before what the wheel has, if it is of the same release."""
    here = pathlib.Path(__file__).resolve().parent
    given = os.environ.get("MUSTER_LIBRARY")
    if given:
        return [given]
    own = here / "native" / "lib" / SONAME  # of a wheel
    beside = here.parents[3] / "lib" / SONAME  # PREFIX/share/muster/python/muster is this folder
    found = ctypes.util.find_library("muster")
    installed = [name for name in (str(beside), found, f"/usr/local/lib/{SONAME}") if name]
    if own.exists():
        installed = [name for name in installed if _version_of(name) == _version_of(str(own))]
    return [*installed, str(own)]


def _version_of(name: str) -> bytes | None:
    try:
        version = ctypes.CDLL(name).muster_version
    except (OSError, AttributeError):
        return None
    version.restype = c_char_p
    return bytes(version())


def _load() -> tuple[ctypes.CDLL, str]:
    reasons = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate), candidate
        except OSError as error:
            reasons.append(f"{candidate}: {error}")
    raise ImportError(
        "couldn't load libmuster: install Muster, or set MUSTER_LIBRARY to its libmuster.so.0 ("
        + "; ".join(reasons)
        + ")"
    )


library, path = _load()
for _name, (_result, _arguments) in _SIGNATURES.items():
    try:
        _function = getattr(library, _name)
    except AttributeError:
        raise ImportError(
            f"{path} is too old: it has no {_name}; install the Muster that this package came with"
        ) from None
    _function.restype, _function.argtypes = _result, _arguments


def version() -> str:
    return str(library.muster_version().decode())


def error_text() -> str:
    return str(library.muster_error().decode("utf-8", "replace"))


def check(status: int) -> None:
    """Raises what a status other than 0 stands for."""
    if status != OK:
        raise Error(status, error_text())
