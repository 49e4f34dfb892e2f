# SPDX-License-Identifier: Apache-2.0
"""Measures what a training costs as its world grows: called by start.sh, which has the usage.

A training of each size stands still in its third step, once the second is saved; its ranks are
looked at, one of them is killed, and it is started again. Moments are those of the kernel (the exec
of a process), of the metrics (the time of a step's line less its milliseconds) and of files."""
import argparse
import atexit
import json
import math
import os
import signal
import subprocess
import sys
import time

import figure
import launch
from checkpoint_muster import seconds_of, write_tokens

CONTEXT, VOCABULARY = 8, 64
SAVED = 2           # the step that is saved
ALL_WRITE = 64      # ranks that all write
LIMIT = 900         # seconds for whatever is waited for; only a hang reaches it
STAGES = ("launch", "start", "step", "save", "end", "resume")
TICKS = os.sysconf("SC_CLK_TCK")
AIM = 1


def wait(what, condition):
    until = time.time() + LIMIT
    while not (value := condition()):
        if time.time() > until:
            sys.exit(f"start: no {what} within {LIMIT} s")
        time.sleep(0.02)
    return value


def field(path, name):
    """A number after a name in a file of /proc."""
    with open(path, encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith(name)).split()[1])


class World:
    def __init__(self, options, ranks):
        self.options, self.ranks = options, ranks
        self.folder = os.path.join(options.jobs, f"of-{ranks}")
        self.pace = os.path.join(options.jobs, "pace")
        self.process = self.began = None

    def hold(self, step):
        """No step after this one ends."""
        with open(self.pace, "w", encoding="ascii") as file:
            file.write(f"0 {step}\n")

    def begin(self, steps):
        preload = os.path.join(self.options.work, "build/tests/tools/.libs/slow_steps.so")
        writers = "all" if self.ranks <= ALL_WRITE else "node"
        self.began = time.time()
        self.process = subprocess.Popen(
            [launch.CLUSTER, "run", "env",
             f"PATH={self.options.work}/prefix/bin:{os.environ['PATH']}",
             "OMP_WAIT_POLICY=passive", f"STEPS_PACE={self.pace}", "STEP_MILLISECONDS=0", "srun",
             "--muster", "-Q", "-p", "ondemand", f"-N{self.options.nodes}", f"-n{self.ranks}",
             "--distribution=block", "env", f"LD_PRELOAD={preload}", "muster-train", "--data",
             "train.bin", "--ckpt-dir", os.path.basename(self.folder), "--model", "gpt2",
             "--layers", "1", "--width", "16", "--heads", "1", "--context", str(CONTEXT),
             "--vocabulary", str(VOCABULARY), "--global-batch", str(self.ranks), "--microbatch",
             "1", "--steps", str(steps), "--ckpt-every", str(SAVED), "--ckpt-writers", writers,
             "--threads", "1", "--log-level", "error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def lines(self, attempt):
        """The steps that it has logged."""
        try:
            with open(f"{self.folder}/metrics-{attempt}.jsonl", encoding="utf-8") as file:
                return [entry for line in file
                        if line.endswith("}\n") and "loss" in (entry := json.loads(line))]
        except FileNotFoundError:
            return []

    def has_steps(self, attempt, count):
        """Those lines, once they are so many; the end of the benchmark if it ends before."""
        if len(lines := self.lines(attempt)) >= count:
            return lines
        if self.process.poll() not in (None, 0):
            sys.exit(f"start: {self.ranks} ranks ended with {self.process.returncode}:\n"
                     + self.process.stderr.read()[:2000])
        return None

    def pids(self):
        """Of its ranks."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    if file.read().strip() == "muster-train":
                        found.append(pid)
            except OSError:
                continue
        return found

    @staticmethod
    def execs(pids):
        """When these processes began."""
        boot, begun = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), []
        for pid in pids:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                begun.append(boot + int(file.read().rsplit(")", 1)[1].split()[19]) / TICKS)
        return begun

    def measure(self):
        """Seconds of each stage, and MB of a rank: its own, without files that are mapped; and with
        what the kernel and the services hold for it."""
        free = field("/proc/meminfo", "MemAvailable:")
        self.hold(SAVED)
        self.begin(SAVED + 1)
        lines = wait("step", lambda: self.has_steps(0, SAVED))
        manifest = os.path.join(self.folder, f"step-{SAVED:08}", "manifest.json")
        wait("checkpoint", lambda: os.path.exists(manifest))
        pids = self.pids()
        first = min(self.execs(pids))
        held = free - field("/proc/meminfo", "MemAvailable:")
        own = sum(field(f"/proc/{pid}/smaps_rollup", name) for pid in pids
                  for name in ("Pss_Anon:", "Pss_Shmem:")) / self.ranks
        begins = [seconds_of(line["time"]) - line["milliseconds"] / 1e3 for line in lines]
        stages = {"launch": first - self.began, "start": begins[0] - first,
                  "step": lines[1]["milliseconds"] / 1e3,
                  "save": os.stat(manifest).st_mtime - seconds_of(lines[1]["time"])}
        died = time.time()
        os.kill(int(pids[len(pids) // 2]), signal.SIGKILL)
        self.process.communicate()
        stages["end"] = time.time() - died
        self.hold(0)
        self.begin(SAVED + 1)
        line = wait("step", lambda: self.has_steps(1, 1))[0]
        stages["resume"] = seconds_of(line["time"]) - line["milliseconds"] / 1e3 - self.began
        if line["step"] != SAVED + 1 or self.process.wait():
            sys.exit(f"start: {self.ranks} ranks did not go on after step {SAVED}")
        return stages, own / 1024, held / self.ranks / 1024


def bring_up(options, ranks):
    os.environ["MUSTER_CLUSTER_NODES_CPUS"] = str(-(-ranks // options.nodes))
    done = launch.cluster("up", options.nodes, "--plugin",
                          f"{options.work}/prefix/lib/slurm/spank_muster.so")
    if done.returncode:
        sys.exit(f"start: couldn't bring up {options.nodes} nodes:\n{done.stderr}")
    options.jobs = launch.cluster("status", "jobs").stdout.strip()
    tokens = os.path.join(options.jobs, "train.bin")
    write_tokens(tokens, VOCABULARY, 4 * ranks * CONTEXT + 1)
    os.chmod(tokens, 0o644)


def draw(options, table):
    data = "\n".join(f"{ranks} " + " ".join(str(stages[stage]) for stage in STAGES)
                     for ranks, stages in table)
    plots = ", ".join(f"$stages using 1:{column + 2} with linespoints title '{stage}'"
                      for column, stage in enumerate(STAGES))
    script = f"""set terminal svg size 700,400 background 'white'
set output '{options.svg}'
set logscale xy 2
set key left top
set xlabel 'ranks on {options.nodes} nodes of one machine'
set ylabel 'seconds'
$stages << END
{data}
END
plot {plots}
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def growth(smaller, larger, stage):
    """How much faster than n log n the seconds of a rank grow from one size to the next; all share
    the machine's."""
    (few, before), (many, after) = smaller, larger
    return (after[stage] / many / (before[stage] / few)
            / (many * math.log(many) / (few * math.log(few))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")],
                        default=[16, 64, 256, 1024])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--svg", help="draw them there")
    options = parser.parse_args()
    os.environ["MUSTER_CLUSTER_DIR"] = f"{options.work}/cluster"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("start: ended by SIGTERM"))
    atexit.register(launch.cluster, "down")
    table = []
    print(f"{options.nodes} nodes, {os.cpu_count()} CPUs; load {os.getloadavg()[0]:.1f}; seconds")
    print(f"{'ranks':>5} " + " ".join(f"{stage:>7}" for stage in STAGES)
          + "   MB a rank, with the kernel's and services'")
    for ranks in options.sizes:
        bring_up(options, ranks)
        stages, own, held = World(options, ranks).measure()
        table.append((ranks, stages))
        print(f"{ranks:5} " + " ".join(f"{stages[stage]:7.2f}" for stage in STAGES)
              + f"   {own:.1f}, {held:.1f}", flush=True)
    if options.svg:
        draw(options, table)
    if len(table) > 1:
        worst = max((growth(*pair, stage), stage) for pair in zip(table, table[1:])
                    for stage in STAGES)
        figure.tell("start-growth", worst[0], f"x n log n a rank ({worst[1]})", at_most=AIM)


if __name__ == "__main__":
    main()
