# SPDX-License-Identifier: Apache-2.0
"""TorchTitan's checkpoints in a checkpoint directory (doc/pytorch-frameworks.md)."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch.distributed.checkpoint as dcp
from torchtitan.components import checkpointer
from torchtitan.components.checkpointer.base import MODEL

from .dcp import Reader, Writer, is_checkpoint
from .errors import Usage


class CheckpointManager(checkpointer.CheckpointManager):  # type: ignore[misc]
    """In the place of TorchTitan's: its full checkpoints are Muster's, in the same folder, and a
    notice stops the training on all ranks after the same step. What TorchTitan exports at the end
    (last_save_model_only, last_save_in_hf) stays its own, beside them. With an async_mode a save
    returns when all ranks have handed over what they have."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(checkpointer.CheckpointManager.Config):  # type: ignore[misc]
        keep_every: int = 0
        """Multiples of this step stay, beside the keep_latest_k newest."""

        timeout: float = 600.0
        """Seconds to wait for other ranks, for I/O errors to pass, and for a save."""

    def __init__(self, config: Config, **options: Any):
        # What these start is for TorchTitan's own writer.
        without: dict[str, Any] = {"async_mode": "disabled", "keep_latest_k": 0}
        super().__init__(config=dataclasses.replace(config, **without), **options)
        self._writer: Writer | None = None
        self._stops = self._exports = False
        if not self.enable or self.load_only:
            return
        self._writer = Writer(
            self.folder,
            keep_last=config.keep_latest_k,
            keep_every=config.keep_every,
            wait=config.async_mode == "disabled",
            timeout=config.timeout,
        )

    # ---- what the base calls ----

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        if self._writer is not None:
            self._stops = self._writer.should_stop() and not last_step
        saved: bool = super()._save(curr_step, last_step)
        if self._stops and self._writer is not None:
            self._writer.stop()
        return saved

    def _should_save(self, curr_step: int, last_step: bool = False) -> bool:
        return self._stops or super()._should_save(curr_step, last_step)

    def _save_last_step(self, curr_step: int) -> None:
        """The full state, too: a job that comes back finds by it that it has finished."""
        step = self._create_checkpoint_id(curr_step)
        self.dcp_save(self._flattened_model_states_sd(), step, checkpointer.AsyncMode.DISABLED)
        if self.last_save_model_only:
            self._exports = True
            super()._save_last_step(curr_step)
            self._exports = False

    def _find_load_step(self, folder: str = "") -> int:
        if not folder and self._writer is not None and self._writer.step >= 0:
            return self._writer.step
        found: int = super()._find_load_step(folder)  # TorchTitan's own, of before
        return found

    def _create_checkpoint_id(self, step: int, folder: str = "") -> str:
        own: str = super()._create_checkpoint_id(step, folder)
        path = os.path.join(os.path.dirname(own), f"step-{step:08d}")
        return path if is_checkpoint(path) and not self._exports else own

    def dcp_save(
        self,
        state_dict: dict[str, Any],
        checkpoint_id: str,
        async_mode: Any,
        enable_garbage_collection: bool = False,
        to_hf: bool = False,
    ) -> Any:
        if self._exports:
            options = (async_mode, enable_garbage_collection, to_hf)
            return super().dcp_save(state_dict, checkpoint_id, *options)
        return dcp.save(state_dict, checkpoint_id=checkpoint_id, storage_writer=self._writer)

    def dcp_load(
        self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool
    ) -> None:
        if from_hf or not is_checkpoint(checkpoint_id):
            super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)
            return
        directory, name = os.path.split(os.path.normpath(checkpoint_id))
        step, writer = int(name[len("step-") :]), self._writer
        if writer is None or not os.path.samefile(directory, self.folder):
            reader = Reader(directory, step)
        elif step == writer.step:
            reader = Reader(writer)
        else:
            raise Usage(
                f"torchtitan: load_step={step}: {self.folder} has step {writer.step}, and what "
                "comes before is not saved again: give initial_load_path and another folder"
            )
        dcp.load(state_dict, storage_reader=reader)
        reader.close()
        if MODEL in self.states:
            self.states[MODEL].load_state_dict(state_dict)
