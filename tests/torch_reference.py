#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same model on the same weights and batches with PyTorch and with our operations, and
compares.

    torch_reference.py gpt2|gpt2-odd|mlp|mlp-batchnorm MODEL_RUN [OPTION…]

MODEL_RUN runs once without options, and once with each of them.

The loss and the gradient of every tensor must agree to 1e-4, where the difference of two gradients
is |ours - theirs| / |theirs| (Euclidean, a tensor at a time); the losses of 50 steps of AdamW with
clipping, warm-up and cosine decay to 1e-3, relative; at the end the loss of the first batch in eval
mode to 1e-3, the running statistics to 1e-4, and the number of batches exactly. Prints the worst of
each; exits with 1 when one is beyond its bound.
"""
import math
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
from torch import nn
from torch.nn import functional

GRADIENT_BOUND = 1e-4
CURVE_BOUND = 1e-3
STEPS = 50
SCHEDULE = dict(learning_rate=3e-3, minimum=3e-4, warmup=10, beta1=0.9, beta2=0.95, epsilon=1e-8,
                weight_decay=0.1)


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as in GPT-2's published weights."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        batch, positions, width = x.shape
        parts = self.c_attn(x).split(width, dim=2)
        q, k, v = (p.view(batch, positions, self.heads, -1).transpose(1, 2) for p in parts)
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        future = torch.triu(torch.ones(positions, positions, dtype=torch.bool), 1)
        weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=3)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(batch, positions, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(gelu_tanh(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """The module tree has the published names, so named_parameters() gives them."""

    def __init__(self, config):
        super().__init__()
        width = config["width"]
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(config["vocabulary"], width)
        self.transformer.wpe = nn.Embedding(config["context"], width)
        self.transformer.h = nn.ModuleList(Block(width, config["heads"])
                                           for _ in range(config["layers"]))
        self.transformer.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        t = self.transformer
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1]))
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.T


CONFIG_FIELDS = ("kind", "layers", "width", "heads", "context", "vocabulary", "inputs", "hidden",
                 "classes", "samples",
                 "batchnorm")
GPT2_KIND, MLP_KIND = 0, 1
# Sizes beyond the blocks of the fast operations (64 positions, 512 rows of logits, 768 columns) and
# no multiples of them; a clip that some of the 50 gradients exceed.
CONFIGS = {
    "gpt2": dict(kind=GPT2_KIND, layers=2, width=60, heads=5, context=150, vocabulary=211,
                 samples=4, clip=2.0),
    "gpt2-odd": dict(kind=GPT2_KIND, layers=1, width=201, heads=3, context=67, vocabulary=803,
                     samples=1, clip=4.0),
    "mlp": dict(kind=MLP_KIND, inputs=37, hidden=65, classes=11, samples=32, clip=6.0),
    # A bias in front of a normalisation has no gradient but rounding errors; epsilon keeps AdamW
    # from making steps of them.
    "mlp-batchnorm": dict(kind=MLP_KIND, inputs=37, hidden=65, classes=11, samples=32, batchnorm=1,
                          clip=2.2, epsilon=1e-4),
}


def make_model(config):
    """The model with weights larger than initial ones, so that no gradient is near zero."""
    if config["kind"] == GPT2_KIND:
        model = GPT2(config)
    else:
        norm = [nn.BatchNorm1d(config["hidden"])] if config.get("batchnorm") else []
        model = nn.Sequential(nn.Linear(config["inputs"], config["hidden"]), *norm, nn.ReLU(),
                              nn.Linear(config["hidden"], config["classes"]))
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = (0.1 if p.dim() == 1 else 0.5 if "wte" in name
                     or not name.startswith("transformer")
                     else 1.5 / math.sqrt(p.shape[0]))
            norm = p.dim() == 1 and name.endswith("weight")
            p.copy_(torch.randn(p.shape) * scale + (1 if norm else 0))
    return model


def make_data(config):
    """Batches that can be learnt: a noisy rule leads from a token (a row) to the next token (the
    class)."""
    if config["kind"] == GPT2_KIND:
        shape = (STEPS, config["samples"], config["context"] + 1)
        text = torch.randint(0, config["vocabulary"], shape)
        for i in range(1, shape[2]):
            ruled = torch.rand(shape[:2]) < 0.7
            text[:, :, i] = torch.where(ruled, (3 * text[:, :, i - 1] + 1) % config["vocabulary"],
                                        text[:, :, i])
        inputs, targets = text[:, :, :-1].contiguous(), text[:, :, 1:].contiguous()
        targets[torch.rand(targets.shape) < 0.1] = -1
        return inputs, targets
    inputs = torch.randn(STEPS, config["samples"], config["inputs"])
    targets = (inputs @ torch.randn(config["inputs"], config["classes"])).argmax(dim=2)
    targets[torch.rand(targets.shape) < 0.1] = -1
    return inputs, targets


def ours_of(model, tensor):
    """A tensor in our layout: nn.Linear's weights are [out, in], ours [in, out]; GPT-2's are
    alike."""
    return tensor.T if isinstance(model, nn.Sequential) and tensor.dim() == 2 else tensor


def learning_rate(step):
    """The documented schedule, written anew; step counts from 1."""
    high, low, warmup = SCHEDULE["learning_rate"], SCHEDULE["minimum"], SCHEDULE["warmup"]
    if step <= warmup:
        return high * step / warmup
    return low + (high - low) * (1 + math.cos(math.pi * (step - 1 - warmup) / (STEPS - warmup))) / 2


def make_optimizer(model, epsilon):
    decay = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW([dict(params=decay, weight_decay=SCHEDULE["weight_decay"]),
                              dict(params=plain, weight_decay=0.0)],
                             betas=(SCHEDULE["beta1"], SCHEDULE["beta2"]), eps=epsilon)


def loss_of(model, inputs, targets):
    """Rows of a table without a target are no rows of the batch: they must not reach its
    statistics."""
    if isinstance(model, nn.Sequential):
        inputs, targets = inputs[targets >= 0], targets[targets >= 0]
    return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(),
                                    ignore_index=-1)


def train_torch(model, clip, epsilon, inputs, targets):
    """Returns what model_run writes: loss, curve, norms and the first gradients by name."""
    optimizer = make_optimizer(model, epsilon)
    result = {"curve": [], "norms": []}
    for i in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, inputs[i], targets[i])
        loss.backward()
        if i == 0:
            result["loss"] = loss.item()
            for name, p in model.named_parameters():
                result[name] = ours_of(model, p.grad).numpy().copy()
        result["curve"].append(loss.item())
        result["norms"].append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(i + 1)
        optimizer.step()
    model.eval()
    result["evaluated"] = loss_of(model, inputs[0], targets[0]).item()
    result.update({name: b.numpy().copy() for name, b in model.named_buffers()})
    return result


def write_records(path, records):
    with open(path, "wb") as file:
        for name, array in records.items():
            data = numpy.ascontiguousarray(array).tobytes()
            file.write(name.encode().ljust(96, b"\0") + struct.pack("<Q", len(data)) + data)


def read_records(path):
    records = {}
    with open(path, "rb") as file:
        while name := file.read(96).rstrip(b"\0").decode():
            records[name] = file.read(struct.unpack("<Q", file.read(8))[0])
    return records


def train_ours(program, options, records):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("input", "output")]
        write_records(paths[0], records)
        done = subprocess.run([program, *options, *paths], check=True, stdout=subprocess.PIPE,
                              text=True)
        return done.stdout.strip(), read_records(paths[1])


def relative(ours, theirs):
    ours, theirs = numpy.asarray(ours, numpy.float64), numpy.asarray(theirs, numpy.float64)
    return numpy.linalg.norm((ours - theirs).ravel()) / numpy.linalg.norm(theirs.ravel())


def worst_relative(ours, theirs):
    theirs = numpy.asarray(theirs)
    return float(numpy.max(numpy.abs(ours - theirs) / numpy.abs(theirs)))


def compare(model, clip, ours, theirs):
    """Prints each comparison; returns whether all are within their bounds."""
    loss = abs(struct.unpack("<d", ours["loss"])[0] / theirs["loss"] - 1)
    gradients = {name: relative(numpy.frombuffer(ours[name], numpy.float32), theirs[name].ravel())
                 for name, _ in model.named_parameters()}
    if any(True for _ in model.named_buffers()):
        bias = numpy.frombuffer(ours["0.bias"], numpy.float32)
        gradients["0.bias"] = float(numpy.linalg.norm(bias)
                                    / numpy.linalg.norm(theirs["0.weight"]))
    worst = max(gradients, key=lambda name: gradients[name] if math.isfinite(gradients[name])
                else math.inf)
    curve = worst_relative(numpy.frombuffer(ours["curve"]), theirs["curve"])
    norms = worst_relative(numpy.frombuffer(ours["norms"]), theirs["norms"])
    evaluated = abs(struct.unpack("<d", ours["evaluated"])[0] / theirs["evaluated"] - 1)
    statistics = [relative(numpy.frombuffer(ours[name], theirs[name].dtype), theirs[name].ravel())
                  for name, _ in model.named_buffers()]
    clipped = sum(norm > clip for norm in theirs["norms"])
    print(f"loss: {theirs['loss']:.6f}, difference {loss:.1e}")
    print(f"gradients: {len(gradients)} tensors, worst {gradients[worst]:.1e} ({worst})")
    print(f"curve: {STEPS} steps from {theirs['curve'][0]:.4f} to {theirs['curve'][-1]:.4f}, "
          f"{clipped} clipped, "
          f"worst loss {curve:.1e}, worst norm {norms:.1e}")
    print(f"eval mode: {theirs['evaluated']:.6f}, difference {evaluated:.1e}; {len(statistics)} "
          "statistics, worst "
          f"{max(statistics, default=0):.1e}")
    learnt = theirs["curve"][-1] < 0.9 * theirs["curve"][0]
    return (loss <= GRADIENT_BOUND and all(g <= GRADIENT_BOUND for g in gradients.values())
            and curve <= CURVE_BOUND
            and evaluated <= CURVE_BOUND and all(s <= GRADIENT_BOUND for s in statistics) and learnt
            and 0 < clipped < STEPS)


def main():
    name, program, *options = sys.argv[1:]
    torch.manual_seed(1)
    config = CONFIGS[name]
    schedule = {**SCHEDULE, "epsilon": config.get("epsilon", SCHEDULE["epsilon"])}
    model = make_model(config)
    inputs, targets = make_data(config)
    records = {
        "config": numpy.array([config.get(field, 0) for field in CONFIG_FIELDS] + [STEPS],
                              numpy.int32),
        "schedule": numpy.array([*schedule.values(), config["clip"]], numpy.float64),
        "targets": targets.to(torch.int32).numpy(),
    }
    if config["kind"] == GPT2_KIND:
        records["tokens"] = inputs.to(torch.int32).numpy()
    else:
        records["inputs"] = inputs.numpy()
    for tensor, p in [*model.named_parameters(), *model.named_buffers()]:
        records[tensor] = ours_of(model, p.detach()).numpy().copy()
    theirs = train_torch(model, config["clip"], schedule["epsilon"], inputs, targets)
    agree = True
    for given in [[], *([option] for option in options)]:
        ops, ours = train_ours(program, given, records)
        print(f"{name} with {ops} against PyTorch {torch.__version__}")
        agree &= compare(model, config["clip"], ours, theirs)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
