# SPDX-License-Identifier: Apache-2.0
"""Measures saves of a training on one GPU, and PyTorch's beside them: called by checkpoint-gpu.sh,
which has the usage.

The stall is told twice: what muster-train prints (the seconds that its thread stood still, and
those that the GPU waited for copies before an update), and by how much the two steps after a save
are longer than steps while nothing is saved, since its update may be run in the second of them.
Both have to meet the aim."""
import argparse
import array
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import figure
from train_gpu import MODELS
from train_gpu_runs import Contestant, Failed

HERE = os.path.dirname(os.path.abspath(__file__))
EVERY = {"124M": 8.0, "1558M": 45.0, "tiny": 1.0}  # seconds between saves
ALL = ("124M", "1558M")
FIRST = 300  # seconds for the start of a run
# on the disk: weights, master weights and two moments; torch.save's has one of the weights
PARAMETER_BYTES = 16 + 12
DURABLE = re.compile(r"step (\d+) is durable: [\d.]+ MB in ([\d.]+) s; training stood still for "
                     r"([\d.]+) s")
COPIED = re.compile(r"the state after step (\d+) is copied: the device took ([\d.]+) s for "
                    r"([\d.]+) MB")


def parameters(layers, width, _, context, vocabulary):
    return (vocabulary + context) * width + layers * (12 * width * width + 13 * width) + 2 * width


def write_tokens(path, count):
    tokens = array.array("H")
    tokens.frombytes(os.urandom(2 * count))
    with open(path, "wb") as file:
        array.array("H", (token & 0xff for token in tokens)).tofile(file)


def libraries(python):
    """The folders of PyTorch's CUDA libraries: those of a machine that has no others."""
    script = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    try:
        site = subprocess.run([python, "-c", script], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return []
    return sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))


class Bench:
    def __init__(self, options):
        self.options = options
        path = [os.path.join(options.programs, "..", "lib"), *libraries(options.torch_python),
                os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = dict(os.environ, OMP_WAIT_POLICY="passive",
                                LD_LIBRARY_PATH=":".join(filter(None, path)),
                                MUSTER_CKPTD_PROGRAM=os.path.join(options.programs, "muster-ckptd"))

    def train(self, name, every):
        """The lines of a run of that many saves, with its steps."""
        options, run = self.options, os.path.join(self.options.folder, name)
        shape, batch, microbatches, _ = MODELS[name]
        tokens = os.path.join(options.folder, f"{name}.u16")
        write_tokens(tokens, 4 * batch * shape[3] + 1)
        words = [part for pair in zip(("layers", "width", "heads", "context", "vocabulary"), shape)
                 for part in (f"--{pair[0]}", pair[1])]
        contestant = Contestant(name, [
            os.path.join(options.programs, "muster-train"), "--data", tokens, "--ckpt-dir", run,
            *words, "--global-batch", batch,
            "--microbatch", options.microbatch or microbatches[0], "--steps", 10 ** 6,
            "--learning-rate", 1e-5,
            "--min-learning-rate", 1e-5, "--ckpt-every", f"{every:g}s", "--keep-last", 1,
            "--log-level", "debug",
            "--device", "cuda", *options.train], self.environment)
        try:
            contestant.wait(lambda: len(self.durable(contestant)) > options.saves,
                            time.monotonic() + FIRST + 4 * every * (options.saves + 1),
                            f"save {options.saves + 1}")
        finally:
            contestant.process.kill()
            contestant.process.wait()
            contestant.reader.join(20)
        shutil.rmtree(run, ignore_errors=True)
        return contestant

    @staticmethod
    def durable(contestant):
        return [match for line in contestant.lines if (match := DURABLE.search(line))]

    def ours(self, name):
        every = self.options.every or EVERY[name]
        run = self.train(name, every)
        saves = [(int(m[1]), float(m[2]), float(m[3])) for m in self.durable(run)][1:]
        copies = {int(m[1]): float(m[3]) * 1e6 / float(m[2]) for line in run.lines
                  if (m := COPIED.search(line)) and float(m[2]) > 0}
        ends = {step: moment for moment, step, _ in run.steps}
        seconds = {step: ends[step] - ends[step - 1] for step in ends if step - 1 in ends}
        busy = [(ends[step], ends[step] + flush + seconds[step]) for step, flush, _ in saves
                if step in seconds]
        quiet = [seconds[step] for step in seconds if step > 5
                 and not any(begin < ends[step] and ends[step] - seconds[step] < end
                             for begin, end in busy)]
        both = [seconds[step + 1] + seconds[step + 2] for step, _, _ in saves
                if step + 2 in seconds]
        if not quiet or not both:
            raise Failed(f"{name}: there is no step without a save: give a larger --every")
        late = [flush for _, flush, _ in saves if flush > every]
        if late:
            raise Failed(f"{name}: a save took the disk {max(late):.0f} s, longer than the "
                         f"{every:g} s to the next: "
                         "give a larger --every")
        usual = statistics.median(quiet)
        return {"step": usual, "quiet": len(quiet),
                "stall": statistics.median(stall for _, _, stall in saves),
                "most": max(stall for _, _, stall in saves),
                "longer": statistics.median(both) - 2 * usual,
                "rate": statistics.median(copies.values()) if copies else None,
                "flush": statistics.median(flush for _, flush, _ in saves)}

    def torch(self, name):
        """What PyTorch does with the same state, or None and the reason told."""
        shape = MODELS[name][0]
        command = [self.options.torch_python, os.path.join(HERE, "checkpoint_gpu_torch.py"),
                   os.path.join(self.options.folder, "torch.pt"), *map(str, shape)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"  {name}: the peer is missing, so there is no comparison: {error}")
            return None
        if done.returncode:
            words = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            print(f"  {name}: the peer is missing, so there is no comparison: "
                  f"{self.options.torch_python}: {words}")
            return None
        return json.loads(done.stdout.strip().splitlines()[-1])

    def measure(self, name):
        shape = MODELS[name][0]
        needed = 2 * PARAMETER_BYTES * parameters(*shape)
        free = shutil.disk_usage(self.options.folder).free
        if free < needed:
            print(f"  {name} is left out: {self.options.folder} has {free / 1e9:.0f} GB left of "
                  f"the {needed / 1e9:.0f} needed: "
                  "give another --dir")
            return False
        ours = self.ours(name)
        print(f"  {name}: step {ours['step']:.4f} s (median of {ours['quiet']}), "
              f"stall {ours['stall']:.4f} s (at most {ours['most']:.4f}), "
              f"the two steps after a save {ours['longer']:.4f} s longer, durable after "
              f"{ours['flush']:.2f} s", flush=True)
        title = f"checkpoint-gpu-{name}"
        for what in ("stall", "longer"):
            figure.tell(f"{title}-{what}", ours[what] / ours["step"], "of a step", at_most=0.05)
        if ours["rate"]:
            figure.tell(f"{title}-copy", ours["rate"] / 1e9, "GB/s out of the GPU")
        peer = None if self.options.no_torch else self.torch(name)
        if not peer:
            return True
        print(f"  PyTorch {peer['version']}: torch.save {peer['save']:.3f} s, a pinned copy "
              f"{peer['pinned'] / 1e9:.1f} GB/s")
        if ours["rate"]:
            figure.tell(f"{title}-copy-rate", ours["rate"] / peer["pinned"],
                        "x the card's pinned copy", at_least=0.9)
        figure.tell(f"{title}-torch-save", max(ours["stall"], ours["longer"]) / peer["save"],
                    "x torch.save", at_most=0.05)
        return True


def main():
    parser = argparse.ArgumentParser(prog="checkpoint-gpu.sh")
    parser.add_argument("--programs", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--only", action="append", choices=sorted(EVERY))
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--every", type=float)
    parser.add_argument("--microbatch", type=int)
    parser.add_argument("--torch-python", default="python3")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("train", nargs="*", help="options of muster-train")
    bench, failed = Bench(parser.parse_args()), False
    for name in bench.options.only or ALL:
        try:
            bench.measure(name)
        except Failed as error:
            failed = True
            print(f"  {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
