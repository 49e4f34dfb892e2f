# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer as a run of Muster (doc/pytorch-frameworks.md)."""

from __future__ import annotations

import copy
import itertools
import os
import warnings
from collections.abc import Iterator
from typing import Any

from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.callbacks import Checkpoint
from torch.utils.data import DataLoader, IterableDataset

from . import data, process, workers
from .beginning import attach
from .errors import Usage
from .run import Run

_OF_EPOCHS = -3  # beside the ranks, whose generators are seeded before each step
_OWN = ("state_dict", "optimizer_states")  # what the run has by itself
_PARAMETERS = ("hparams_name", "hyper_parameters", "hparams_type", "datamodule_")  # the program's


class Environment(ClusterEnvironment):  # type: ignore[misc]
    """The ranks of the job step. Each counts as a node with one device: give the Trainer devices=1
    and num_nodes=world.world_size."""

    creates_processes_externally = True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    @staticmethod
    def detect() -> bool:
        return process.opened() is not None

    def world_size(self) -> int:
        return process.world().world_size

    def set_world_size(self, size: int) -> None:
        if size != self.world_size():
            raise Usage(
                f"lightning: the Trainer has {size} ranks, and the step {self.world_size()}: give "
                f"it devices=1 and num_nodes={self.world_size()}"
            )

    def global_rank(self) -> int:
        return process.world().rank

    def set_global_rank(self, rank: int) -> None:
        """It is Slurm's."""

    def local_rank(self) -> int:
        return 0

    def node_rank(self) -> int:
        return process.world().rank


class _State:
    """The Trainer's own state, as an object of the run."""

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self.loaded: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        found = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        return {
            key: value
            for key, value in found.items()
            if key not in _OWN and not key.startswith(_PARAMETERS)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded = state


class _Rest:
    """What is left of an epoch's batches."""

    def __init__(self, batches: Any, done: int):
        self._batches, self._done = batches, done

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._batches), self._done, None)

    def __len__(self) -> int:
        return len(self._batches) - self._done


class _Epochs:
    """A loader whose order depends on the seed and the epoch alone, and which goes on in the middle
    of an epoch."""

    def __init__(self, loader: Any, resume: Resume):
        self._loader, self._resume = loader, resume
        self._samplers = [loader.sampler, getattr(loader.batch_sampler, "sampler", None)]
        own = [getattr(one, "generator", None) for one in (loader, *self._samplers)]
        self._generators = [(g, g.initial_seed()) for g in {id(g): g for g in own if g}.values()]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._loader, name, value)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        epoch, done = self._resume.begin_epoch()
        for sampler in self._samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        for generator, seed in self._generators:
            generator.manual_seed(data.derived_seed(seed, epoch, _OF_EPOCHS) & (2**63 - 1))
        loader = self._loader
        if done == 0:
            return iter(loader)
        if isinstance(loader.dataset, IterableDataset):
            return itertools.islice(iter(loader), done, None)
        rest = copy.copy(loader)  # a DataLoader does not let its sampler be set
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        rest.__dict__.update({name: _Rest(getattr(loader, name), done), "_iterator": None})
        return iter(rest)


class Resume(Checkpoint):  # type: ignore[misc]
    """A callback: fit() resumes from the newest checkpoint in `directory`, in the middle of an
    epoch, saves there, and stops on all ranks as a notice demands. `options` are further arguments
    of attach(), such as every and config. It takes the place of ModelCheckpoint."""

    def __init__(self, directory: str | os.PathLike[str], **options: Any):
        self._directory, self._options = directory, options
        self.run: Run | None = None
        self._trainer: Any = None
        self._ended_step, self._begun_step = 0, -1
        self._done = 0  # batches of the epoch, by the attempts before
        self._is_early = False  # an epoch has begun before it was known which

    # ---- what Lightning calls ----

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if trainer.world_size != process.world().world_size:
            Environment().set_world_size(trainer.world_size)
        if trainer.strategy.restore_checkpoint_after_setup:
            name = type(trainer.strategy).__name__
            raise Usage(f"lightning: {name} has checkpoints of its own: give strategy='ddp'")
        if stage == "fit":
            self._trainer = trainer
            process_loader = trainer.strategy.process_dataloader
            trainer.strategy.process_dataloader = lambda loader: self._wrap(process_loader(loader))

    def _wrap(self, loader: Any) -> Any:
        """Of training or of validation; one that has a state of its own keeps its place itself."""
        if not isinstance(loader, DataLoader):
            return loader
        if loader.num_workers > 0 and not isinstance(loader.worker_init_fn, workers.WorkerInit):
            workers.start_helpers(loader.multiprocessing_context)
            loader.worker_init_fn = workers.WorkerInit(loader.worker_init_fn)
        is_stateful = hasattr(loader, "load_state_dict")
        return _Epochs(loader, self) if self._trainer.training and not is_stateful else loader

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """All is there: the module, on its device, and the optimizers. Lightning goes on to restore
        the rest from the state that it is given here."""
        state = _State(trainer)
        self.run = attach(
            self._directory,
            model=pl_module,
            optimizer=trainer.optimizers,
            lightning=state,
            **self._options,
        )
        if not state.loaded:
            return
        loaded = {
            **state.loaded,
            "state_dict": pl_module.state_dict(),
            "optimizer_states": [optimizer.state_dict() for optimizer in trainer.optimizers],
        }
        connector = trainer._checkpoint_connector
        connector._loaded_checkpoint = loaded
        pl_module.on_load_checkpoint(loaded)
        connector.restore_datamodule()
        connector.restore_callbacks()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        process.take_notices(instead=True)
        loop = trainer.fit_loop
        self._ended_step = trainer.global_step
        if loop.restarting:
            ready = loop.epoch_loop.batch_progress.current.ready
            self._done = ready if ready < trainer.num_training_batches else 0
            warnings.filterwarnings("ignore", message="You're resuming from a checkpoint that")
        if self._is_early or loop.restarting:
            iter(loop._data_fetcher)  # Lightning has begun before it came to its place

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """The batch, which may take random numbers, is here by now."""
        if self.run is not None and self._begun_step != trainer.global_step:
            self._begun_step = trainer.global_step
            self.run.begin_step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        if self.run is not None and trainer.global_step > self._ended_step:
            self._ended_step = trainer.global_step
            self.run.end_step(outputs.get("loss") if isinstance(outputs, dict) else outputs)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.run is not None:
            self.run.save()

    # ---- what the loaders call ----

    def begin_epoch(self) -> tuple[int, int]:
        """Which one, and how many of its batches are done. What is random in its order depends on
        the seed and the epoch alone."""
        done, self._done = self._done, 0
        epoch = self._trainer.current_epoch
        self._is_early = self.run is None
        if self.run is not None:
            data.seed_generators(data.derived_seed(self.run.seed, epoch, _OF_EPOCHS))
        return epoch, done
