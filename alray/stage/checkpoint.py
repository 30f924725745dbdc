"""A stage's part of a checkpoint: one file of weights and one of optimizer state for each component.

A snapshot is a copy in memory, taken between two mini-batches. A thread writes files from it while training goes on.
Files belong to components, not to stages, so that any partition can read what another one wrote.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from alray.errors import CheckpointError
from alray.nn.component import Component
from alray.nn.encoder import row_major
from alray.records import Standing
from alray.stage.replication import Replication
from alray.stage.telemetry import CheckpointPart
from alray.store import ComponentFile, step_folder


def weights_file(index: int) -> str:
    return f"component-{index:02d}.safetensors"


def optimizer_file(index: int) -> str:
    return f"component-{index:02d}.optimizer.pt"


def replica_file(index: int, replica: int) -> str:
    """The file for what one replica alone keeps of a component: the state of its gradients' compression."""
    return f"component-{index:02d}.replica-{replica}.pt"


@dataclass(frozen=True)
class Snapshot:
    """A component as it was after a mini-batch."""

    index: int
    weights: dict[str, torch.Tensor]
    optimizers: dict[str, dict[str, Any]]
    parameters: tuple[str, ...]  # names of the weights that are no buffers
    replica_state: dict[str, torch.Tensor]

    def parameters_sha256(self) -> str:
        """Hash of the parameters, in their order. It is the same on every replica; buffers may differ."""
        digest = hashlib.sha256()
        for name in self.parameters:
            digest.update(name.encode())
            digest.update(self.weights[name].reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def take_snapshot(component: Component, replica_state: dict[str, torch.Tensor] | None = None) -> Snapshot:
    """A copy on the CPU that later updates do not change; weights are row-major, as safetensors files hold them."""
    weights = component.weights()
    held = {parameter.untyped_storage()._cdata for parameter in component.parameters()}
    return Snapshot(
        component.index,
        {name: row_major(_copied(value)) for name, value in weights.items()},
        {name: _copied(optimizer.state_dict()) for name, optimizer in component.optimizers().items()},
        tuple(name for name, value in weights.items() if value.untyped_storage()._cdata in held),
        dict(replica_state or {}),
    )


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    return value


def write_snapshot(snapshot: Snapshot, folder: Path) -> tuple[ComponentFile, ...]:
    """Write both files of a component. Each is written whole or not at all."""
    buffer = io.BytesIO()
    torch.save(snapshot.optimizers, buffer)
    # The order of names is kept beside the weights, because the hash of a network follows it.
    weights = save_safetensors(snapshot.weights, metadata={"order": "\n".join(snapshot.weights)})
    return (
        _write(folder, weights_file(snapshot.index), weights),
        _write(folder, optimizer_file(snapshot.index), buffer.getvalue()),
    )


def write_replica_state(snapshot: Snapshot, replica: int, folder: Path) -> tuple[ComponentFile, ...]:
    """Write what this replica alone keeps of a component, if there is anything."""
    if not snapshot.replica_state:
        return ()
    buffer = io.BytesIO()
    torch.save(snapshot.replica_state, buffer)
    return (_write(folder, replica_file(snapshot.index, replica), buffer.getvalue()),)


def load_replica_state(index: int, replica: int, folder: Path, hashes: dict[str, str]) -> dict[str, torch.Tensor]:
    """What `write_replica_state` wrote; empty where it wrote nothing. Raises CheckpointError for a damaged file."""
    name = replica_file(index, replica)
    if name not in hashes:
        return {}
    state: dict[str, torch.Tensor] = torch.load(
        io.BytesIO(read_checked(folder, name, hashes[name])), weights_only=True, map_location="cpu"
    )
    return state


def _write(folder: Path, name: str, content: bytes) -> ComponentFile:
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{name}.partial"
    partial.write_bytes(content)
    partial.replace(folder / name)
    return ComponentFile(name, hashlib.sha256(content).hexdigest(), len(content))


def read_checked(folder: Path, file: str, sha256: str) -> bytes:
    """The bytes of a checkpoint's file. Raises CheckpointError where it is missing or was changed."""
    path = folder / file
    if not path.is_file():
        raise CheckpointError(
            "a file of this checkpoint is missing",
            file=str(path),
            mend=f"restore it, or delete the folder {folder.name} to use the checkpoint before it",
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CheckpointError(
            "this file was damaged after it was written: its SHA-256 is not the manifest's",
            file=str(path),
            mend=f"restore it, or delete the folder {folder.name} to use the checkpoint before it",
        )
    return content


def load_component(component: Component, folder: Path, hashes: dict[str, str], *, optimizer: bool = True) -> None:
    """Load the weights of a component, and its optimizer state, from a checkpoint whose manifest has these hashes."""
    name = weights_file(component.index)
    weights = load_safetensors(read_checked(folder, name, _hash(hashes, folder, name)))
    try:
        component.load_weights(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"these are not the weights of component {component.index}: {' '.join(str(error).split())}",
            file=str(folder / name),
            mend="use the model, method and data that the checkpoint was written with",
        ) from error
    if not optimizer:
        return
    name = optimizer_file(component.index)
    content = read_checked(folder, name, _hash(hashes, folder, name))
    states = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    for key, part in component.optimizers().items():
        try:
            part.load_state_dict(states[key])
        except ValueError as error:
            raise CheckpointError(
                f"this is not the optimizer state of component {component.index}: {error}",
                file=str(folder / name),
                mend="leave `optimizer.kind` and the model as they were, or start a new run",
            ) from error


def _hash(hashes: dict[str, str], folder: Path, name: str) -> str:
    if name not in hashes:
        raise CheckpointError(
            f"the checkpoint has no file {name}",
            file=str(folder / "manifest.json"),
            mend="use the model that the checkpoint was written with: this one has more components",
        )
    return hashes[name]


class CheckpointWriter:
    """Writes snapshots in the background, one checkpoint at a time.

    Replica 0 writes weights and optimizers, which are the same on all. Each replica writes what it alone keeps.
    """

    def __init__(
        self,
        checkpoints: Path,
        emit: Callable[[CheckpointPart], None],
        replication: Replication,
    ) -> None:
        """emit: is called with each part that is on disk."""
        self._checkpoints, self._emit, self._replication = checkpoints, emit, replication
        self._pending: Future[None] | None = None

    def write(self, components: list[Component], step: int, *, final: bool, standing: Standing | None = None) -> None:
        """Take snapshots now and write them in the background. Waits for the checkpoint before it.

        standing: of the run's evaluations, for the manifest; from stage 0 of replica 0.
        """
        began = time.perf_counter()
        self.finish()
        replication = self._replication
        snapshots = [take_snapshot(component, replication.state_dict(component.index)) for component in components]
        shares = replication.shares if replication.deals_shares else ()
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"checkpoint-{step}")
        self._pending = executor.submit(self._write, snapshots, step, final, began, shares, standing)
        executor.shutdown(wait=False)  # the thread ends with what it writes

    def _write(
        self,
        snapshots: list[Snapshot],
        step: int,
        final: bool,
        began: float,
        shares: tuple[int, ...],
        standing: Standing | None,
    ) -> None:
        folder = self._checkpoints / step_folder(step)
        files: list[ComponentFile] = []
        for snapshot in snapshots:
            if self._replication.replica == 0:
                files += write_snapshot(snapshot, folder)
            files += write_replica_state(snapshot, self._replication.replica, folder)
        parameters: tuple[tuple[int, str], ...] = ()
        # Between two means, replicas that average weights differ.
        if self._replication.count > 1 and not self._replication.averages_weights:
            parameters = tuple((snapshot.index, snapshot.parameters_sha256()) for snapshot in snapshots)
        duration_s = time.perf_counter() - began
        self._emit(CheckpointPart(step, tuple(files), duration_s, final, parameters, shares, standing))

    def finish(self) -> None:
        """Wait until everything is written. Raises CheckpointError where the disk refused it."""
        if self._pending is None:
            return
        try:
            self._pending.result()
        except OSError as error:
            raise CheckpointError(
                f"a checkpoint could not be written: {error}",
                file=str(self._checkpoints),
                mend="make room on the disk or choose another --run-dir, then resume",
            ) from error
        self._pending = None
