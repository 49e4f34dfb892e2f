# SPDX-License-Identifier: Apache-2.0
"""Nested state of JAX and NumPy programs (a pytree): arrays and plain values in mappings, lists,
tuples and, where JAX is used, whatever is registered with it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from . import errors
from .errors import Refused


def _jax() -> Any:
    """The module, if the program uses it: nothing here imports it before."""
    return sys.modules.get("jax")


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """None for a leaf."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [(str(key), value[key]) for key in value]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value))
    if isinstance(value, (list, tuple)):
        return [(str(i), inner) for i, inner in enumerate(value)]
    return None


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    children = _children(value)
    if children is None:
        yield "/".join(path), value
    for name, inner in children or ():
        yield from _walk(inner, (*path, name))


def _rebuild(value: Any, leaves: Iterator[Any]) -> Any:
    kind: Any = type(value)
    if value is None:
        return None
    if isinstance(value, Mapping):
        rebuilt: Any = copy.copy(value)  # which has what else a kind of mapping holds
        rebuilt.update((key, _rebuild(value[key], leaves)) for key in value)
        return rebuilt
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(_rebuild(inner, leaves) for inner in value))
    if isinstance(value, (list, tuple)):
        return kind(_rebuild(inner, leaves) for inner in value)
    return next(leaves)


def _key_name(key: Any) -> str:
    """Of one step on a path of JAX's."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    jax = _jax()
    if jax is None:
        return list(_walk(tree, ()))
    with_paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [("/".join(map(_key_name, path)), leaf) for path, leaf in with_paths]


def _with_leaves(tree: Any, leaves: list[Any]) -> Any:
    jax = _jax()
    if jax is None:
        return _rebuild(tree, iter(leaves))
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), leaves)


def _is_of_jax(leaf: Any) -> bool:
    jax = _jax()
    return jax is not None and isinstance(leaf, jax.Array)


def _is_key(leaf: Any) -> bool:
    return bool(_jax().dtypes.issubdtype(leaf.dtype, _jax().dtypes.prng_key))


def _host(name: str, leaf: Any) -> Any:
    """What is saved of a leaf."""
    if not _is_of_jax(leaf):
        return leaf
    if not leaf.is_fully_addressable:
        raise Refused(
            f"state/{name}: an array that is sharded over processes can't be saved: give what "
            "each process has of it"
        )
    import numpy

    return numpy.asarray(_jax().random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(name: str, saved: Any, leaf: Any) -> Any:
    """What was saved, as the program's own leaf is."""
    if _is_of_jax(leaf) and _is_key(leaf):
        return _jax().random.wrap_key_data(saved, impl=_jax().random.key_impl(leaf))
    own, found = ((getattr(v, "shape", None), getattr(v, "dtype", None)) for v in (leaf, saved))
    if own != found:
        raise errors.Error(
            errors.DATA,
            f"resume: state/{name} has shape and type {found} in the checkpoint, and {own} in the "
            "program: give the same, or the program a directory of its own",
        )
    return _jax().device_put(saved, leaf.sharding) if _is_of_jax(leaf) else saved


class State:
    """The tree that the program has, as an object of the run."""

    def __init__(self, tree: Any):
        self.tree = tree

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, leaf in _leaves(self.tree):
            if name in found:
                raise Refused(f"state/{name}: two values have this name")
            found[name] = _host(name, leaf)
        return found

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        own = _leaves(self.tree)
        missing = min({name for name, _ in own} ^ {*saved}, default=None)
        if missing is not None:
            who = "the program" if missing in saved else "the checkpoint"
            raise errors.Error(
                errors.DATA,
                f"resume: {who} has no state/{missing}: give the same tree, or the program a "
                "directory of its own",
            )
        self.tree = _with_leaves(self.tree, [_like(name, saved[name], leaf) for name, leaf in own])
