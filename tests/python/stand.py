# SPDX-License-Identifier: Apache-2.0
"""Pauses and notices for the programs of the tests. An attempt that a test is to preempt must not
come to its end before, however long the test takes: it stands still after ten steps until its
notice comes."""

import os
import signal
import time

import muster.process

STEPS = 10
_done = 0.0


def pause(seconds: float, part: float = 1.0) -> None:
    """A pause in a step, or in `part` of one. The first $PREEMPTED attempts stand still."""
    global _done
    time.sleep(seconds)
    _done += part
    if int(os.environ.get("SLURM_RESTART_COUNT", 0)) >= int(os.environ.get("PREEMPTED", 0)):
        return
    while _done >= STEPS and not muster.process.notice():
        time.sleep(0.05)


def take_notice() -> None:
    """Slurm's signal, to this process. A thread takes it, and a machine may let that wait for many
    steps."""
    os.kill(os.getpid(), signal.SIGTERM)
    while not muster.process.notice():
        time.sleep(0.001)
