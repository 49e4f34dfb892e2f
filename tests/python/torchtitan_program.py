# SPDX-License-Identifier: Apache-2.0
"""A training by TorchTitan for the tests: a small Llama under FSDP2. TorchTitan knows only GPUs, so
their part is played by the CPU here."""

import argparse
import hashlib
import json
import os
import tempfile
import types

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers
from torchtitan.tools import utils

import muster
import stand

parser = argparse.ArgumentParser()
parser.add_argument("--run", required=True)
parser.add_argument("--notice-at", type=int, default=0, help="a step, on the last rank")
parser.add_argument("--end-before", type=int, default=0, help="a step, on all ranks")
parser.add_argument("--pause", type=float, default=0.0, help="seconds, in each step")
parser.add_argument("--steps", type=int, default=32)
parser.add_argument("--every", type=int, default=5)
parser.add_argument("--own", action="store_true", help="TorchTitan's own checkpoints")
parser.add_argument("--set", action="append", default=[], help="NAME=JSON, of the manager's Config")
args = parser.parse_args()
world = muster.init()
place = tempfile.TemporaryDirectory()
os.environ["HF_HOME"] = place.name


class Cpu(types.ModuleType):
    """torch.cpu, and what TorchTitan asks a GPU for."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)

    def get_device_name(self, device=None):
        return "cpu"

    def current_device(self):
        return 0

    def get_device_properties(self, device=None):
        return types.SimpleNamespace(total_memory=1 << 34)

    def memory_stats(self, device=None):
        return {}

    def reset_peak_memory_stats(self):
        pass

    empty_cache = reset_peak_memory_stats


utils.device_type, utils.device_module = "cpu", Cpu("cpu")

import torchtitan.components.checkpointer  # noqa: E402
import torchtitan.components.loss  # noqa: E402
import torchtitan.hf_datasets.text_datasets  # noqa: E402
import torchtitan.models.llama3.config_registry  # noqa: E402
import torchtitan.tools.logging  # noqa: E402
import torchtitan.trainer  # noqa: E402
from torchtitan.models.common.attention import FlexAttention  # noqa: E402

import muster.torchtitan  # noqa: E402


def attend(self, q_BLNH, k_BLNH, v_BLNH, *, attention_masks=None, scale=None, **_):
    """FlexAttention has no backward on CPUs."""
    q, k, v = (x.transpose(1, 2) for x in (q_BLNH, k_BLNH, v_BLNH))
    return F.scaled_dot_product_attention(q, k, v, scale=scale, is_causal=True).transpose(1, 2)


FlexAttention.forward = attend


def make_data(folder):
    """A tokenizer of bytes, and a data set."""
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, "<s>": 256, "</s>": 257}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump({"bos_token": "<s>", "eos_token": "</s>"}, file)
    os.makedirs(f"{folder}/data")
    with open(f"{folder}/data/data.json", "w") as file:
        for i in range(2000):
            text = f"{i} times {i} is {i * i}, and {i} times {i + 1} is {i * (i + 1)}"
            file.write(json.dumps({"text": text}) + "\n")


def train_step(self, batches, train=torchtitan.trainer.Trainer.train_step):
    stand.pause(args.pause)
    if self.step == args.end_before:
        raise SystemExit
    train(self, batches)
    if self.step == args.notice_at and world.rank == world.world_size - 1:
        stand.take_notice()


torchtitan.trainer.Trainer.train_step = train_step
make_data(folder := place.name)
torchtitan.tools.logging.init_logger()
given = torchtitan.models.llama3.config_registry.llama3_debugmodel()
options = dict(map(lambda text: text.split("=", 1), args.set))
manager = torchtitan.components.checkpointer if args.own else muster.torchtitan
given.checkpoint = manager.CheckpointManager.Config(
    enable=True,
    folder=os.path.basename(args.run),
    interval=args.every,
    **{name: json.loads(value) for name, value in options.items()},
)
given.dump_folder = os.path.dirname(os.path.abspath(args.run))
given.hf_assets_path, given.dataloader.dataset_path = folder, f"{folder}/data"
given.model_spec.model.layers = given.model_spec.model.layers[:2]
given.training.local_batch_size = 8 // world.world_size
given.training.seq_len, given.training.steps = 64, args.steps
given.training.disable_cuda_graphs = True
given.validator.enable = False
given.debug.deterministic, given.debug.seed = True, 1
trainer = given.build()
for part in trainer.model_parts[0].modules():
    if isinstance(part, torch.distributed.fsdp.FSDPModule):
        part.set_force_sum_reduction_for_comms(True)  # all that Gloo has
trainer.train()
found = hashlib.sha256()
state = {**trainer.model_parts[0].state_dict(), **trainer.optimizers.state_dict()}
for _, value in sorted(state.items()):
    if isinstance(value, torch.Tensor):
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        found.update(whole.numpy().tobytes())
print(f"rank {world.rank} ends: {found.hexdigest()} after {trainer.ntokens_seen}", flush=True)
trainer.close()
dist.destroy_process_group()
