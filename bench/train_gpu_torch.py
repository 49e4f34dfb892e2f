# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of train-gpu.sh: train_torch.py's GPT-2 as fast as PyTorch makes it, on the
weights and the data of ours.

Prints one line with what it runs on, then "step N loss X" for each step. The loss of a step is read
when the next one has been given to the GPU, so that it never runs dry. fp32 weights, bf16 by
autocast, gradients added up over microbatches, clipped by their norm, fused AdamW: what
muster-train does, with the same numbers."""
import argparse
import contextlib
import ctypes
import json
import struct

import numpy
import torch
import torch.nn as nn

from train_torch import GPT2

BETAS, EPSILON, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
ROWS = 128  # the vocabulary is padded to a multiple: whole tiles of a matrix product
HEADER = 20240520  # of llm.c's token files, which have 1024 bytes in front


def read_safetensors(path):
    """Name to array; fp32 only."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    data = numpy.memmap(path, numpy.uint8, "r", 8 + size)
    return {name: data[slice(*row["data_offsets"])].view(numpy.float32).reshape(row["shape"])
            for name, row in header.items() if name != "__metadata__"}


def load_weights(model, path):
    """Hugging Face's names and [in, out] to the modules' own; rows of the vocabulary's padding are
    zero."""
    parts = {"attn.c_attn": "attn", "attn.c_proj": "attn_proj", "mlp.c_fc": "fc",
             "mlp.c_proj": "mlp_proj"}
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for p in parameters.values():
            p.zero_()
        for name, array in read_safetensors(path).items():
            name = name.removeprefix("transformer.")
            for theirs, ours in parts.items():
                name = name.replace(f".{theirs}.", f".{ours}.")
            tensor = torch.from_numpy(numpy.array(array))
            if name.startswith("h."):
                name = "blocks." + name[2:]
                tensor = tensor.t() if tensor.dim() == 2 else tensor
            parameters.pop(name)[:tensor.shape[0]].copy_(tensor)
    assert not parameters, f"no weights for {', '.join(parameters)}"


def read_tokens(path, device):
    with open(path, "rb") as file:
        header = struct.unpack("<I", file.read(4))[0] == HEADER
    tokens = numpy.fromfile(path, numpy.uint16, offset=1024 if header else 0)
    return torch.from_numpy(tokens.astype(numpy.int32)).to(device)


class Training:
    def __init__(self, options):
        self.options = options
        layers, width, heads, self.context, vocabulary = options.shape
        torch.manual_seed(1)
        self.model = GPT2(layers, width, heads, self.context, -(-vocabulary // ROWS) * ROWS)
        load_weights(self.model, options.weights)
        self.model.to(options.device)
        self.data = read_tokens(options.data, options.device)
        self.epoch = (len(self.data) - 1) // self.context // options.global_batch  # steps
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                                            {"params": vectors, "weight_decay": 0.0}],
                                           lr=options.learning_rate, betas=BETAS, eps=EPSILON,
                                           fused=True)
        self.forward = self.model if options.mode == "eager" else torch.compile(
            self.model, mode=None if options.mode == "default" else options.mode)

    def batch(self, step, microbatch):
        """Samples in the order of the file, as muster-train's --order file has them; the last,
        partial batch is dropped."""
        size = self.options.microbatch * self.context
        first = step % self.epoch * self.options.global_batch * self.context + microbatch * size
        shape = (self.options.microbatch, self.context)
        return (self.data[first:first + size].view(shape),
                self.data[first + 1:first + size + 1].view(shape).long())

    def autocast(self):
        if self.options.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.options.device, torch.bfloat16)

    def step(self, number):
        """Counted from 0. Returns the loss, on the device."""
        options = self.options
        microbatches = options.global_batch // options.microbatch
        for group in self.optimizer.param_groups:
            group["lr"] = options.learning_rate * min(1,
                                                      (number + 1) / max(1, options.warmup_steps))
        total = torch.zeros((), device=options.device)
        for i in range(microbatches):
            tokens, targets = self.batch(number, i)
            if options.mode.startswith("max-autotune"):
                torch.compiler.cudagraph_mark_step_begin()
            with self.autocast():
                loss = self.forward(tokens, targets) / microbatches
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        # Graphs write gradients to fixed places, which are theirs: so ours are kept, and added to.
        self.optimizer.zero_grad(set_to_none=not options.mode.startswith("max-autotune"))
        return total

    def prepare(self):
        """Gradients that stay in their places, see above."""
        if self.options.mode.startswith("max-autotune"):
            for p in self.model.parameters():
                p.grad = torch.zeros_like(p)


def choose_attention(name):
    """One of PyTorch's kernels, no other."""
    if name == "any":
        return
    torch.backends.cuda.enable_flash_sdp(name == "flash")
    torch.backends.cuda.enable_cudnn_sdp(name == "cudnn")
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)


def version_of(library, function):
    """What a library that this process has loaded says of itself."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if f"/{library}.so" in line}
    for path in sorted(paths):
        call = getattr(ctypes.CDLL(path), function)
        call.restype = ctypes.c_size_t
        return f"{call()} ({path})"
    return None


def describe(options):
    """What it runs on. A product comes first, since PyTorch loads its libraries when it needs
    them."""
    about = {"torch": torch.__version__, "mode": options.mode, "attention": options.attention,
             "precision": options.precision,
             "microbatch": options.microbatch}
    if options.device == "cuda":
        a = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
        (a @ a).sum().item()
        about |= {"cuda": torch.version.cuda,
                  "cublas": version_of("libcublasLt", "cublasLtGetVersion"),
                  "cudnn": torch.backends.cudnn.version(), "card": torch.cuda.get_device_name()}
    return about


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", required=True, type=int, nargs=5,
                        metavar=("LAYERS", "WIDTH", "HEADS", "CONTEXT", "VOCABULARY"))
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--global-batch", required=True, type=int)
    parser.add_argument("--microbatch", required=True, type=int)
    parser.add_argument("--steps", required=True, type=int)
    parser.add_argument("--learning-rate", required=True, type=float)
    parser.add_argument("--warmup-steps", required=True, type=int)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--mode", default="default",
                        choices=("eager", "default", "max-autotune", "max-autotune-no-cudagraphs"))
    parser.add_argument("--attention", default="any", choices=("any", "flash", "cudnn"))
    return parser.parse_args()


def main():
    options = parse()
    choose_attention(options.attention)
    torch.set_float32_matmul_precision("high")
    print(json.dumps(describe(options)), flush=True)
    training = Training(options)
    training.prepare()
    before = None
    for number in range(options.steps):
        loss = training.step(number)
        if before is not None:
            print(f"step {number}/{options.steps}  loss {before.item():.6f}", flush=True)
        before = loss
    print(f"step {options.steps}/{options.steps}  loss {before.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
