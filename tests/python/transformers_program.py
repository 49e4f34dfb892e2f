# SPDX-License-Identifier: Apache-2.0
"""A training by Hugging Face's Trainer for the tests."""

import argparse
import hashlib
import json

import torch

import muster
import stand

parser = argparse.ArgumentParser()
parser.add_argument("--run", required=True)
parser.add_argument("--notice-at", type=int, default=0, help="a step, on the last rank")
parser.add_argument("--pause", type=float, default=0.0, help="seconds, after each step")
arguments = parser.parse_args()
world = muster.init()

import transformers  # noqa: E402

import muster.transformers  # noqa: E402


class Notice(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        stand.pause(arguments.pause)
        if state.global_step == arguments.notice_at and world.rank == world.world_size - 1:
            stand.take_notice()


class Counter(transformers.TrainerCallback, transformers.trainer_callback.ExportableState):
    """Two of one class: both are to come back."""

    def __init__(self, each):
        self.each, self.count = each, 0

    def on_step_end(self, *_, **__):
        self.count += self.each

    def state(self):
        return {"args": {"each": self.each}, "attributes": {"count": self.count}}


torch.manual_seed(1)
config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=64, n_positions=16)
model = transformers.GPT2LMHeadModel(config)
tokens = torch.randint(64, (96, 12))
dataset = [{"input_ids": row, "labels": row} for row in tokens]
args = transformers.TrainingArguments(
    output_dir=arguments.run + ".trainer",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=4,
    learning_rate=1e-2,
    logging_steps=1,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    seed=3,
    restore_callback_states_from_checkpoint=True,
)
trainer = muster.transformers.Trainer(
    model=model, args=args, train_dataset=dataset, callbacks=[Notice(), Counter(1), Counter(10)],
    directory=arguments.run, muster={"every": 5},
)  # fmt: skip
trainer.train()
found = hashlib.sha256()
for tensor in trainer.model.state_dict().values():
    found.update(tensor.numpy().tobytes())
losses = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
counts = [c.count for c in trainer.callback_handler.callbacks if isinstance(c, Counter)]
print(f"rank {world.rank} ends: {found.hexdigest()} {json.dumps(losses)} {counts}", flush=True)
