# SPDX-License-Identifier: Apache-2.0
"""A GPU that is the host: its tensors are the CPU's, and what is queued on a stream of it happens
later, in a thread."""

import queue
import threading
import time

import torch

from muster import handover


class Event(threading.Event):
    def __init__(self, blocking=False):
        super().__init__()

    def record(self, stream):
        stream.queue.put(self.set)

    def synchronize(self):
        self.wait()


class Stream:
    def __init__(self, device):
        self.queue = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            self.queue.get()()

    def wait_stream(self, other):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Current:
    """The stream on which the program computes: what waits is the program."""

    def wait_event(self, event):
        event.wait()


class Cuda:
    Event, Stream = Event, Stream

    def current_stream(self, device):
        return Current()

    def stream(self, stream):
        return stream


class Copier(handover.Copier):
    """Each tensor takes these seconds."""

    def __init__(self, seconds):
        super().__init__(Cuda())
        self._seconds = seconds

    def is_remote(self, value):
        return isinstance(value, torch.Tensor)

    def copy(self, host, value, stream):
        def later():
            time.sleep(self._seconds)
            host.copy_(value)

        stream.queue.put(later)


class _AdamW(torch.optim.AdamW):
    """PyTorch has such hooks since 2.0."""

    def register_step_pre_hook(self, hook):
        self.__dict__.setdefault("before", []).append(hook)
        hook.remove = lambda: None
        return hook

    def step(self, closure=None):
        for hook in self.__dict__.get("before", ()):
            hook(self, (), {})
        return super().step(closure)


HAS_HOOKS = hasattr(torch.optim.AdamW, "register_step_pre_hook")
AdamW = torch.optim.AdamW if HAS_HOOKS else _AdamW
