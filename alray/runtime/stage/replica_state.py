"""The state of a component that belongs to one replica: a checkpoint has it next to the files that all share.

    all replicas            the state of its gradients' compression, or of its outer optimizer
    all but the first       buffers, and gradients that wait for their update
    that average weights    its weights where the checkpoint has the mean; all but the first also their optimizers

The names of the files show how many replicas there were.
"""

from __future__ import annotations

import io
from typing import Any

import torch

from alray.core.run_folder.store import ComponentFile
from alray.core.storage.location import Location
from alray.models.component import Component
from alray.runtime.stage.checkpoint import CheckpointFiles, Snapshot, load_optimizers, write_file
from alray.runtime.stage.replication import Replication

ReplicaState = dict[str, Any]
"""By name: dictionaries of tensors on the CPU, and `kept`, whose state `compression` is. Empty if the replica has no
state besides that of all replicas."""


def take_replica_state(own: Snapshot, replication: Replication, *, apart: bool) -> ReplicaState:
    """
    Args:
        own: the component as this replica has it.
        apart: whether the checkpoint has the mean of the weights instead.
    """
    state: ReplicaState = {}
    if lasting := replication.state_dict(own.index):
        state |= {"compression": lasting, "kept": replication.kept}
    if apart:
        state["weights"] = own.weights
    if replication.replica > 0:
        state["buffers"] = {
            name: own.trained.get(name, value) for name, value in own.weights.items() if name not in own.parameters
        }
        if replication.averages_weights:
            state["optimizers"] = own.optimizers
        else:
            state["waiting"] = {
                name: optimizer["accumulation"]
                for name, optimizer in own.optimizers.items()
                if "accumulation" in optimizer
            }
    return {name: tensors for name, tensors in state.items() if tensors}


def write_replica_state(
    index: int, state: ReplicaState, replication: Replication, folder: Location
) -> tuple[ComponentFile, ...]:
    """Write what this replica alone keeps of component `index`, if there is anything."""
    if not state:
        return ()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return (write_file(folder, _file(index, replication.replica, replication.count), buffer.getvalue()),)


def load_replica_state(component: Component, replication: Replication, files: CheckpointFiles) -> None:
    """Give a component, loaded from the files that all replicas share, what this replica alone keeps of it.

    In a checkpoint of another number of replicas there is no state of this replica. Compressions and outer optimizers
    begin anew, and replicas that average weights begin with the mean. Gradients that wait for their update are parts of
    one sum: the first replica takes all of them. A compression, or an outer optimizer, also begins anew where the
    checkpoint has the state of another kind, or of other settings. Raises CheckpointError for a damaged file.
    """
    index = component.index
    replica = replication.replica
    count = replication.count
    written = sorted(file for file in files.hashes if file.startswith(_prefix(index)))
    if any(file.endswith(_ending(count)) for file in written):
        own = _file(index, replica, count)
        if own in files.hashes:
            _take(component, replication, files.state(own), files.folder / own)
        return
    if replication.averages_weights:
        replication.load_state_dict(index, {})
        return
    for name, optimizer in component.optimizers().items():
        if replica > 0:
            optimizer.accumulation.clear_sums()
            continue
        for file in written:
            waiting = files.state(file).get("waiting", {})
            if name in waiting:
                optimizer.accumulation.add(waiting[name]["gradients"])


def _take(component: Component, replication: Replication, state: ReplicaState, file: Location) -> None:
    if "compression" in state and tuple(state["kept"]) == replication.kept:
        replication.load_state_dict(component.index, state["compression"])
    if replication.averages_weights and "weights" in state:
        component.load_weights(state["weights"])
    if replication.averages_weights and "optimizers" in state:
        load_optimizers(component, state["optimizers"], file)
    held = component.weights()
    for name, value in state.get("buffers", {}).items():
        held[name].copy_(value)
    for name, waiting in state.get("waiting", {}).items():
        component.optimizers()[name].accumulation.load_state_dict(waiting)


def _prefix(index: int) -> str:
    return f"component-{index:02d}.replica-"


def _ending(count: int) -> str:
    return f"-of-{count}.pt"


def _file(index: int, replica: int, count: int) -> str:
    return f"{_prefix(index)}{replica}{_ending(count)}"
