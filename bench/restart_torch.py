# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of restart.sh: train_torch.py's GPT-2 in DistributedDataParallel over Gloo, a
worker of torchrun. It saves every second step with torch.distributed.checkpoint (DCP), and begins
from the newest checkpoint.

    restart_torch.py FOLDER LAYERS WIDTH HEADS CONTEXT VOCABULARY

Rank 0 writes a line into FOLDER/begins at the beginning of each step, "TIME PID STEP", and each
checkpoint that is complete is a folder FOLDER/step-STEP."""
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

from train_torch import Run

EVERY, KEPT = 2, 2


def saved(folder):
    """The steps of the checkpoints that are complete, in their order."""
    return sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-"))


def load(folder, model, optimizer):
    steps = saved(folder)
    if not steps:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    dcp.load(state, checkpoint_id=os.path.join(folder, f"step-{steps[-1]}"))
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    return steps[-1]


def save(folder, model, optimizer, step):
    weights, moments = get_state_dict(model, optimizer)
    saving = os.path.join(folder, f"saving-{step}")
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=saving)
    if dist.get_rank() == 0:
        os.rename(saving, os.path.join(folder, f"step-{step}"))
        for old in saved(folder)[:-KEPT]:
            shutil.rmtree(os.path.join(folder, f"step-{old}"))
    dist.barrier()


def main():
    folder, *shape = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run = Run("eager", *map(int, shape), 1)
    model = DistributedDataParallel(run.model, broadcast_buffers=False,
                                    gradient_as_bucket_view=True)
    step = load(folder, model, run.optimizer)
    with open(os.path.join(folder, "begins"), "a", encoding="ascii", buffering=1) as begins:
        while True:
            step += 1
            if dist.get_rank() == 0:
                print(f"{time.time():.6f} {os.getpid()} {step}", file=begins)
            model(run.tokens, run.targets).backward()
            run.optimizer.step()
            run.optimizer.zero_grad(set_to_none=True)
            if step % EVERY == 0:
                save(folder, model, run.optimizer, step)


if __name__ == "__main__":
    main()
