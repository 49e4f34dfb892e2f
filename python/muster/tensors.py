# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch and arrays of NumPy as libmuster takes and gives them: in host memory,
row-major, under the names that safetensors has for their types."""

from __future__ import annotations

import ctypes
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _lib, errors
from .errors import Refused

# As in the table of doc/checkpoint-format.md, section 2: PyTorch's name, safetensors' name.
_TORCH_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
_NAMES = {given: name for name, given in _TORCH_TYPES.items()}


def is_type(name: str) -> bool:
    """Whether the format has a type of this name of PyTorch's and NumPy's."""
    return name in _TORCH_TYPES


def name_of_type(name: str, dtype: Any) -> str:
    """safetensors' name for a dtype of PyTorch, that of a tensor."""
    own = str(dtype)[len("torch.") :]
    if own not in _TORCH_TYPES:
        raise Refused(f"{name}: values of type {own} can't be saved")
    return _TORCH_TYPES[own]


def type_of_name(name: str, dtype: str) -> Any:
    """The dtype of PyTorch for safetensors' name of it."""
    import torch

    found = getattr(torch, _NAMES.get(dtype, ""), None)
    if found is None:
        raise errors.Error(
            errors.USAGE,
            f"checkpoint: tensor {name} is of type {dtype}, which PyTorch {torch.__version__} does "
            "not have",
        )
    return found


def _is_array(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy"


def _why_not(value: Any) -> str | None:
    """Why a tensor of PyTorch can't be saved."""
    import torch

    if value.layout is not torch.strided or value.is_quantized:
        return "a sparse or quantized tensor can't be saved: give its parts"
    if value.device.type == "meta":
        return "a tensor on the meta device has no values"
    if hasattr(value, "local_shards"):
        return f"a {type(value).__name__} is only a part of a tensor: save it by muster.dcp"
    return None


def checked_type(name: str, value: Any) -> str:
    """The type of a tensor or an array as safetensors names it. Refuses what can't be saved; copies
    nothing."""
    why = None if _is_array(value) else _why_not(value)
    dtype = value.dtype.name if _is_array(value) else str(value.dtype)[len("torch.") :]
    if why is None and dtype not in _TORCH_TYPES:
        why = f"values of type {dtype} can't be saved"
    if why is None and value.ndim > _lib.DIMS:
        why = f"it has {value.ndim} dimensions; {_lib.DIMS} are the most"
    if why is not None:
        raise Refused(f"{name}: {why}")
    return _TORCH_TYPES[dtype]


class HostTensor:
    """A tensor or an array in host memory, which it holds as long as it lives."""

    def __init__(self, name: str, value: Any):
        self.dtype = checked_type(name, value)
        self.shape = tuple(value.shape)
        if _is_array(value):
            import numpy

            self._held = numpy.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
            self.data = self._held.ctypes.data
        else:
            self._held = value.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
            self.data = self._held.data_ptr()


@dataclass
class Entry:
    """What is saved of a tensor: all of it, or a box. `rank` has it and saves it; ALL_RANKS: all
    have it, and any may save it. `data` is where it lies in host memory; 0: on another rank."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rank: int = 0
    offset: tuple[int, ...] | None = None
    whole: tuple[int, ...] | None = None
    data: int = 0


def _describe(entries: Sequence[Entry]) -> tuple[Any, Any]:
    """Arrays of struct muster_tensor and of struct muster_placement."""
    described = (_lib.Tensor * len(entries))()
    placed = (_lib.Placement * len(entries))()
    for one, place, entry in zip(described, placed, entries):
        one.name = entry.name.encode()
        one.dtype = entry.dtype.encode()
        one.dims = len(entry.shape)
        one.shape[: len(entry.shape)] = entry.shape
        one.data = entry.data or None
        place.rank = entry.rank
        if entry.offset is not None and entry.whole is not None and entry.shape != entry.whole:
            place.is_box = 1
            place.shape[: len(entry.whole)] = entry.whole
            place.offset[: len(entry.offset)] = entry.offset
    return described, placed


def state_of(
    model: Sequence[Entry],
    others: Sequence[Entry],
    *,
    values: bytes = b"{}",
    cursor: int = 0,
    loss: float = math.nan,
    validation_loss: float = math.nan,
) -> _lib.State:
    """A struct muster_state of these tensors, whose memory must outlive it."""
    of_model, of_others = _describe(model), _describe(others)
    return _lib.State(
        size=ctypes.sizeof(_lib.State),
        model=of_model[0],
        model_count=len(model),
        state=of_others[0],
        state_count=len(others),
        values=values,
        cursor=cursor,
        loss=loss,
        validation_loss=validation_loss,
        model_placements=of_model[1],
        state_placements=of_others[1],
    )


def read_box(saved: Any, name: str, offset: Sequence[int], shape: Sequence[int], out: Any) -> None:
    """Fills a tensor in host memory, row-major, with a box of one of an open checkpoint."""
    numbers = ctypes.c_int64 * max(1, len(shape))
    _lib.check(
        _lib.library.muster_saved_read_box(
            saved, name.encode(), numbers(*offset), numbers(*shape), out.data_ptr()
        )
    )


class Reader:
    """Reads the tensors of an open checkpoint, each once."""

    def __init__(self, saved: Any):
        self.saved = saved
        self._read: dict[tuple[str, bool], Any] = {}
        self.shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
        tensor = _lib.Tensor()
        for state in (0, 1):
            for index in range(_lib.library.muster_saved_count(saved, state)):
                _lib.check(
                    _lib.library.muster_saved_tensor(saved, state, index, ctypes.byref(tensor))
                )
                shape = tuple(tensor.shape[: tensor.dims])
                self.shapes[tensor.name.decode()] = (tensor.dtype.decode(), shape)

    def _described(self, name: str) -> tuple[str, tuple[int, ...], int]:
        if name not in self.shapes:
            raise errors.Error(errors.DATA, f"checkpoint: it has no tensor {name}, which it names")
        dtype, shape = self.shapes[name]
        count = 1
        for length in shape:
            count *= length
        return dtype, shape, count

    def _fill(self, name: str, count: int, data: int) -> None:
        if count > 0:
            _lib.check(_lib.library.muster_saved_read(self.saved, name.encode(), 0, count, data))

    def tensor(self, name: str) -> Any:
        import torch

        if (name, False) not in self._read:
            dtype, shape, count = self._described(name)
            tensor = torch.empty(shape, dtype=type_of_name(name, dtype))
            self._fill(name, count, tensor.data_ptr())
            self._read[name, False] = tensor
        return self._read[name, False]

    def array(self, name: str) -> Any:
        import numpy

        if (name, True) not in self._read:
            dtype, shape, count = self._described(name)
            array: Any = numpy.empty(shape, dtype=_NAMES.get(dtype, dtype))
            self._fill(name, count, array.ctypes.data)
            self._read[name, True] = array
        return self._read[name, True]


def read_safetensors(path: str) -> dict[str, Any]:
    """The tensors of a safetensors file, as PyTorch's."""
    import torch

    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = getattr(torch, _NAMES[entry["dtype"]])
        flat = (
            torch.frombuffer(data, dtype=torch.uint8, count=end - begin, offset=begin)
            if end > begin
            else torch.empty(0, dtype=torch.uint8)
        )
        tensors[name] = flat.clone().view(dtype).reshape(entry["shape"])
    return tensors
