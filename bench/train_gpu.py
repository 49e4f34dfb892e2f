# SPDX-License-Identifier: Apache-2.0
"""Measures training steps of GPT-2 on one GPU, ours and PyTorch's, and the least that the card
needs for them: called by train-gpu.sh, which has the usage.

Per model: our microbatch and PyTorch's configuration are chosen by short runs; then the floor of a
step and where its time goes (step_floor); then runs in turns, each a process of its own, from the
same weights and over the same data in the same order. What is done is written down after each part,
so a run that is cut short leaves figures."""
import argparse
import datetime
import glob
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import figure
import train_gpu_figures as figures
from train_gpu_runs import Card, Contestant, Failed
from train_gpu_text import make_tokens

HERE = os.path.dirname(os.path.abspath(__file__))
# layers, width, heads, context, vocabulary; samples of a step; microbatches of ours, of PyTorch's,
# the likeliest first
MODELS = {
    "124M": ((12, 768, 12, 1024, 50257), 512, (64, 32), (32, 64, 16)),
    "350M": ((24, 1024, 16, 1024, 50257), 256, (32, 64), (16, 32, 64)),
    "774M": ((36, 1280, 20, 1024, 50257), 128, (16, 32), (16, 32, 8)),
    "1558M": ((48, 1600, 25, 1024, 50257), 64, (16, 8), (8, 16, 4)),
    "tiny": ((2, 64, 2, 64, 256), 16, (8, 4), (8, 4)),
}
ALL = ("124M", "350M", "774M", "1558M")
MODES, ATTENTIONS = ("default", "max-autotune"), ("flash", "cudnn")
RATE, WARM_UP_STEPS, SEED = 6e-4, 20, 1
FOREVER = 10 ** 6      # steps of a run that is ended by a signal
CHOICE_SECONDS, SETTLE_SECONDS = 5, 3  # at most
FIRST_STEP = {"ours": 120, "torch": 400}  # seconds until it must have come: loading, compiling
FLOOR_SECONDS = 10
START_SECONDS = 40     # of a run, about: to load, to tune, to compile what is compiled already
OURS_SAYS = "numerics", "memory", "tune", "graphs"  # what of a run of ours is written down
CANONICAL, NATIVE, TORCH = "muster canonical", "muster native", "torch"
SKIPPED = 77           # status of a comparison without a peer


class Model:
    def __init__(self, name, batch=None):
        self.name = name
        self.shape, self.batch, self.ours, self.torch = MODELS[name]
        self.batch = batch or self.batch
        layers, width, _, context, vocabulary = self.shape
        self.tokens = self.batch * context
        self.flops = figures.token_flops(layers, width, context, vocabulary)


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.begun = time.monotonic()
        self.record, self.text = {"models": {}}, []
        stem = os.path.join(options.out, f"train-gpu-{datetime.date.today()}")
        self.paths = f"{stem}.txt", f"{stem}.json"
        self.settle = min(SETTLE_SECONDS, options.warm_up)
        self.libraries, self.can_tune = (), None
        self.card = Card() if options.device == "cuda" else None

    # --- what is written down ---

    def say(self, *lines):
        self.text += lines
        print("\n".join(lines), flush=True)
        self.save()

    def save(self):
        os.makedirs(self.options.out, exist_ok=True)
        with open(self.paths[0], "w", encoding="utf-8") as file:
            file.write("\n".join(self.text) + "\n")
        with open(self.paths[1], "w", encoding="utf-8") as file:
            json.dump(self.record, file, indent=1)

    def left(self):
        """Seconds until the limit."""
        return self.options.limit - (time.monotonic() - self.begun)

    def program(self, name):
        return next((path for path in glob.glob(os.path.join(self.options.programs, "**", name),
                                                recursive=True)
                     if os.access(path, os.X_OK) and os.path.isfile(path)), None)

    # --- contestants ---

    def environment(self):
        """For our programs: the same cuBLAS as PyTorch's, where that is here."""
        folders = [os.path.join(self.options.programs, "..", "lib"), *self.libraries,
                   os.environ.get("LD_LIBRARY_PATH", ""),
                   "/usr/local/cuda/lib64"]
        return dict(os.environ, OMP_WAIT_POLICY="passive",
                    LD_LIBRARY_PATH=":".join(filter(None, folders)))

    def find_torch(self):
        """Its version, or None with the reason told; its folders of libraries are ours, too."""
        script = ("import sysconfig, torch; print(torch.__version__, torch.cuda.is_available()); "
                  "print(sysconfig.get_paths()['purelib'])")
        try:
            done = subprocess.run([self.options.torch_python, "-c", script], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return self.no_torch(str(error))
        if done.returncode:
            return self.no_torch(done.stdout.strip().splitlines()[-1] if done.stdout.strip()
                                 else "it said nothing")
        version, site = done.stdout.strip().splitlines()[-2:]
        if self.options.device == "cuda" and not version.endswith("True"):
            return self.no_torch(f"PyTorch {version.split()[0]} sees no GPU")
        self.libraries = sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))
        return version.split()[0]

    def no_torch(self, reason):
        self.say(f"the peer is missing, so there is no comparison: {self.options.torch_python}: "
                 f"{reason}")
        return None

    def tuned(self):
        """Algorithms chosen by timing, where this muster-train can."""
        if self.can_tune is None:
            done = subprocess.run([self.program("muster-train"), "--help"], stdout=subprocess.PIPE,
                                  text=True, check=False,
                                  env=self.environment())
            self.can_tune = "--tune" in done.stdout
        return ["--tune"] if self.can_tune and self.options.device == "cuda" else []

    def attention(self):
        """Whose attention is measured: the floor's table is of the same."""
        return "cudnn" if "cudnn" in self.options.train else "own"

    def ours(self, model, microbatch, reduction="canonical", steps=FOREVER):
        layers, width, heads, context, vocabulary = model.shape
        command = [self.program("muster-train"), "--data", self.options.data, "--order", "file",
                   "--seed", SEED,
                   "--layers", layers, "--width", width, "--heads", heads, "--context", context,
                   "--vocabulary", vocabulary,
                   "--global-batch", model.batch, "--microbatch", microbatch, "--steps", steps,
                   "--learning-rate", RATE,
                   "--min-learning-rate", RATE, "--warmup-steps", WARM_UP_STEPS, "--reduction",
                   reduction,
                   "--device", self.options.device, "--attention", self.attention(), *self.tuned(),
                   *self.options.train]
        return Contestant(f"muster {reduction}", command, self.environment())

    def torch(self, model, microbatch, mode, attention, steps=FOREVER):
        command = [self.options.torch_python, os.path.join(HERE, "train_gpu_torch.py"), "--shape",
                   *model.shape, "--weights",
                   self.weights(model), "--data", self.options.data, "--global-batch", model.batch,
                   "--microbatch", microbatch,
                   "--steps", steps, "--learning-rate", RATE, "--warmup-steps", WARM_UP_STEPS,
                   "--mode", mode,
                   "--attention", attention, "--device", self.options.device, "--precision",
                   self.options.precision]
        cache = os.path.join(self.folder, "inductor")
        return Contestant(f"torch {microbatch} {mode} {attention}", command,
                          dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache))

    def weights(self, model):
        """Those that our training begins with."""
        path = os.path.join(self.folder, f"weights-{model.name}.safetensors")
        if not os.path.exists(path):
            subprocess.run([self.program("initial_weights"), *map(str, model.shape), str(SEED),
                            path], check=True,
                           env=self.environment())
        return path

    def run(self, contestant, kind, warm, seconds):
        """One run; ends it. Failed where it fails."""
        try:
            run = contestant.measure(warm, seconds, min(FIRST_STEP[kind], max(1, self.left())))
            if self.card:
                run["card"] = self.card.between(run["begin"], run["end"])
                self.record["card"] = list(self.card.readings)  # moment, SM MHz, W, degrees
            if kind == "ours":
                found = {word: contestant.said(rf"^(?:muster: |  ){word}:?\s+(.*)")
                         for word in OURS_SAYS}
                run["about"] = {word: match[1].strip() for word, match in found.items() if match}
            return run
        finally:
            contestant.close()

    # --- the parts ---

    def choose(self, model, what, candidates):
        """The fastest of some starts, [(words, start)]; those that fail are told."""
        best = None
        for words, kind, start in candidates:
            if self.left() < self.needed(model, words):
                self.say(f"  {what} {words}: not tried, no time left of {self.options.limit:.0f} s")
                continue
            try:
                run = self.run(start(), kind, self.settle,
                               min(CHOICE_SECONDS, self.options.seconds))
            except Failed as error:
                self.say(f"  {what} {words}: {error}")
                continue
            rate = model.tokens / run["step_seconds"]
            self.say(f"  {what} {words}: {rate:.0f} tokens/s, first step after "
                     f"{run['start_up']:.0f} s")
            if not best or rate > best[0]:
                best = rate, words
        return best[1] if best else None

    def needed(self, model, words):
        """Seconds that are kept for the floor and the rounds, once something is chosen that can be
        measured."""
        if self.options.limit == math.inf or words == self.likeliest(model):
            return 0
        return (2 * self.options.rounds + 1) * (self.options.seconds + START_SECONDS) \
            + 2 * self.options.warm_up + START_SECONDS

    @staticmethod
    def likeliest(model):
        return f"{model.torch[0]},{MODES[0]},{ATTENTIONS[0]}"

    def choose_ours(self, model):
        if self.options.microbatch:
            return self.options.microbatch
        if len(model.ours) == 1:
            return model.ours[0]
        chosen = self.choose(model, "muster, microbatch",
                             [(str(size), "ours", lambda size=size: self.ours(model, size))
                                                           for size in model.ours])
        return int(chosen) if chosen else None

    def choose_torch(self, model):
        """The first batch size first, then every other way with it, then all that is left."""
        if self.options.torch:
            return self.options.torch
        grid = sorted(itertools.product(model.torch, MODES, ATTENTIONS),
                      key=lambda way: (way[1:] != (MODES[0], ATTENTIONS[0])) + 2 *
                      (way[0] != model.torch[0]))
        if self.options.device == "cpu":
            grid = [(size, "eager", "any") for size in model.torch]
        return self.choose(model, "torch",
                           [(",".join(map(str, way)), "torch",
                             lambda way=way: self.torch(model, *way))
                                            for way in grid])

    def measure_floor(self, model, microbatch):
        """What step_floor says, or None where it could not be measured."""
        command = [self.program("step_floor"), *model.shape, microbatch, model.batch // microbatch,
                   FLOOR_SECONDS, *(["cudnn"] if self.attention() == "cudnn" else [])]
        try:
            done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE,
                                  text=True, check=False, env=self.environment(),
                                  timeout=max(1, min(300, self.left())))
        except subprocess.TimeoutExpired:
            return self.say("  the floor was not measured: no answer of step_floor in time")
        if done.returncode:
            return self.say(f"  the floor was not measured: {done.stderr.strip()[-400:]}")
        return json.loads(done.stdout)

    def floor(self, model, microbatch):
        """As it was measured in an earlier run, or now."""
        measured = None
        if self.options.floor:
            measured = self.options.floor.get(model.name, {}).get("floor")
        measured = measured or self.measure_floor(model, microbatch)
        if not measured:
            return None
        self.record["models"][model.name]["floor"] = measured
        floor = figures.Floor(measured)
        self.say(f"  {measured['card']}; {measured['libraries']}; copies at "
                 f"{measured['copy'] / 1e12:.2f} TB/s; "
                 f"products of a step at {floor.rate / 1e12:.0f} TFLOP/s", *floor.products_table(),
                 *floor.table(),
                 f"  floor of a step: products {floor.products * 1e3:.2f} ms + passes "
                 f"{floor.passes * 1e3:.2f} ms",
                 figure.line(f"train-gpu-{model.name}-floor", floor.step * 1e3, "ms"))
        return floor

    def rounds(self, model, ways):
        """Runs of each way in turns, and one of the native reduction at the end: name to its
        runs."""
        runs = {name: [] for name in ways}
        turns = [(number + 1, name) for number in range(self.options.rounds) for name in ways
                 if name != NATIVE]
        for number, name in turns + [(1, NATIVE)]:
            kind, start = ways[name]
            warm = self.settle if runs[name] else self.options.warm_up
            if self.left() < warm + self.options.seconds + 10:
                self.say(f"  round {number}, {name}: not run, no time left of "
                         f"{self.options.limit:.0f} s")
                continue
            try:
                run = self.run(start(), kind, warm, self.options.seconds)
            except Failed as error:
                self.say(f"  round {number}, {name}: {error}")
                continue
            runs[name].append(run)
            recorded = self.record["models"][model.name].setdefault("runs", [])
            recorded.append(dict(run, way=name, round=number))
            self.say(self.run_line(model, number, name, run))
        return runs

    def run_line(self, model, number, name, run):
        card = run.get("card")
        about = f"  SM {card[0]:.0f} MHz, {card[1]:.0f} W, {card[2]:.0f} C" if card else ""
        return (f"  round {number}, {name:16s} {run['step_seconds'] * 1e3:9.2f} ms a step over "
                f"{run['steps']} steps, "
                f"{model.tokens / run['step_seconds']:9.0f} tokens/s{about}")

    def figures(self, model, runs, floor):
        """The lines that count."""
        peak = floor.measured["peak"] if floor else 0
        seconds = {name: figures.spread([run["step_seconds"] for run in those])
                   for name, those in runs.items() if those}
        for name, (median, least, most) in seconds.items():
            rate = model.tokens / median
            short = {CANONICAL: "", NATIVE: "-native", TORCH: "-torch"}[name]
            self.say(f"  {name:16s} {median * 1e3:9.2f} ms a step ({least * 1e3:.2f} to "
                     f"{most * 1e3:.2f}), {rate:9.0f} tokens/s")
            if peak:
                self.say(figure.line(f"train-gpu-{model.name}{short}-mfu",
                                     figures.utilisation(rate, model.flops, peak), "%",
                                     at_least=figures.AIM_MFU.get(model.name)
                                     if name == CANONICAL else None))
        ours = seconds.get(CANONICAL)
        if ours and floor:
            self.say(figure.line(f"train-gpu-{model.name}-over-floor", ours[0] / floor.step, "x",
                                 at_most=figures.AIM_FLOOR))
        if ours and TORCH in seconds:
            self.compare(model, runs, seconds)

    def compare(self, model, runs, seconds):
        worst = figures.disagreement(max((run["losses"] for run in runs[CANONICAL]), key=len),
                                     max((run["losses"] for run in runs[TORCH]), key=len))
        agree = worst <= figures.AIM_CURVE
        self.say(figure.line(f"train-gpu-{model.name}-curves", worst, "%",
                             at_most=figures.AIM_CURVE))
        for name, short in ((CANONICAL, ""), (NATIVE, "-native")):
            if name in seconds:
                self.say(figure.line(f"train-gpu-{model.name}{short}-over-torch",
                                     seconds[TORCH][0] / seconds[name][0], "x",
                                     at_least=None if short else figures.AIM_TORCH,
                                     void=None if agree else "the loss curves differ by "
                                                             f"{worst:.3g} %"))

    def measure(self, name, torch):
        model = Model(name)
        self.record["models"][name] = {"shape": model.shape, "batch": model.batch}
        words = ("layers", "width", "heads", "context", "vocabulary")
        shape = ", ".join(f"{word} {value}" for word, value in zip(words, model.shape))
        self.say("", f"{name}: {shape}, {model.tokens} tokens a step")
        microbatch = self.choose_ours(model)
        if not microbatch:
            return self.say("  nothing of ours ran")
        floor = self.floor(model, microbatch) if self.options.device == "cuda" else None
        ways = {CANONICAL: ("ours", lambda: self.ours(model, microbatch))}
        if torch and (chosen := self.choose_torch(model)):
            size, mode, attention = chosen.split(",")
            ways[TORCH] = ("torch", lambda: self.torch(model, int(size), mode, attention))
            self.say(f"  ours with a microbatch of {microbatch}, PyTorch with {chosen}")
        ways[NATIVE] = ("ours", lambda: self.ours(model, microbatch, "native"))
        runs = self.rounds(model, ways)
        for name_, those in runs.items():
            if those:
                about = "; ".join(f"{key} {value}" for key, value in those[-1]["about"].items())
                self.say(f"  {name_} ran on: {about}")
        return self.figures(model, runs, floor)

    def curves(self, name):
        """--curve: nothing is timed. Whether they agree."""
        model = Model(name, self.options.batch)
        microbatch = self.options.microbatch or model.ours[-1]
        usual = "eager,any" if self.options.device == "cpu" else "default,flash"
        size, mode, attention = (self.options.torch or f"{model.torch[0]},{usual}").split(",")
        steps, found = self.options.curve, []
        for contestant in (lambda: self.ours(model, microbatch, steps=steps),
                           lambda: self.torch(model, int(size), mode, attention, steps)):
            contestant = contestant()
            try:
                found.append(contestant.curve(steps, min(self.options.curve_limit, self.left())))
            except Failed as error:
                self.say(f"  {error}")
                return False
            finally:
                contestant.close()
        self.record["models"][name] = {"curves": found}
        worst = figures.disagreement(*found)
        ends = [f"{losses[0]:.4f} to {losses[-1]:.4f}" for losses in found]
        self.say(f"  {name}, {steps} steps: ours {ends[0]}, PyTorch's {ends[1]}",
                 figure.line(f"train-gpu-{name}-curves", worst, "%", at_most=figures.AIM_CURVE))
        return worst <= figures.AIM_CURVE

    def main(self):
        self.say("bench/train-gpu.sh, "
                 f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC: "
                 f"{self.options.machine}")
        if not self.options.data:
            self.options.data = os.path.join(self.folder, "tokens.u16")
            models = [Model(name, self.options.batch) for name in self.options.only]
            self.say(make_tokens(self.options.text, self.options.data,
                                 max(model.tokens for model in models),
                                 min(model.shape[4] for model in models)))
        torch = None if self.options.no_torch else self.find_torch()
        self.record["torch"] = torch
        if self.options.curve and not torch:
            return SKIPPED
        if self.options.curve:
            return 0 if all([self.curves(name) for name in self.options.only]) else 1
        for name in self.options.only:
            self.measure(name, torch)
        return 0


def model_names(text):
    names = text.split(",")
    for name in names:
        if name not in MODELS:
            raise argparse.ArgumentTypeError(f"no model '{name}': {', '.join(MODELS)}")
    return names


def recorded(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)["models"]
    except (OSError, ValueError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"couldn't read {path}, as an earlier run wrote it: "
                                         f"{error}") from error


def torch_way(text):
    if len(text.split(",")) != 3 or not text.split(",")[0].isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not MICROBATCH,MODE,ATTENTION, such as "
                                         "32,max-autotune,flash")
    return text


def parse():
    parser = argparse.ArgumentParser(prog="train-gpu.sh")
    parser.add_argument("--programs", required=True)
    parser.add_argument("--machine", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", type=model_names, default=list(ALL))
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warm-up", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=math.inf)
    parser.add_argument("--data")
    parser.add_argument("--text")
    parser.add_argument("--microbatch", type=int)
    parser.add_argument("--torch", type=torch_way)
    parser.add_argument("--torch-python", default="python3")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--floor", type=recorded)
    parser.add_argument("--curve", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--curve-limit", type=float, default=600)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("train", nargs="*", help="options of muster-train")
    return parser.parse_args()


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        try:
            return bench.main()
        finally:
            if bench.card:
                bench.card.close()


if __name__ == "__main__":
    sys.exit(main())
