# SPDX-License-Identifier: Apache-2.0
"""A training by Accelerate for the tests: what Accelerate's users write, with three lines of
Muster's."""

import argparse
import hashlib

import torch
from accelerate import Accelerator

import muster
import stand

parser = argparse.ArgumentParser()
parser.add_argument("--run", required=True)
parser.add_argument("--notice-at", type=int, default=0, help="a step, on the last rank")
parser.add_argument("--pause", type=float, default=0.0, help="seconds, in each step")
args = parser.parse_args()

world = muster.init()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 10))
dataset = torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
run = muster.attach(args.run, model=model, optimizer=optimizer, scheduler=scheduler, every=3)
for inputs, targets in run.loader(dataset, global_batch=32, epochs=4):
    stand.pause(args.pause)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if run.step + 1 == args.notice_at and world.rank == world.world_size - 1:
        stand.take_notice()
    run.end_step(loss)
found = hashlib.sha256()
for tensor in accelerator.unwrap_model(model).state_dict().values():
    found.update(tensor.numpy().tobytes())
print(f"rank {world.rank} ends: {found.hexdigest()} {optimizer.param_groups[0]['lr']}", flush=True)
