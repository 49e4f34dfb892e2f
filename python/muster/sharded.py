# SPDX-License-Identifier: Apache-2.0
"""Tensors of which each rank has a part: PyTorch's DTensor, as under FSDP2. A part is a box: ranges
of indices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from . import tensors
from .errors import Usage


class Box(NamedTuple):
    rank: int
    offset: tuple[int, ...]
    shape: tuple[int, ...]


def is_sharded(value: Any) -> bool:
    return hasattr(value, "device_mesh") and hasattr(value, "placements")


def _box(shape: Any, mesh: Any, placements: Any, coordinate: Any) -> tuple[Any, Any]:
    """The shape and the offset of what is at a coordinate of the mesh."""
    try:
        from torch.distributed.tensor import _utils

        compute = _utils._compute_local_shape_and_global_offset
    except (ImportError, AttributeError):
        raise Usage("sharded state needs PyTorch 2.6 or later") from None
    found: tuple[Any, Any] = compute(shape, tuple(mesh.shape), list(coordinate), placements)
    return found


@functools.cache
def _boxes(shape: tuple[int, ...], mesh: Any, placements: Any) -> list[Box]:
    ranks = mesh.mesh
    found: dict[Any, Box] = {}
    for coordinate in itertools.product(*map(range, ranks.shape)):
        size, offset = _box(shape, mesh, placements, coordinate)
        box = Box(int(ranks[coordinate]), tuple(offset), tuple(size))
        known = found.get(box[1:])
        if 0 not in size and (known is None or box.rank < known.rank):
            found[box[1:]] = box
    return sorted(found.values())


def boxes(name: str, value: Any) -> list[Box]:
    """All boxes of a tensor, the same on all ranks: where several have one, the lowest of them
    saves it."""
    for placement in value.placements:
        if placement.is_partial():
            raise Usage(f"{name}: a sum that is not complete can't be saved")
    return _boxes(tuple(value.shape), value.device_mesh, tuple(value.placements))


def local(value: Any) -> Any:
    """What this rank has."""
    return value.to_local() if is_sharded(value) else value


def spread(whole: Any, like: Any) -> Any:
    """Collective: the tensor, sharded as another one is, if that is."""
    if not is_sharded(like) or is_sharded(whole):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole.to(local(like).device), like.device_mesh, like.placements)


def read(saved: Any, name: str, dtype: Any, like: Any) -> Any:
    """A tensor of an open checkpoint, sharded as another one: this rank reads its own part."""
    import torch

    coordinate = like.device_mesh.get_coordinate()
    part = torch.empty(tuple(local(like).shape), dtype=dtype)
    if coordinate is not None and part.numel() > 0:
        shape, offset = _box(
            tuple(like.shape), like.device_mesh, tuple(like.placements), coordinate
        )
        tensors.read_box(saved, name, offset, shape, part)
    return type(like).from_local(
        part.to(local(like).device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """All sharded tensors in a state, by the names that they are saved under."""
    if is_sharded(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _walk(inner, f"{path}/{i}")


class Templates:
    """How the tensors of an object are to be sharded: as they are in the object's own state. An
    optimizer has no state before its first step; it is sharded as the parameters are."""

    def __init__(self, name: str, value: Any, state: Any):
        self._own = dict(_walk(state, name))
        self._front = f"{name}/state/"
        groups = getattr(value, "param_groups", None)
        self._parameters = [p for group in groups for p in group["params"]] if groups else []

    def find(self, name: str, shape: tuple[int, ...]) -> Any:
        if name in self._own:
            return self._own[name]
        number = name[len(self._front) :].partition("/")[0]
        if not name.startswith(self._front) or not number.isdigit():
            return None
        i = int(number)
        like = self._parameters[i] if i < len(self._parameters) else None
        if like is None or not is_sharded(like) or tuple(like.shape) != shape:
            return None
        return like
