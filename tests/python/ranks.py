# SPDX-License-Identifier: Apache-2.0
"""Starts program.py as one rank or several, and disturbs it."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).parent
HANG = 60.0 * int(os.environ.get("MUSTER_PATIENCE", "3"))  # seconds, for hangs only


class Process:
    """A program that starter.py has started. Its methods are those of subprocess.Popen."""

    _starter = None

    def __init__(self, words, environment, output):
        if Process._starter is None:
            subreaper = 36  # PR_SET_CHILD_SUBREAPER
            assert ctypes.CDLL(None).prctl(subreaper, 1, 0, 0, 0) == 0
            Process._starter = subprocess.Popen(
                [sys.executable, str(HERE / "starter.py")],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        request = {"words": words, "environment": environment, "output": output}
        Process._starter.stdin.write(json.dumps(request).encode() + b"\n")
        Process._starter.stdin.flush()
        self.pid = int(Process._starter.stdout.readline())
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=HANG):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a rank", timeout)
            time.sleep(0.01)
        return self.returncode


class Ranks:
    """Ranks that run program.py with these options. Each leads a session of its own, so that a
    signal can reach all of its processes, as Slurm's do."""

    def __init__(self, place, options, count=1, program=HERE / "program.py"):
        self.place = place
        self.processes = []
        meeting = tempfile.mkdtemp(dir=place)
        for rank in range(count):
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                # A process of multiprocessing's that is killed leaves a folder there.
                "TMPDIR": meeting,
                "SEMAPHORES": os.path.basename(place),
                "MUSTER_RDZV_DIR": meeting,
                "MUSTER_RDZV_ID": "test",
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(count),
            }
            output = os.path.join(meeting, f"out-{rank}")
            pathlib.Path(output).touch()
            words = [str(program), *map(str, options)]
            self.processes.append(Process(words, environment, output))
        self._meeting = meeting

    def said(self, rank=None):
        if rank is None:
            return "".join(self.said(r) for r in range(len(self.processes)))
        return pathlib.Path(self._meeting, f"out-{rank}").read_text(errors="replace")

    def signal_all(self, rank, number):
        """To the rank and all that it has started, as Slurm does."""
        os.killpg(self.processes[rank].pid, number)

    def wait_for(self, condition, what):
        end = time.monotonic() + HANG
        while not condition():
            if time.monotonic() > end or all(p.poll() is not None for p in self.processes):
                raise AssertionError(f"never came: {what}: {self.said()}")
            time.sleep(0.01)

    def wait_for_step(self, step):
        """Until rank 0 has written the line of that step."""
        self.wait_for(lambda: last_step(self.place) >= step, f"step {step}")

    def wait(self):
        """The exit statuses."""
        end = time.monotonic() + HANG
        statuses = []
        for process in self.processes:
            try:
                statuses.append(process.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                statuses.append(None)
        if None in statuses:
            self.kill()
            raise AssertionError(f"still running: {statuses}: {self.said()}")
        return statuses

    def kill(self):
        for rank, process in enumerate(self.processes):
            with contextlib.suppress(ProcessLookupError):
                self.signal_all(rank, signal.SIGKILL)
            process.wait()


def last_step(place):
    steps = [0]
    for path in pathlib.Path(place, "run").glob("metrics-*.jsonl"):
        steps += [int(s) for s in re.findall(r'^{"step": (\d+)', path.read_text(), re.M)]
    return max(steps)


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.place = tempfile.mkdtemp(
            prefix="muster-python.", dir=os.environ.get("MUSTER_TEST_MEMORY")
        )
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.addCleanup(self.remove_semaphores)
        self._started = []
        self.addCleanup(lambda: [ranks.kill() for ranks in self._started])

    def remove_semaphores(self):
        """Those of multiprocessing's that nobody is left to remove, as all were killed at once."""
        for path in pathlib.Path("/dev/shm").glob(f"sem.{os.path.basename(self.place)}-*"):
            path.unlink()

    def start(self, *options, count=1, run="run"):
        place = pathlib.Path(self.place)
        seen = place / f"seen-{run}"
        seen.mkdir(exist_ok=True)
        ranks = Ranks(self.place, ["--run", place / run, "--seen", seen, *options], count=count)
        self._started.append(ranks)
        return ranks

    def start_and_wait(self, steps, *options, count=1):
        """Until the run has done so many steps more. It goes on, and is far from its end though
        what comes next comes late."""
        step = last_step(self.place) + steps
        ranks = self.start(*options, "--linger", step + 1, count=count)
        ranks.wait_for_step(step)
        return ranks

    def run_program(self, program, count, *options, run="run", status=0):
        """Another program than program.py, to its end."""
        words = ["--run", pathlib.Path(self.place, run), *options]
        ranks = Ranks(self.place, words, count=count, program=HERE / program)
        self._started.append(ranks)
        return self.finish(ranks, status)

    def finish(self, ranks, status=0):
        self.assertEqual(ranks.wait(), [status] * len(ranks.processes), ranks.said())
        return ranks

    def wait_until(self, condition, what):
        """For what no rank does, but a service of theirs."""
        end = time.monotonic() + HANG
        while not condition():
            self.assertLess(time.monotonic(), end, f"never came: {what}")
            time.sleep(0.01)

    def undisturbed(self, *options, count=1):
        """The same training from its beginning to its end."""
        return self.finish(self.start(*options, count=count, run="undisturbed"))

    def seen(self, run="run"):
        """For each step the samples of all ranks, as the last attempt that did it read them."""
        steps = {}
        for path in pathlib.Path(self.place, f"seen-{run}").iterdir():
            for line in path.read_text().splitlines():
                step, *samples = map(int, line.split())
                steps.setdefault(step, {})[int(path.name)] = samples
        return [sum((steps[k][r] for r in sorted(steps[k])), []) for k in sorted(steps)]

    def assert_same_result(self):
        """Every bit of the newest state is that of the undisturbed run."""
        import torch

        import muster

        a, b = (muster.load(os.path.join(self.place, run)) for run in ("run", "undisturbed"))

        def compare(x, y, where):
            self.assertIs(type(x), type(y), where)
            if isinstance(x, torch.Tensor):
                self.assertEqual((x.dtype, x.shape), (y.dtype, y.shape), where)
                self.assertTrue(torch.equal(x, y), where)
            elif isinstance(x, dict):
                self.assertEqual(list(x), list(y), where)
                for key in x:
                    compare(x[key], y[key], f"{where}/{key}")
            elif isinstance(x, (list, tuple)):
                self.assertEqual(len(x), len(y), where)
                for i, (v, w) in enumerate(zip(x, y)):
                    compare(v, w, f"{where}/{i}")
            else:
                self.assertEqual(x, y, where)

        compare(a, b, "")
