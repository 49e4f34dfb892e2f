# SPDX-License-Identifier: Apache-2.0
"""Our side of checkpoint.sh: muster-train itself, whose metrics and log lines are read while it
runs."""
import array
import atexit
import datetime
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from checkpoint_disk import forget
from checkpoint_memory import Watch, running

DURABLE = re.compile(r"step (\d+) is durable: ([\d.]+) MB in ([\d.]+) s")
RESUMED = re.compile(r"read in ([\d.]+) s")
STEP = re.compile(r"step +(\d+)/\d+ ")
NOTICED = 75  # the exit status of muster-train after a notice


def write_tokens(name, vocabulary, count):
    numbers = random.Random(1)
    with open(name, "wb") as file:
        array.array("H", (numbers.randrange(vocabulary) for _ in range(count))).tofile(file)


class Trainer:
    """One attempt of muster-train, its lines and what was read from them."""
    def __init__(self, build, folder, shape, threads, every):
        layers, width, heads, context, vocabulary, batch = shape
        tokens = os.path.join(folder, "tokens.bin")
        if not os.path.exists(tokens):
            write_tokens(tokens, vocabulary, 512 * context)
        self.lines, self.step, self.durable, self.resumed = [], 0, {}, None
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            [os.path.join(build, "muster-train"), f"--data={tokens}", f"--ckpt-dir={folder}/run",
             f"--layers={layers}",
             f"--width={width}", f"--heads={heads}", f"--context={context}",
             f"--vocabulary={vocabulary}",
             f"--global-batch={batch}", f"--microbatch={batch}", "--steps=1000000",
             "--learning-rate=1e-5",
             "--min-learning-rate=1e-5", f"--ckpt-every={every}", "--keep-last=2",
             f"--threads={threads}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        atexit.register(self.process.kill)
        service = os.path.join(build, "muster-ckptd")
        self.memory = Watch(self.process.pid, lambda: running(service))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            now = time.time()
            with self.changed:
                self.lines.append(line)
                if match := DURABLE.search(line):
                    self.durable[int(match[1])] = (now, float(match[2]) * 1e6, float(match[3]))
                elif match := RESUMED.search(line):
                    self.resumed = float(match[1])
                elif match := STEP.match(line):
                    self.step = int(match[1])
                self.changed.notify_all()

    def wait(self, condition, seconds):
        """Until the condition holds; a trainer that ends before, or takes too long, ends the
        benchmark."""
        with self.changed:
            until = time.time() + seconds
            while not condition():
                if not self.changed.wait(1) and (self.process.poll() is not None
                                                 or time.time() > until):
                    self.process.kill()
                    sys.exit("checkpoint: muster-train ended or stood still:\n" +
                             "".join(self.lines[-10:]))

    def notice(self):
        """A notice, as before a preemption: the trainer saves and ends. Returns the peak of memory
        until then."""
        peak = self.memory.stop()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(600)
        self.reader.join()
        if status != NOTICED:
            sys.exit(f"checkpoint: muster-train ended with {status} after a notice:\n" +
                     "".join(self.lines[-10:]))
        return peak


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def read_steps(folder):
    """[begin, end] of each step but the first; a step begins where the one before ended, so that
    whatever is between two steps counts."""
    ends = []
    with open(os.path.join(folder, "run", "metrics-0.jsonl"), encoding="ascii") as file:
        for line in file:
            entry = json.loads(line)
            if "loss" in entry:
                ends.append((entry["step"], seconds_of(entry["time"])))
    begins = dict(ends)
    return {step: [begins[step - 1], end] for step, end in ends if step - 1 in begins}


def train(build, folder, shape, threads, every, saves):
    """A run of `saves` + 1 saves, in the form of checkpoint_torch.py's answer; and the save at its
    end, when training had stopped: (bytes, seconds)."""
    shutil.rmtree(os.path.join(folder, "run"), ignore_errors=True)
    trainer = Trainer(build, folder, shape, threads, every)
    trainer.wait(lambda: len(trainer.durable) > saves and trainer.step > every * (saves + 2) - 1,
                 3600)
    peak = trainer.notice()
    steps = read_steps(folder)
    last = max(trainer.durable)
    result = {"steps": [], "saves": [], "memory": peak, "last": trainer.durable.pop(last)[1:]}
    for step, (begin, end) in sorted(steps.items()):
        if step <= every * (saves + 2):
            result["steps"].append([begin, end])
    for step, (durable, size, seconds) in sorted(trainer.durable.items())[:saves + 1]:
        result["saves"].append([steps[step][1], durable, size, seconds])
    return result


def newest(folder):
    run = os.path.join(folder, "run")
    return os.path.join(run, max(name for name in os.listdir(run)
                                 if re.fullmatch(r"step-\d+", name)))


def resume(build, folder, shape, threads):
    """Resumes from a cold cache, trains one step, and gets a notice. Returns the seconds of
    reading, and (bytes, seconds) of the save."""
    forget(newest(folder))
    trainer = Trainer(build, folder, shape, threads, 1000000)
    trainer.wait(lambda: trainer.step > 0, 600)
    trainer.notice()
    return trainer.resumed, trainer.durable[max(trainer.durable)][1:]


def verify(build, folder):
    """The bytes of the newest checkpoint, and the seconds of `muster-ckpt verify --deep` from a
    cold cache."""
    path = newest(folder)
    size = sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
    forget(path)
    begin = time.time()
    subprocess.run([os.path.join(build, "muster-ckpt"), "verify", "--deep", path], check=True,
                   stdout=subprocess.DEVNULL)
    return size, time.time() - begin
