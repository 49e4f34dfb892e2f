# SPDX-License-Identifier: Apache-2.0
"""Measures muster's training step against PyTorch's, in turns: called by train-cpu.sh, which has
the usage.

The contestants are processes that stay and answer commands, so that nothing but steps is timed, and
only one works at a time. A round gives each the same number of steps and counts its fastest, since
what else the machine does can only slow a step down; rates and ratios are medians over the rounds.
Muster's step computes the gradient norm and clips, which PyTorch's does not."""
import argparse
import os
import statistics
import subprocess
import sys

import figure

CASES = {  # layers, width, heads, context, vocabulary, batch
    "14m": (6, 384, 6, 256, 8192, 8),
    "124m": (12, 768, 12, 512, 50257, 2),
}
AIM = 1.0


class Contestant:
    def __init__(self, name, command, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        self.name = name
        self.seconds = []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True,
                                        env=environment)

    def ask(self, command):
        try:
            print(command, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        answer = self.process.stdout.readline().split()
        if not answer:
            sys.exit(f"train-cpu: {self.name} ended on '{command}', status {self.process.wait()}")
        return answer

    def round(self, count):
        self.seconds.append(min(map(float, self.ask(f"steps {count}"))))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, case, options):
    shape = [str(number) for number in case]
    muster = Contestant("muster", [options.train_step, *shape], options.threads)
    torch_script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_torch.py")
    peers = [Contestant(f"torch {mode}",
                        [sys.executable, torch_script, mode, str(options.threads), *shape],
                        options.threads) for mode in ("eager", "compiled")]
    flops, parameters = map(float, muster.ask("flops"))
    everyone = [muster, *peers]
    for one in everyone:
        one.ask("steps 2")  # warms up; compiles
    product, torch_product = [], []
    for _ in range(options.rounds):
        product.append(float(muster.ask("product")[0]))
        torch_product.append(float(peers[0].ask("product")[0]))
        for one in everyone:
            one.round(options.steps)
    version = peers[0].ask("version")[0]
    for one in everyone:
        one.close()
    report(name, case, flops, parameters, everyone, max(product), max(torch_product), version,
           options)


def report(name, case, flops, parameters, everyone, product, torch_product, version, options):
    layers, width, heads, context, vocabulary, batch = case
    print(f"\n{name}: {parameters / 1e6:.1f}M parameters, {layers} layers, {width} wide, {heads} "
          "heads, "
          f"{batch}x{context} tokens, vocabulary {vocabulary}, fp32, {options.threads} threads")
    print(f"  product's own rate: {product:.0f} GFLOP/s (muster's library; PyTorch {version}'s: "
          f"{torch_product:.0f})")
    for one in everyone:
        seconds = statistics.median(one.seconds)
        rate = flops / seconds / 1e9
        print(f"  {one.name:15s} {batch * context / seconds:8.0f} tokens/s  {seconds * 1e3:8.1f} "
              "ms (best "
              f"{min(one.seconds) * 1e3:.1f})  {rate:6.1f} GFLOP/s = {rate / product:.2f} of the "
              "product's rate")
    muster, *peers = everyone
    peer = min(peers, key=lambda one: statistics.median(one.seconds))
    ratios = [b / a for a, b in zip(muster.seconds, peer.seconds)]
    ratio = statistics.median(ratios)
    print(f"  muster / {peer.name}: {ratio:.2f} (rounds {min(ratios):.2f} to {max(ratios):.2f})")
    figure.tell(f"train-cpu-{name}", ratio, f"x {peer.name}", at_least=AIM)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-step", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    for name in options.cases or CASES:
        if name not in CASES:
            parser.error(f"no case '{name}': {', '.join(CASES)}")
        measure(name, CASES[name], options)


if __name__ == "__main__":
    main()
