# SPDX-License-Identifier: Apache-2.0
"""Measures how long a training stands still when one of its ranks is killed: called by restart.sh,
which has the usage.

A round waits until the training has a newer checkpoint than at the last kill, waits a random
moment, kills a random rank (or the power of a node), and waits for the beginning of the next step.
For muster-train that is the time of the step's line in metrics-N.jsonl less its milliseconds; the
peer writes it down itself."""
import argparse
import atexit
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import time

import figure
import launch
from checkpoint_disk import forget
from checkpoint_muster import seconds_of, write_tokens

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ("restart", "requeue", "node", "torch")
NODES, RANKS = 4, 8
CONTEXT, VOCABULARY, HEAD = 64, 50257, 64
LIMIT = 900     # seconds for whatever a round waits for; only a hang reaches it
AIM = 3         # seconds, beside those of reading the state
SILENCE = 10    # seconds after which muster-run takes a silent node for dead
MOMENT = 3      # seconds at most from a new checkpoint to the kill
READ = re.compile(r"read in ([\d.]+) s")


def cluster(*command):
    """What the command printed; one that fails ends the benchmark."""
    done = launch.cluster(*command)
    if done.returncode:
        sys.exit(f"restart: cluster {' '.join(map(str, command))} ended with {done.returncode}:\n" +
                 done.stderr[-2000:])
    return done.stdout.strip()


def variables(pid):
    """A process' environment; empty when it has gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


class Job:
    """A training in a job of the test cluster; a kind of it says how it is started and watched."""
    rank_variable = "SLURM_PROCID"
    sbatch = ("--muster",)

    def __init__(self, options, name, launcher="", nodes=NODES):
        self.jobs = cluster("status", "jobs")
        self.folder = os.path.join(self.jobs, name)
        self.name, self.saved = name, -1
        script = os.path.join(self.jobs, f"{name}.sh")
        with open(script, "w", encoding="ascii") as file:
            file.write(f"#!/bin/bash\ndate +%s.%N >>{name}.starts\n"
                       f"{launcher} {self.command(options)} &\nwait $!\n")
        self.id = cluster("run", *self.user(), "env",
                          f"PATH={options.work}/prefix/bin:{os.environ['PATH']}",
                          "OMP_WAIT_POLICY=passive", "GLOO_SOCKET_IFNAME=eth0", "sbatch",
                          "--parsable", "--requeue", "--open-mode=append", f"-N{nodes}",
                          "--ntasks-per-node=2", "-J", name, "-o", f"{name}.log",
                          *self.sbatch, script)

    @staticmethod
    def user():
        return ()

    @staticmethod
    def is_rank(name):
        """Whether a rank's process has this name of the kernel's: its service has the rank's
        environment, too."""
        return name == "muster-train"

    def command(self, options):
        heads = options.width // HEAD
        return (f"srun muster-train --data train.bin --ckpt-dir {self.name} --model gpt2 "
                f"--layers {options.layers} --width {options.width} --heads {heads} "
                f"--context {CONTEXT} --vocabulary {VOCABULARY} --global-batch {RANKS} "
                "--microbatch 1 --steps 1000000 --learning-rate 1e-5 --min-learning-rate 1e-5 "
                "--zero 1 --ckpt-slots 1 --ckpt-every 2 --keep-last 2 --threads 1")

    def steps(self):
        return [int(name[5:]) for name in os.listdir(self.folder)
                if re.fullmatch(r"step-\d+", name)] if os.path.isdir(self.folder) else []

    def begins(self):
        """When each step began that has ended."""
        for name in glob.glob(f"{self.folder}/metrics-*.jsonl"):
            with open(name, encoding="utf-8") as file:
                for line in file:
                    if line.endswith("}\n") and "loss" in (entry := json.loads(line)):
                        yield seconds_of(entry["time"]) - entry["milliseconds"] / 1e3

    def state(self):
        return cluster("run", "squeue", "-ah", "-j", self.id, "-o", "%T")

    def wait(self, what, condition, pause=0.2):
        until = time.time() + LIMIT
        while not (value := condition()):
            if time.time() > until or (random.random() < 0.02 and not self.state()):
                self.explain(what)
            time.sleep(pause)
        return value

    def log(self):
        with open(os.path.join(self.jobs, f"{self.name}.log"), encoding="utf-8") as file:
            return file.readlines()

    def explain(self, what):
        """The end of the benchmark."""
        sys.exit(f"restart: {self.name}: no {what} within {LIMIT} s, or the job ended:\n" +
                 "".join(self.log()[-15:]))

    def ranks(self):
        """{rank: pid}"""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    if not self.is_rank(file.read().strip()):
                        continue
            except OSError:
                continue
            mine = variables(pid)
            if mine.get("SLURM_JOB_ID") == self.id and self.rank_variable in mine:
                found[int(mine[self.rank_variable])] = int(pid)
        return found

    def disturb(self):
        ranks = self.wait("ranks", lambda: len(found := self.ranks()) == RANKS and found)
        os.kill(ranks[random.randrange(RANKS)], signal.SIGKILL)

    def round(self, disturb=None):
        """Seconds from the death to the beginning of the next step."""
        self.wait("new checkpoint", self.has_saved)
        time.sleep(random.uniform(0, MOMENT))
        self.saved = max(self.steps())
        death = time.time()
        (disturb or self.disturb)()
        return self.wait("next step", lambda: min(
            (begin for begin in self.begins() if begin > death), default=None)) - death

    def has_saved(self):
        return max(self.steps(), default=-1) > self.saved

    def cancel(self):
        cluster("run", "--user", "root", "scancel", self.id)
        until = time.time() + LIMIT
        while self.state() and time.time() < until:
            time.sleep(1)

    def remove(self):
        shutil.rmtree(self.folder)


class Requeued(Job):
    def __init__(self, options, name):
        super().__init__(options, name)
        self.queued = []  # seconds that each round was in Slurm's queue

    def round(self, disturb=None):
        """Seconds without those in the queue."""
        pending, starts = [], []

        def kill():
            starts.append(len(self.starts()))
            self.disturb()
            pending.append(self.wait("requeue", lambda: self.state() == "PENDING" and time.time()))

        seconds = super().round(kill)
        self.queued.append(self.starts()[starts[0]] - pending[0])
        return seconds - self.queued[-1]

    def starts(self):
        with open(os.path.join(self.jobs, f"{self.name}.starts"), encoding="ascii") as file:
            return [float(line) for line in file]


class Spared(Job):
    sbatch = ("--muster", "--no-kill")


class Torch(Job):
    rank_variable, sbatch = "RANK", ()

    @staticmethod
    def user():
        """The virtual environment may lie in root's home."""
        return ("--user", "root")

    @staticmethod
    def is_rank(_):
        """PyTorch names its processes as it likes; torchrun gives only workers a rank."""
        return True

    def command(self, options):
        os.makedirs(self.folder, exist_ok=True)
        return (f"srun --mpi=none --ntasks-per-node=1 -n{NODES} {sys.executable} -m "
                f"torch.distributed.run --nnodes {NODES} --nproc-per-node {RANKS // NODES} "
                f"--max-restarts 1000 --rdzv-backend c10d --rdzv-endpoint n1:29511 "
                f"--rdzv-id {self.name} {HERE}/restart_torch.py {self.folder} {options.layers} "
                f"{options.width} {options.width // HEAD} {CONTEXT} {VOCABULARY}")

    def begins(self):
        try:
            with open(os.path.join(self.folder, "begins"), encoding="ascii") as file:
                for line in file:
                    yield float(line.split()[0])
        except FileNotFoundError:
            pass


def read_state(folder):
    """What reading the state takes: its bytes; the seconds in which one process reads it from the
    disk; and those in which RANKS processes at once read what a rank of --zero 1 needs, as a start
    finds it: all weights, and a part of the moments, which are two thirds of the files."""
    newest = max(glob.glob(f"{folder}/step-*"))
    files = [(name, os.path.getsize(name)) for name in glob.glob(f"{newest}/*")]

    def read(share):
        for name, size in files:
            with open(name, "rb", buffering=0) as file:
                block, left = bytearray(1 << 20), int(size * share)
                while left > 0 and (count := file.readinto(block)):
                    left -= count

    forget(newest)
    began = time.time()
    read(1)
    cold, began = time.time() - began, time.time()
    for _ in range(RANKS):
        if not os.fork():
            read((1 + 2 / RANKS) / 3)
            os._exit(0)
    for _ in range(RANKS):
        os.wait()
    return sum(size for _, size in files), cold, time.time() - began


def tell(name, seconds):
    """The median, which it prints with the least and the most."""
    median = statistics.median(seconds)
    print(f"  {name:44s} {median:7.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, median of "
          f"{len(seconds)})", flush=True)
    return median


def bring_up(options):
    """The cluster, and the token file; what was there is gone."""
    cluster("up", NODES + 1, "--plugin", f"{options.work}/prefix/lib/slurm/spank_muster.so")
    tokens = f"{cluster('status', 'jobs')}/train.bin"
    write_tokens(tokens, VOCABULARY, 512 * CONTEXT)
    os.chmod(tokens, 0o644)


def measure_restart(options):
    job = Job(options, "restart", "muster-run --restarts=100000 --")
    seconds = [job.round() for _ in range(options.rounds)]
    job.wait("new checkpoint", job.has_saved)
    job.cancel()
    median = tell("restart in the allocation", seconds)
    tell("of these, rank 0 reads the checkpoint", [
        float(found[1]) for line in job.log() if (found := READ.search(line))])
    size, cold, warm = read_state(job.folder)
    print(f"  The checkpoint has {size / 1e6:.0f} MB. One process reads it from the disk in "
          f"{cold:.2f} s; {RANKS} at once\n  read what a rank needs of it in {warm:.2f} s.")
    figure.tell("restart-allocation", median, "s", at_most=AIM + warm)
    job.remove()
    return median


def measure_requeue(options):
    job = Requeued(options, "requeue")
    seconds = [job.round() for _ in range(options.requeues)]
    job.cancel()
    median = tell("requeue, without the time in Slurm's queue", seconds)
    tell("in Slurm's queue", job.queued)
    job.remove()
    return median


def measure_node(options):
    seconds = []
    for number in range(options.nodes):
        bring_up(options)  # anew: Slurm takes its time to free the nodes of a job with a dead one
        job = Spared(options, f"node-{number}", "muster-run --spares=1 --", NODES + 1)
        seconds.append(job.round(lambda: cluster("kill-node", "n2")))
        bound = SILENCE + AIM + read_state(job.folder)[2]
    bring_up(options)
    median = tell("restart after a node has fallen silent", seconds)
    figure.tell("restart-node", median, "s", at_most=bound)


def measure_torch(options):
    job = Torch(options, "torch")
    seconds = [job.round() for _ in range(options.torch_rounds)]
    job.cancel()
    job.remove()
    return tell("torchrun's elastic restart", seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requeues", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--torch-rounds", type=int, default=20)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    parts = options.only or PARTS
    os.environ["MUSTER_CLUSTER_DIR"] = f"{options.work}/cluster"
    os.environ["MUSTER_CLUSTER_DOWN_AFTER"] = "3600"  # muster-run itself notices a dead node
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("restart: ended by SIGTERM"))
    atexit.register(cluster, "down")
    bring_up(options)
    print(f"{RANKS} ranks on {NODES} nodes of {os.cpu_count()} CPUs; load {os.getloadavg()[0]:.1f}",
          flush=True)
    measures = {"restart": measure_restart, "requeue": measure_requeue, "node": measure_node,
                "torch": measure_torch}
    medians = {part: measures[part](options) for part in PARTS if part in parts}
    for peer, aim in (("requeue", 1), ("torch", 1)):
        if peer in medians and "restart" in medians:
            figure.tell(f"restart-than-{peer}", medians[peer] / medians["restart"], "x faster",
                        at_least=aim)


if __name__ == "__main__":
    main()
