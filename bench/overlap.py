# SPDX-License-Identifier: Apache-2.0
"""Measures how much of a step's communication is hidden: called by overlap.sh, which has the usage,
in network, mount and process namespaces of its own.

A node is a network namespace; two are joined by one link, four by a switch, and each sends at a
rate that is chosen so that communication takes a given multiple of computing, and measured with a
transfer both ways. Runs take turns: --comm none (computing, and when each bucket is ready), --comm
replay (the time of each bucket), the training itself with default buckets, the same with --zero 1
(the same bits), with gradients that travel in bf16, and PyTorch's steps without exchange, with
DistributedDataParallel's, and with its bf16_compress_hook, both with PyTorch's default buckets and
with such as ours. Exposed communication is what a step takes longer than without any. It is held
against PyTorch's and against the least that any schedule of the same bytes exposes."""
import argparse
import os
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

import figure
from overlap_trace import Bound, Trace

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = {"layers": 4, "width": 384, "heads": 6, "context": 256, "vocabulary": 6144}
BATCH = 5          # samples of a rank
# What is advised where communication is much: the options, what of the default's bytes they send,
# and whether these may travel until the next step needs the weights.
ADVISED = {"zero": (("--zero", "1"), 1, True),
           "bf16": (("--reduction", "native", "--grad-dtype", "bf16"), 0.5, False)}
# How PyTorch's ranks exchange gradients (overlap_torch.py).
PEERS = {"ddp": "DDP", "ddp-small": "DDP in buckets of 2 MB", "bf16": "bf16_compress_hook",
         "bf16-small": "bf16_compress_hook in buckets of 2 MB"}
WARM_UP = 2        # steps of a run that do not count
LIMIT = 240        # seconds of a run
QUEUE = 0.02       # seconds of a link's queue
AIM_BOUND, AIM_TORCH, AIM_EXPOSED, MUCH = 1.1, 1.0, 0.5, 0.25


def sh(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode:
        sys.exit(f"overlap: {' '.join(map(str, command))}: {done.stdout.strip()}")


class Network:
    """Nodes n0 … with an interface "wire" each."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.ports = [(f"n{node}", "wire") for node in range(nodes)]
        for node in range(nodes):
            sh("ip", "netns", "add", f"n{node}")
            sh("ip", "-n", f"n{node}", "link", "set", "lo", "up")
        if nodes == 2:
            sh("ip", "link", "add", "name", "wire", "netns", "n0", "type", "veth", "peer", "name",
               "wire", "netns", "n1")
        else:
            self.add_switch()
        for node in range(nodes):
            sh("ip", "-n", f"n{node}", "addr", "add", f"{self.address(node)}/24", "dev", "wire")
            sh("ip", "-n", f"n{node}", "link", "set", "wire", "up")

    def add_switch(self):
        sh("ip", "netns", "add", "switch")
        sh("ip", "-n", "switch", "link", "add", "bridge", "type", "bridge")
        sh("ip", "-n", "switch", "link", "set", "bridge", "up")
        for node in range(self.nodes):
            sh("ip", "link", "add", "name", "wire", "netns", f"n{node}", "type", "veth", "peer",
               "name", f"port{node}", "netns",
               "switch")
            sh("ip", "-n", "switch", "link", "set", f"port{node}", "master", "bridge", "up")
            self.ports.append(("switch", f"port{node}"))

    @staticmethod
    def address(node):
        return f"10.77.0.{node + 1}"

    def shape(self, rate, queue=0):
        """Every port sends at that many bytes a second, and holds as many as `queue`, or those of
        QUEUE seconds."""
        for namespace, port in self.ports:
            sh("tc", "-n", namespace, "qdisc", "replace", "dev", port, "root", "tbf", "rate",
               f"{rate * 8:.0f}bit", "burst", "128kb", "limit", f"{queue or QUEUE * rate:.0f}")

    def remove(self):
        for node in range(self.nodes):
            sh("ip", "netns", "del", f"n{node}")
        if self.nodes > 2:
            sh("ip", "netns", "del", "switch")

    def measure(self, rate):
        """Bytes a second that both ends of a connection between n0 and n1 receive while they send,
        for about a second."""
        command = [sys.executable, os.path.abspath(__file__), "--transfer", self.address(0),
                   str(int(rate))]
        ends = [subprocess.Popen(["ip", "netns", "exec", f"n{node}", *command, str(node)],
                                 stdout=subprocess.PIPE, text=True)
                for node in (0, 1)]
        return min(float(end.communicate(timeout=60)[0]) for end in ends)


def transfer(address, count, node):
    """One end of Network.measure: prints the bytes a second that came."""
    if node == 0:
        with socket.create_server((address, 7000)) as server:
            connection = server.accept()[0]
    else:
        for _ in range(100):
            try:
                connection = socket.create_connection((address, 7000), timeout=1)
                break
            except OSError:
                time.sleep(0.05)
    connection.settimeout(30)
    block, got, begun = bytes(1 << 20), 0, time.perf_counter()
    sender = threading.Thread(target=lambda: [connection.sendall(block[:count - at])
                                              for at in range(0, count, len(block))])
    sender.start()
    while got < count:
        got += len(connection.recv(1 << 20))
    print(count / (time.perf_counter() - begun))
    sender.join()


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.network, self.runs, self.embedding = None, 0, 0
        self.cpus = sorted(os.sched_getaffinity(0))
        random.seed(1)
        with open(self.path("tokens.u16"), "wb") as file:
            for _ in range(400):
                file.write(struct.pack("<1000H",
                                       *(random.randrange(SHAPE["vocabulary"])
                                         for _ in range(1000))))

    def path(self, name):
        return os.path.join(self.folder, name)

    def pinned(self, node, *command):
        return ["ip", "netns", "exec", f"n{node}", "taskset", "-c",
                str(self.cpus[node % len(self.cpus)]), *command]

    def train(self, comm, steps, trace=True, batch=BATCH, more=()):
        """A run of WARM_UP and `steps` steps. Returns its trace (None without), rank 0's output,
        and all ranks' CPU seconds."""
        ranks = self.network.nodes
        self.runs += 1
        name = self.path(f"run{self.runs}")
        command = [self.options.muster_train, "--data", self.path("tokens.u16"), "--threads", 1,
                   "--global-batch", batch * ranks,
                   "--microbatch", batch, "--steps", WARM_UP + steps, "--bucket-mb",
                   self.options.bucket_mb, "--comm", comm,
                   "--check-replicas" if comm == "real" else "--log-level",
                   0 if comm == "real" else "info", *more]
        for word, value in SHAPE.items():
            command += [f"--{word}", value]
        if trace:
            command += ["--trace", f"{name}.json", "--trace-steps",
                        f"{WARM_UP + 1}-{WARM_UP + steps}"]
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1",
                           MUSTER_IFNAME="wire",
                           MUSTER_RDZV_DIR=self.folder, MUSTER_RDZV_ID=str(self.runs),
                           WORLD_SIZE=str(ranks),
                           GROUP_WORLD_SIZE=str(ranks), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
        before = os.times()
        processes = []
        for rank in range(ranks):
            with open(f"{name}.{rank}", "w", encoding="utf-8") as out:
                processes.append(subprocess.Popen(
                    self.pinned(rank, *map(str, command)), stdout=out, stderr=out,
                    env=dict(environment, RANK=str(rank), GROUP_RANK=str(rank))))
        for rank, process in enumerate(processes):
            if process.wait(LIMIT):
                with open(f"{name}.{rank}", encoding="utf-8") as out:
                    sys.exit(f"overlap: rank {rank} of --comm {comm} ended with "
                             f"{process.returncode}: {out.read()[-800:]}")
        after = os.times()
        cpu = (after.children_user + after.children_system
               - before.children_user - before.children_system)
        with open(f"{name}.0", encoding="utf-8") as out:
            return Trace(f"{name}.json") if trace else None, out.read(), cpu


class Torch:
    """PyTorch's two ranks, which stay and answer."""

    def __init__(self, bench):
        environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
                           OMP_WAIT_POLICY="passive",
                           GLOO_SOCKET_IFNAME="wire")
        command = [sys.executable, os.path.join(HERE, "overlap_torch.py"),
                   f"tcp://{bench.network.address(0)}:7100"]
        self.log = bench.path("torch.log")
        shape = [*map(str, SHAPE.values()), str(BATCH)]
        with open(self.log, "w", encoding="utf-8") as log:
            self.processes = [subprocess.Popen(bench.pinned(rank, *command, str(rank), "2", *shape),
                                               stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, stderr=log, text=True,
                                               env=environment)
                              for rank in (0, 1)]
        self.version = self.ask("version")[0]
        for word in PEERS:
            self.ask(f"{word} {WARM_UP + 1}")

    def ask(self, command):
        """Rank 0's answer."""
        for process in self.processes:
            try:
                print(command, file=process.stdin, flush=True)
            except BrokenPipeError:
                pass
        answers = [process.stdout.readline().split() for process in self.processes]
        if not all(answers):
            with open(self.log, encoding="utf-8") as log:
                sys.exit(f"overlap: PyTorch ended on '{command}': {log.read()[-800:]}")
        return answers[0]

    def steps(self, word, count):
        self.ask(f"{word} 1")
        return [float(seconds) for seconds in self.ask(f"{word} {count}")]

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(60)


def milliseconds(*values):
    return " + ".join(f"{value * 1e3:.0f}" for value in values)


class Setting:
    """What was measured at one rate."""

    def __init__(self, bench, sent, rate, torch):
        self.bench, self.sent, self.rate, self.torch = bench, sent, rate, torch
        self.alone, self.replayed, self.real = [], [], []
        self.advised = {}
        self.cpu = {"none": 0, "replay": 0, "real": 0}
        self.peer = {word: [] for word in ("alone", *PEERS)}

    def run(self, rounds, steps):
        for number in range(rounds):
            for comm, traces in (("none", self.alone), ("replay", self.replayed),
                                 ("real", self.real)):
                trace, _, cpu = self.bench.train(comm, steps)
                traces.append(trace)
                self.cpu[comm] += cpu / rounds / (steps + WARM_UP)
            if self.torch and number == 0:
                for word, (more, _, _) in ADVISED.items():
                    trace, _, _ = self.bench.train("real", steps, more=more)
                    self.advised[word] = statistics.median(trace.cycles())
                for word in ("alone", "ddp-small", "bf16-small"):
                    self.peer[word] += self.torch.steps(word, (steps + 1) // 2)
                self.peer["bf16"] += self.torch.steps("bf16", steps)
            if self.torch:
                self.peer["ddp"] += self.torch.steps("ddp", steps)

    def report_bound(self, name, judged=True):
        self.bound = bound = Bound(self.alone, self.replayed)
        self.step = statistics.median(c for trace in self.real for c in trace.cycles())
        self.without = statistics.median(c for trace in self.alone for c in trace.cycles())
        count = sum(len(trace.cycles()) for trace in self.real)
        order = sorted(bound.times)
        print(f"  computing {milliseconds(bound.computing)} ms, communicating "
              f"{milliseconds(bound.communicating)} ms "
              f"({bound.communicating / bound.computing:.2f} x), norm and update "
              f"{milliseconds(bound.behind)} ms")
        ready = [bound.ready[k] for k in order]
        print(f"  {len(order)} buckets, the first ready at {milliseconds(ready[0])} ms, half at "
              f"{milliseconds(statistics.median(ready))}, the last at {milliseconds(ready[-1])}; "
              "that one takes "
              f"{milliseconds(bound.times[order[-1]])} ms")
        print(f"  step {milliseconds(self.step)} ms, median of {count}; bound "
              f"{milliseconds(bound.step)} ms; exposed "
              f"{milliseconds(self.step - self.without)} ms")
        figure.tell(f"overlap-{name}-bound", self.step / bound.step, "x the bound",
                    at_most=AIM_BOUND if judged else None)

    def least(self, share, next_step):
        """What any schedule of that share of the bytes exposes: they travel from when the first
        gradient is ready to the end of the backward pass, or while all is computed if they may in
        the next step; and the tied embedding's, which are complete last and needed first, only when
        nothing is computed."""
        wire = share * self.sent / self.rate
        window = self.bound.computing - (0 if next_step else min(self.bound.ready.values()))
        return max(wire - window, self.bench.embedding * wire)

    def report_ours(self):
        within, beyond = self.least(1, False), self.least(1, True)
        print(f"  the bytes alone take {milliseconds(self.sent / self.rate)} ms: no schedule "
              "exposes less than "
              f"{milliseconds(within)} ms within the step, {milliseconds(beyond)} with the next "
              "forward pass, and in bf16 "
              f"{milliseconds(self.least(0.5, False))}")
        for word, (more, _, _) in ADVISED.items():
            print(f"  with {' '.join(more)}: step {milliseconds(self.advised[word])} ms, exposed "
                  f"{milliseconds(self.advised[word] - self.without)} ms")

    def judge(self, name, word, peer):
        """Our exposed communication with those options (None: the default) against that of
        PyTorch's kind of exchange."""
        theirs = statistics.median(self.peer[peer])
        exposed = theirs - statistics.median(self.peer["alone"])
        step, share, next_step = self.step, 1, False
        if word:
            step, (_, share, next_step) = self.advised[word], ADVISED[word]
        ratio, least = (step - self.without) / exposed, self.least(share, next_step) / exposed
        unit = (f"x the exposed communication of PyTorch's {PEERS[peer]} "
                f"(any schedule: >= {least:.2g})")
        if exposed > MUCH * theirs:
            figure.tell(f"overlap-{name}", ratio, unit, at_most=AIM_EXPOSED)
        else:
            figure.tell(f"overlap-{name}", ratio, f"{unit}, no quarter of its step")

    def report_torch(self, name):
        computing = statistics.median(self.peer["alone"])
        print(f"  PyTorch {self.torch.version}: computing alone {milliseconds(computing)} ms")
        for peer, title in PEERS.items():
            theirs = statistics.median(self.peer[peer])
            print(f"  PyTorch's {title}: step {milliseconds(theirs)} ms, exposed "
                  f"{milliseconds(theirs - computing)} ms = "
                  f"{(theirs - computing) / theirs:.2f} of a step")
        for suffix, peer, step in (("", "ddp", self.step), ("-bf16", "bf16", self.advised["bf16"])):
            theirs = statistics.median(self.peer[peer])
            figure.tell(f"overlap-{name}-torch{suffix}", theirs / step,
                        f"x faster than PyTorch's {PEERS[peer]}", at_least=AIM_TORCH)
        self.report_ours()
        for suffix, word, peer in (("", None, "ddp"), ("-zero", "zero", "ddp"),
                                   ("-bf16", "bf16", "ddp"),
                                   ("-bf16-both", "bf16", "bf16")):
            self.judge(f"{name}-exposed{suffix}", word, peer)
            if word != "bf16" or peer == "bf16":
                self.judge(f"{name}-exposed{suffix}-small", word, f"{peer}-small")


def calibrate(bench):
    """Seconds of computing and bytes sent of a step."""
    alone, replayed = bench.train("none", 4)[0], bench.train("replay", 4)[0]
    computing = statistics.median(alone.computing(step, 0) for step in alone.steps)
    return computing, replayed.bytes_sent()


def measure_two(bench):
    options = bench.options
    bench.network = Network(2)
    computing, sent = calibrate(bench)
    parameters = re.search(r"parameters +((\d+).*? tensors)", bench.train("none", 1)[1])
    bench.embedding = SHAPE["vocabulary"] * SHAPE["width"] / int(parameters[2])
    print(f"GPT-2 of {parameters[1]}, {SHAPE['layers']} layers, {SHAPE['width']} wide, vocabulary "
          f"{SHAPE['vocabulary']}; a rank "
          f"has {BATCH}x{SHAPE['context']} tokens a step and sends {sent / 1e6:.1f} MB; "
          f"--bucket-mb {options.bucket_mb}",
          flush=True)
    torch = Torch(bench) if options.torch else None
    for ratio in options.ratios:
        rate = sent / (ratio * computing)
        bench.network.shape(rate)
        measured = bench.network.measure(rate)
        print(f"\n2 nodes, {rate / 1e6:.1f} MB/s: {measured / 1e6:.1f} MB/s measured both ways; "
              f"load {os.getloadavg()[0]:.1f}",
              flush=True)
        setting = Setting(bench, sent, rate, torch)
        setting.run(options.rounds, options.steps)
        setting.report_bound(f"{ratio:g}")
        if torch:
            setting.report_torch(f"{ratio:g}")
    if torch:
        torch.close()


def measure_trace(bench):
    """What recording costs, in the last setting's network made fast again."""
    for namespace, port in bench.network.ports:
        sh("tc", "-n", namespace, "qdisc", "del", "dev", port, "root")
    seconds = {True: [], False: []}
    for number in range(2 * bench.options.rounds):
        trace = number % 2 == 0
        lines = bench.train("real", bench.options.steps, trace)[1]
        seconds[trace] += [float(ms) / 1e3
                           for ms in re.findall(r"^step .* ms +([0-9.]+)", lines, re.M)][WARM_UP:]
    with_trace, without = statistics.median(seconds[True]), statistics.median(seconds[False])
    print(f"\n--trace: step {with_trace * 1e3:.1f} ms with, {without * 1e3:.1f} ms without, on "
          "links of no set rate")
    figure.tell("overlap-trace-cost", 100 * (with_trace / without - 1), "% of a step")
    bench.network.remove()


def measure_four(bench):
    bench.network = Network(4)
    computing, sent = calibrate(bench)
    rate = sent / computing
    bench.network.shape(rate)
    print(f"\n4 nodes on {len(bench.cpus)} CPUs, {rate / 1e6:.1f} MB/s, {sent / 1e6:.1f} MB a rank "
          "and step; load "
          f"{os.getloadavg()[0]:.1f}", flush=True)
    setting = Setting(bench, sent, rate, None)
    setting.run(1, bench.options.steps)
    # two ranks share a CPU, so that one computes while the other waits
    setting.report_bound("4-nodes", False)
    cpu = setting.cpu
    print(f"  CPU of all ranks: {milliseconds(cpu['real'])} ms a step, {milliseconds(cpu['none'])} "
          "without exchange, "
          f"{milliseconds(cpu['replay'])} for the exchanges alone")
    figure.tell("overlap-4-nodes-cpu", cpu["real"] - cpu["none"],
                "CPU seconds a step for communication, all ranks")
    bench.network.remove()


def main():
    if sys.argv[1:2] == ["--transfer"]:
        return transfer(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--muster-train", required=True)
    parser.add_argument("--ratios", type=lambda text: [float(word) for word in text.split(",")],
                        default=None)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--bucket-mb", default="auto")
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.ratios = options.ratios or ([1] if options.quick else [0.5, 1, 3])
    if options.quick:
        options.rounds = 1
    # names of networks and all files are this bench's own, and end with it
    sh("mount", "-t", "tmpfs", "tmpfs", "/run")
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        bench = Bench(options, folder)
        measure_two(bench)
        measure_trace(bench)
        if not options.quick:
            measure_four(bench)
    return 0


if __name__ == "__main__":
    sys.exit(main())
