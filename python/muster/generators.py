# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers that a program attaches: each rank has its own, and gets it back."""

from __future__ import annotations

from typing import Any

from . import inline
from .errors import Usage

_METHODS = (("get_state", "set_state"), ("getstate", "setstate"))  # PyTorch and NumPy; random


def _methods(value: Any) -> tuple[str, str] | None:
    for pair in _METHODS:
        if all(callable(getattr(value, name, None)) for name in pair):
            return pair
    return None


def is_generator(value: Any) -> bool:
    """Of PyTorch, NumPy (Generator, RandomState, the module numpy.random) or random."""
    if hasattr(value, "state_dict"):
        return False
    return hasattr(getattr(value, "bit_generator", None), "state") or _methods(value) is not None


def encode(generators: dict[str, Any]) -> dict[str, str]:
    states = {}
    for name, value in generators.items():
        methods = _methods(value)
        state = getattr(value, methods[0])() if methods else value.bit_generator.state
        states[name] = inline.encode(state, name)
    return states


def restore(generators: dict[str, Any], ranks: list[dict[str, str]], rank: int, count: int) -> None:
    """`ranks` has the states of each rank of the run that saved them."""
    saved = list(ranks[0]) if ranks else []
    if sorted(saved) != sorted(generators):
        raise Usage(
            f"resume: the checkpoint has the generators {saved}, and the program has "
            f"{list(generators)}: attach the same objects"
        )
    if generators and len(ranks) != count:
        raise Usage(
            f"resume: {saved[0]} has a state for each of {len(ranks)} ranks, and this run has "
            f"{count}: start as many, or give the program a directory of its own"
        )
    for name, value in generators.items():
        state, methods = inline.decode(ranks[rank][name]), _methods(value)
        if methods:
            getattr(value, methods[1])(state)
        else:
            value.bit_generator.state = state
