# SPDX-License-Identifier: Apache-2.0
"""What the package raises. `status` is the exit status that goes with it (doc/exit-status.md)."""

from __future__ import annotations

from typing import Any

OK, FAULT, USAGE, DATA, LOST, REQUEUE = 0, 1, 2, 65, 69, 75


class Error(RuntimeError):
    """A call of libmuster has failed. Where nobody catches it, the program ends with its line and
    its status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        """Ranks send it to each other."""
        return _rebuilt, (type(self), self.status, str(self))


class Usage(Error, ValueError):
    """The program asks for something impossible; the line says what to change."""

    def __init__(self, text: str):
        super().__init__(USAGE, text)


class Refused(Usage):
    """A value that can't be saved; the text names its key."""


def _rebuilt(kind: type[Error], status: int, text: str) -> Error:
    error = kind.__new__(kind)
    Error.__init__(error, status, text)
    return error
