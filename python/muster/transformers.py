# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer as a run of Muster (doc/pytorch-frameworks.md)."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from transformers import Trainer as _Trainer
from transformers.trainer_callback import ExportableState, TrainerState

from .beginning import attach
from .run import Run

_RESUMES = "muster"  # in the place of the folder that the Trainer would resume from


class _State:
    """The Trainer's own state, as an object of the run."""

    def __init__(self, trainer: Any):
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        found: dict[str, Any] = dataclasses.asdict(trainer.state)
        by_class: dict[str, list[Any]] = {}
        for callback in [*trainer.callback_handler.callbacks, trainer.control]:
            if isinstance(callback, ExportableState):
                by_class.setdefault(type(callback).__name__, []).append(callback.state())
        # As the Trainer keeps them: a list only where several are of one class.
        callbacks = {name: s[0] if len(s) == 1 else s for name, s in by_class.items()}
        return {**found, "stateful_callbacks": callbacks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._trainer.state = TrainerState(**state)
        self._trainer._load_callback_state()


class Resumes:
    """Put it before Trainer, or a class made from it: class MyTrainer(Resumes, Trainer). train()
    resumes from the newest checkpoint in `directory`, saves there, and stops on all ranks as a
    notice demands. `muster` are further arguments of attach(), such as every and config."""

    def __init__(
        self, *args: Any, directory: str | os.PathLike[str], muster: Any = None, **options: Any
    ):
        super().__init__(*args, **options)
        self._directory, self._options = directory, dict(muster or {})
        self.muster_run: Run | None = None
        self._ended_step, self._begun_step = 0, -1
        self.args: Any
        self.args.save_strategy = "no"  # the run saves

    def _inner_training_loop(self, *args: Any, **options: Any) -> Any:
        if len(args) > 2:
            args = (*args[:2], _RESUMES, *args[3:])
        else:
            options["resume_from_checkpoint"] = _RESUMES
        return super()._inner_training_loop(*args, **options)  # type: ignore[misc]

    def _init_training_state(
        self, max_steps: int, steps: int, epochs: int, resume: Any, trial: Any
    ) -> tuple[int, int]:
        """The position comes with the state of the run, which is attached once the optimizer is
        there."""
        upper: Any = super()
        upper._init_training_state(max_steps, steps, epochs, None, trial)
        self._prepared, _ = upper._prepare_for_training(max_steps, None, None)
        trainer: Any = self
        self.muster_run = attach(
            self._directory,
            model=trainer.model,
            optimizer=trainer.optimizer,
            scheduler=trainer.lr_scheduler,
            trainer=_State(self),
            **self._options,
        )
        trainer.state.init_training_references(self, max_steps, epochs, trial)
        done = self._ended_step = trainer.state.global_step
        here = 0 if self.args.ignore_data_skip else done % steps
        return done // steps, here * self.args.gradient_accumulation_steps

    def _prepare_for_training(self, max_steps: int, loader: Any, resume: Any) -> tuple[Any, Any]:
        trainer: Any = self
        trainer.callback_handler.train_dataloader = loader
        return self._prepared, loader

    def _load_rng_state(self, checkpoint: Any) -> None:
        """The run seeds all generators before each step."""

    def training_step(self, *args: Any, **options: Any) -> Any:
        """The loader, whose start takes random numbers, has been read by now."""
        trainer: Any = self
        if self.muster_run is not None and self._begun_step != trainer.state.global_step:
            self._begun_step = trainer.state.global_step
            self.muster_run.begin_step()
        return super().training_step(*args, **options)  # type: ignore[misc]

    def _maybe_log_save_evaluate(self, *args: Any, **options: Any) -> None:
        super()._maybe_log_save_evaluate(*args, **options)  # type: ignore[misc]
        trainer: Any = self
        if self.muster_run is not None and trainer.state.global_step > self._ended_step:
            self._ended_step = trainer.state.global_step
            self.muster_run.end_step()


class Trainer(Resumes, _Trainer):  # type: ignore[misc]
    """Hugging Face's Trainer with `directory` and `muster`."""
