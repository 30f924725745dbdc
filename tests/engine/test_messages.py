"""Compressed messages: the same bits on every partition and engine, and after a resume."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn

from alray.api.reproduction import Reproduction, reproduce_run
from alray.config.loading.load import load_spec
from alray.core.errors import SpecError
from alray.core.run_folder.records import read_summary
from alray.inference.export import Format, export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.inference.plain_network import plain_network
from alray.inference.route_costs import whole_batch
from alray.models.route import route_of
from alray.orchestrate import Finished, Options
from alray.runtime.runner.resume import Resumed

from .conftest import Asked, Watching, Workshop
from .process_graph import in_processes
from .test_same_bits import same

SPEC = """
name: messages
seed: 3
data: {source: synthetic, shape: [2, 6, 6], classes: 4, samples: 80, batch_size: 16, validation_fraction: 0.2}
model:
  components:
    - {block: vgg, channels: [4]}
    - {block: vgg, channels: [5], pool: true}
    - {block: vgg, channels: [6]}
    - {block: mlp, widths: [9]}
method: {kind: decoupled_greedy}
pipeline:
  costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]
  micro_batch_norm: accept
run: {steps: 6, evaluate_every: 3 steps, checkpoint: {every: 2 steps, keep: 50}}
"""
COMPRESSIONS = {
    "bf16": "{compression: bf16}",
    "int8": "{compression: {kind: int8, scale: channel}}",
    "int4": "{compression: {kind: int4, scale: token, rounding: random}}",
    "int3": "{compression: int3}",
    "top_k": "{compression: {kind: top_k, fraction: 0.2}}",
    "int3_5": "{compression: int3_5}",
}
GRAPHS: tuple[tuple[Format, str], ...] = (("safetensors", ".safetensors"), ("torch_export", ".pt2"), ("onnx", ".onnx"))
ROUNDED_ON_TWO = ("pipeline.messages={compression: int4, where: stages}", "pipeline.stages=2")
COST = "{forward_s: %s, backward_s: 1e-3, update_s: 1e-3}"
SLOW_LAST = f"pipeline.costs=[{', '.join(COST % seconds for seconds in ('1e-3', '1e-3', '1e-3', '9e-3'))}]"
BACKPROPAGATION = ("method={kind: backpropagation}", "pipeline.micro_batches=4")


@pytest.fixture
def messages(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


def require_same_network(run_dir: Path, run: Finished) -> None:
    """The network of a run compresses as its evaluation did."""
    trained = TrainedNetwork(run_dir, allow_code=False)
    scores = trained.evaluate(["train", "validation", "test"])
    assert [each.test for each in scores] == [each.test for each in run.summary.scores_per_depth]
    batch = whole_batch(trained.workload.data)
    with torch.no_grad():
        for depth, found in zip(trained.depths, trained.scores(batch, 0), strict=True):
            assert torch.equal(plain_network(trained, depth)(batch.samples), found)


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_local_losses_end_in_the_same_bits(messages: Workshop, kind: str) -> None:
    compressed = f"pipeline.messages={COMPRESSIONS[kind]}"
    alone = messages.run(compressed, name="alone")
    assert alone.summary.weights_sha256 != messages.run(name="plain").summary.weights_sha256
    require_same_network(messages.folder / "alone", alone)
    two = messages.run(compressed, "pipeline.partition=[2, 2]", "run.steps=3", name="two")
    resumed = messages.resume("run.steps=6", "pipeline.partition=[1, 2, 1]", "pipeline.stages=3", name="two")
    same(resumed, alone)
    assert two.summary.weights_sha256 != alone.summary.weights_sha256


def test_a_partition_that_was_found_stays_where_its_ends_round(messages: Workshop) -> None:
    """Measured anew, the components have other costs: the last one's forward is then the longest."""
    keys, slow_last = ROUNDED_ON_TWO, SLOW_LAST
    whole = messages.run(*keys, name="whole")
    messages.run(*keys, "run.steps=3")
    same(messages.resume(slow_last, "run.steps=6"), whole)
    written, environment = (messages.folder / "run" / name for name in ("spec.yaml", "environment.json"))
    assert load_spec(written).spec.pipeline.partition == "auto"
    assert "partition" not in json.loads(environment.read_text())["given"]["pipeline"]
    other = messages.run(*keys, slow_last, name="other")
    assert other.summary.partition != whole.summary.partition
    anew = messages.resume("pipeline.partition=auto", "run.steps=8", allow_change=True)
    assert anew.summary.partition == other.summary.partition


def reproduced(messages: Workshop, *overrides: str) -> tuple[Reproduction, list[str]]:
    """The run done again, and what was told of it."""
    watching, options = Watching(), Options(run_dir=messages.folder / "again", pages=False)
    _, found = reproduce_run(messages.folder / "run", list(overrides), options, watching, Asked(), inline=True)
    assert found is not None
    return found, watching.notes


def test_a_reproduction_keeps_the_partition_of_the_last_beginning(messages: Workshop) -> None:
    """A run without a checkpoint begins anew when it is resumed, so its partition may be another one."""
    began = messages.run(*ROUNDED_ON_TWO, "run.steps=3")
    shutil.rmtree(messages.folder / "run/checkpoints")
    anew = messages.resume(SLOW_LAST, "run.steps=6")
    assert anew.summary.partition != began.summary.partition
    shutil.rmtree(messages.folder / "run/checkpoints")
    found, notes = reproduced(messages, SLOW_LAST.replace("9e-3", "1e-3"))
    assert found.same and not [note for note in notes if "rounded" in note]


def test_a_reproduction_begins_as_the_run_began_before_a_node_was_lost(messages: Workshop) -> None:
    began = messages.run(ROUNDED_ON_TWO[0], "pipeline.stages=3")
    for file in (messages.folder / "run/checkpoints").rglob("manifest.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "partition": [2, 2]}))
    assert list(Resumed.again(messages.folder / "run", []).begun or ()) == began.summary.partition


def test_a_reproduction_begins_as_the_run_began_and_says_that_it_went_on_otherwise(messages: Workshop) -> None:
    began = messages.run(*ROUNDED_ON_TWO, "run.steps=3")
    went_on = messages.resume(SLOW_LAST, "pipeline.partition=auto", "run.steps=6", allow_change=True)
    assert went_on.summary.partition != began.summary.partition
    found, notes = reproduced(messages)
    assert read_summary(Path(found.run_dir)).partition == began.summary.partition and not found.same
    (told,) = (note for note in notes if "had the partition" in note)
    assert f"{went_on.summary.partition} after 3 mini-batches" in told and "rounded" in told


@pytest.mark.few
@pytest.mark.parametrize("kind", list(reversed(COMPRESSIONS)))
def test_pipelines_end_in_the_same_bits(messages: Workshop, kind: str) -> None:
    compressed = f"pipeline.messages={COMPRESSIONS[kind]}"
    alone = messages.run(compressed, *BACKPROPAGATION, "pipeline.schedule=1f1b", "pipeline.stages=1", name="alone")
    two = messages.run(compressed, *BACKPROPAGATION, "pipeline.partition=[2, 2]", name="two")
    same(two, alone)
    require_same_network(messages.folder / "alone", alone)
    messages.run(compressed, *BACKPROPAGATION, "pipeline.partition=[1, 1, 2]", "run.steps=3", name="three")
    same(messages.resume("run.steps=6", name="three"), alone)


def test_edges_carry_the_packed_bytes(messages: Workshop, server: str) -> None:
    """Between processes: over shared memory, and over gloo as between nodes. What would be sent without is recorded."""
    compressed = "pipeline.messages={compression: int4}"
    alone, cut, watching = messages.run(compressed, name="alone"), "pipeline.partition=[2, 2]", Watching()
    with in_processes(server):
        two = messages.run(compressed, cut, inline=False, name="two", watching=watching)
        plain = messages.run(cut, inline=False, name="plain").summary
    same(two, alone)
    assert plain.uncompressed_bytes is None and two.summary.uncompressed_bytes == plain.bytes_sent
    assert two.summary.bytes_sent["0->1"] < plain.bytes_sent["0->1"] / 2  # headers and labels are not compressed
    (edge,) = watching.plans[0].edges
    labels, values = 16 * 8, 16 * 5 * 3 * 3
    assert edge.uncompressed_bytes_per_step == values * 4 + labels
    assert edge.bytes_per_step == 16 * (4 + 1 + 23) + labels  # 45 values of half a byte, a scale and a zero point
    with in_processes(server, ["one", "other"]):
        same(messages.run(compressed, cut, inline=False, name="nodes"), alone)


def test_between_stages_alone_bits_are_those_of_the_partition(messages: Workshop) -> None:
    compressed, cut = "pipeline.messages={compression: int4, where: stages}", "pipeline.partition=[2, 2]"
    same(messages.run(compressed, name="alone"), messages.run(name="plain"))
    two = messages.run(compressed, cut, name="two")
    assert two.summary.weights_sha256 != messages.run(compressed, "pipeline.partition=[1, 3]").summary.weights_sha256
    messages.run(compressed, cut, "run.steps=3", name="resumed")
    with pytest.raises(SpecError, match=r"pipeline\.partition"):
        messages.resume("pipeline.partition=[1, 3]", name="resumed")
    same(messages.resume("run.steps=6", name="resumed"), two)
    require_same_network(messages.folder / "two", two)


@pytest.mark.full
@pytest.mark.parametrize("kind", list(reversed(COMPRESSIONS)))
@pytest.mark.parametrize("where", ["components", "stages"])
def test_an_exported_network_compresses_as_its_evaluation_did(messages: Workshop, kind: str, where: str) -> None:
    """In each format; where stages alone compressed in training, it does not."""
    compressed = f"pipeline.messages={COMPRESSIONS[kind][:-1]}, where: {where}}}"
    messages.run(compressed, "pipeline.partition=[2, 2]", "run.steps=2", name="run")
    trained = TrainedNetwork(messages.folder / "run", allow_code=False)
    samples = whole_batch(trained.workload.data).samples
    with torch.no_grad():
        wanted = trained.route(4)(samples)
        without = route_of([trained.components[index] for index in range(4)], 4)
        without.boundaries = nn.ModuleList()
        assert torch.equal(without(samples), wanted) == (where == "stages")
    near = partial(torch.testing.assert_close, expected=wanted, rtol=0, atol=1e-4)
    files = {each: Path(export_route(trained, 4, each, messages.folder / f"{each}{end}").file) for each, end in GRAPHS}
    with torch.no_grad():
        near(ExportedRoute(files["safetensors"], allow_code=False).route(samples))
        near(torch.export.load(files["torch_export"]).module()(samples))
    session = onnxruntime.InferenceSession(files["onnx"], providers=["CPUExecutionProvider"])
    near(torch.from_numpy(session.run(None, {"samples": samples.numpy()})[0]))


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("pipeline.messages.compression", ["pipeline.messages.compression=powersgd"]),
        ("replicas.compression", ["replicas={count: 2, compression: int8}"]),
        ("pipeline.messages.gradients", ["pipeline.messages={compression: int8, gradients: bf16}"]),
        (
            "replicas.engine",
            ["pipeline.messages.compression=int8", "method={kind: backpropagation}", "replicas.engine=ray_train"],
        ),
    ],
)
def test_what_cannot_be_compressed_is_refused(messages: Workshop, key: str, overrides: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        load_spec(messages.spec, overrides)
    assert [problem.key for problem in refused.value.problems] == [key]
