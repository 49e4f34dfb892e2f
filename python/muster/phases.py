# SPDX-License-Identifier: Apache-2.0
"""What a rank does in a step: for its flight recorder, which muster-where shows, and for the line
about a step that hangs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import _lib
from .objects import bare_optimizer

# enum muster_phase
_NUMBERS = {"data": 2, "update": 5, "forward": 9, "backward": 10, "step": 11}


class Phases:
    """The loader begins "data" and "forward". "backward" begins with the gradient of a model's last
    parameter, which comes first; "update" is in the optimizer's step. The hooks are on objects that
    copy and pickle without them, and on no module, whose forward may be compiled."""

    def __init__(self, handle: Any, on_backward: Callable[[], None] = lambda: None):
        self._handle, self._on_backward = handle, on_backward
        self._hooks: list[Any] = []
        self._step = 1
        self.name = "start"

    def begin(self, name: str, step: int | None = None) -> None:
        self.name = name
        if step is not None:
            self._step = step
        if name in _NUMBERS and self._handle is not None:
            _lib.library.muster_phase(self._handle, _NUMBERS[name], self._step)

    def watch(self, models: Iterable[Any], optimizers: Iterable[Any]) -> None:
        def backward(gradient: Any) -> None:
            if self.name != "backward":
                self.begin("backward")
                self._on_backward()

        backward.__torch_unserializable__ = True  # type: ignore[attr-defined]
        for model in models:
            parameters = [p for p in _parameters(model) if p.requires_grad]
            if parameters:
                self._hooks.append(parameters[-1].register_hook(backward))
        for optimizer in map(bare_optimizer, optimizers):
            if hasattr(optimizer, "register_step_post_hook"):  # from PyTorch 2.0 on
                before = optimizer.register_step_pre_hook(lambda *_: self.begin("update"))
                after = optimizer.register_step_post_hook(lambda *_: self.begin("step"))
                self._hooks += [before, after]

    def end(self) -> None:
        """The handle may be gone."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._handle = None


def _parameters(model: Any) -> list[Any]:
    torch = sys.modules.get("torch")
    return list(model.parameters()) if torch and isinstance(model, torch.nn.Module) else []
