# SPDX-License-Identifier: Apache-2.0
"""The state of one rank as text, its tensors included. It is no part of the tensors of a
checkpoint, which all ranks that save have to know, but of its values."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from .values import Decoder, Encoder, dumps


def _inline(value: Any) -> dict[str, Any]:
    """A tensor or an array in JSON."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        flat = value.detach().to("cpu").contiguous().flatten()
        data = flat.view(torch.uint8).numpy().tobytes() if value.numel() else b""
        dtype = str(value.dtype)[len("torch.") :]
    else:
        data, dtype = value.tobytes(), value.dtype.str
    text = base64.b64encode(data).decode("ascii")
    return {"dtype": dtype, "shape": list(value.shape), "bytes": text}


def encode(state: Any, name: str) -> str:
    tensors: dict[str, Any] = {}
    encoded = Encoder(tensors).encode(state, name)
    return dumps({"state": encoded, "tensors": {k: _inline(v) for k, v in tensors.items()}})


def decode(text: str) -> Any:
    whole = json.loads(text)

    def tensor(name: str) -> Any:
        import torch

        entry = whole["tensors"][name]
        dtype, data = getattr(torch, entry["dtype"]), base64.b64decode(entry["bytes"])
        if not data:
            return torch.empty(entry["shape"], dtype=dtype)
        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return flat.view(dtype).reshape(entry["shape"])

    def array(name: str) -> Any:
        import numpy

        entry = whole["tensors"][name]
        flat = numpy.frombuffer(bytearray(base64.b64decode(entry["bytes"])), entry["dtype"])
        return flat.reshape(entry["shape"])

    return Decoder(tensor, array).decode(whole["state"])
