# SPDX-License-Identifier: Apache-2.0
"""Training state as JSON and tensors, and back (section 2.5 of doc/checkpoint-format.md).

Nothing is pickled: a value that has no place in the format is refused, by the name of its key.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .errors import Refused
from .tensors import is_type

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DEPTH_MAX = 200  # of values in values; more is most likely one that holds itself

Json = Any  # what json.dumps takes


def _torch() -> Any:
    """The module, if the program uses it: nothing here imports it."""
    return sys.modules.get("torch")


def _numpy() -> Any:
    return sys.modules.get("numpy")


def _is_plain(text: str) -> bool:
    """Whether JSON holds the text as it is: no surrogate, no U+0000."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


class Encoder:
    """Encodes values. Tensors and arrays are not part of the JSON text: each goes to `tensors`,
    under a name made of the keys that lead to it; one that is met again keeps its first name."""

    def __init__(self, tensors: dict[str, Any], known: dict[Any, str] | None = None):
        self.tensors = tensors
        self.known: dict[Any, str] = {} if known is None else known

    def encode(self, value: Any, name: str) -> Json:
        return self._any(value, (name,))

    # ---- one kind of value each ----

    def _any(self, value: Any, path: tuple[str, ...]) -> Json:
        if len(path) > DEPTH_MAX:
            raise Refused(
                f"{_short(path)}: nested more than {DEPTH_MAX} deep: does it hold itself?"
            )
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is int:
            return value if INT64_MIN <= value <= INT64_MAX else {"$int": str(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind is str:
            return self._text(value)
        if kind is complex:
            return {"$complex": [self._any(value.real, path), self._any(value.imag, path)]}
        if kind is bytes:
            return {"$bytes": _base64(value)}
        if kind is list:
            return self._items(value, path)
        if kind is tuple:
            return {"$tuple": self._items(value, path)}
        if kind is set:
            return {"$set": self._items(value, path)}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        return self._foreign(value, path)

    @staticmethod
    def _text(value: str) -> Json:
        if _is_plain(value):
            return value
        return {"$text": _base64(value.encode("utf-8", "surrogatepass"))}

    def _items(self, values: Any, path: tuple[str, ...]) -> list[Json]:
        return [self._any(value, (*path, str(i))) for i, value in enumerate(values)]

    def _mapping(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> Json:
        if all(type(k) is str and _is_plain(k) and not k.startswith("$") for k in value):
            return {k: self._any(v, (*path, k)) for k, v in value.items()}
        return {
            "$map": [
                [self._any(k, (*path, "a key")), self._any(v, (*path, str(k)))]
                for k, v in value.items()
            ]
        }

    def _foreign(self, value: Any, path: tuple[str, ...]) -> Json:
        """Values of PyTorch and NumPy, where the program has imported them."""
        torch, numpy = _torch(), _numpy()
        if torch is not None:
            if isinstance(value, torch.Tensor):
                return {"$tensor": self._tensor(value, path, _tensor_key(value))}
            if isinstance(value, torch.Size):
                return {"$size": list(value)}
            if isinstance(value, torch.dtype):
                return {"$dtype": str(value).removeprefix("torch.")}
            if isinstance(value, torch.device):
                return {"$device": str(value)}
        if numpy is not None:
            if isinstance(value, numpy.ndarray) and (
                value.dtype.kind in "biufc" or is_type(value.dtype.name)  # as of ml_dtypes
            ):
                return {"$array": self._tensor(value, path, ("array", id(value)))}
            if isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
                return {"$scalar": [value.dtype.name, self._any(value.item(), path)]}
        kind = type(value)
        raise Refused(
            f"{_short(path)}: a {kind.__module__}.{kind.__qualname__} can't be saved: only "
            "tensors, arrays, numbers, text, bytes, lists, tuples, sets and mappings of them can"
        )

    def _tensor(self, value: Any, path: tuple[str, ...], key: Any) -> str:
        name = self.known.get(key)
        if name is None:
            name = self._free_name("/".join(path))
            self.known[key] = name
            self.tensors[name] = value
        return name

    def _free_name(self, wanted: str) -> str:
        """Two paths may join to one name, and names have no U+0000."""
        wanted = "".join(c if _is_plain(c) else "?" for c in wanted)
        name, number = wanted, 1
        while name in self.tensors:
            number += 1
            name = f"{wanted}~{number}"
        return name


def _short(path: tuple[str, ...]) -> str:
    """The path of a message, of which a value in itself would make a long one."""
    return "/".join(path if len(path) < 12 else (*path[:6], "…", *path[-3:]))


def _tensor_key(tensor: Any) -> Any:
    """The same for two tensors that are one: tied weights are saved once. A sharded tensor has no
    memory of its own."""
    is_sharded = hasattr(tensor, "device_mesh")
    if is_sharded or tensor.numel() == 0 or tensor.layout is not _torch().strided:
        return ("tensor", id(tensor))
    return (
        "tensor",
        str(tensor.device),
        tensor.data_ptr(),
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
    )


def dumps(encoded: Json) -> str:
    return json.dumps(encoded, allow_nan=False, separators=(",", ":"))


_TAGS = (
    *("$int", "$float", "$text", "$bytes", "$complex", "$tuple", "$set", "$map"),
    *("$tensor", "$array", "$scalar", "$dtype", "$device", "$size"),
)


class Decoder:
    """Decodes what Encoder has made; `tensor(name)` and `array(name)` give the others."""

    def __init__(self, tensor: Callable[[str], Any], array: Callable[[str], Any]):
        self.tensor = tensor
        self.array = array

    def decode(self, value: Json) -> Any:
        if isinstance(value, list):
            return [self.decode(v) for v in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            tag, content = next(iter(value.items()))
            if tag.startswith("$"):
                return self._tagged(tag, content)
        return {k: self.decode(v) for k, v in value.items()}

    def _tagged(self, tag: str, content: Json) -> Any:
        if tag not in _TAGS:
            raise Refused(f"the checkpoint has a value that this release does not know: {tag}")
        return getattr(self, "_" + tag[1:])(content)

    def _int(self, content: str) -> int:
        return int(content)

    def _float(self, content: str) -> float:
        return float(content)

    def _text(self, content: str) -> str:
        return base64.b64decode(content).decode("utf-8", "surrogatepass")

    def _bytes(self, content: str) -> bytes:
        return base64.b64decode(content)

    def _complex(self, content: list[Json]) -> complex:
        real, imaginary = self.decode(content)
        return complex(real, imaginary)

    def _tuple(self, content: list[Json]) -> tuple[Any, ...]:
        return tuple(self.decode(content))

    def _set(self, content: list[Json]) -> set[Any]:
        return set(self.decode(content))

    def _map(self, content: list[list[Json]]) -> dict[Any, Any]:
        return {self.decode(k): self.decode(v) for k, v in content}

    def _tensor(self, content: str) -> Any:
        return self.tensor(content)

    def _array(self, content: str) -> Any:
        return self.array(content)

    def _scalar(self, content: list[Json]) -> Any:
        import numpy

        return numpy.dtype(content[0]).type(self.decode(content[1]))

    def _dtype(self, content: str) -> Any:
        import torch

        found = getattr(torch, content, None)
        if not isinstance(found, torch.dtype):
            raise Refused(f"the checkpoint has a dtype that this PyTorch does not know: {content}")
        return found

    def _device(self, content: str) -> Any:
        import torch

        return torch.device(content)

    def _size(self, content: list[int]) -> Any:
        import torch

        return torch.Size(content)
