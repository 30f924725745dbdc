"""The files of a checkpoint: one of weights and one of optimizer state for each component.

A snapshot is a copy in memory, taken between two mini-batches; `CheckpointWriter` (`cuts.py`) writes files from
it. Files belong to components, not to stages, so that any partition can read what another one wrote.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from alray.core.errors import CheckpointError, RunError
from alray.core.run_folder.store import ComponentFile, checkpoint_folder
from alray.core.storage import disk
from alray.core.storage.location import Location, publish, require_file
from alray.models.component import Component
from alray.models.encoder import row_major
from alray.models.optimizers import ComponentOptimizer
from alray.models.weight_average import go_on_with

_TRAINED = "weights of training"
"""In a file of optimizer state: the weights with which training goes on, where those of the checkpoint are their moving
average."""
_ZIP = b"PK"
"""So begins what `torch.save` writes."""
_FOREIGN = re.compile(r"Unsupported global: GLOBAL (\S+)")
TakesState = Callable[[ComponentOptimizer, dict[str, Any]], None]
"""What a component's optimizer does with its state from a checkpoint."""


def weights_file(index: int) -> str:
    return f"component-{index:02d}.safetensors"


def optimizer_file(index: int) -> str:
    return f"component-{index:02d}.optimizer.pt"


@dataclass(frozen=True)
class Snapshot:
    """A component as it was after a mini-batch."""

    index: int
    weights: dict[str, torch.Tensor]
    optimizers: dict[str, dict[str, Any]]
    parameters: tuple[str, ...]  # names of the weights that are no buffers
    trained: dict[str, torch.Tensor]  # with which training goes on, where `weights` has their average

    def parameters_sha256(self) -> str:
        """Hash of the parameters, in their order. It is the same on every replica; buffers may differ."""
        digest = hashlib.sha256()
        for name in self.parameters:
            digest.update(name.encode())
            digest.update(self.weights[name].reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def take_snapshot(component: Component) -> Snapshot:
    """A copy on the CPU that later updates do not change; weights are row-major, as safetensors files hold them. They
    are the moving average of the weights, if the component has one."""
    trained = {} if component.weight_average is None else component.weight_average.trained()
    with component.showing_average():
        weights = component.weights()
        held = {parameter.untyped_storage()._cdata for parameter in component.parameters()}
        return Snapshot(
            component.index,
            {name: row_major(_copied(value)) for name, value in weights.items()},
            {name: _copied(optimizer.state_dict()) for name, optimizer in component.optimizers().items()},
            tuple(name for name, value in weights.items() if value.untyped_storage()._cdata in held),
            _copied(trained),
        )


def _copied(value: Any) -> Any:
    return _over_tensors(value, lambda tensor: tensor.detach().to("cpu", copy=True))


def _over_tensors(value: Any, of_one: Callable[[torch.Tensor], Any]) -> Any:
    """The value with `of_one` of each tensor in its place, in new dicts, lists, tuples and sets."""
    if isinstance(value, torch.Tensor):
        return of_one(value)
    if isinstance(value, dict):
        return {key: _over_tensors(entry, of_one) for key, entry in value.items()}
    if isinstance(value, list):
        return [_over_tensors(entry, of_one) for entry in value]
    if type(value) is set:  # no resume reads one of another class
        return {_over_tensors(entry, of_one) for entry in value}
    named = isinstance(value, tuple) and hasattr(value, "_make")
    if named or type(value) is tuple:  # nor one of another class of tuples
        return getattr(value, "_make", tuple)(_over_tensors(entry, of_one) for entry in value)
    return value


def _require_readable(snapshot: Snapshot) -> None:
    """Raise RunError if an optimizer keeps an object that `read_state` could not read, for it runs no code."""
    buffer = io.BytesIO()
    try:
        torch.save(_over_tensors(snapshot.optimizers, lambda tensor: None), buffer)
        torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError) as error:
        found = _FOREIGN.search(str(error))
        raise RunError(
            f"the optimizer of component {snapshot.index} keeps what no resume could read: "
            f"{found[1] if found else str(error).splitlines()[0]}",
            hint="keep numbers, texts and tensors in its `param_groups` and its state; `float(x)` makes a number of "
            "one of NumPy",
        ) from error


def write_snapshot(snapshot: Snapshot, folder: Location) -> tuple[ComponentFile, ...]:
    """Write both files of a component by `write_file`. Raises RunError if an optimizer keeps what could not be read."""
    _require_readable(snapshot)
    buffer = io.BytesIO()
    torch.save(snapshot.optimizers | ({_TRAINED: snapshot.trained} if snapshot.trained else {}), buffer)
    # The order of names is stored next to the weights, because the hash of a network follows it.
    weights = save_safetensors(snapshot.weights, metadata={"order": "\n".join(snapshot.weights)})
    return (
        write_file(folder, weights_file(snapshot.index), weights),
        write_file(folder, optimizer_file(snapshot.index), buffer.getvalue()),
    )


def write_file(folder: Location, name: str, content: bytes) -> ComponentFile:
    """Write a file of a checkpoint whole or not at all. Its name outlasts a power cut only after `sync_folder`."""
    if isinstance(folder, Path):
        disk.make_folder(folder.parent)  # a run folder that was deleted is not made again
        disk.make_folder(folder)
        disk.write_whole(folder / name, content)
    else:
        publish(folder / name, content)
    return ComponentFile(name, hashlib.sha256(content).hexdigest(), len(content))


@dataclass(frozen=True)
class CheckpointFiles:
    """The files of a checkpoint, with their hashes by its manifest."""

    folder: Location
    hashes: Mapping[str, str]

    @classmethod
    def of(cls, run_dir: Location, manifest: Mapping[str, Any]) -> CheckpointFiles:
        hashes = {entry["file"]: entry["sha256"] for entry in manifest["files"]}
        return cls(checkpoint_folder(run_dir, manifest["step"]), hashes)

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises CheckpointError where the checkpoint has none of this name, and where it is
        missing or was changed."""
        if name not in self.hashes:
            raise CheckpointError(
                f"the checkpoint has no file {name}",
                file=str(self.folder / "manifest.json"),
                hint="use the model that the checkpoint was written with: this one has more components",
            )
        path = self.folder / name
        require_file(path)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise self._damaged(name, "a file of this checkpoint is missing") from error
        if hashlib.sha256(content).hexdigest() != self.hashes[name]:
            message = "this file was damaged after it was written: its SHA-256 is not the manifest's"
            raise self._damaged(name, message)
        return content

    def state(self, name: str) -> dict[str, Any]:
        """The state that `torch.save` wrote into a file, without running code from it.

        Raises CheckpointError as `read` does, and where the file holds anything else.
        """
        content = self.read(name)
        try:
            if not content.startswith(_ZIP):  # torch also reads what it wrote until 2020, and that without limits
                raise ValueError("it is no zip archive")
            state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
            if not isinstance(state, dict):
                raise ValueError(f"it holds a {type(state).__name__}")
        except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError) as error:
            message = f"this is not the state that alray wrote: {str(error).splitlines()[0]}"
            raise self._damaged(name, message) from error
        return state

    def _damaged(self, name: str, message: str) -> CheckpointError:
        hint = f"restore it, or delete the folder {self.folder.name} to use the checkpoint before it"
        return CheckpointError(message, file=str(self.folder / name), hint=hint)


def load_component(component: Component, files: CheckpointFiles, *, optimizer: bool = True) -> None:
    """Load the weights of a component, and its optimizer state, from a checkpoint."""
    _load_weights(component, files)
    if optimizer:
        _load_state(component, files, ComponentOptimizer.load_state_dict)


def require_component(component: Component, files: CheckpointFiles) -> bool:
    """Raise CheckpointError if `load_component` cannot load this component from the checkpoint. Return whether it
    leaves out the state of an optimizer, because none of its parameters is trained any more.

    Args:
        component: on torch's meta device.
    """
    _load_weights(component, files, torch.device("meta"))
    state = _load_state(component, files, ComponentOptimizer.require_state)
    return any(state[key] and not part.parameters for key, part in component.optimizers().items())


def _load_weights(component: Component, files: CheckpointFiles, device: torch.device | None = None) -> None:
    """
    Args:
        device: to which the weights come before the component takes them over; None: they stay where they were read.
    """
    name = weights_file(component.index)
    content = files.read(name)
    try:
        component.load_weights({key: value.to(device) for key, value in load_safetensors(content).items()})
    except (RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"these are not the weights of component {component.index}: {' '.join(str(error).split())}",
            file=str(files.folder / name),
            hint="use the model, method and data that the checkpoint was written with",
        ) from error


def _load_state(component: Component, files: CheckpointFiles, take: TakesState) -> dict[str, Any]:
    """Give a component, which has the weights of a checkpoint, those with which training goes on, and its optimizers
    their states by `take`. Returns the states."""
    name = optimizer_file(component.index)
    state, file = files.state(name), files.folder / name
    trained = state.get(_TRAINED, {})
    try:
        if component.weight_average is not None:
            component.weight_average.load(trained)
        else:
            go_on_with(component, trained)
    except (KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"these are not the weights with which component {component.index} trains: {error}",
            file=str(file),
            hint="use the model, method and data that the checkpoint was written with",
        ) from error
    load_optimizers(component, state, file, take)
    return state


def load_optimizers(
    component: Component, states: dict[str, Any], file: Location, take: TakesState = ComponentOptimizer.load_state_dict
) -> None:
    """Give a component's optimizers the states that `file` has of them. Raises CheckpointError if they do not fit."""
    for key, part in component.optimizers().items():
        try:
            take(part, states[key])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"this is not the optimizer state of component {component.index}: {error}",
                file=str(file),
                key="optimizer",
                hint="leave `optimizer` and the model as they were, or start a new run",
            ) from error
