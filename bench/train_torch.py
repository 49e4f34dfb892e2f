# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of train-cpu.sh: the same GPT-2, written for speed, answering the same commands as
train_step.c.

    train_torch.py eager|compiled THREADS LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.attn(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Run:
    def __init__(self, mode, layers, width, heads, context, vocabulary, batch):
        torch.manual_seed(1)
        self.model = GPT2(layers, width, heads, context, vocabulary)
        self.tokens = torch.randint(vocabulary, (batch, context))
        self.targets = torch.roll(self.tokens, -1)
        decay = [p for p in self.model.parameters() if p.dim() > 1]
        plain = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.forward = torch.compile(self.model) if mode == "compiled" else self.model

    def step(self):
        start = time.perf_counter()
        loss = self.forward(self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()
        return f"{time.perf_counter() - start:.6f}"

    def steps(self, count):
        return " ".join(self.step() for _ in range(count))


def product_rate(size=3072):
    a, b, best = torch.randn(size, size), torch.randn(size, size), float("inf")
    for _ in range(4):
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return f"{2 * size ** 3 / best / 1e9:.1f}"


def main():
    torch.set_num_threads(int(sys.argv[2]))
    run = Run(sys.argv[1], *map(int, sys.argv[3:]))
    for line in sys.stdin:
        word, *count = line.split()
        answer = {"steps": lambda: run.steps(int(count[0])), "product": product_rate,
                  "version": lambda: torch.__version__}[word]()
        print(answer, flush=True)


if __name__ == "__main__":
    main()
