# SPDX-License-Identifier: Apache-2.0
"""A training by Lightning for the tests: an epoch has 16 steps of two batches, with loader workers
and validation."""

import argparse
import hashlib

import lightning
import torch

import muster
import muster.lightning
import stand

parser = argparse.ArgumentParser()
parser.add_argument("--run", required=True)
parser.add_argument("--notice-at", type=int, default=0, help="a step, on the last rank")
parser.add_argument("--pause", type=float, default=0.0, help="seconds, in each step")
parser.add_argument("--nodes", type=int, default=0)
args = parser.parse_args()
world = muster.init()


class Samples(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(256, 8, generator=generator)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        return self.inputs[i], self.inputs[i].sum(0, keepdim=True)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1)
        )
        self.losses = {}

    def training_step(self, batch, number):
        stand.pause(args.pause / 2, 0.5)
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.losses[self.trainer.global_step] = float(loss.detach())
        self.log("loss", loss)
        if self.trainer.global_step + 1 == args.notice_at and world.rank == world.world_size - 1:
            stand.take_notice()
        return loss

    def validation_step(self, batch, number):
        self.log("validation_loss", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def on_save_checkpoint(self, checkpoint):
        checkpoint["losses"] = [[step, loss] for step, loss in self.losses.items()]

    def on_load_checkpoint(self, checkpoint):
        self.losses = dict(map(tuple, checkpoint["losses"]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


torch.manual_seed(1)
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=args.nodes or world.world_size, max_epochs=3,
    accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False, enable_progress_bar=False,
    enable_model_summary=False, plugins=[muster.lightning.Environment()],
    callbacks=[
        lightning.pytorch.callbacks.EarlyStopping("validation_loss", patience=50),
        muster.lightning.Resume(args.run, every=5),
    ],
)  # fmt: skip
size = 8 // world.world_size
loaders = [
    torch.utils.data.DataLoader(Samples(), batch_size=size, shuffle=True, num_workers=workers)
    for workers in (1, 0)
]
model = Model()
trainer.fit(model, *loaders)
found = hashlib.sha256()
for tensor in model.state_dict().values():
    found.update(tensor.numpy().tobytes())
rate = trainer.optimizers[0].param_groups[0]["lr"]
# What a module saves is rank 0's.
losses = [model.losses[step] for step in sorted(model.losses)] if world.rank == 0 else []
print(f"rank {world.rank} ends: {found.hexdigest()} {len(losses)} {rate} {losses}", flush=True)
