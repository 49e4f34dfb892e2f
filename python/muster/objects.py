# SPDX-License-Identifier: Apache-2.0
"""The objects of a run: what they hold becomes named tensors and values, and back."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _lib, errors, sharded
from .errors import Usage
from .tensors import Entry, HostTensor, Reader, checked_type, read_safetensors, type_of_name
from .values import Decoder, Encoder, Json

_WRAPPED = "module."  # in front of all names: DistributedDataParallel, DataParallel
_COMPILED = "_orig_mod."  # in front of a compiled part's names: torch.compile
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def named(kind: str, given: Any) -> dict[str, Any]:
    """One object, a list or a mapping of them, under names: "optimizer", or "optimizer.0", …"""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {f"{kind}.{key}": value for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        return {f"{kind}.{i}": value for i, value in enumerate(given)}
    return {kind: given}


def check(name: str, value: Any) -> None:
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(value, method, None)):
            raise Usage(
                f"{name}: a {type(value).__name__} has no {method}(), so it can't be "
                "saved: give an object that has, or leave it out"
            )


def bare_names(names: Iterable[str]) -> dict[str, str]:
    """For each of a model's names the one in the bare model, whatever wraps it. Where two would
    become one, none changes."""
    own = list(names)
    bare = [name.replace(_COMPILED, "") for name in own]
    while bare and all(name.startswith(_WRAPPED) for name in bare):
        bare = [name[len(_WRAPPED) :] for name in bare]
    return dict(zip(own, bare if len(set(bare)) == len(own) else own))


def _state_of(value: Any) -> Any:
    """A scheduler's state may hold functions of its own class, which it has at the start anyway."""
    state = value.state_dict()
    own = getattr(value, "__dict__", {})
    if not isinstance(state, Mapping):
        return state
    return {
        k: v
        for k, v in state.items()
        if not (
            isinstance(v, _FUNCTIONS)
            and own.get(k) is v
            and getattr(v, "__name__", "") != "<lambda>"
        )
    }


def is_optimizer(value: Any) -> bool:
    """Of any kind; a scheduler and a GradScaler are none."""
    return hasattr(value, "step") and hasattr(value, "zero_grad")


def bare_optimizer(value: Any) -> Any:
    """The optimizer whose hooks are called, whatever wraps it, as Accelerate does."""
    inner = getattr(value, "optimizer", None)
    return bare_optimizer(inner) if inner is not None and is_optimizer(inner) else value


def _parameters(module: Any) -> dict[str, Any]:
    """By all their names, of which a tied one has several."""
    found: dict[str, Any] = {}
    modules = getattr(module, "named_modules", None)
    for path, part in modules(remove_duplicate=False) if modules else ():
        for name, parameter in part.named_parameters(prefix=path, recurse=False):
            found[name] = parameter
    return found


class Collected:
    """The state of all objects at one moment. It holds the tensors' memory."""

    def __init__(self, models: Mapping[str, Any], others: Mapping[str, Any]):
        self._model: dict[str, Any] = {}
        self._state: dict[str, Any] = {}
        self._held: dict[str, HostTensor] = {}
        known: dict[Any, str] = {}
        self.values: dict[str, Json] = {}
        self.late: set[str] = set()  # tensors that only an optimizer's step() changes
        for name, module in models.items():
            self.values[name] = self._model_values(name, module, known)
        for name, value in others.items():
            before = len(self._state)
            self.values[name] = Encoder(self._state, known).encode(_state_of(value), name)
            if is_optimizer(value):
                self.late.update(list(self._state)[before:])

    def _model_values(self, name: str, module: Any, known: dict[Any, str]) -> dict[str, Json]:
        """Names in the files are the bare model's; with several models each has its own in front.
        What is sharded is no part of the model's files."""
        front = "" if name == "model" else name.partition(".")[2] + "."
        state = module.state_dict()
        bare = bare_names(state)
        parameters = _parameters(module)
        tied: dict[int, Json] = {}  # of sharded ones, whose memory does not tell
        values: dict[str, Json] = {}
        for key, value in state.items():
            parameter = parameters.get(key)
            if sharded.is_sharded(value) and id(parameter) in tied:
                values[bare[key]] = tied[id(parameter)]
                continue
            tensors = self._state if sharded.is_sharded(value) else self._model
            before = len(tensors)
            values[bare[key]] = Encoder(tensors, known).encode(value, front + bare[key])
            if parameter is not None:
                tied[id(parameter)] = values[bare[key]]
                self.late.update(list(tensors)[before:])
        return values

    @property
    def is_sharded(self) -> bool:
        """Whether no rank has all of it."""
        return any(map(sharded.is_sharded, self.tensors().values()))

    def check(self) -> None:
        """Refuses what can't be saved, without a copy of it."""
        for name, value in [*self._model.items(), *self._state.items()]:
            checked_type(name, value)

    def tensors(self) -> dict[str, Any]:
        """All of them, by their names."""
        return {**self._model, **self._state}

    def entries(self, rank: int, hosts: Mapping[str, Any]) -> tuple[list[Entry], list[Entry]]:
        """The tensors of the models, and the others; in host memory what `hosts` has by their
        names of this rank's."""
        both = [
            [entry for name, value in part.items() for entry in self._of(name, value, rank, hosts)]
            for part in (self._model, self._state)
        ]
        return both[0], both[1]

    def _of(self, name: str, value: Any, rank: int, hosts: Mapping[str, Any]) -> Iterator[Entry]:
        dtype, data = checked_type(name, value), 0
        if name in hosts:
            self._held[name] = HostTensor(name, hosts[name])
            data = self._held[name].data
        if not sharded.is_sharded(value):
            owner = _lib.ALL_RANKS if name in self.late else 0
            yield Entry(name, dtype, tuple(value.shape), owner, data=data)
            return
        whole = tuple(value.shape)
        for box in sharded.boxes(name, value):
            own = data if box.rank == rank else 0
            yield Entry(name, dtype, box.shape, box.rank, box.offset, whole, own)


def _problem(name: str, saved: Iterable[str], own: Iterable[str]) -> str | None:
    missing, extra = sorted(set(own) - set(saved)), sorted(set(saved) - set(own))
    if missing:
        return f"the checkpoint has no {missing[0]} for {name}, nor {len(missing) - 1} others"
    if extra:
        return f"the checkpoint has {extra[0]} for {name}, which the program does not have"
    return None


def _load_model(name: str, module: Any, values: Mapping[str, Json], reader: Reader) -> None:
    whole = module.state_dict()
    own = {bare: name for name, bare in bare_names(whole).items()}
    problem = _problem(name, values, own)
    if problem:
        raise errors.Error(
            errors.DATA, f"resume: {problem}: give the program a directory of its own"
        )
    state = {}
    for key, value in values.items():
        like = whole[own[key]]
        state[own[key]] = _decoder(reader, lambda *_, like=like: like).decode(value)
    module.load_state_dict(state)


def _decoder(reader: Reader, like: Callable[[str, tuple[int, ...]], Any]) -> Decoder:
    """Decodes values; a tensor is sharded as `like` of its name and shape is."""

    def tensor(name: str) -> Any:
        dtype, shape = reader.shapes.get(name, ("", ()))
        template = like(name, shape) if dtype else None
        if template is None or not sharded.is_sharded(template):
            return reader.tensor(name)
        if shape != tuple(template.shape):
            raise errors.Error(
                errors.DATA,
                f"resume: {name} has the shape {shape} in the checkpoint, and "
                f"{tuple(template.shape)} in the program",
            )
        return sharded.read(reader.saved, name, type_of_name(name, dtype), template)

    return Decoder(tensor, reader.array)


def restore(
    saved: Any, values: Mapping[str, Json], models: Mapping[str, Any], others: Mapping[str, Any]
) -> None:
    """Fills the objects from an open checkpoint."""
    problem = _problem("attach()", values, [*models, *others])
    if problem:
        raise errors.Error(errors.USAGE, f"resume: {problem}: attach the same objects")
    reader = Reader(saved)
    for name, value in [*models.items(), *others.items()]:
        try:
            if name in models:
                _load_model(name, value, values[name], reader)
            else:
                templates = sharded.Templates(name, value, value.state_dict())
                value.load_state_dict(_decoder(reader, templates.find).decode(values[name]))
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, errors.Error):
                raise
            text = " ".join(str(error).split())
            raise errors.Error(errors.DATA, f"resume: couldn't load {name}: {text}") from error


def begin_from(path: str, model: Any) -> None:
    """Loads the weights that a new run begins with, from a .safetensors or a .pt file."""
    try:
        state = read_safetensors(path) if path.endswith(".safetensors") else _read_pt(path)
        bare, whole = bare_names(state), model.state_dict()
        own = {given: name for name, given in bare_names(whole).items()}
        found = {own.get(bare[k], k): v for k, v in state.items()}
        found = {**_tied_to(found, whole), **found}
        model.load_state_dict({k: sharded.spread(v, whole.get(k)) for k, v in found.items()})
    except Exception as error:  # the file may be anything
        text = " ".join(str(error).split())
        raise Usage(f"begin={path}: couldn't load it: {type(error).__name__}: {text}") from error


def _tied_to(found: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """What a model has under other names, too: a file may have tied weights only once."""
    places = {whole[k].data_ptr(): v for k, v in found.items() if k in whole and whole[k].numel()}
    return {k: places[v.data_ptr()] for k, v in whole.items() if v.data_ptr() in places}


def _read_pt(path: str) -> Any:
    import inspect

    import torch

    safe = "weights_only" in inspect.signature(torch.load).parameters
    return torch.load(path, map_location="cpu", **({"weights_only": True} if safe else {}))
