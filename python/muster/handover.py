# SPDX-License-Identifier: Apache-2.0
"""How a save leaves GPUs: their tensors are copied to pinned memory beside what the GPUs compute
next, and are handed over by a thread once they are there."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _lib, errors
from .objects import bare_optimizer, is_optimizer


def _bytes_of(value: Any) -> int:
    return int(value.numel() * value.element_size())


class Copier:
    """Copies tensors of GPUs, on a stream of its own for each. `cuda` is torch.cuda; `sharers` is
    how many ranks of this node copy at the same time."""

    def __init__(self, cuda: Any, sharers: int = 1):
        self._cuda, self._sharers = cuda, sharers
        self._streams: dict[Any, Any] = {}
        self._pinned: dict[str, Any] = {}

    def is_remote(self, value: Any) -> bool:
        return getattr(getattr(value, "device", None), "type", None) == "cuda"

    def _stream(self, device: Any) -> Any:
        if device not in self._streams:
            self._streams[device] = self._cuda.Stream(device)
        return self._streams[device]

    def _has(self, name: str, value: Any) -> bool:
        have = self._pinned.get(name)
        return have is not None and (have.dtype, have.shape) == (value.dtype, value.shape)

    def _check_memory(self, values: Mapping[str, Any]) -> None:
        """Refuses what would end the job for its memory."""
        needed = sum(_bytes_of(v) for name, v in values.items() if not self._has(name, v))
        left = _lib.library.muster_memory() // self._sharers
        if left and needed > left:
            raise errors.Error(
                errors.FAULT,
                f"checkpoint: couldn't copy the state from the GPUs: that needs {needed / 1e6:.0f} "
                f"MB of memory, and {left / 1e6:.0f} MB are left: ask Slurm for more (--mem)",
            )

    def _memory(self, name: str, value: Any) -> Any:
        """Pinned memory for it; that of the save before is used again."""
        import torch

        have = self._pinned.get(name)
        if not self._has(name, value):
            self._pinned[name] = have = torch.empty(
                value.shape, dtype=value.dtype, pin_memory=self._cuda is torch.cuda
            )
        return have

    def copy(self, host: Any, value: Any, stream: Any) -> None:
        """Queued on the stream. Its memory must last until then, though the program lets it go."""
        host.copy_(value, non_blocking=True)
        value.record_stream(stream)

    def begin(
        self, tensors: Mapping[str, Any], late: set[str]
    ) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
        """All of them in host memory, and for each GPU the event after which they are there. What
        the program queues from now on waits for those that are not `late`."""
        remote: dict[Any, list[tuple[str, Any]]] = {}
        hosts = {}
        self._check_memory({n: v for n, v in tensors.items() if self.is_remote(v)})
        for name, value in tensors.items():
            if self.is_remote(value):
                remote.setdefault(value.device, []).append((name, value.detach()))
            elif hasattr(value, "detach"):
                hosts[name] = value.detach().clone()
            else:
                hosts[name] = copy.copy(value)  # an array, or a loss that is a number
        events = []
        for device, named in remote.items():
            stream, current = self._stream(device), self._cuda.current_stream(device)
            stream.wait_stream(current)
            for waits in (False, True):
                with self._cuda.stream(stream):
                    for name, value in named:
                        if (name in late) is waits:
                            plain = value.resolve_conj().resolve_neg()
                            hosts[name] = self._memory(name, plain)
                            self.copy(hosts[name], plain, stream)
                event = self._cuda.Event(blocking=True)
                event.record(stream)
                if not waits:
                    current.wait_event(event)
            events.append((device, event))
        return hosts, events

    def wait(self, events: Iterable[tuple[Any, Any]]) -> None:
        """What the program queues from now on waits for them."""
        for device, event in events:
            self._cuda.current_stream(device).wait_event(event)


class Handover:
    """Saves that are under way from GPUs, one at a time. The next step's update of the weights
    waits for their copies on the GPU, and nothing else does."""

    def __init__(self, objects: Iterable[Any], sharers: int):
        self.copier = Copier(getattr(sys.modules.get("torch"), "cuda", None), sharers)
        self._thread: threading.Thread | None = None
        self._events: list[tuple[Any, Any]] = []
        self._error: BaseException | None = None
        optimizers = [bare_optimizer(value) for value in objects if is_optimizer(value)]
        self._hooks = [
            value.register_step_pre_hook(lambda *_: self._before_update())
            for value in optimizers
            if _can_wait(value)
        ]
        self._guarded = 0 < len(optimizers) == len(self._hooks)

    def is_needed(self, tensors: Mapping[str, Any]) -> bool:
        return any(map(self.copier.is_remote, tensors.values()))

    def _before_update(self) -> None:
        self.copier.wait(self._events)

    def begin(
        self,
        tensors: Mapping[str, Any],
        late: set[str],
        hand_over: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.join()
        hosts, events = self.copier.begin(tensors, late)
        self._events = events
        if not self._guarded:
            self._before_update()

        def run() -> None:
            try:
                for _, event in events:
                    event.synchronize()
                hand_over(hosts)
            except BaseException as error:  # whoever asks for the save next raises it
                self._error = error

        self._thread = threading.Thread(target=run, name="muster-save", daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the save before is handed over, and raises what it came to."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return True

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _can_wait(value: Any) -> bool:
    """From PyTorch 2.0 on, and where the step is not replayed from a CUDA graph."""
    groups = getattr(value, "param_groups", ())
    return hasattr(value, "register_step_pre_hook") and not any(
        group.get("capturable") for group in groups
    )
