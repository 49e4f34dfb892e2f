# SPDX-License-Identifier: Apache-2.0
"""A run: one training over all its attempts. It resumes, saves, stops and ends."""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _lib, data, ending, errors, objects, process, sharded, workers
from .directory import WRITERS, identity_text, open_directory, values_of
from .errors import Usage
from .handover import Handover
from .metrics import Metrics
from .phases import Phases
from .pytree import State
from .rank_state import RankState
from .stragglers import Stragglers
from .tensors import state_of
from .values import dumps
from .watch import Watch

if TYPE_CHECKING:
    from .streams import StreamLoader

_LOSS = "loss\0"  # beside the names of tensors, which have no U+0000
_GIVE_UP_SECONDS = 10.0  # for a copy from a GPU
_STOP = 1  # flag of the word after each step: all ranks stop
_SAVE = 2  # all ranks save after the next step
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Stop(SystemExit):
    """All ranks have stopped after the same step, and the state is durable. As a SystemExit it ends
    the program with the status that brings the job back."""


class Save:
    """A save. Once it is handed over, it survives the end of this process."""

    def __init__(self, run: Run, step: int):
        self._run, self.step = run, step

    @property
    def handed(self) -> bool:
        """Whether it survives the end of this process already. Where the state is on GPUs, it is
        copied beside the next step."""
        return self._run.is_handed(self.step)

    def wait(self, timeout: float = 0.0) -> None:
        """Waits until it is durable; raises muster.Error if it failed or still runs then. 0: the
        timeout of attach()."""
        self._run.check_handed()
        _lib.check(_lib.library.muster_ckpt_wait(self._run.ckpt, self.step, timeout))


class _Every:
    """A cadence: steps, or seconds on rank 0's clock."""

    def __init__(self, given: int | str | None):
        self._steps, self._seconds = 0, 0.0
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", str(given))
        if match:
            self._seconds = float(match[1]) * _UNITS[match[2]]
        elif given is not None and re.fullmatch(r"[1-9]\d*", str(given)):
            self._steps = int(given)
        if given is not None and not (self._steps or self._seconds):
            raise Usage(f"every={given!r}: give a number of steps, or a time such as '10m'")
        self._last = time.monotonic()

    @property
    def is_known(self) -> bool:
        """Whether each rank knows by itself when a save is due."""
        return not self._seconds

    def is_due(self, step: int) -> bool:
        if self._steps:
            return step % self._steps == 0
        return bool(self._seconds) and time.monotonic() - self._last >= self._seconds

    def saved(self) -> None:
        self._last = time.monotonic()


def _chosen(writers: str | None, is_sharded: bool) -> str:
    """Which ranks save: each what it has of sharded state."""
    if writers is not None and writers not in WRITERS:
        raise Usage(f"writers={writers!r}: give one of {', '.join(WRITERS)}")
    if is_sharded and writers not in (None, "all"):
        raise Usage(f"writers={writers!r}: sharded state needs 'all', which is its default")
    return writers or ("all" if is_sharded else "rank0")


class Run:
    """Made by attach()."""

    def __init__(
        self,
        directory: str,
        models: dict[str, Any],
        others: dict[str, Any],
        own: dict[str, Any],
        *,
        every: int | str | None,
        config: Mapping[str, Any] | None,
        seed: int,
        seed_generators: bool,
        keep: tuple[int, int, int],
        timeout: float,
        hang_timeout: float,
        begin: str | None,
        writers: str | None,
    ):
        ending.check_alone()
        self.world = process.world()
        self.directory, self.seed = directory, seed
        self.step = 0  # steps done, by all attempts together
        self.resumed = False
        self._stragglers = Stragglers(self.world)
        self.phases = Phases(self.world.handle, self._stragglers.begin_backward)
        self.ckpt: Any = None
        self.loss: Any = None
        self.validation_loss: float | None = None
        self._models, self._others = models, others
        self._of_rank = RankState(self.world, own)
        self._every, self.timeout = _Every(every), timeout
        self._seed_generators = seed_generators
        self._loaders: dict[str, Any] = {}
        self.numerics: dict[str, Any] = {}  # of canonical()
        self._flags = 0
        self.own_steps = 0  # of this attempt
        self._saved_step = -1
        self._drained = self.ended = False
        identity = identity_text(config, seed)
        self._watch = Watch(self, hang_timeout)
        collected = objects.Collected(models, others)
        collected.check()  # now, not at the first save
        self._writers = _chosen(writers, collected.is_sharded)
        self._handover = Handover(
            others.values(), self.world.local_world_size if self._writers == "all" else 1
        )
        self._in_step = False  # between a batch of the loader and its end_step
        self._of_rank.check()
        self._open(identity, keep, begin)
        self._metrics = Metrics(directory, _lib.library.muster_ckpt_attempt(self.ckpt))
        ending.register(self)
        self.world.begin_word(timeout)
        self.phases.watch(models.values(), others.values())
        self.begin_step()

    def _open(self, identity: str, keep: tuple[int, int, int], begin: str | None) -> None:
        self.ckpt, saved = open_directory(
            self.world,
            self.directory,
            identity=identity,
            keep=keep,
            timeout=self.timeout,
            writers=self._writers,
        )
        try:
            self._restore(saved, begin)
        except BaseException as error:
            ending.close(self, getattr(error, "status", errors.FAULT), str(error).encode())
            raise
        finally:
            _lib.library.muster_saved_close(saved)

    def _restore(self, saved: Any, begin: str | None) -> None:
        error: BaseException | None = None
        try:
            if saved:
                self._fill(saved)
            elif begin is not None:
                objects.begin_from(begin, next(iter(self._models.values())))
        except Exception as caught:  # the others must hear of it
            error = caught
        status = getattr(error, "status", errors.FAULT) if error else errors.OK
        why = " ".join(str(error).split()).encode() if error else None
        agreed = _lib.library.muster_agree(self.world.handle, status, why, self.timeout)
        if error:
            raise error
        _lib.check(agreed)

    def _fill(self, saved: Any) -> None:
        values = values_of(saved)
        own = values.pop("run", None)
        if not isinstance(own, dict):
            raise Usage(
                "resume: the checkpoint is not one of attach(): give the program a directory of "
                "its own"
            )
        objects.restore(saved, values, self._models, self._others)
        self.step = self._saved_step = _lib.library.muster_saved_step(saved)
        self._of_rank.restore(own.get("ranks", []))
        self._loaders = own["loaders"]
        self.numerics = own.get("numerics", {})
        self.resumed = True
        self.world.say(f"resumed at step {self.step} of {self.directory}")

    # ---- what the program calls ----

    @property
    def state(self) -> Any:
        """The tree that attach(state=) was given, as it was resumed, or was set last."""
        return self._tree().tree

    @state.setter
    def state(self, tree: Any) -> None:
        self._tree().tree = tree

    @property
    def should_stop(self) -> bool:
        """Whether a notice has come to this rank: the next end_step but one stops all ranks."""
        return bool(self._flags & _STOP) or process.notice() is not None

    def stop(self) -> None:
        """Stops all ranks as a notice does: the job comes back."""
        self._flags |= _STOP

    def end_step(self, loss: Any = None) -> None:
        """Call it once after each step, on all ranks. It saves where a save is due. If any rank has
        got a notice, it saves, ends the run on all ranks and raises Stop. `loss`, a number or a
        tensor of one, is recorded with saves."""
        if self.ended or self._drained:
            raise Usage("end_step(): the run has ended: a run has one loop, to its last step")
        seeded_by_loader, self._in_step = self._in_step, False
        self.step += 1
        self.own_steps += 1
        self.phases.begin("end_step")
        self.loss = loss.detach() if hasattr(loss, "detach") else loss
        self._watch.beat()
        process.mask_notices()
        if self.own_steps == 1:
            workers.warn_of_unprotected()
        flags, rank = self._word()
        if flags & _STOP:
            self._stop(rank)
        for line in self._stragglers.end_step(self.step, self._watch.word_timeout()):
            self.world.say(line)
        if self._is_due(flags):
            self.save()
        self._watch.beat()
        self._stragglers.begin_step()
        if not seeded_by_loader:
            self.begin_step()

    def save(self) -> Save:
        """Saves the state after the last step. Returns once it is copied and handed over; what is
        on GPUs is so a little later, and until then only an attached optimizer's step() may change
        parameters. Call it on all ranks after the same step; those that are no writers return at
        once."""
        if self.step != self._saved_step:
            self._begin_save(self._of_rank.gather(self.timeout))
        return Save(self, self.step)

    def loader(
        self,
        dataset: Any,
        global_batch: int,
        *,
        epochs: int | None = 1,
        steps: int | None = None,
        microbatch: int | None = None,
        slots: int | None = None,
        shuffle: bool = True,
        drop_last: bool = True,
        seed_samples: bool = True,
        name: str = "train",
        **options: Any,
    ) -> data.Loader:
        """Yields this rank's share of each step's `global_batch` samples, from the next step on,
        for `epochs` epochs or up to `steps` steps in all. With `microbatch` it yields a list of
        batches of at most that size; with `slots`, for canonical(), a list of the batches of this
        rank's slots. `options` are those of DataLoader: num_workers, collate_fn, …

        `seed_samples` False: nothing in the dataset is random, so the generators need no seed
        before each sample.

        An iterable dataset with state_dict() and load_state_dict() needs `steps`, and begins again
        at its end. Each rank, and each worker, reads its own; a run resumes with as many of them.
        The generators are seeded before each of their batches."""
        if data.is_stream(dataset):
            return self._stream_loader(dataset, global_batch, steps, microbatch, name, options)
        sampler = data.Sampler(
            len(dataset),
            global_batch,
            step=self.step,
            epochs=epochs,
            steps=steps,
            seed=self.seed,
            shuffle=shuffle,
            drop_last=drop_last,
            rank=self.world.rank,
            world_size=self.world.world_size,
            slots=slots,
        )
        if slots is not None:
            microbatch = global_batch // slots
        given = {
            "samples": len(dataset),
            "global_batch": global_batch,
            "shuffle": shuffle,
            "drop_last": drop_last,
        }
        self._keep_loader(name, given)
        return data.Loader(self, dataset, sampler, microbatch, seed_samples, options)

    def log(self, values: Mapping[str, Any]) -> None:
        """Appends a line to metrics-ATTEMPT.jsonl on rank 0; others do nothing. Its step is the one
        that is under way in run.loader, otherwise the last that is done. muster-curve shows the
        loss."""
        if "validation_loss" in values:
            self.validation_loss = float(values["validation_loss"])
        if self.world.rank == 0:
            self._metrics.write(self.step + self._in_step, values)

    def finish(self) -> None:
        """Collective: saves the last state and ends the run. At a program's natural end it comes by
        itself."""
        if not self.ended:
            self.drain()
            self.ended = True
            ending.end(self, errors.OK)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is None:
            self.finish()

    # ---- what the package calls ----

    def is_handed(self, step: int) -> bool:
        return step < self._saved_step or self._handover.is_over()

    def check_handed(self) -> None:
        self._handover.join()

    def begin_step(self, in_loader: bool = False) -> None:
        """Before a step: what is random in it depends on the seed, the step and the rank alone."""
        self.phases.begin("forward" if in_loader else "step", self.step + 1)
        self._in_step = in_loader
        if self._seed_generators:
            data.seed_generators(
                data.derived_seed(self.seed, self.step, self.world.rank, -1), cuda=True
            )

    def drain(self) -> None:
        """After the last step: all words are said, and the last state is saved."""
        if self._drained or self.ended:
            return
        self._drained = True
        self._watch.end()
        self.phases.end()
        is_saved = self.step in (0, self._saved_step)
        ranks = [] if is_saved else self._of_rank.gather(self.timeout)
        self.world.end_word(self.timeout)
        if not is_saved:
            self._begin_save(ranks)
        self._handover.join()
        self._handover.end()

    def give_up(self) -> bool:
        """The run has failed: nothing more is saved. False: a save from a GPU that does not answer
        holds libmuster's handles."""
        self.ended = True
        self._watch.end()
        self.phases.end()
        self._handover.end()
        with contextlib.suppress(Exception):
            return self._handover.join(_GIVE_UP_SECONDS)
        return True

    def _tree(self) -> State:
        found = self._others.get("state")
        if not isinstance(found, State):
            raise Usage("run.state: give attach() a state")
        return found

    def _keep_loader(self, name: str, given: dict[str, Any]) -> None:
        """What has to be the same in each attempt."""
        known = self._loaders.get(name, given)
        for key in [*known, *given]:
            if given.get(key) != known.get(key):
                raise Usage(
                    f"resume: {key} of the loader '{name}' was {known.get(key)}, and is "
                    f"{given.get(key)} now: give the same, or the program a directory of its own"
                )
        self._loaders[name] = given

    def _stream_loader(
        self,
        dataset: Any,
        global_batch: int,
        steps: int | None,
        microbatch: int | None,
        name: str,
        options: dict[str, Any],
    ) -> StreamLoader:
        from .streams import StreamLoader

        loader = StreamLoader(self, name, dataset, global_batch, steps, microbatch, options)
        given = {
            "ranks": self.world.world_size,
            "workers": options.get("num_workers", 0),
            "global_batch": global_batch,
            "microbatch": microbatch,
        }
        self._keep_loader(name, given)
        self._of_rank.add_stream(loader)
        return loader

    @property
    def _hears_when(self) -> bool:
        """Whether several ranks take part in a save, and rank 0's clock decides after which
        step."""
        return (self._writers != "rank0" or self._of_rank.is_needed) and not self._every.is_known

    def _is_due(self, flags: int) -> bool:
        """Whether a save is due on this rank; `flags` are those of all ranks."""
        if self._hears_when:
            return bool(flags & _SAVE)
        return (bool(self.ckpt) or self._of_rank.is_needed) and self._every.is_due(self.step)

    def _word(self) -> tuple[int, int]:
        """The flags of all ranks after the step before, and the lowest rank that has set any."""
        if process.notice() is not None:
            self._flags |= _STOP
        own = self._flags
        if self._hears_when and self.world.rank == 0 and self._every.is_due(self.step):
            own |= _SAVE
            self._every.saved()
        return self.world.word(own, self._watch.word_timeout())

    def _stop(self, who: int) -> None:
        self.world.say_stop(self.step, who)
        self.drain()
        self.ended = True
        ending.end(self, errors.REQUEUE)
        raise Stop(errors.REQUEUE)

    def _own(self, collected: objects.Collected) -> dict[str, Any]:
        """The tensors that this rank saves."""
        tensors = collected.tensors()
        if self._writers == "rank0":
            return tensors
        model, others = collected.entries(self.world.rank, {})
        entries = [*model, *others]
        own = ctypes.create_string_buffer(len(entries) + 1)
        state = state_of(model, others)
        _lib.check(_lib.library.muster_ckpt_own(self.ckpt, ctypes.byref(state), own))
        names = {entry.name for entry, is_own in zip(entries, own.raw) if is_own}
        return {name: sharded.local(v) for name, v in tensors.items() if name in names}

    def _begin_save(self, ranks: list[Any]) -> None:
        """`ranks` are the states that each of them has of its own."""
        if self.ckpt:
            self.phases.begin("save")
            self._metrics.flush()
            self._save(ranks)
        self._saved_step = self.step
        self._every.saved()

    def _save(self, ranks: list[Any]) -> None:
        collected = objects.Collected(self._models, self._others)
        own = {"loaders": self._loaders, "seed": self.seed, "ranks": ranks}
        if self.numerics:
            own["numerics"] = self.numerics
        values = {"run": own, **collected.values}
        text, step, best = dumps(values).encode(), self.step, self.validation_loss

        def hand_over(hosts: Mapping[str, Any]) -> None:
            loss = hosts[_LOSS]
            state = state_of(
                *collected.entries(self.world.rank, hosts),
                values=text,
                cursor=step,
                loss=math.nan if loss is None else float(loss),
                validation_loss=math.nan if best is None else float(best),
            )
            _lib.check(_lib.library.muster_ckpt_save_state(self.ckpt, step, ctypes.byref(state)))

        tensors = {**self._own(collected), _LOSS: self.loss}
        if self._handover.is_needed(tensors):
            self._handover.begin(tensors, collected.late, hand_over)
        else:
            hand_over(tensors)
