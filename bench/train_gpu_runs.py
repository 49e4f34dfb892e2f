# SPDX-License-Identifier: Apache-2.0
"""The processes that train_gpu.py measures, and what the card does meanwhile.

A contestant prints "step N … loss X" after each step, once the device has made it; the time
between two such lines is what is measured. That holds for muster-train and for train_gpu_torch.py
alike."""
import json
import re
import shutil
import statistics
import subprocess
import threading
import time

STEP = re.compile(r"^step\s+(\d+)/\d+\s+loss\s+([-+.0-9a-z]+)\s")


class Failed(Exception):
    """A contestant that did not do what it should; the text says why."""


class Contestant:
    """A process; its lines come with the moments at which they came."""

    def __init__(self, name, command, environment):
        self.name, self.lines, self.steps, self.about = name, [], [], {}
        self.changed = threading.Condition()
        self.ended = False
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace",
                                        env=environment)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            moment, match = time.monotonic(), STEP.match(line)
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                if match:
                    self.steps.append((moment, int(match[1]), float(match[2])))
                elif line.startswith("{"):
                    self.about = json.loads(line)
                self.changed.notify()
        with self.changed:
            self.ended = True
            self.changed.notify()

    def wait(self, done, deadline, what):
        with self.changed:
            while not done():
                if self.ended:
                    raise Failed(f"{self.name} ended with status {self.process.wait()}: "
                                 f"{self.last_words()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Failed(f"{self.name}: {what} did not come in time: {self.last_words()}")
                self.changed.wait(left)

    def last_words(self):
        """Of a traceback, that is its last line; the memory that was missing is told before."""
        told = ([line for line in self.lines if "out of memory" in line.lower()]
                or [line for line in self.lines if line.strip()])
        return told[-1].strip()[:300] if told else "it said nothing"

    def measure(self, warm, seconds, first):
        """Rate and losses of at least `seconds`, `warm` seconds after the first step, which may
        take `first` seconds to come."""
        begun = time.monotonic()
        self.wait(lambda: self.steps, begun + first, "the first step")
        start = self.steps[0][0]
        limit = start + 3 * (warm + seconds) + first
        self.wait(lambda: self.steps[-1][0] >= start + warm, limit, "the end of the warm-up")
        begin = next(i for i, step in enumerate(self.steps) if step[0] >= start + warm)
        self.wait(lambda: self.steps[-1][0] >= self.steps[begin][0] + seconds
                  and len(self.steps) > begin + 1, limit,
                  "the last step")
        end = len(self.steps) - 1
        return {"name": self.name, "start_up": start - begun, "begin": self.steps[begin][0],
                "end": self.steps[end][0], "steps": end - begin,
                "step_seconds": (self.steps[end][0] - self.steps[begin][0]) / (end - begin),
                "losses": [step[2] for step in self.steps], "about": self.about}

    def curve(self, steps, limit):
        """The losses of the first steps."""
        self.wait(lambda: len(self.steps) >= steps, time.monotonic() + limit, f"step {steps}")
        return [step[2] for step in self.steps[:steps]]

    def said(self, pattern):
        """The first match in what it printed, or None."""
        return next((match for line in self.lines if (match := re.search(pattern, line))), None)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)


class Card:
    """What nvidia-smi says, twice a second."""

    def __init__(self):
        self.readings, self.process = [], None
        if not shutil.which("nvidia-smi"):
            return
        self.process = subprocess.Popen(["nvidia-smi",
                                         "--query-gpu=clocks.sm,power.draw,temperature.gpu",
                                         "--format=csv,noheader,nounits", "-lms", "500"],
                                        stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                self.readings.append((time.monotonic(), *map(float, line.split(","))))
            except ValueError:
                pass  # "[N/A]"

    def between(self, begin, end):
        """Medians of the SM clock in MHz, power in W and temperature in degrees, or None."""
        those = [reading[1:] for reading in list(self.readings) if begin <= reading[0] <= end]
        return [statistics.median(column) for column in zip(*those)] if those else None

    def close(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
