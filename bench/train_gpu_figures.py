# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of train_gpu.py: floors, agreement of curves, utilisation."""
import math
import statistics

AIM_TORCH, AIM_FLOOR, AIM_CURVE = 1.3, 1.15, 1.0
AIM_MFU = {"124M": 55.0, "1558M": 60.0}


class Floor:
    """What step_floor measured of a step, and the least that the card needs for it.

    The products at the best algorithm that was found for each, all other passes by the bytes that
    they can't do without over the rate of a copy, attention (products inside kernels of ours) by
    its operations over the rate of the fastest of the products, or by its bytes where these take
    longer. Own floors also count passes that a product could do on its way (gradients of biases),
    those of the step do not."""

    def __init__(self, measured):
        self.measured = measured
        self.best = max(p["flops"] / p["seconds"] for p in measured["products"])
        self.products = sum(p["calls"] * p["seconds"] for p in measured["products"])
        self.ops = [self.of_op(op) for op in measured["ops"]]
        self.passes = sum(self.beside(op["step_bytes"], op["flops"]) for op in measured["ops"])
        self.step = self.products + self.passes
        self.rate = sum(p["calls"] * p["flops"] for p in measured["products"]) / self.products

    def beside(self, bytes_, flops):
        return max(bytes_ / self.measured["copy"], flops / self.best)

    def of_op(self, op):
        made = sum(calls * self.measured["products"][number]["seconds"]
                   for number, calls in op["products"])
        return {"name": op["name"], "calls": op["calls"], "seconds": op["seconds"],
                "floor": made + self.beside(op["bytes"], op["flops"])}

    def table(self):
        """Where the time of a step goes, the largest loss first."""
        step = self.measured["step_seconds"]
        lines = [f"  {'op':42s} {'calls':>6s} {'ms':>9s} {'floor':>9s} {'x':>6s} {'lost ms':>8s} "
                 f"{'of step':>8s}"]
        for op in sorted(self.ops, key=lambda op: op["floor"] - op["seconds"]):
            lines.append(self.line(op["name"], op["calls"], op["seconds"], op["floor"], step))
        all_ops = sum(op["seconds"] for op in self.ops)
        lines.append(self.line("all ops", sum(op["calls"] for op in self.ops), all_ops,
                               sum(op["floor"] for op in self.ops), step))
        lines.append(f"  {'between them':42s} {'':6s} {(step - all_ops) * 1e3:9.3f} {'':9s} "
                     f"{'':6s} {(step - all_ops) * 1e3:8.3f} "
                     f"{(step - all_ops) / step * 100:7.1f}%")
        lines.append(self.line("a step", 1, step, self.step, step))
        return lines

    @staticmethod
    def line(name, calls, seconds, floor, step):
        return (f"  {name:42s} {calls:6d} {seconds * 1e3:9.3f} {floor * 1e3:9.3f} "
                f"{seconds / floor if floor else math.inf:6.2f} "
                f"{(seconds - floor) * 1e3:8.3f} {seconds / step * 100:7.1f}%")

    def products_table(self):
        lines = [f"  {'product':58s} {'calls':>6s} {'us each':>9s} {'TFLOP/s':>8s}"]
        for p in self.measured["products"]:
            bare = " (no such epilogue: without)" if p["bare"] else ""
            rate = p["flops"] / p["seconds"] / 1e12
            lines.append(f"  {p['name'] + bare:58s} {p['calls']:6d} {p['seconds'] * 1e6:9.1f} "
                         f"{rate:8.1f}")
        return lines


def disagreement(ours, theirs):
    """The largest relative difference of two loss curves, in percent, over the steps that both
    have; nan if one is not finite."""
    pairs = list(zip(ours, theirs))
    if not pairs or not all(math.isfinite(x) for pair in pairs for x in pair):
        return math.nan
    return max(abs(a / b - 1) for a, b in pairs) * 100


def token_flops(layers, width, context, vocabulary):
    """(6N + 6LCT) with N without the vocabulary's padding, recomputation not counted."""
    block = 12 * width * width + 13 * width
    n = vocabulary * width + context * width + layers * block + 2 * width
    return 6 * n + 6 * layers * width * context


def utilisation(tokens_per_second, flops, peak):
    return tokens_per_second * flops / peak * 100 if peak else math.nan


def spread(values):
    """Median and range."""
    return statistics.median(values), min(values), max(values)
