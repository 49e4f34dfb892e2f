# SPDX-License-Identifier: Apache-2.0
"""A small training for the tests whose weights are to have the same bits on any number of ranks: a
transformer with dropout, a part that only some samples use, one that none does, and one that is
frozen."""

import argparse
import hashlib
import os

import torch
import torch.distributed as dist

import muster
import stand

SLOTS = 16


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        tokens = (torch.arange(9) * (i % 7 + 1) + i) % 32
        tokens[int(torch.randint(9, ()))] = int(torch.randint(32, ()))
        return i, tokens


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 24)
        self.frozen = torch.nn.Linear(24, 24)
        self.frozen.requires_grad_(False)
        self.layer = torch.nn.TransformerEncoderLayer(24, 3, 48, dropout=0.1, batch_first=True)
        self.sometimes = torch.nn.Linear(24, 24)
        self.never = torch.nn.Linear(24, 24)
        self.head = torch.nn.Linear(24, 32, bias=False)
        self.head.weight = self.embedding.weight  # tied

    def forward(self, numbers, tokens):
        x = self.frozen(self.embedding(tokens[:, :-1]))
        x = self.layer(x)
        if int(numbers[0]) % 5 == 0:
            x = x + self.sometimes(x)
        return self.head(x)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", default="7")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bucket-mb", type=float, default=0.004, help="several buckets")
    parser.add_argument("--stop-at", type=int, default=0)
    parser.add_argument("--spoil", default="")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds, after each step")
    parser.add_argument("--identical", action="store_true")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    return parser.parse_args()


def share_gpu(rank):
    """NCCL takes ranks that name different hosts for ranks with a GPU each."""
    os.environ["NCCL_HOSTID"] = f"rank-{rank}"
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    torch.cuda.set_device(0)


def main():
    world = muster.init()
    torch.set_num_threads(args.threads)
    if args.device == "cuda":
        share_gpu(world.rank)
    if world.world_size > 1:
        dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    torch.manual_seed(1 + world.rank)  # rank 0's weights become those of all
    model = Model().to(args.device)
    if args.spoil == "norm":
        model.norm = torch.nn.BatchNorm1d(24)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    scaler = torch.amp.GradScaler(args.device, init_scale=1024.0) if args.bf16 else None
    run = muster.attach(
        args.run, model=model, optimizer=optimizer, scaler=scaler, every=args.every, seed=4
    )
    if args.spoil == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    equal = muster.canonical(
        model, SLOTS, bucket_mb=args.bucket_mb, require_identical=args.identical
    )
    if args.spoil == "backward":
        equal.backward(model.head.weight.sum())
    slots = SLOTS if args.spoil != "loader" else None
    for batches in run.loader(Tokens(), 32, epochs=None, steps=args.steps, slots=slots):
        for numbers, tokens in equal.slots(batches):
            tokens = tokens.to(args.device)
            with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
                logits = model(numbers, tokens).float()
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"
            )
            equal.backward(loss, count=tokens[:, 1:].numel(), scaler=scaler)
        if scaler:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert model.never.weight.grad is None and model.frozen.weight.grad is None
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        run.log({"loss": equal.loss})
        stand.pause(args.pause)
        if run.step + 1 == args.stop_at:
            run.stop()
        run.end_step(equal.loss)
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f"{name} {tensor.cpu().numpy().tobytes().hex()}".encode())
    for state in optimizer.state_dict()["state"].values():
        for name, value in sorted(state.items()):
            found.update(f"{name} {value.cpu().numpy().tobytes().hex()}".encode())
    loss = float(equal.loss).hex()
    print(f"rank {world.rank} ends: {found.hexdigest()} {loss} in {os.getpid()}", flush=True)


if __name__ == "__main__":
    args = parse()
    main()
