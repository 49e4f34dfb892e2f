# SPDX-License-Identifier: Apache-2.0
"""python3 -m muster: what this installation has and what it found here."""

from __future__ import annotations

import os
import platform
import shutil

from . import _lib

_LAUNCHERS = (
    ("MUSTER_ATTEMPT", "Slurm with Muster's plugin"),
    ("PMIX_RANK", "PMIx"),
    ("PMI_RANK", "PMI2"),
    (
        "SLURM_PROCID",
        "Slurm, without a way for the ranks to meet: give srun --muster or --mpi=pmix",
    ),
    ("TORCHELASTIC_RUN_ID", "torchrun"),
)


def _launcher() -> str:
    for name, what in _LAUNCHERS:
        if name in os.environ:
            return what
    return "none: a world of one"


def _torch() -> str:
    try:
        import torch
    except ImportError:
        return "not found: install it to save models"
    devices = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU"
    return f"{torch.__version__}, {devices}"


def _slurm() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    found = shutil.which("srun")
    return f"{found or 'srun not found'}{', job ' + job if job else ''}"


def main() -> None:
    service = os.environ.get("MUSTER_CKPTD")
    lines = {
        "libmuster": f"{_lib.version()} ({_lib.path})",
        "Python": platform.python_version(),
        "PyTorch": _torch(),
        "Slurm": _slurm(),
        "launched by": _launcher(),
        "checkpoint service": f"the node's, {service}"
        if service
        else "each rank that saves starts its own",
    }
    for name, value in lines.items():
        print(f"{name + ':':20}{value}")


main()
