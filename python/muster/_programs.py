# SPDX-License-Identifier: Apache-2.0
"""The programs that the wheel has in muster/native: muster-ckpt, muster-curve, …"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Becomes the program whose name this one has."""
    name = os.path.basename(sys.argv[0])
    native = pathlib.Path(__file__).resolve().parent / "native"
    folder = "libexec" if (native / "libexec" / name).exists() else "bin"
    if not (native / folder / name).exists():
        sys.exit(f"{name}: this wheel was built without it: libjs-dygraphs was missing")
    os.execv(native / folder / name, [name, *sys.argv[1:]])
