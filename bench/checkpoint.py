# SPDX-License-Identifier: Apache-2.0
"""Measures saving and loading of a training state beside PyTorch, memcpy and fio: called by
checkpoint.sh, which has the usage.

Everybody trains a GPT-2 of the same size and has the same state: weights and two moments in fp32. A
step's time is the wall time from one step's end to the next one's, so that nothing between steps is
missed. A step is quiet when no save is in flight in it. The stall of a save is the time that the
step in which it begins takes beyond the median quiet step; what all steps until the next save take
beyond it is told, too, since our service leaves busy processors to training for the first five
seconds of a save, for which --every must leave time. The first save of each contestant warms up and
does not count. Rates are bytes in files over the seconds from the save's begin to durability. Loads
begin with a cold page cache."""
import argparse
import atexit
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys

import checkpoint_disk
import checkpoint_muster
import figure
from checkpoint_memory import Watch, children

SHAPE = (20, 768, 12, 256, 50257)  # layers, width, heads, context, vocabulary
BATCH, TORCH_BATCH = 2, 1          # a step of 1 to 2 s each
STATES = 3                         # weights and two moments, fp32
PARTS = ("fio", "ours", "torch", "dcp")
CLIENTS = {"snapshot": "torchsnapshot", "flash": "dlrover"}  # of PyPI, where they install
TORCH = {"package": ("muster",), "torch": ("save", "durable"),
         "dcp": ("thread", "staged", "process"), "clients": tuple(CLIENTS)}
# the fastest of each; of the others half as many saves are measured
JUDGED = ("save", "staged", "muster")
TITLES = {"ours": "muster, all cores", "spare": "muster, a core to spare",
          "muster": "muster for PyTorch", "save": "torch.save, no fsync",
          "durable": "torch.save, fsync", "thread": "DCP async, thread",
          "staged": "DCP async, thread stages",
          "process": "DCP async, process", "snapshot": "torchsnapshot, async",
          "flash": "DLRover flash checkpoint"}
SPACE = 14e9                       # bytes of files at one time, at most


def parameters(layers, width, _, context, vocabulary):
    return (vocabulary + context) * width + layers * (12 * width * width + 13 * width) + 2 * width


class Torch:
    """checkpoint_torch.py in one mode."""
    def __init__(self, mode, options):
        self.mode = mode
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checkpoint_torch.py")
        threads = str(options.threads)
        self.errors = os.path.join(options.folder, "torch.log")
        self.process = subprocess.Popen(
            [sys.executable, script, mode, options.folder, threads, *map(str, SHAPE),
             str(TORCH_BATCH)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=open(self.errors, "w", encoding="utf-8"), text=True,
            env=dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads,
                     PYTHONPATH=os.path.join(os.path.dirname(script), "..", "python"),
                     MUSTER_LIBRARY=os.path.join(options.build, ".libs", "libmuster.so.0"),
                     MUSTER_CKPTD_PROGRAM=os.path.join(options.build, "muster-ckptd")))
        atexit.register(self.process.kill)
        self.memory = Watch(self.process.pid, lambda: children(self.process.pid))

    def ask(self, command):
        print(command, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            with open(self.errors, encoding="utf-8", errors="replace") as file:
                sys.exit(f"checkpoint: PyTorch, {self.mode}, ended on '{command}', status "
                         f"{self.process.wait()}:\n" +
                         file.read()[-2000:])
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure_torch(mode, options):
    torch = Torch(mode, options)
    saves = options.saves if mode in JUDGED else options.saves // 2
    result = torch.ask(f"train {saves + 1} 2")
    result["memory"] = torch.memory.stop()
    result["loads"] = []
    for _ in range(options.rounds):
        checkpoint_disk.forget(*(os.path.join(options.folder, name)
                                 for name in os.listdir(options.folder)
                                 if name.startswith(mode)))
        result["loads"].append((result["saves"][-1][2], torch.ask("load")))
    result["version"] = torch.ask("version")
    torch.close()
    return result


def measure_ours(threads, every, options):
    shape = (*SHAPE, BATCH)
    judged = threads == options.threads
    result = checkpoint_muster.train(options.build, options.folder, shape, threads, every,
                                     options.saves if judged else options.saves // 2)
    result["stopped"], result["resumes"], result["loads"] = [result.pop("last")], [], []
    if judged:
        for _ in range(options.rounds):
            size, seconds = checkpoint_muster.verify(options.build, options.folder)
            result["loads"].append((size, seconds))
            seconds, last = checkpoint_muster.resume(options.build, options.folder, shape, threads)
            result["resumes"].append((size, seconds))  # it reads and verifies all files
            result["stopped"].append(last)
    shutil.rmtree(os.path.join(options.folder, "run"))
    return result


def summarize(name, result):
    """The numbers of one contestant's run: see the top."""
    steps, saves = result["steps"], result["saves"]
    flights = [(save[0], save[1]) for save in saves]
    quiet = [end - begin for begin, end in steps
             if not any(begin < to and since < end for since, to in flights)]
    if not quiet:
        sys.exit(f"checkpoint: {TITLES[name]}: no step without a save in flight: give a larger "
                 "--every")
    usual = statistics.median(quiet)
    stalls, extras, seconds = [], [], []
    for number, save in enumerate(saves):
        until = saves[number + 1][0] if number + 1 < len(saves) else steps[-1][1]
        its = [end - begin for begin, end in steps if end > save[0] and begin < until
               and end <= until + 1e-6]
        stalls.append(its[0] - usual)
        extras.append(sum(its) - len(its) * usual)
        seconds.append(save[3] if len(save) > 3 else save[1] - save[0])
    late = sum(save[1] > following[0] for save, following in zip(saves, saves[1:]))
    if late:
        sys.exit(f"checkpoint: {TITLES[name]}: {late} saves were not over when the next began: "
                 "give a larger --every")
    deviation = statistics.median(abs(value - usual) for value in quiet)
    return {"step": usual, "deviation": deviation, "quiet": len(quiet), "stalls": stalls[1:],
            "stall": statistics.median(stalls[1:]), "extra": statistics.median(extras[1:]),
            "seconds": statistics.median(seconds[1:]),
            "write": statistics.median(save[2] / each
                                       for save, each in list(zip(saves, seconds))[1:]),
            "flight": statistics.median(save[1] - save[0] for save in saves[1:])}


def rate(pairs):
    return statistics.median(size / seconds for size, seconds in pairs)


def gigabytes(memory, which):
    resident, shared = memory[which] or (0, 0)
    return f"{resident / 1e9:.2f} GB" + (f" (shared {shared / 1e9:.2f})" if shared > 1e8 else "")


def report_run(name, result, numbers, copy):
    print(f"  {TITLES[name]:25s} step {numbers['step']:.3f} s (+-{numbers['deviation'] * 1e3:.0f} "
          f"ms, {numbers['quiet']} quiet)  "
          f"stall {numbers['stall']:.3f} s ({min(numbers['stalls']):.3f} to "
          f"{max(numbers['stalls']):.3f}, median of "
          f"{len(numbers['stalls'])})" +
          (f" = {numbers['stall'] / copy:.2f} memcpy" if copy else "") +
          f", all steps together {numbers['extra']:.3f} s")
    cached = ("save", *CLIENTS)  # none of these asks for the disk
    durable = "left to the page cache" if name in cached else "durable"
    print(f"  {'':25s} {result['saves'][-1][2] / 1e9:.3f} GB {durable} in {numbers['seconds']:.2f} "
          "s = "
          f"{numbers['write'] / 1e9:.2f} GB/s; {numbers['flight']:.2f} s after the step" +
          (f"; loads {rate(result['loads']) / 1e9:.2f} GB/s" if result["loads"]
           and "resumes" not in result else ""))
    print(f"  {'':25s} peak memory: trainer {gigabytes(result['memory'], 'trainer')}" +
          (f", service {gigabytes(result['memory'], 'service')}" if result["memory"]["service"]
           else ", one process"))
    if result.get("resumes"):
        print(f"  {'':25s} with training stopped: durable at {rate(result['stopped']) / 1e9:.2f} "
              "GB/s, median of "
              f"{len(result['stopped'])}; muster-ckpt verify --deep "
              f"{rate(result['loads']) / 1e9:.2f} GB/s; resume reads and "
              f"verifies {rate(result['resumes']) / 1e9:.2f} GB/s")
    sys.stdout.flush()


def judge(numbers, results, copy, disk):
    ours = numbers.get("ours")
    if not ours:
        return
    figure.tell("checkpoint-stall-memcpy", ours["stall"] / copy, "x one memcpy by one thread",
                at_most=0.25)
    if "save" in numbers:
        fastest = min((numbers[name]["stall"], name) for name in TORCH["torch"])
        figure.tell("checkpoint-stall-torch-save", ours["stall"] / fastest[0],
                    f"x {TITLES[fastest[1]]}", at_most=0.05)
    if "thread" in numbers:
        fastest = min((numbers[name]["stall"], name) for name in TORCH["dcp"])
        figure.tell("checkpoint-stall-dcp", ours["stall"] / fastest[0], f"x {TITLES[fastest[1]]}",
                    at_most=0.5)
    if not disk:
        return
    write, read = max(disk["write"].values()), max(disk["read"].values())
    stopped, loads, resumes = (rate(results["ours"][what])
                               for what in ("stopped", "loads", "resumes"))
    for name, ratio, unit in (
            ("write-training", ours["write"] / write, "x fio's write, while training"),
            ("write-stopped", stopped / write, "x fio's write, training stopped"),
            ("verify", loads / read, "x fio's read"), ("resume", resumes / read, "x fio's read")):
        figure.tell(f"checkpoint-{name}", ratio, unit, at_least=0.9)


def judge_package(numbers, copy):
    """torch-save.sh: PyTorch with the package beside PyTorch's own ways."""
    stall = numbers["muster"]["stall"]
    for name, aim, peers in (("dcp", 0.1, TORCH["dcp"]),
                             ("best", 1.0, TORCH["dcp"] + TORCH["torch"] + TORCH["clients"])):
        there = [(numbers[peer]["stall"], peer) for peer in peers if peer in numbers]
        if there:
            fastest, peer = min(there)
            figure.tell(f"checkpoint-package-stall-{name}", stall / fastest, f"x {TITLES[peer]}",
                        at_most=aim)
    figure.tell("checkpoint-package-stall-memcpy", stall / copy, "x one memcpy by one thread",
                at_most=1.1)


def report_disk(disk):
    for which, ways in disk.items():
        print(f"  fio's {which}: " + ", ".join(f"{way} {value / 1e9:.2f} GB/s"
                                               for way, value in ways.items()), flush=True)


def measure_copy(size, options):
    command = [os.path.join(options.build, "bench", "copy_state"), str(size), str(options.threads),
               "9"]
    one, everyone = map(float, subprocess.run(command, stdout=subprocess.PIPE, check=True,
                                              text=True).stdout.split())
    print(f"  memcpy of the state: {one:.3f} s by one thread ({size / one / 1e9:.1f} GB/s; this "
          f"one counts), {everyone:.3f} s "
          f"by {options.threads} threads", flush=True)
    return one


# what DLRover leaves of its one process here
LEFT = ("/dev/shm/ckpt_shm_0", "/tmp/ckpt_sock")


def why_not(mode):
    """Why this contestant has to be left out."""
    if mode in CLIENTS and importlib.util.find_spec(CLIENTS[mode]) is None:
        return f"not here: pip install {CLIENTS[mode]}"
    if mode == "flash" and any(map(os.path.exists, LEFT)):
        return f"left out: another job of DLRover's has {LEFT[0]} or {LEFT[1]}; remove what is old"
    return None


def remove_left():
    shutil.rmtree(LEFT[1], ignore_errors=True)
    if os.path.exists(LEFT[0]):
        os.remove(LEFT[0])


def merge(disks):
    """The median over several measurements of the disk."""
    return {which: {way: statistics.median(disk[which][way] for disk in disks) for way in ways}
            for which, ways in disks[0].items()}


def run(options, parts):
    size = STATES * 4 * parameters(*SHAPE)
    print(f"state: {parameters(*SHAPE) / 1e6:.1f}M parameters, {size / 1e9:.3f} GB = "
          f"{size / 2**30:.2f} GiB, weights and two "
          f"moments in fp32; {options.threads} threads; {options.folder}; load "
          f"{os.getloadavg()[0]:.1f}")
    results, numbers, disks, copy = {}, {}, [], None

    def disk():
        if "fio" in parts:
            disks.append(checkpoint_disk.measure(options.folder, size, options.rounds))
            report_disk(disks[-1])

    def take(name, result):
        results[name], numbers[name] = result, summarize(name, result)
        report_run(name, result, numbers[name], copy)

    disk()
    copy = measure_copy(size, options)
    if "ours" in parts:
        take("ours", measure_ours(options.threads, options.every, options))
        if options.threads > 1:
            take("spare", measure_ours(options.threads - 1, (options.every + 1) // 2, options))
        disk()
    for part, modes in TORCH.items():
        for mode in modes if part in parts else ():
            why = why_not(mode)
            if why:
                print(f"  {TITLES[mode]:25s} {why}")
                continue
            if mode == "flash":
                atexit.register(remove_left)
            take(mode, measure_torch(mode, options))
    for result in results.values():
        if "version" in result:
            print(f"  PyTorch {result['version']}, Python {platform.python_version()}")
            break
    judge(numbers, results, copy, merge(disks) if disks else None)
    if "muster" in numbers:
        judge_package(numbers, copy)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=(*PARTS, "package", "clients"), action="append")
    options = parser.parse_args()
    free = shutil.disk_usage(options.folder).free
    if free < SPACE:
        sys.exit(f"checkpoint: {options.folder} has {free / 1e9:.0f} GB left of the "
                 f"{SPACE / 1e9:.0f} needed: give another "
                 "--dir")
    run(options, options.only or PARTS)


if __name__ == "__main__":
    main()
