"""A component written to files and read back is the same component; anything else is refused with the reason."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch.utils._pytree import tree_leaves

from alray.core.errors import CheckpointError, RunError
from alray.core.run_folder.store import step_folder
from alray.models.component import Component
from alray.runtime.stage.checkpoint import (
    CheckpointFiles,
    load_component,
    optimizer_file,
    take_snapshot,
    weights_file,
    write_snapshot,
)
from alray.runtime.stage.cuts import CheckpointWriter
from alray.runtime.stage.replication import Replication
from alray.runtime.stage.telemetry import CheckpointPart
from alray.runtime.stage.weights_hash import weights_sha256

from ...mini_batches import forward_step

OPTIMIZERS = [
    "optimizer={kind: adam, lr: 0.01}",
    "optimizer={kind: adamw, lr: 0.01}",
    "optimizer={kind: sgd, lr: 0.01}",
    "optimizer={kind: sgd, lr: 0.01, momentum: 0.9, nesterov: true}",
]
CHANNELS_LAST = """\
import torch
from torch import nn


class Last(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.conv = nn.Conv2d(input[0], 3, 3).to(memory_format=torch.channels_last)

    def forward(self, s, mask=None):
        return self.conv(s)
"""

SUMMING = """
from tests.runtime.stage.test_checkpoint import Summing
"""


def train(component: Component, *steps: int) -> None:
    for step in steps:
        numbers = torch.Generator().manual_seed(step)
        s, labels = torch.randn(8, 2, 8, 8, generator=numbers), torch.randint(0, 4, (8,), generator=numbers)
        forward_step(component, {"s": s, "labels": labels}, step)
        component.backward_step()
        component.update_step(0.01)


def write(component: Component, folder: Path) -> CheckpointFiles:
    parts = write_snapshot(take_snapshot(component), folder)
    return CheckpointFiles(folder, {part.file: part.sha256 for part in parts})


def same(left: Component, right: Component) -> bool:
    mine, theirs = left.weights(), right.weights()
    return list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


def complaint(component: Component, files: CheckpointFiles) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_component(component, files)
    return str(caught.value)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_component_goes_on_from_its_files_as_if_nothing_had_been(make_network, tmp_path, optimizer):
    network = make_network(optimizer)
    whole, before, after = (network.component(0, "cpu") for _ in range(3))
    train(whole, 1, 2, 3, 4, 5, 6)
    train(before, 1, 2, 3)
    files = write(before, tmp_path)
    assert not same(before, after)
    load_component(after, files)
    assert same(before, after)
    train(after, 4, 5, 6)
    assert same(whole, after)


def test_without_the_optimizer_only_weights_are_read(make_network, tmp_path):
    network = make_network()
    before, after = network.component(0, "cpu"), network.component(0, "cpu")
    train(before, 1)
    files = write(before, tmp_path)
    (tmp_path / optimizer_file(0)).unlink()
    load_component(after, files, optimizer=False)
    assert same(before, after)


def test_a_snapshot_is_left_alone_by_later_updates(make_network):
    component = make_network().component(0, "cpu")
    train(component, 1)
    snapshot = take_snapshot(component)
    kept = copy.deepcopy(snapshot)
    train(component, 2)
    assert all(torch.equal(snapshot.weights[name], kept.weights[name]) for name in kept.weights)
    for name, state in kept.optimizers.items():
        for place, values in state["state"].items():
            for key, value in values.items():
                assert torch.equal(snapshot.optimizers[name]["state"][place][key], value)


class Sums(NamedTuple):
    of: list[torch.Tensor]
    last: torch.Tensor


class Summing(torch.optim.SGD):
    """It adds to the same tensors in every update: in its groups, and in the state of a parameter."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            sums = group.setdefault("sums", (torch.zeros(2), Sums([torch.zeros(2)], torch.zeros(2))))
            state = self.state[group["params"][0]].setdefault("sums", (torch.zeros(2), {torch.zeros(2)}))
            for each in tree_leaves((sums, state[0], [*state[1]])):
                each.add_(1)


def test_a_snapshot_has_the_tensors_in_tuples_and_sets_as_they_were(make_network):
    network = make_network("optimizer={kind: 'python:own_blocks.Summing', lr: 0.1}", code=SUMMING)
    component = network.component(0, "cpu")
    train(component, 1)
    snapshot = take_snapshot(component)
    train(component, 2)
    kept = next(state for state in snapshot.optimizers.values() if state)
    assert isinstance(kept["param_groups"][0]["sums"][1], Sums)
    state = kept["state"][0]["sums"]
    sums = tree_leaves((kept["param_groups"][0]["sums"], state[0], [*state[1]]))
    assert len(sums) == 5 and all(torch.equal(each, torch.ones(2)) for each in sums)
    with pytest.raises(RunError, match=r"keeps what no resume could read: .*Sums"):
        write_snapshot(snapshot, Path("unwritten"))


def test_files_are_whole_or_not_there(make_network, tmp_path):
    component = make_network().component(1, "cpu")
    parts = write_snapshot(take_snapshot(component), tmp_path / "step")
    assert sorted(path.name for path in (tmp_path / "step").iterdir()) == [
        "component-01.optimizer.pt",
        "component-01.safetensors",
    ]
    assert {part.file: part.bytes for part in parts} == {
        path.name: path.stat().st_size for path in (tmp_path / "step").iterdir()
    }
    weights = load_file(tmp_path / "step" / weights_file(1))
    assert weights.keys() == component.weights().keys()


def test_the_hash_of_a_checkpoint_is_that_of_its_components(make_network, tmp_path):
    network = make_network()
    components = [network.component(index, "cpu") for index in range(2)]
    for component in components:
        write(component, tmp_path / "a")
        write(component, tmp_path / "b")
    assert weights_sha256(tmp_path / "a", 2) == weights_sha256(tmp_path / "b", 2)
    with torch.no_grad():
        next(components[1].h.parameters())[0, 0] += 1.0
    write(components[1], tmp_path / "b")
    assert weights_sha256(tmp_path / "a", 2) != weights_sha256(tmp_path / "b", 2)


def test_weights_in_other_strides_can_be_written_and_read(make_network, tmp_path):
    network = make_network("model.components=[{block: 'python:own_blocks.Last'}]", code=CHANNELS_LAST)
    before, after = network.component(0, "cpu"), network.component(0, "cpu")
    assert not before.weights()["f.conv.weight"].is_contiguous()
    train(before, 1)
    load_component(after, write(before, tmp_path))
    assert (
        same(before, after) and after.weights()["f.conv.weight"].stride() == before.weights()["f.conv.weight"].stride()
    )


@pytest.mark.parametrize("name", [weights_file(0), optimizer_file(0)])
def test_a_flipped_byte_is_found_in_either_file(make_network, tmp_path, name):
    component = make_network().component(0, "cpu")
    folder = tmp_path / step_folder(420)
    files = write(component, folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    told = complaint(component, files)
    assert told.startswith(f"{folder / name}: ") and "SHA-256" in told and "step-00000420" in told


@pytest.mark.parametrize("name", [weights_file(0), optimizer_file(0)])
def test_a_missing_file_is_named(make_network, tmp_path, name):
    component = make_network().component(0, "cpu")
    folder = tmp_path / step_folder(7)
    files = write(component, folder)
    (folder / name).unlink()
    told = complaint(component, files)
    assert told.startswith(f"{folder / name}: ") and "missing" in told and "step-00000007" in told


def test_a_model_with_more_components_than_the_checkpoint(make_network, tmp_path):
    network = make_network()
    files = write(network.component(0, "cpu"), tmp_path)
    told = complaint(network.component(1, "cpu"), files)
    assert told.startswith(f"{tmp_path / 'manifest.json'}: ") and "component-01.safetensors" in told


def test_the_weights_of_another_model(make_network, tmp_path):
    files = write(make_network().component(0, "cpu"), tmp_path)
    other = make_network("model.components=[{block: vgg, channels: [5]}]").component(0, "cpu")
    message = complaint(other, files)
    assert message.startswith(f"{tmp_path / weights_file(0)}: these are not the weights of component 0: ")
    assert "size mismatch" in message and "\n" not in message
    twin = make_network("method={kind: backpropagation}").component(0, "cpu")
    assert "Unexpected key(s)" in complaint(twin, files)


def test_the_state_of_another_optimizer(make_network, tmp_path):
    component = make_network(OPTIMIZERS[0]).component(0, "cpu")
    train(component, 1)
    files = write(component, tmp_path)
    told = complaint(make_network(OPTIMIZERS[2]).component(0, "cpu"), files)
    assert told.startswith(f"{tmp_path / optimizer_file(0)}: ")
    assert "component 0: " in told and "adam" in told and "sgd" in told and "`optimizer`" in told


def test_the_writer_takes_the_snapshot_at_once_and_writes_in_the_background(make_network, tmp_path):
    network = make_network()
    component, as_it_was = network.component(0, "cpu"), network.component(0, "cpu")
    parts: list[CheckpointPart] = []
    threads: list[str] = []

    def report(part: CheckpointPart) -> None:
        threads.append(threading.current_thread().name)
        parts.append(part)

    writer = CheckpointWriter(tmp_path, report, Replication())
    writer.write([component], 3, {}, final=False)
    train(component, 1)
    writer.write([component], 4, {}, final=True)
    writer.finish()
    assert [(part.step, part.final) for part in parts] == [(3, False), (4, True)]
    assert not any(name == threading.main_thread().name for name in threads)
    again = network.component(0, "cpu")
    load_component(
        again, CheckpointFiles(tmp_path / step_folder(3), {part.file: part.sha256 for part in parts[0].files})
    )
    assert same(again, as_it_was) and not same(again, component)


def test_a_checkpoint_that_cannot_be_written_is_told(make_network, tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    parts: list[CheckpointPart] = []
    writer = CheckpointWriter(tmp_path / "checkpoints", parts.append, Replication())
    writer.write([make_network().component(0, "cpu")], 3, {}, final=False)
    with pytest.raises(RunError, match=r"a checkpoint could not be written: .*; make the folder writable"):
        writer.finish()
    assert parts == []


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_any_other_fault_of_the_writer_comes_up_too(make_network, tmp_path):
    """A thread that swallowed it would leave a run without checkpoints, and nobody told."""
    component = make_network().component(0, "cpu")
    component.f.register_buffer("spectrum", torch.zeros(1, dtype=torch.complex32))
    writer = CheckpointWriter(tmp_path, lambda part: None, Replication())
    writer.write([component], 3, {}, final=False)
    with pytest.raises(Exception, match="complex32"):
        writer.finish()
